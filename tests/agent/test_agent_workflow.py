"""Agent workflows in virtual time: steps, results, approvals, refusals as data."""

from typing import Any

import pytest

from outlast import activity, lookup
from outlast.agent import ModelAnswer, ScriptedModel, ToolCall, agent_workflow
from outlast.testing import App

OPENED: list[str] = []


@activity(key="ticket/{title}", no_undo="a ticket stays")
async def open_ticket(title: str, urgent: bool = False) -> dict[str, str]:
    """Open a ticket."""
    OPENED.append(title)
    return {"id": f"T-{len(OPENED)}"}


@lookup
async def read_log(lines: int) -> str:
    """Read the last lines of the log."""
    return "x" * lines


@pytest.fixture(autouse=True)
def _clean() -> None:
    OPENED.clear()


def calls(*given: tuple[str, Any]) -> ModelAnswer:
    return ModelAnswer(calls=tuple(ToolCall(id=f"c{n}", tool=t, arguments=a) for n, (t, a) in enumerate(given)))


def run(model: ScriptedModel, **options: Any) -> Any:
    flow = agent_workflow("agent", model=model, tools=[open_ticket, read_log], **options)
    app = App((flow,))
    return app, app.start(flow, {"objective": "fix it"})


def test_a_model_works_with_tools_until_it_answers() -> None:
    model = ScriptedModel([calls(("read_log", {"lines": 3}), ("open_ticket", {"title": "disk"})), "done"])
    app, r = run(model)
    try:
        assert (r.outcome, OPENED) == ("done", ["disk"])
        assert [m.role for m in r.state.messages] == ["user", "assistant", "tool", "tool", "assistant"]
        assert [m.text for m in r.state.messages if m.role == "tool"] == ["xxx", '{"id":"T-1"}']
    finally:
        app.close()

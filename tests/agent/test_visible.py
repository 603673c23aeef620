"""The status of an agent's run at each moment, the same in lists and in details."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import outlast
from outlast import DidNotHappen, RetryLater, activity, lookup, role, this_call
from outlast.agent import ModelAnswer, ModelRequest, ScriptedModel, ToolCall, agent_workflow
from outlast.cli.steps_page import step_line
from outlast.flow import Perhaps
from outlast.testing.virtual_runtime import App, AppFactory
from tests.docs.pages import ROOT, blocks

TASK = {"objective": "Open a follow-up ticket for incident INC-42"}


class Watch:
    """Statuses of the only run of an app, as functions of the author see them while they run."""

    def __init__(self) -> None:
        self.app: App | None = None
        self.seen: dict[str, str] = {}

    async def look(self, moment: str) -> None:
        """Keep the status that lists and details show at this moment."""
        assert self.app is not None
        operations = self.app.runtime.operations
        (listed,) = (await operations.runs()).runs
        shown = (await operations.run(listed.run)).shown
        assert (await operations.run_summary(listed.run)).shown == listed.shown == shown
        self.seen[moment] = shown


WATCH = Watch()


@pytest.fixture(autouse=True)
def watch() -> Iterator[Watch]:
    """Return the watch of a test."""
    WATCH.__init__()  # type: ignore[misc]
    yield WATCH
    WATCH.app = None


@activity(key="visible-ticket/{title}", no_undo="a ticket stays")
async def open_ticket(title: str) -> str:
    """Open a ticket."""
    first = this_call().attempt == 1
    await WATCH.look("first attempt" if first else "again")
    if first:
        raise RetryLater("the tracker is busy", after=timedelta(seconds=40))
    return "T-1"


@activity(key="visible-mail/{to}", no_undo="a mail cannot be unsent", if_uncertain="reconcile")
async def send_mail(to: str) -> str:
    """Send a mail."""
    await WATCH.look(f"mail {this_call().attempt}")
    if this_call().attempt == 1:
        raise Perhaps("the connection broke")
    return "sent"


@send_mail.reconcile
async def find_mail(to: str) -> DidNotHappen:
    await WATCH.look("reconcile")
    return DidNotHappen()


@lookup
async def read_log(lines: int) -> str:
    """Read the log."""
    return "x"


@activity(key="visible-restart/{service}", no_undo="it was down")
async def restart(service: str) -> str:
    """Restart a service."""
    return "restarted"


def model(*calls: tuple[str, dict[str, Any]]) -> ScriptedModel:
    """Return a model that makes each call in a separate step, and then answers."""
    answers = [ModelAnswer(calls=(ToolCall(id="c", tool=tool, arguments=given),)) for tool, given in calls]

    class Watched(ScriptedModel):
        async def request(self, request: ModelRequest) -> ModelAnswer:
            await WATCH.look(f"model {request.answers + 1}")
            return await super().request(request)

    return Watched([*answers, "done"])


def begin(app_of: AppFactory, *calls: tuple[str, dict[str, Any]], **options: Any) -> Any:
    flow = agent_workflow("visible", model=model(*calls), tools=[open_ticket, send_mail], **options)
    WATCH.app = app_of(flow)
    return WATCH.app.start(flow, TASK)


@pytest.mark.req("RUN-2", "OBS-4")
@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_planning_a_tool_an_approval_and_the_end_are_told_apart(outlast_app: AppFactory, store: Any) -> None:
    run = begin(
        lambda flow: outlast_app(flow, store=store), ("open_ticket", {"title": "disk"}),
        approve={"open_ticket": role("lead")},
    )  # fmt: skip
    assert run.now.shown == "WAITING_FOR_APPROVAL"
    app = WATCH.app
    assert app is not None
    app.do(WATCH.look("approval"))
    run.approve()
    assert run.waiting_for == ["retry attempt 2 of 3 of open_ticket"] and run.now.shown == "WAITING_FOR_TOOL"
    app.do(WATCH.look("retry"))
    app.clock.advance("1m")
    assert (run.now.shown, run.now.objective) == ("COMPLETED", TASK["objective"])
    assert WATCH.seen == {
        "model 1": "PLANNING", "approval": "WAITING_FOR_APPROVAL", "first attempt": "WAITING_FOR_TOOL",
        "retry": "WAITING_FOR_TOOL", "again": "WAITING_FOR_TOOL", "model 2": "PLANNING",
    }  # fmt: skip


@pytest.mark.req("RUN-2", "OBS-4")
def test_a_call_that_may_have_happened_is_waited_for_then_recovered(outlast_app: AppFactory) -> None:
    run = begin(outlast_app, ("send_mail", {"to": "ana"}))
    assert run.now.shown == "WAITING_FOR_TOOL" and run.waiting_for[0].startswith("settle ")
    assert WATCH.app is not None
    WATCH.app.clock.advance("10m")
    assert run.now.shown == "COMPLETED"
    assert WATCH.seen["reconcile"] == "RECOVERING"
    assert (WATCH.seen["mail 1"], WATCH.seen["mail 2"]) == ("WAITING_FOR_TOOL", "WAITING_FOR_TOOL")


@pytest.mark.req("RUN-2", "OBS-4")
def test_a_failed_and_a_cancelled_run_show_their_end(outlast_app: AppFactory) -> None:
    run = begin(outlast_app, ("unheard_of", {}), max_steps=1)
    assert (run.now.shown, run.attention) == ("REQUIRES_ATTENTION", ["visits_exhausted"])
    run.answer("visits_exhausted", "fail")
    assert run.now.shown == "FAILED"


@pytest.mark.req("RUN-2", "OBS-4")
def test_a_cancelled_run_shows_it(outlast_app: AppFactory) -> None:
    run = begin(outlast_app, ("open_ticket", {"title": "disk"}), approve={"open_ticket": role("lead")})
    run.cancel("the incident is over")
    assert run.now.shown == "CANCELLED"


@pytest.mark.req("RUN-2", "OBS-4")
def test_a_run_without_a_worker_is_queued(tmp_path: Path) -> None:
    flow = agent_workflow("visible", model=ScriptedModel(["done"]))

    async def go() -> None:
        async with outlast.connect(f"sqlite:{tmp_path / 'q.db'}", workflows=(flow,)) as client:
            run = await client.start(flow, TASK)
            listed = (await client.runs(q="inc-42")).runs
            assert [each.shown for each in listed] == [(await run.detail()).shown] == ["QUEUED"]

    asyncio.run(go())


@pytest.mark.req("OBS-4", "GATE-8")
def test_the_steps_on_the_page_are_real(outlast_app: AppFactory) -> None:
    calls = (("read_log", {"lines": 9}), ("restart", {"service": "shop"}))
    made = tuple(ToolCall(id=f"c{n}", tool=tool, arguments=given) for n, (tool, given) in enumerate(calls))
    script = ScriptedModel([ModelAnswer(calls=made, model="gpt-5", input_tokens=800, output_tokens=12), "done"])
    flow = agent_workflow("page", model=script, tools=[read_log, restart], approve={"restart": role("lead")})
    app = outlast_app(flow)
    run = app.start(flow, TASK)
    run.approve("it is down anyway", by="ana")
    steps = app.do(app.runtime.operations.steps(run.id)).steps
    real = [f"{step.kind} {step.status} {step.visit} {step_line(step)}" for step in steps]
    (shown,) = [block.body for block in blocks(ROOT / "docs/agents.md") if "model_decision" in block.body]
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert set(lines[1:]) <= set(real) and len(lines) == 7

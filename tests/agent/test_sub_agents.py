"""Agents that run as children: a write that two of them ask for is made once in their tree (S-18)."""

import json
from typing import Any

import pytest

from outlast import Context, workflow
from outlast.agent import AgentTask, ScriptedModel, agent_workflow
from outlast.core.keys import tree_key
from outlast.core.rows.effect_rows import USED
from outlast.testing.virtual_runtime import App
from tests.agent.agents import DONE, TOOLS, asks

pytestmark = pytest.mark.req("GATE-7", "EFF-1")
TICKET = asks(("open_ticket", {"title": "a"}))
OTHER = asks(("open_ticket", {"title": "a", "urgent": True}))


def outcomes(app: App, run: Any) -> list[str]:
    memos = [row for row in app.rows(run).memos if row.activity == "outlast.admission"]
    return [json.loads(row.response or b"")["code"] for row in memos]


@pytest.mark.parametrize("second", [TICKET, OTHER], ids=["same", "other"])
def test_two_sub_agents_make_a_write_once(second: Any) -> None:
    """The second one is told that it is done, or that the key was used for another call. The first does not undo it."""
    first = agent_workflow("first", model=ScriptedModel([TICKET, "done"]), tools=TOOLS)
    other = agent_workflow("other", model=ScriptedModel([second, "done"]), tools=TOOLS)
    runs: list[str] = []

    @workflow
    async def leads(ctx: Context) -> list[str]:
        said = []
        for each in (first, other):
            child = await ctx.start(each, AgentTask(objective="help"), key=each.name, no_undo="a ticket stays")
            runs.append(child.run_id)
            said.append(str(await child.result()))
        return said

    DONE.clear()
    app = App((leads, first, other))
    try:
        run = app.start(leads, {})
        assert run.outcome == ["done", "done"] and DONE == [("ticket", "a", False)]
        (row,) = app.rows(runs[0]).shared
        assert (row.key, row.by_run) == (tree_key(run.id, "ticket/a"), runs[0])
        same = second is TICKET
        assert [each.shared == USED for each in app.rows(runs[-1]).shared] == ([True] if same else [])
        assert outcomes(app, runs[-1]) == ["" if same else "conflict"]
    finally:
        app.close()


def test_an_agent_that_no_run_started_keeps_its_writes_to_its_run() -> None:
    flow = agent_workflow("alone", model=ScriptedModel([TICKET, "done"]), tools=TOOLS)
    DONE.clear()
    app = App((flow,))
    try:
        run = app.start(flow, {"objective": "help"})
        assert [(row.visit, row.key) for row in app.rows(run.id).effects] == [(0, "ticket/a")]
    finally:
        app.close()

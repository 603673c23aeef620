"""Nodes that only decide: a workflow whose decision can reach a write does not load, and a write is refused."""

import json
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from outlast import Context, Refused, Workflow, activity, lookup
from outlast.core.events import EventType
from outlast.errors import DefinitionError, Misplaced
from outlast.flow.activity import Activity
from outlast.flow.registry import find_activity
from outlast.flow.topology import topology_of
from outlast.testing import AppFactory, node

CALLED: list[str] = []


class Lead(BaseModel):
    company: str
    said: str = ""


@lookup(key="site/{company}")
async def read_site(company: str) -> str:
    return f"{company} sells bolts"


@activity(name="hidden.mail", key="mail/{company}", once_per="run", no_undo="a mail cannot be unsent")
async def mail(company: str) -> str:
    CALLED.append(company)
    return "sent"


async def tell(ctx: Context[Any]) -> None:
    await ctx.do(mail, ctx.state.company)


def named(name: str) -> Activity[..., Any]:
    """Return an activity by a name that no check can read from the code."""
    found: Activity[..., Any] = find_activity(name)
    return found


def hidden() -> Workflow[Lead]:
    """Return a workflow whose decision makes a write that loading does not find."""
    flow = Workflow("hidden", state=Lead)

    @flow.node(start=True, plane="decision")
    async def decide(ctx: Context[Lead]) -> Literal["act"]:
        ctx.state.said = await ctx.do(read_site, ctx.state.company)
        if ctx.state.company != "calm":
            await ctx.do(named("hidden.mail"), ctx.state.company)
        return "act"

    @flow.node(plane="execution")
    async def act(ctx: Context[Lead]) -> None:
        await tell(ctx)

    return flow


@pytest.fixture(autouse=True)
def forget() -> None:
    CALLED.clear()


@pytest.mark.req("APP-3", "GATE-6")
def test_a_workflow_whose_decision_can_reach_a_write_does_not_load() -> None:
    flow = Workflow("leads", state=Lead)

    @flow.node(start=True, plane="decision")
    async def draft(ctx: Context[Lead]) -> None:
        await ctx.do(read_site, ctx.state.company)
        if ctx.state.said:
            await tell(ctx)

    with pytest.raises(DefinitionError) as raised:
        flow.validate()
    error = raised.value
    assert 'node "draft" of workflow "leads"' in error.what
    assert 'has plane="decision" and can reach the write hidden.mail (tests/engine/test_planes.py' in error.what
    assert "tell (tests/engine/test_planes.py" in error.why, "the helper function that mentions it is named"
    assert error.fix == 'put the decision into the state, and call hidden.mail in a node with plane="execution"'


def test_a_plane_is_one_of_two() -> None:
    flow = Workflow("leads", state=Lead)
    with pytest.raises(DefinitionError, match="has plane='thinking'"):

        @flow.node(start=True, plane="thinking")  # type: ignore[arg-type]
        async def draft(ctx: Context[Lead]) -> None: ...


@pytest.mark.req("APP-3", "GATE-6")
def test_a_write_that_a_decision_makes_anyway_is_refused_without_an_effect(outlast_app: AppFactory) -> None:
    flow = hidden()
    app = outlast_app(flow)
    run = app.start(flow, {"company": "bolts"})
    assert run.attention == ["exception"] and not CALLED
    rows = app.rows(run.id)
    assert not rows.effects, "no intent was written"
    assert "hidden.mail mail/bolts was refused" in rows.run.attention[0].detail
    assert "is in the decision plane" in rows.run.attention[0].detail
    (denied,) = [json.loads(e.body)["data"] for e in app.events(run.id) if e.type == EventType.DENIED]
    assert (denied["activity"], denied["effect_key"], denied["rule"]) == ("hidden.mail", "mail/bolts", "decision-plane")


def test_the_author_may_catch_the_refusal_and_the_denial_stays_in_the_history(outlast_app: AppFactory) -> None:
    flow = Workflow("catches", state=Lead)

    @flow.node(start=True, plane="decision")
    async def decide(ctx: Context[Lead]) -> None:
        try:
            await ctx.do(named("hidden.mail").plan(ctx.state.company))
        except Misplaced as refused:
            ctx.state.said = refused.what

    app = outlast_app(flow)
    run = app.start(flow, {"company": "bolts"})
    assert run.status == "completed" and run.outcome["said"] == "hidden.mail mail/bolts was refused" and not CALLED
    assert [e.type for e in app.events(run.id)].count(EventType.DENIED) == 1


def test_lookups_and_writes_of_the_other_plane_are_made(outlast_app: AppFactory) -> None:
    flow = hidden()
    run = outlast_app(flow).start(flow, {"company": "calm"})
    assert run.status == "completed" and CALLED == ["calm"]


def test_a_unit_test_of_one_node_is_refused_too() -> None:
    flow = hidden()
    with pytest.raises(Misplaced, match="is in the decision plane"):
        node(flow.nodes["decide"].fn, Lead(company="bolts"), answers={"read_site": "x", "mail": "y"}, workflow=flow)


def test_the_topology_names_the_planes() -> None:
    nodes = topology_of(hidden())["nodes"]
    assert {name: each["plane"] for name, each in nodes.items()} == {"decide": "decision", "act": "execution"}


async def test_only_a_workflow_with_decisions_asks_for_permission() -> None:
    """A workflow without policy and planes makes its writes without a question, as before."""
    flow = Workflow("plain", state=Lead)
    assert not flow.asks_permission and hidden().asks_permission
    assert Workflow("ruled", state=Lead, policy=lambda asked: Refused).asks_permission  # type: ignore[arg-type, return-value]

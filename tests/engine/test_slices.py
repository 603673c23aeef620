"""Slices: a guest's engine decides who executes a run and when, and no effect repeats."""

import pytest

from outlast.flow import Context, Workflow
from tests.engine.world import MINUTE, SECOND, Go, Receiver, State, World, one_node, write
from tests.guests import FakeEngine

Ctx = Context[State]


def chain(erp: Receiver, n: int = 3) -> Workflow[State]:
    """Return a workflow of `n` nodes, each with one effect; the last one waits for a signal first."""
    act = write(erp)
    flow = Workflow("chain", state=State)

    @flow.node(start=True, max_visits=n)
    async def step(ctx: Ctx) -> "str | None":
        ctx.state.n += 1
        ctx.state.said.append(await ctx.do(act, f"{ctx.state.n}"))
        return "step" if ctx.state.n < n else "last"

    @flow.node
    async def last(ctx: Ctx) -> None:
        await ctx.receive("go", Go)
        ctx.state.said.append(await ctx.do(act, "last"))

    return flow


@pytest.mark.req("RT-4")
@pytest.mark.every_store
async def test_a_guest_executes_a_run_in_slices(world: World) -> None:
    erp, engine = Receiver(), FakeEngine(world.time)

    async def body(ctx: Ctx) -> None:
        await ctx.do(act, "a")
        await ctx.receive("go", Go)
        await ctx.do(act, "b")

    act = write(erp)
    flow = one_node(body)
    world.worker(flow, guest=engine.guest())
    await world.start(flow.scheduled_by("temporal"))
    await world.pass_(SECOND)
    assert engine.thens() == ["waits"]
    end = engine.ends[-1][2]
    assert (end.status, [(g.kind, g.id) for g in end.gates]) == ("waiting", [("signal", "go")])
    await world.signal("go")
    await world.pass_(SECOND)
    assert (world.status(), engine.thens(), len(erp.did)) == ("completed", ["waits", "ended"], 2)
    await world.pass_(MINUTE)
    assert engine.wakes == ["r1", "r1"]

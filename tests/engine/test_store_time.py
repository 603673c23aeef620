"""Every instant that a holder writes is the store's time when the commit is made (S-4)."""

import asyncio
from types import SimpleNamespace
from typing import Literal

import pytest

from outlast.clocks import SystemClock
from outlast.core.commit import Instant
from outlast.core.durations import Liveness
from outlast.engine.run_session import RunSession
from outlast.flow import Context, Workflow
from outlast.upkeep.fsck import violations
from outlast.upkeep.whole_store import _clock
from tests.engine.world import SECOND, Receiver, State, World, write

Ctx = Context[State]


class Takes(Receiver):
    """A receiver that answers after some virtual time."""

    def __init__(self, world: World, ms: int) -> None:
        super().__init__()
        self._clock, self._ms = world.time, ms

    async def call(self) -> str:
        await self._clock.sleep(self._ms)
        return await super().call()


def three_nodes(world: World, shop: Receiver) -> Workflow[State]:
    """The second and the third node make a slow call each; the third notes by how much its time is behind."""
    order = write(shop)
    flow = Workflow("three", state=State)

    @flow.node(start=True)
    async def first(ctx: Ctx) -> Literal["second"]:
        return "second"

    @flow.node
    async def second(ctx: Ctx) -> Literal["third"]:
        await ctx.do(order, "a")
        return "third"

    @flow.node
    async def third(ctx: Ctx) -> None:
        ctx.state.n = world.time.wall() - int(ctx.now().timestamp() * SECOND)
        await ctx.do(order, "b")

    return flow.validate()


@pytest.mark.every_store
@pytest.mark.req("EFF-1", "OUT-1")
async def test_a_slow_call_in_an_entered_node_moves_every_later_instant(world: World) -> None:
    """The node that calls gets the time of its calls: in its events, in `ctx.now()`, and at the end of the run."""
    flow = three_nodes(world, Takes(world, 6 * SECOND))
    world.worker(flow)
    await world.start(flow)
    begun = world.run().created_at
    await world.pass_(13 * SECOND)
    run, events = world.run(), world.events()
    assert world.status() == "completed"
    assert world.outcome()["n"] == 0
    assert [e.at - begun for e in events if e.type.endswith("checkpoint")] == [0, 6 * SECOND]
    assert (run.entered_at - begun, run.ended_at - begun) == (6 * SECOND, 12 * SECOND)
    assert [e.settled_at - begun for e in world.effects()] == [6 * SECOND, 12 * SECOND]
    (rows,) = await world.store.run_rows([("t", "r1")])
    assert rows is not None and violations(rows, events) == []


@pytest.mark.req("EFF-1")
async def test_a_call_longer_than_the_start_budget_is_followed_by_one_that_is_sent_at_once(world: World) -> None:
    """The second intent is stamped with the present moment, so its last moment to send has not passed."""
    shop = Takes(world, 6 * SECOND)
    flow = three_nodes(world, shop)
    world.worker(flow, live=Liveness(start_budget=SECOND))
    await world.start(flow)
    await world.pass_(13 * SECOND)
    assert world.status() == "completed"
    assert shop.numbers == [1, 1]
    assert [(e.attempts, e.interrupted) for e in world.effects()] == [(1, 0), (1, 0)]


@pytest.mark.req("EFF-1")
async def test_a_late_answer_does_not_set_the_time_back(world: World) -> None:
    """The estimate goes on from the greatest difference of clocks, and never passes the store's time."""
    flow = three_nodes(world, Receiver())
    process = world.worker(flow, live=Liveness(heartbeat_every=SECOND))
    await world.start(flow)
    await world.off_duty()
    (rows,) = await world.store.run_rows([("t", "r1")])
    assert rows is not None
    ledger = RunSession(process.wire, rows, process.clock)
    heard = rows.now
    await world.pass_(5 * SECOND)
    assert ledger.clock.now == heard._replace(real=heard.real + 5 * SECOND, business=heard.business + 5 * SECOND)
    ledger.clock.hear(heard)  # of a commit that landed five seconds ago
    assert ledger.clock.now.real == world.time.wall()
    ledger.clock.hear(rows.now._replace(real=world.time.wall() + 40))  # the first answer was read 40 ms late
    assert ledger.clock.now.real == world.time.wall() + 40


def test_a_slow_answer_of_the_store_is_no_skew() -> None:
    """`doctor` compares the store's time with what this machine showed before and after the question."""

    async def slow_now() -> Instant:
        await asyncio.sleep(0.1)
        return Instant(SystemClock().wall(), 0, 0)

    ops = SimpleNamespace(store=SimpleNamespace(now=slow_now))
    assert asyncio.run(_clock(ops, {})).found == "0s from the store's"  # type: ignore[arg-type]

"""A store whose processes have separate clocks: the engine acts later, and no more often (S-4, REC-6)."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from outlast.core.machine import LeaseStatus
from outlast.core.rows.effect_columns import DEADLINE
from outlast.flow import Context, resend
from outlast.store.memory import MemoryStore
from tests.engine.world import MINUTE, QUIET, SECOND, Go, Receiver, Slow, State, World, one_node, ordering, write

SKEW = 4 * SECOND
WINDOW = 15 * SECOND
Ctx = Context[State]


@pytest.fixture(autouse=True)
def skew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryStore, "skew", SKEW)


@pytest.mark.req("REC-1", "REC-6")
async def test_a_worker_counts_as_dead_when_its_lease_has_ended_by_every_clock(world: World) -> None:
    flow = ordering(write(Receiver(Slow()), if_uncertain=resend(remembered_for=timedelta(days=1))), "a")
    dead = world.worker(flow)
    await world.settle()
    await world.start(flow)
    world.worker(flow)
    await world.settle()
    dead.kill()
    end = world.worker_row(dead.name).lease_until
    await world.pass_(end + SKEW - 1 - world.time.wall())
    assert world.worker_row(dead.name).status is LeaseStatus.ALIVE and world.run().owner == dead.name
    await world.pass_(SECOND)
    assert world.worker_row(dead.name).status is LeaseStatus.CLOSED
    assert world.status() == "completed"


@pytest.mark.req("EFF-3", "REC-6")
async def test_the_settle_time_is_widened_when_it_is_written(world: World) -> None:
    shop = Receiver(Slow())
    flow = ordering(write(shop, mode="reconcile"), "a")
    world.worker(flow)
    await world.start(flow)
    (effect,) = world.effects()
    assert effect.settle_after - effect.first_at == QUIET - SECOND + SKEW


@pytest.mark.req("RUN-4", "REC-6")
async def test_a_wait_ends_when_its_deadline_has_passed_for_every_sender(world: World) -> None:
    """It is executed twice, at its start and at its end: a worker does not try again and again in between."""
    executed: list[int] = []

    async def body(ctx: Ctx) -> None:
        executed.append(world.time.wall())
        got = await ctx.receive("go", Go, timeout=timedelta(minutes=10))
        ctx.state.said = [got.word if got else "nobody"]

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(10 * MINUTE + SKEW - 1)
    assert world.status() == "waiting" and len(executed) == 1
    await world.pass_(1)
    assert world.outcome()["said"] == ["nobody"] and len(executed) == 2


@pytest.mark.req("RUN-4")
async def test_a_message_within_the_skew_after_a_deadline_is_too_late(world: World) -> None:
    """Its stamp decides, not the moment at which the wait ends."""

    async def body(ctx: Ctx) -> None:
        got = await ctx.receive("go", Go, timeout=timedelta(minutes=10))
        ctx.state.said = [got.word if got else DEADLINE]

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(10 * MINUTE + 1)
    await world.signal("go", word="late")
    assert world.status() == "waiting"
    await world.pass_(SKEW)
    assert world.outcome()["said"] == [DEADLINE]


async def test_a_sleep_ends_on_time(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        await ctx.sleep(timedelta(minutes=10))

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(10 * MINUTE)
    assert world.status() == "completed"


@pytest.mark.req("REC-2", "REC-6")
async def test_a_run_is_taken_from_a_live_worker_when_its_budget_is_over_by_every_clock(world: World) -> None:
    stuck = asyncio.Event()

    async def body(ctx: Ctx) -> Any:
        await asyncio.shield(stuck.wait())

    flow = one_node(body)
    holder = world.worker(flow)
    await world.start(flow)
    other = world.worker(flow)
    holder.wire.away += ["r1 "] * 1_000  # it cannot release the run
    end = world.run().due_at
    assert end is not None
    await world.pass_(end + SKEW - 1 - world.time.wall())
    assert world.run().owner == holder.name
    await world.pass_(10 * SECOND)
    assert world.run().owner in (other.name, "")
    assert world.worker_row(holder.name).status is LeaseStatus.ALIVE
    stuck.set()

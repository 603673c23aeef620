"""Recovery: who may claim a run, and which failures are counted (S-2, S-4)."""

from datetime import timedelta
from typing import Any

import pytest

from outlast.core.commit import Commit, Put
from outlast.core.machine import LeaseStatus
from outlast.core.rows.store_rows import WORKER
from outlast.engine.lease import closed
from outlast.flow import Workflow, resend
from outlast.telemetry import RECOVERY_LOCK_ACQUISITION_FAILURES
from tests.engine.process import Process
from tests.engine.world import HOUR, MINUTE, SECOND, Go, Receiver, Slow, State, World, one_node, ordering, write

WINDOW = 15 * SECOND


def waits() -> Workflow[State]:
    async def body(ctx: Any) -> None:
        await ctx.receive("go", Go)

    return one_node(body)


def failures(process: Process) -> int:
    return process.worker.counters[RECOVERY_LOCK_ACQUISITION_FAILURES]


@pytest.mark.req("REC-6")
@pytest.mark.parametrize("wrong", [-2 * HOUR, -30 * SECOND, 30 * SECOND, 2 * HOUR])
@pytest.mark.parametrize("holder_is_wrong", [True, False])
async def test_a_clock_that_is_wrong_takes_nothing_and_loses_nothing(
    world: World, wrong: int, holder_is_wrong: bool
) -> None:
    """A replica with a skewed wall clock holds its run as others do, and takes none from those who live."""
    slow = Slow()
    shop = Receiver(slow)
    flow = ordering(write(shop, mode="reconcile"), "a")
    holder = world.worker(flow)
    if holder_is_wrong:
        holder.clock.wall_off = wrong
    await world.settle()
    await world.start(flow)
    other = world.worker(flow)
    if not holder_is_wrong:
        other.clock.wall_off = wrong
    await world.pass_(4 * WINDOW)
    assert (world.run().owner, world.run().epoch) == (holder.name, 1)
    assert world.worker_row(holder.name).status is LeaseStatus.ALIVE
    slow.go.set()
    await world.settle()
    assert world.status() == "completed" and len(shop.did) == len(shop.attempts) == 1


@pytest.mark.req("REC-6")
@pytest.mark.parametrize("jump", [-2 * HOUR, 2 * HOUR])
async def test_a_clock_that_jumps_is_noticed_before_the_next_call(world: World, jump: int) -> None:
    """The wall clock jumps between intent and call: it is intended again, and made once."""
    shop = Receiver()
    flow = ordering(write(shop, mode="reconcile"), "a")
    process = world.worker(flow)
    process.wire.after("intend", lambda: setattr(process.clock, "wall_off", jump))
    await world.start(flow)
    await world.pass_(MINUTE)
    assert world.status() == "completed" and len(shop.did) == 1
    assert world.effects()[0].attempts == 2, "the first intent was given up unsent"


@pytest.mark.req("REC-6")
@pytest.mark.parametrize("wrong", [-2 * HOUR, 2 * HOUR])
async def test_a_dead_worker_is_replaced_in_time_despite_a_wrong_clock(world: World, wrong: int) -> None:
    flow = ordering(write(Receiver(Slow()), if_uncertain=resend(remembered_for=timedelta(days=1))), "a")
    first = world.worker(flow)
    await world.settle()
    await world.start(flow)
    second = world.worker(flow)
    second.clock.wall_off = wrong
    await world.settle()
    first.kill()
    await world.pass_(WINDOW - 6 * SECOND)
    assert world.run().owner == first.name, "its lease is not over"
    await world.pass_(6 * SECOND)
    assert world.status() == "completed", "the other has taken it and ended it"


@pytest.mark.req("REC-7")
async def test_a_recovery_that_another_worker_won_is_counted(world: World) -> None:
    """Two see the same expired lease; who comes second has failed to get it, and says so."""
    flow = waits()
    dead, loser = world.worker(flow), world.worker(flow)
    await world.settle()
    loser.wire.before(
        f"close worker {dead.name}", lambda: world._now(world.store.commit(closed(world.worker_row(dead.name))))
    )
    dead.kill()
    await world.pass_(MINUTE)
    assert world.worker_row(dead.name).status is LeaseStatus.CLOSED
    assert failures(loser) == 1
    assert loser.worker.counters.all() == {"recovery_lock_acquisition_failures": 1}, "under the name of the alarm"


@pytest.mark.req("REC-7", "REC-3")
async def test_a_recovery_that_the_store_failed_is_counted_and_repeated(world: World) -> None:
    """The dead worker's row is closed, and the claim of its runs is refused: counted, and claimed at the next look."""
    flow = ordering(write(Receiver(Slow()), if_uncertain=resend(remembered_for=timedelta(days=1))), "a")
    dead = world.worker(flow)
    await world.settle()
    await world.start(flow)
    successor = world.worker(flow)
    await world.settle()
    successor.wire.lose_takes = True
    dead.kill()
    await world.pass_(MINUTE)
    assert failures(successor) == 1
    assert world.status() == "completed"


@pytest.mark.req("REC-7")
async def test_a_recovery_that_goes_well_counts_nothing(world: World) -> None:
    flow = waits()
    dead, successor = world.worker(flow), world.worker(flow)
    await world.settle()
    dead.kill()
    await world.pass_(MINUTE)
    assert world.worker_row(dead.name).status is LeaseStatus.CLOSED and failures(successor) == 0


@pytest.mark.req("REC-3")
async def test_a_worker_that_missed_an_answer_closes_its_row_at_once(world: World) -> None:
    """A renewal landed and its answer was lost, so the next is refused: others need not wait for the lease to end."""
    process = world.worker(waits())
    await world.settle()
    row = world.worker_row(process.name)
    await world.store.commit(Commit((Put(WORKER, row._replace(version=row.version + 1), row.version),)))
    await world.pass_(6 * SECOND)
    assert process.task.done() and process.worker.replaced
    assert world.worker_row(process.name).status is LeaseStatus.CLOSED

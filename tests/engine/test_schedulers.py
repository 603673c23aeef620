"""Runs of other schedulers: this package's workers neither take, adopt nor execute them."""

import pytest

from outlast.core.commit import Commit, Put
from outlast.core.durations import Liveness
from outlast.core.events import EventType
from outlast.core.rows.store_rows import WORKER
from outlast.core.verbs import claim
from outlast.engine import commands
from outlast.engine.lease import opened
from outlast.errors import InvalidInput
from outlast.flow import Workflow
from tests.engine.world import MINUTE, Receiver, State, World, ordering, write

GUEST = "temporal"


async def guest_dies(world: World, flow: Workflow[State], run: str = "r1") -> None:
    """Let a guest's worker claim the run and never renew its lease."""
    now = await world.store.now()
    lanes = flow.scheduled_by(GUEST).lane
    row = opened("guest-1", name="", lanes=lanes, now_real=now.real, now_business=now.business, live=Liveness())
    await world.store.commit(Commit((Put(WORKER, row, 0),)))
    taken = claim(world.run(run), worker="guest-1", now=now, claim_ms=10 * MINUTE)
    assert taken is not None
    await world.store.commit(taken)


@pytest.mark.req("RT-4")
@pytest.mark.every_store
async def test_our_worker_leaves_runs_of_a_guest(world: World) -> None:
    """Both runs are due, of the same version; each is executed only by a worker of its scheduler."""
    erp = Receiver()
    flow = ordering(write(erp), "a")
    await world.start(flow.scheduled_by(GUEST), "guest")
    await world.start(flow, "own")
    world.worker(flow)
    await world.pass_(MINUTE)
    assert (world.status("own"), world.status("guest"), erp.did) == ("completed", "queued", ["t:own:1:order/a"])
    assert (world.run("guest").lane, world.run("guest").scheduler) == (f"{GUEST}:flow@1", GUEST)


@pytest.mark.req("RT-4")
async def test_our_worker_does_not_adopt_versions_of_a_guest(world: World) -> None:
    """It serves version 2 with a migration, and no worker at all serves version 1."""
    erp = Receiver()
    old = ordering(write(erp), "a", name="flow")
    new = ordering(write(erp), "a", name="flow", version=2)
    new.migrate(from_=1)(lambda state: state)
    await world.start(old.scheduled_by(GUEST), "guest")
    await world.start(old, "own")
    world.worker(new)
    await world.pass_(5 * MINUTE)
    assert (world.status("own"), world.run("own").lane) == ("completed", "flow@2")
    assert (world.status("guest"), world.run("guest").lane, len(erp.did)) == ("queued", f"{GUEST}:flow@1", 1)


@pytest.mark.req("RT-4")
@pytest.mark.every_store
async def test_runs_of_a_guests_dead_worker_are_queued_not_executed(world: World) -> None:
    """Our worker closes the row of the dead one. The run is due for its own scheduler, and the death counts."""
    erp = Receiver()
    flow = ordering(write(erp), "a")
    await world.start(flow.scheduled_by(GUEST))
    await guest_dies(world, flow)
    world.worker(flow)
    await world.pass_(MINUTE)
    run = world.run()
    assert (run.owner, run.status.value, run.crash_count, erp.did) == ("", "recovering", 1, [])
    assert run.due_at is not None and run.due_at <= (await world.store.now()).real
    assert world.events()[-1].type == EventType.REQUEUED


async def test_an_unknown_scheduler_is_refused(world: World) -> None:
    with pytest.raises(InvalidInput, match="no scheduler temporla"):
        await commands.start(
            world.store, ordering(write(Receiver()), "a"), {}, tenant="t", actor="me", run="r", scheduler="temporla"
        )

"""Admission: a slot is a row that names its run, handed on in the commit that frees it (S-6, RUN-6)."""

from typing import Any

import pytest

from outlast import workflow as plain_workflow
from outlast.core.acts import act_of
from outlast.core.machine import LeaseStatus
from outlast.core.rows.limit_rows import SLOT, Slot
from outlast.core.rows.store_rows import STORE
from outlast.engine.admission import set_slots
from outlast.errors import Conflict, Stale, Unavailable
from outlast.flow import Context, Fail
from tests.engine.world import MINUTE, SECOND, Go, Receiver, State, World, one_node, ordering, write
from tests.mutants import remove
from tests.removals import Patch

Ctx = Context[State]


async def holds(ctx: Ctx) -> None:
    """Workflow that keeps its slot until a signal."""
    await ctx.receive("end", Go)


def holders(world: World, tenant: str = "t") -> list[str]:
    return [slot.holder for slot in world.slots(tenant)]


@pytest.mark.req("RUN-6")
@pytest.mark.parametrize("tenant", ["t", STORE])
async def test_runs_beyond_the_limit_start_in_their_order_as_slots_free(world: World, tenant: str) -> None:
    """First come, first served; a waiting run keeps its slot; an ended one gives it back exactly once."""
    world.add_slots(tenant, 2)
    flow = one_node(holds)
    world.worker(flow)
    world.worker(flow)
    for i in range(5):
        await world.start(flow, f"r{i}")
        await world.pass_(10)
    assert [world.status(f"r{i}") for i in range(5)] == ["waiting"] * 2 + ["queued"] * 3
    assert holders(world, tenant) == ["r0", "r1"]
    order = []
    for i in range(5):
        await world.signal("end", f"r{i}")
        order.append([r for r in (f"r{j}" for j in range(5)) if world.status(r) == "waiting"])
    assert order == [["r1", "r2"], ["r2", "r3"], ["r3", "r4"], ["r4"], []]
    assert holders(world, tenant) == ["", ""]
    assert all(world.run(f"r{i}").slots == () for i in range(5))


@pytest.mark.req("RUN-6")
async def test_both_limits_hold_at_once(world: World) -> None:
    """A run needs a slot of its tenant and one of the store's."""
    world.add_slots("t", 2)
    world.add_slots(STORE, 1)
    flow = one_node(holds)
    world.worker(flow)
    for i in range(3):
        await world.start(flow, f"r{i}")
        await world.pass_(10)
    assert [world.status(f"r{i}") for i in range(3)] == ["waiting", "queued", "queued"]
    for i in range(3):
        await world.signal("end", f"r{i}")
        await world.pass_(6 * SECOND)
    assert [world.status(f"r{i}") for i in range(3)] == ["completed"] * 3
    assert holders(world) == ["", ""] and holders(world, STORE) == [""]


@pytest.mark.req("RUN-6")
async def test_a_slot_freed_between_reading_and_queueing_is_not_missed(world: World) -> None:
    """Queueing names the slot rows as read, so it is refused and reads them again."""
    world.add_slots("t", 1)
    flow = one_node(holds)
    first, second = world.worker(flow), None
    await world.start(flow, "r0")
    first.wire.before("r1 queue", lambda: world.signal_now("end", "r0"))
    gate = first.wire.hold("r1 queue")
    await world.start(flow, "r1")
    gate.set()
    await world.settle()
    assert world.status("r0") == "completed"
    assert world.status("r1") == "waiting"
    assert holders(world) == ["r1"]
    assert second is None


@pytest.mark.req("RUN-6")
async def test_a_new_run_does_not_pass_a_queued_one(world: World) -> None:
    """The commit that frees a slot writes the oldest queued run into it, even if that run is busy."""
    world.add_slots("t", 1)
    flow = one_node(holds)
    process = world.worker(flow)
    for i in range(2):
        await world.start(flow, f"r{i}")
        await world.pass_(10)
    gate = process.wire.hold("take")  # r1 is being taken when r2 comes
    await world.signal("end", "r0")
    await world.start(flow, "r2")
    gate.set()
    await world.settle()
    assert [world.status(f"r{i}") for i in range(3)] == ["completed", "waiting", "queued"]
    assert holders(world) == ["r1"]


@pytest.mark.req("RUN-6", "EFF-8")
async def test_a_queued_run_that_is_cancelled_passes_its_slot_on(world: World) -> None:
    """Also one that has just been handed the slot: the next one gets it in the commit that ends it."""
    world.add_slots("t", 1)
    flow = one_node(holds)
    process = world.worker(flow)
    for i in range(3):
        await world.start(flow, f"r{i}")
        await world.pass_(10)
    await world.cancel("r1")
    assert world.status("r1") == "cancelled"
    process.wire.after("complete", lambda: world.cancel_now("r2"))  # right after it was handed the slot
    await world.signal("end", "r0")
    assert world.status("r2") == "cancelled"
    assert holders(world) == [""]
    await world.start(flow, "r3")
    assert world.status("r3") == "waiting"


@pytest.mark.req("RUN-6")
@pytest.mark.parametrize("how", ["fails", "cancel"])
async def test_every_end_frees_the_slot(world: World, how: str) -> None:
    """Completed, failed or cancelled."""
    world.add_slots("t", 1)

    async def body(ctx: Ctx) -> None:
        await ctx.receive("end", Go)
        raise Fail("as planned")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await (world.signal("end") if how == "fails" else world.cancel())
    assert world.status() == {"fails": "failed", "cancel": "cancelled"}[how]
    assert holders(world) == [""]


@pytest.mark.req("RUN-6", "REC-1")
async def test_a_slot_survives_the_death_of_the_worker(world: World) -> None:
    """It names the run, not the process."""
    world.add_slots("t", 1)
    shop = Receiver()
    flow = ordering(write(shop), "a")
    first = world.worker(flow)
    first.wire.before("intend", first.kill)
    await world.start(flow)
    assert holders(world) == ["r1"]
    world.worker(flow)
    await world.pass_(MINUTE)
    assert world.status() == "completed"
    assert holders(world) == [""]


@pytest.mark.req("RUN-6")
@pytest.mark.parametrize("tenant", ["t", STORE])
async def test_a_free_slot_with_a_run_asleep_is_repaired_at_the_next_renewal(world: World, tenant: str) -> None:
    """A limit that was raised by hand: slots found free go to queued runs, of every tenant's limit."""
    world.add_slots(tenant, 1)
    flow = one_node(holds)
    world.worker(flow)
    for i in range(2):
        await world.start(flow, f"r{i}")
        await world.pass_(10)
    assert world.status("r1") == "queued"
    world.core.rows.put(SLOT, (tenant, 1), Slot(tenant, 1, 1, "", ""))
    await world.pass_(6 * SECOND)
    assert world.status("r1") == "waiting"


@pytest.mark.req("RUN-6")
async def test_a_queued_run_of_an_unserved_lane_does_not_block_others(world: World) -> None:
    """S-3: a queued run of another lane sleeps; those of this lane start."""
    world.add_slots("t", 1)
    ours, theirs = one_node(holds, name="ours"), one_node(holds, name="theirs")
    world.worker(ours)
    await world.start(theirs, "r0")
    await world.start(ours, "r1")
    assert world.status("r1") == "waiting"
    assert world.status("r0") == "queued"


@pytest.mark.req("RUN-6")
async def test_a_slot_is_not_handed_to_a_run_of_an_unserved_lane(world: World) -> None:
    """The oldest queued run is of a lane without a worker: the next one gets the slot; once a worker comes, it does."""
    world.add_slots("t", 1)
    ours, theirs = one_node(holds, name="ours"), one_node(holds, name="theirs")
    both = world.worker(ours, theirs)
    await world.start(ours, "r0")
    for flow, run in ((theirs, "r1"), (ours, "r2")):
        await world.pass_(10)
        await world.start(flow, run)
    both.worker.drain()
    await world.settle()
    world.worker(ours)
    await world.settle()
    await world.signal("end", "r0")
    await world.pass_(6 * SECOND)
    assert [world.status(r) for r in ("r0", "r1", "r2")] == ["completed", "queued", "waiting"]
    world.worker(theirs)
    await world.signal("end", "r2")
    await world.pass_(6 * SECOND)
    assert world.status("r1") == "waiting"


@pytest.mark.req("RUN-6")
async def test_a_new_run_leaves_a_free_slot_to_an_older_queued_run(world: World) -> None:
    """The end that freed the slot had read the queue before the older run fell asleep: no newcomer passes it (S-6)."""
    world.add_slots("t", 1)
    flow = one_node(holds)
    world.worker(flow)
    for i in range(2):
        await world.start(flow, f"r{i}")
        await world.pass_(10)
    world.core.rows.put(SLOT, ("t", 1), Slot("t", 1, 9, "", ""))  # freed, and no run was woken
    await world.start(flow, "r2")
    await world.pass_(10)
    assert [world.status(f"r{i}") for i in (1, 2)] == ["waiting", "queued"]


# --- slots that are given back while a run waits ---------------------------------------------------------------
def giving() -> Any:
    return one_node(holds, name="giving", slot_while_waiting=False)


@pytest.mark.req("RUN-6")
@pytest.mark.parametrize("tenant", ["t", STORE])
async def test_a_workflow_may_give_its_slots_back_while_it_waits(world: World, tenant: str) -> None:
    """Five runs wait for people at once under a limit of one; each takes a slot to end, and gives it back."""
    world.add_slots(tenant, 1)
    flow = giving()
    world.worker(flow)
    for i in range(5):
        await world.start(flow, f"r{i}")
        await world.pass_(10)
    assert [(world.status(f"r{i}"), world.run(f"r{i}").slots) for i in range(5)] == [("waiting", ())] * 5
    assert holders(world, tenant) == [""]
    for i in range(5):
        await world.signal("end", f"r{i}")
    assert {world.status(f"r{i}") for i in range(5)} == {"completed"}
    assert holders(world, tenant) == [""]


@pytest.mark.req("RUN-6")
async def test_a_run_whose_wait_is_over_queues_in_its_old_place(world: World) -> None:
    """No slot is free: it sleeps for one, before every younger run."""
    world.add_slots("t", 1)
    flow, keeping = giving(), one_node(holds, name="keeping")
    world.worker(flow, keeping)
    for each, run in ((flow, "r0"), (keeping, "r1"), (keeping, "r2")):
        await world.start(each, run)
        await world.pass_(10)
    assert [world.status(r) for r in ("r0", "r1", "r2")] == ["waiting", "waiting", "queued"]
    await world.signal("end", "r0")
    assert (world.status("r0"), world.waiting("r0")) == ("queued", [("slot", "a free slot")])
    await world.signal("end", "r1")
    assert [world.status(r) for r in ("r0", "r1", "r2")] == ["completed", "completed", "waiting"]
    await world.signal("end", "r2")
    assert holders(world) == [""]


@pytest.mark.req("RUN-6", "RUN-2")
async def test_a_run_that_waits_for_an_operator_gives_it_back_too(world: World) -> None:
    """And is answered, rests and is cancelled without one."""
    world.add_slots("t", 1)

    async def breaks(ctx: Ctx) -> None:
        if (await ctx.receive("end", Go)).word:
            raise ValueError("a mistake")

    flow, keeping = one_node(breaks, name="giving", slot_while_waiting=False), one_node(holds, name="keeping")
    world.worker(flow, keeping)
    await world.start(flow, "r0")
    await world.signal("end", "r0", word="break")
    assert (world.reasons("r0"), holders(world)) == (["exception"], [""])
    await world.start(keeping, "r1")
    await world.signal("unasked", "r0")
    assert (world.status("r0"), world.reasons("r0"), holders(world)) == ("waiting", ["exception"], ["r1"])
    await world.answer("exception", "cancel", "r0")
    assert (world.status("r0"), holders(world)) == ("cancelled", ["r1"])


@pytest.mark.req("RUN-6", "REC-1")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("place", ["r0 admit", "r0 park", "r0 queue", "r0 complete"])
async def test_a_slot_is_given_back_exactly_once_after_any_crash(world: World, when: str, place: str) -> None:
    """At each commit that takes one, gives one back or falls asleep for one."""
    world.add_slots("t", 1)
    flow, keeping = giving(), one_node(holds, name="keeping")
    process = world.worker(flow, keeping)
    if "queue" not in place and "complete" not in place:
        getattr(process.wire, when)(place, process.kill)
    await world.start(flow, "r0")
    world.worker(flow, keeping)
    await world.pass_(MINUTE)
    await world.start(keeping, "r1")
    for each in world.processes:
        getattr(each.wire, when)(place, each.kill)
    await world.signal("end", "r0")
    world.worker(flow, keeping)
    await world.pass_(MINUTE)
    assert holders(world) == ["r1"]
    await world.signal("end", "r1")
    await world.pass_(MINUTE)
    assert [world.status(r) for r in ("r0", "r1")] == ["completed", "completed"]
    assert holders(world) == [""]


@pytest.mark.req("RUN-6")
async def test_paused_and_quarantined_runs_keep_their_slots_and_free_them_once(world: World) -> None:
    """A pause and attention are waits like any other; the end frees the slot."""
    world.add_slots("t", 2)

    async def kills(ctx: Ctx) -> None:
        next(p for p in reversed(world.processes) if p.name == world.run(ctx.run_id).owner).kill()
        await ctx.receive("end", Go)

    killer, keeping = one_node(kills, name="killer"), one_node(holds, name="keeping")
    await world.start(killer, "r0")
    for _ in range(6):
        world.worker(killer, keeping)
        await world.pass_(MINUTE)
    assert world.reasons("r0") == ["poisoned"]
    await world.hold("workflow/keeping")
    for i in (1, 2):
        await world.start(keeping, f"r{i}")
        await world.pass_(10)
    assert (holders(world), world.waiting("r1")[0][0], world.status("r2")) == (["r0", "r1"], "pause", "queued")
    await world.answer("poisoned", "fail", "r0")
    assert (holders(world), world.status("r0"), world.waiting("r2")[0][0]) == (["r2", "r1"], "failed", "pause")
    await world.release("workflow/keeping")
    for i in (1, 2):
        await world.signal("end", f"r{i}")
    assert holders(world) == ["", ""]


@pytest.mark.req("RUN-6")
async def test_no_slot_goes_to_a_run_whose_only_worker_is_dead(world: World) -> None:
    """The lease tells which lanes are served: the row of a dead worker reads alive until another worker closes it."""
    world.add_slots("t", 1)
    flow, other = one_node(holds), one_node(holds, name="other")
    worker, dead = world.worker(flow), world.worker(other)
    for workflow, run in ((flow, "r0"), (other, "r1"), (flow, "r2")):
        await world.start(workflow, run)
        await world.pass_(10)
    assert (holders(world), world.status("r1"), world.status("r2")) == (["r0"], "queued", "queued")
    worker.wire.rejected.append(f"close worker {dead.name}")
    dead.kill()
    await world.pass_(MINUTE)
    assert world.worker_row(dead.name).status is LeaseStatus.ALIVE, "it could not be closed"
    await world.signal("end", "r0")
    assert (holders(world), world.status("r1"), world.status("r2")) == (["r2"], "queued", "waiting")
    await world.signal("end", "r2")
    assert holders(world) == [""], "the lane of the run that is left has no worker"
    world.worker(other)
    await world.pass_(MINUTE)
    assert (holders(world), world.status("r1")) == (["r1"], "waiting")


# --- a limit is raised ---------------------------------------------------------------------------
@pytest.mark.req("RUN-6")
@pytest.mark.parametrize("other", [30, 90])
async def test_two_who_raise_a_limit_at_once_leave_the_higher_one(world: World, other: int) -> None:
    flow = one_node(holds)
    wire = world.worker(flow).wire
    wire.before("slots of t", lambda: world.add_slots("t", other))
    if other > 50:
        with pytest.raises(Conflict, match="cannot fall from 90 to 50"):
            await set_slots(wire, "t", 50)
    else:
        assert len(await set_slots(wire, "t", 50)) == 50
    assert [slot.i for slot in world.slots("t")] == list(range(max(other, 50)))


async def test_without_a_second_count_a_raise_beside_another_one_fails(world: World, monkeypatch: Patch) -> None:
    remove("raise_not_counted_again", monkeypatch)
    wire = world.worker(one_node(holds)).wire
    wire.before("slots of t", lambda: world.add_slots("t", 30))
    with pytest.raises(Stale):
        await set_slots(wire, "t", 50)
    assert len(world.slots("t")) == 30


@pytest.mark.req("RUN-4")
@pytest.mark.parametrize("guarded", [True, False])
async def test_a_repeated_raise_is_the_same_one_whatever_came_after(
    world: World, monkeypatch: Patch, guarded: bool
) -> None:
    if not guarded:
        remove("raise_without_token", monkeypatch)
    act = act_of("t", "op", "set_slots", "k-1", 50, False)
    await set_slots(world.store, "t", 50, act)
    await set_slots(world.store, "t", 60)
    if not guarded:
        with pytest.raises(Conflict, match="cannot fall from 60 to 50"):
            await set_slots(world.store, "t", 50, act)
        return
    assert len(await set_slots(world.store, "t", 50, act)) == 60


@pytest.mark.req("RUN-4")
async def test_a_raise_that_died_in_its_middle_is_finished_by_its_repetition(world: World) -> None:
    act = act_of("t", "op", "set_slots", "k-1", 100, False)
    wire = world.worker(one_node(holds)).wire
    wire.after("slots of t", lambda: wire.away.append("slots of t"))
    with pytest.raises(Unavailable):
        await set_slots(wire, "t", 100, act)
    assert 0 < len(world.slots("t")) < 100
    assert len(await set_slots(wire, "t", 100, act)) == 100


@pytest.mark.req("RUN-6", "RUN-13")
@pytest.mark.every_store
async def test_a_child_has_the_place_of_its_root_in_the_queue(world: World) -> None:
    """A run that was started before the child, and after its root, waits longer."""

    @plain_workflow
    async def queued_child(ctx: Context, name: str) -> None:
        await ctx.receive("go", Go)

    async def body(ctx: Ctx) -> None:
        await ctx.receive("go", Go)
        await ctx.run(queued_child, queued_child.arguments("k"), key="k")

    world.add_slots("t", 1)
    flow = one_node(body)
    world.worker(flow, queued_child)
    await world.start(flow, "r0")
    await world.pass_(10)
    await world.start(flow, "r1")
    await world.signal("go", "r0")
    await world.settle()
    child = world.effect("k", "r0").external_id
    assert holders(world) == [child]
    await world.signal("go", child)
    await world.settle()
    assert world.status("r0") == "completed" and holders(world) == ["r1"]

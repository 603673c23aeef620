"""Runs that crash their workers: groups are halved, and every crash is counted (S-5)."""

import asyncio
import json
from typing import Literal

import pytest

from outlast.core.durations import DEATHS_ALONE_MAX, GROUP_PATIENCE, Liveness
from outlast.core.events import EventType
from outlast.engine import commands
from outlast.flow import Context, Fail, Workflow, lookup
from tests.engine.process import Process
from tests.engine.world import MINUTE, SECOND, Go, Receiver, Slow, State, World, one_node, ordering, write

Ctx = Context[State]
POISONED = 2 + DEATHS_ALONE_MAX  # deaths of a run that never had another beside it
BUDGET = 10 * MINUTE  # of a slice, by default


async def for_ever(ctx: Ctx) -> None:
    """Never done, and never at rest."""
    await asyncio.get_running_loop().create_future()


@lookup(name="minute")
async def minute(n: int) -> int:
    await asyncio.sleep(60)
    return n


async def of_lookups(ctx: Ctx) -> None:
    """An hour of lookups in one visit."""
    for n in range(60):
        await ctx.do(minute, n)


class Killer:
    """A node that takes its process down, until it is cured; it notes what else its worker held."""

    def __init__(self, world: World, name: str = "killer") -> None:
        self.world = world
        self.cured = False
        self.beside: list[int] = []

        async def body(ctx: Ctx) -> None:
            process = next(p for p in reversed(world.processes) if p.name == world.run(ctx.run_id).owner)
            self.beside.append(process.worker.held - 1)
            if not self.cured:
                process.kill()
            await ctx.receive("go", Go)

        self.flow = one_node(body, name=name)


async def lives(world: World, killer: Killer, n: int, *more: Workflow[State]) -> Process:
    """`n` workers, one after the other, each of which meets the run."""
    for _ in range(n):
        process = world.worker(killer.flow, *more)
        await world.pass_(MINUTE)
    return process


def suspicion(world: World, run: str = "r1") -> tuple[int, int]:
    """Deaths counted at this stage, and the group."""
    return world.run(run).crash_count, world.run(run).group_max


def owned(world: World, process: Process, prefix: str, n: int) -> list[int]:
    """Which of `n` runs this worker owns."""
    return [i for i in range(n) if world.run(f"{prefix}{i}").owner == process.name]


async def busy_after(world: World, n: int, deaths: int, **options: int) -> Workflow[State]:
    """`n` runs in calls without an end, and workers that hold all of them and are killed one after the other."""
    busy = one_node(for_ever, name="busy")
    for i in range(n):
        await world.start(busy, f"b{i}")
    for _ in range(deaths):
        process = world.worker(busy, **options)
        await world.pass_(SECOND)
        process.kill()
        await world.pass_(MINUTE)
    return busy


# --- one run that kills ------------------------------------------------------------------------------
@pytest.mark.req("REC-1")
async def test_two_crashes_then_solo_three_more_then_a_person(world: World) -> None:
    """The worker that meets it after that lives on. After `continue` it stays alone: three more deaths call again."""
    killer = Killer(world)
    await world.start(killer.flow)
    process = await lives(world, killer, POISONED)
    assert (process.wire.dead, suspicion(world), world.reasons()) == (True, (DEATHS_ALONE_MAX - 1, 1), [])
    process = await lives(world, killer, 1)
    assert (process.wire.dead, suspicion(world), world.reasons()) == (False, (DEATHS_ALONE_MAX, 1), ["poisoned"])
    assert len(killer.beside) == POISONED
    await world.go_on()
    await world.pass_(MINUTE)
    assert (process.wire.dead, world.reasons(), suspicion(world)) == (True, [], (0, 1))
    process = await lives(world, killer, DEATHS_ALONE_MAX)
    assert (process.wire.dead, world.reasons(), suspicion(world)) == (False, ["poisoned"], (DEATHS_ALONE_MAX, 1))
    killer.cured = True
    await world.go_on()
    assert (world.reasons(), suspicion(world), world.waiting()) == ([], (0, 1), [("signal", "go")])


@pytest.mark.req("REC-1")
async def test_continue_is_durable_before_an_undo_that_kills_begins(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        await ctx.do(hotel, "a")
        raise Fail("enough")

    shop = Receiver()
    hotel = write(shop, name="hotel", undo=True)
    flow = one_node(body)

    await world.start(flow)
    while not world.reasons():
        process = world.worker(flow)
        process.wire.before("intend undo/hotel/a", process.kill)
        await world.pass_(MINUTE)
    assert (world.reasons(), suspicion(world)) == (["poisoned"], (DEATHS_ALONE_MAX, 1))
    await world.go_on()
    assert (process.wire.dead, world.reasons(), suspicion(world)) == (True, [], (0, 1))
    world.worker(flow)
    await world.pass_(MINUTE)
    assert (world.status(), shop.given) == ("failed", ["did hotel/a"])


@pytest.mark.req("REC-1")
async def test_one_killer_among_eighty_is_found_by_halves(world: World) -> None:
    """Each death halves the group of the runs that were held. The others end long before the killer is found."""
    killer = Killer(world)

    async def takes_a_while(ctx: Ctx) -> None:
        await asyncio.sleep(5)

    slow = one_node(takes_a_while, name="slow")
    await world.start(killer.flow, "s40")
    for i in (*range(40), *range(41, 80)):
        await world.start(slow, f"s{i}")
    ended: list[int] = []
    while not world.reasons("s40"):
        await lives(world, killer, 1, slow)
        ended.append(sum(world.status(f"s{i}") == "completed" for i in range(80)))
    assert len(killer.beside) <= 2 + 6 + DEATHS_ALONE_MAX, "log2(80), less the first halving"
    assert killer.beside[:2] == [79, 79] and killer.beside[-DEATHS_ALONE_MAX:] == [0] * DEATHS_ALONE_MAX
    assert all(later <= earlier // 2 for earlier, later in zip(killer.beside[1:], killer.beside[2:], strict=False))
    assert ended[3:6] == [60, 70, 75] and ended[-1] == 79, "each death holds up half as many as the one before"


@pytest.mark.req("REC-1")
async def test_an_advance_ends_the_quarantine(world: World) -> None:
    """Deaths are counted since the last advance, and so is the group."""
    flow = Workflow("two", state=State)

    @flow.node(start=True)
    async def one(ctx: Ctx) -> Literal["two"]:
        await ctx.receive("go", Go)
        return "two"

    @flow.node
    async def two(ctx: Ctx) -> None:
        await ctx.receive("end", Go)

    flow.validate()
    await world.start(flow)
    for _ in range(2):
        process = world.worker(flow)
        process.wire.before("park", process.kill)
        await world.pass_(MINUTE)
    world.worker(flow)
    await world.pass_(MINUTE)
    assert suspicion(world) == (0, 1)
    await world.signal("go")
    assert (world.run().node, suspicion(world)) == ("two", (0, 0))


# --- groups --------------------------------------------------------------------------------------------
@pytest.mark.req("REC-1")
@pytest.mark.every_store
async def test_after_two_deaths_of_ten_five_are_held_together(world: World) -> None:
    """The other five are due for any worker: a second one takes them at once."""
    busy = await busy_after(world, 10, 2)
    assert {suspicion(world, f"b{i}") for i in range(10)} == {(1, 0)}
    first = world.worker(busy)
    await world.pass_(20 * SECOND)
    assert {suspicion(world, f"b{i}") for i in range(10)} == {(0, 5)}
    held = owned(world, first, "b", 10)
    assert (len(held), first.worker.held) == (5, 5)
    queued = next(i for i in range(10) if i not in held)
    assert (world.status(f"b{queued}"), world.waiting(f"b{queued}")[0][0]) == ("recovering", "worker")
    assert world.events(f"b{queued}")[-1].type == EventType.REQUEUED
    second = world.worker(busy)
    await world.pass_(SECOND)
    assert len(owned(world, second, "b", 10)) == 5


@pytest.mark.req("REC-1")
async def test_only_the_group_that_dies_is_halved(world: World) -> None:
    busy = await busy_after(world, 8, 2)
    first, second = world.worker(busy), world.worker(busy)
    await world.pass_(20 * SECOND)
    died, lived = owned(world, first, "b", 8), owned(world, second, "b", 8)
    assert len(died) == len(lived) == 4
    first.kill()
    third = world.worker(busy)
    await world.pass_(20 * SECOND)
    assert {suspicion(world, f"b{i}") for i in died} == {(0, 2)}
    assert {suspicion(world, f"b{i}") for i in lived} == {(0, 4)}
    assert (third.worker.held, second.worker.held) == (2, 4)


@pytest.mark.req("REC-1")
async def test_a_run_of_no_group_joins_a_group_that_has_room(world: World) -> None:
    """Two workers hold a group of two each: a fifth run waits until one of the four ends, a sixth goes on waiting."""
    ends = asyncio.Event()

    async def until_told(ctx: Ctx) -> None:
        await (ends.wait() if ctx.run_id == "b0" else for_ever(ctx))

    busy = one_node(until_told, name="busy")
    for i in range(4):
        await world.start(busy, f"b{i}")
    for _ in range(2):
        process = world.worker(busy)
        await world.pass_(SECOND)
        process.kill()
        await world.pass_(MINUTE)
    mates = [world.worker(busy), world.worker(busy)]
    await world.pass_(MINUTE)
    for i in (4, 5):
        await world.start(busy, f"b{i}")
    await world.pass_(MINUTE)
    assert [mate.worker.held for mate in mates] == [2, 2]
    assert [world.status(f"b{i}") for i in (4, 5)] == ["queued"] * 2
    joined = world.run("b0").owner
    ends.set()
    await world.pass_(SECOND)
    assert (world.run("b4").owner, world.status("b5")) == (joined, "queued")


@pytest.mark.req("REC-1")
async def test_a_solo_run_has_no_run_beside_it(world: World) -> None:
    """No worker owns it until one has let its other runs go; nothing else is taken until it is done."""
    killer, slow = Killer(world), Slow()
    other = ordering(write(Receiver(slow)), "a", name="other")
    await world.start(killer.flow)
    await lives(world, killer, 2)
    process = world.worker(killer.flow, other)
    await world.start(other, "r2")
    await world.pass_(MINUTE)
    assert (len(killer.beside), process.worker.held, world.run().owner, suspicion(world)) == (2, 1, "", (0, 1))
    await world.start(other, "r3")
    assert world.status("r3") == "queued", "the worker makes room"
    killer.cured = True
    slow.go.set()
    await world.pass_(SECOND)
    assert (killer.beside[2:], world.status("r2"), world.status("r3")) == ([0], "completed", "completed")


@pytest.mark.req("REC-1")
async def test_of_two_busy_workers_one_makes_room(world: World) -> None:
    """The other goes on taking what is due; a worker that holds nothing would have taken it at once."""
    killer, other = Killer(world), one_node(for_ever, name="other")
    await world.start(killer.flow)
    await lives(world, killer, 2)
    for i in range(4):
        await world.start(other, f"o{i}")
    first, second = world.worker(killer.flow, other, concurrency=3), world.worker(killer.flow, other, concurrency=3)
    await world.pass_(MINUTE)
    assert sorted([first.worker.held, second.worker.held]) in ([1, 3], [2, 2])
    for i in range(4, 6):
        await world.start(other, f"o{i}")
    await world.pass_(SECOND)
    assert max(p.worker.held for p in (first, second)) == 3, "one of them takes what comes"
    assert first.worker.held + second.worker.held < 6, "and the other waits until it holds nothing"
    killer.cured = True
    idle = world.worker(killer.flow)
    await world.pass_(SECOND)
    assert (killer.beside[2:], idle.worker.held, world.waiting()) == ([0], 0, [("signal", "go")])


@pytest.mark.req("REC-1")
async def test_a_crash_while_another_run_makes_room_does_not_count(world: World) -> None:
    """A run that waits for room is owned by no worker, so no death of a worker counts against it."""
    killer = Killer(world)
    await world.start(killer.flow)
    await lives(world, killer, 2)
    other = one_node(for_ever, name="other")
    process = world.worker(killer.flow, other)
    await world.start(other, "r2")
    await world.pass_(MINUTE)
    process.kill()
    world.worker(other)
    await world.pass_(MINUTE)
    assert (suspicion(world), suspicion(world, "r2"), len(killer.beside)) == ((0, 1), (1, 0), 2)


@pytest.mark.req("REC-1")
async def test_runs_of_a_dead_worker_without_a_free_slot_are_due_for_any_worker(world: World) -> None:
    busy = await busy_after(world, 6, 1)
    small = world.worker(busy, concurrency=2)
    await world.pass_(20 * SECOND)
    assert len(owned(world, small, "b", 6)) == 2
    assert [world.run(f"b{i}").owner for i in range(6)].count("") == 4
    large = world.worker(busy)
    await world.pass_(SECOND)
    assert len(owned(world, large, "b", 6)) == 4
    assert {suspicion(world, f"b{i}") for i in range(6)} == {(1, 0)}, "each death counts once"


# --- every death counts -------------------------------------------------------------------------------------
@pytest.mark.req("REC-1")
async def test_a_crash_counts_if_the_worker_that_closed_the_row_crashed_too(world: World) -> None:
    """Alone from its second death on: each of three more counts, whichever process closed the dead worker's row."""
    killer = Killer(world)
    await world.start(killer.flow)
    process = await lives(world, killer, 2)
    for _ in range(DEATHS_ALONE_MAX):
        closer = world.worker(one_node(for_ever, name="other"))
        closer.wire.after(f"close worker {process.name}", closer.kill)
        await world.pass_(MINUTE)
        assert closer.wire.dead
        process = await lives(world, killer, 1)
    await lives(world, killer, 1)
    assert (len(killer.beside), world.reasons()) == (POISONED, ["poisoned"])


@pytest.mark.req("REC-1")
async def test_a_crash_counts_if_the_run_was_due_anyway(world: World) -> None:
    """No worker lived until the slice of the dead one's run was over."""
    killer = Killer(world)
    await world.start(killer.flow)
    for _ in range(POISONED):
        world.worker(killer.flow)
        await world.pass_(SECOND)
        await world.pass_(BUDGET + MINUTE)
    world.worker(killer.flow)
    await world.pass_(MINUTE)
    assert (len(killer.beside), world.reasons()) == (POISONED, ["poisoned"])


@pytest.mark.req("REC-1")
async def test_a_crash_counts_if_the_closed_worker_is_met_after_the_claim(world: World) -> None:
    """Its row was closed by a worker that serves other lanes."""
    killer = Killer(world)
    await world.start(killer.flow)
    await lives(world, killer, 1)
    world.worker(one_node(for_ever, name="other"))
    await world.pass_(BUDGET + 2 * MINUTE)
    assert suspicion(world) == (0, 0)
    await lives(world, killer, 1)
    assert suspicion(world) == (1, 0)


@pytest.mark.req("REC-1")
async def test_a_worker_that_ends_without_a_request_counts_as_dead(world: World) -> None:
    """It closes its own row, as it does when a SystemExit takes the loop down."""
    busy = one_node(for_ever, name="busy")
    await world.start(busy)
    process = world.worker(busy, live=Liveness(drain_grace=SECOND))
    await world.pass_(SECOND)
    process.task.cancel()
    await world.pass_(2 * SECOND)
    assert world.worker_row(process.name).died_holding == 1
    world.worker(busy)
    await world.pass_(MINUTE)
    assert suspicion(world) == (1, 0)


@pytest.mark.req("REC-1")
async def test_a_run_that_outlasts_the_drain_of_its_worker_is_no_death(world: World) -> None:
    """A deploy: the worker was asked to stop, and the call took longer than the grace."""
    busy = one_node(for_ever, name="busy")
    await world.start(busy)
    for _ in range(4):
        process = world.worker(busy, live=Liveness(drain_grace=SECOND))
        await world.pass_(SECOND)
        process.worker.drain()
        await world.pass_(MINUTE)
    world.worker(busy)
    await world.pass_(MINUTE)
    assert (suspicion(world), world.run().owner) == ((0, 0), world.processes[-1].name)


@pytest.mark.req("REC-2")
async def test_a_run_beyond_its_budget_is_taken_and_is_no_crash(world: World) -> None:
    """Its worker lives: the run goes over, and nothing is counted against it."""
    busy = one_node(of_lookups, name="busy")
    await world.start(busy)
    first = world.worker(busy)
    await world.pass_(SECOND)
    second = world.worker(busy)
    await world.pass_(BUDGET + MINUTE)
    assert world.run().owner in (first.name, second.name)
    assert (world.run().epoch > 1, suspicion(world)) == (True, (0, 0))


# --- seen --------------------------------------------------------------------------------------------------
@pytest.mark.req("REC-1")
async def test_continue_is_written_before_the_run_kills_again(world: World) -> None:
    killer = Killer(world)
    await world.start(killer.flow)
    await lives(world, killer, POISONED + 1)
    await commands.continue_run(world.store, tenant="t", run="r1", actor="op", reason="try")
    await world.pass_(MINUTE)
    said = [json.loads(e.body)["data"] for e in world.events() if e.type == EventType.ANSWERED]
    assert (said[-1]["answers"][0]["reason"], world.reasons()) == ("poisoned", [])
    assert GROUP_PATIENCE < 15 * SECOND, "room is made before a lease would expire"

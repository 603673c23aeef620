"""Starts of forks that were given up: a sweep deletes their copies, or the caller that begins again does (S-28)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from outlast.core import fork_starts
from outlast.core.commit import Commit, Put
from outlast.core.durations import DAY, FORGET_EVERY, FORK_STARTS_KEPT, Liveness
from outlast.core.fork_starts import STARTS, ForkStart, begin, is_copy
from outlast.core.rows.effect_rows import MEMO
from outlast.core.rows.run_rows import RUN
from outlast.core.rows.store_rows import META, STORE
from outlast.engine import fork_start
from outlast.engine.fork_start_removal import remove_given_up
from outlast.errors import Conflict
from outlast.upkeep.fsck import Fsck
from tests.engine.test_fork_crashes import CASES, FORK, Ground, kill
from tests.engine.world import SECOND, World
from tests.mutants import remove

pytestmark = pytest.mark.req("RUN-10", "CKP-7")
SWEEP: Final = ["give up fork", *(f"erase fork?call/{{past}}/00000{n}" for n in range(1, 4)), "forget fork"]
"""Commits of the sweep of a start that landed three copies of four."""


@pytest.fixture(autouse=True)
def _each_copy_is_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_start, "in_portions", lambda puts: [(put,) for put in puts])
    monkeypatch.setattr(fork_starts, "PORTION_ROWS_MAX", 1)


def starts(world: World) -> list[ForkStart]:
    """Return the starts in the store."""
    return [fork_starts.start_of(row) for row in world.core.rows.under(META, (STORE,)) if row.key.startswith(STARTS)]


def copies(world: World, run: str = FORK) -> list[str]:
    """Return the memos of a run."""
    return [memo.key for memo in world.core.rows.under(MEMO, ("t", run))]


async def findings(world: World) -> tuple[Any, ...]:
    return (await Fsck(world.store, chain=True).look()).findings


async def given_up(world: World, case: str = "recorded", label: str = "/000004") -> Ground:
    """Return an ancestor of which a fork was begun, by a process that died before a commit."""
    ground = Ground(world, CASES[case])
    await ground.play()
    await dies(ground, label)
    return ground


async def dies(ground: Ground, label: str) -> None:
    """Start the fork by a process that dies before a commit."""
    wire = ground.caller()
    wire.before(label, kill(wire))
    task = ground.start(wire)
    await ground.world.settle()
    assert wire.dead and not task.done()
    task.cancel()


async def swept(ground: Ground) -> None:
    """Let another process delete what was given up, and check that all of it is gone."""
    world = ground.world
    assert await remove_given_up(ground.caller())  # type: ignore[arg-type]
    assert (starts(world), copies(world)) == ([], [])
    assert await findings(world) == ()


async def begins_again(ground: Ground) -> None:
    """Start the fork again, let it live, and check the record of the world."""
    assert (await ground.start(ground.caller())).created
    assert starts(ground.world) == []
    await ground.lives()
    await ground.check()


@pytest.mark.parametrize("case", CASES)
async def test_what_was_given_up_is_deleted_after_a_week(world: World, case: str) -> None:
    """Until then the request may be repeated. After it the same request begins again."""
    ground = await given_up(world, case)
    (start,) = starts(world)
    assert (start.run, start.of, start.given_up) == (FORK, "r1", False)
    assert len(copies(world)) == 4, "three copies and the memo of the start"
    await world.pass_(FORK_STARTS_KEPT)
    assert await remove_given_up(world.store)
    assert (starts(world), len(copies(world))) == ([start], 4), "it is no older than a week"
    assert await findings(world) == ()
    await world.pass_(SECOND)
    await swept(ground)
    await begins_again(ground)


async def test_a_worker_sweeps_by_itself(world: World) -> None:
    ground = await given_up(world)
    await world.pass_(FORK_STARTS_KEPT + SECOND)
    world.worker(ground.flow, live=Liveness(ledger_kept=0, runs_kept=0))
    await world.pass_(FORGET_EVERY)
    assert (starts(world), copies(world)) == ([], [])


async def test_the_copies_of_a_fork_stay(world: World) -> None:
    """A start that made its run leaves nothing to sweep, at any age."""
    ground = Ground(world, CASES["recorded"])
    await ground.play()
    await ground.start(ground.caller())
    before = copies(world)
    assert starts(world) == [] and len(before) == 5, "four copies and the terms"
    await world.pass_(FORK_STARTS_KEPT + DAY)
    assert await remove_given_up(world.store)
    assert copies(world) == before
    await ground.lives()
    await ground.check()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("n", range(len(SWEEP)))
@pytest.mark.parametrize("follows", ["sweep", "start"])
async def test_a_crash_at_each_commit_of_the_sweep(world: World, when: str, n: int, follows: str) -> None:
    """Another sweep completes it, or the caller who repeats the request."""
    ground = await given_up(world)
    (past,) = {key.split("/")[1] for key in copies(world) if key.startswith("fork?call/")}
    await world.pass_(FORK_STARTS_KEPT + SECOND)
    wire = ground.caller()
    getattr(wire, when)(SWEEP[n].format(past=past), kill(wire))
    task = asyncio.get_running_loop().create_task(remove_given_up(wire))  # type: ignore[arg-type]
    await world.settle()
    assert wire.dead and not task.done()
    task.cancel()
    assert await findings(world) == ()
    if follows == "sweep":
        await swept(ground)
    await begins_again(ground)


async def test_the_commits_of_a_sweep(world: World) -> None:
    """The commits that the crashes name are all those of a sweep that nothing interrupts."""
    ground = await given_up(world)
    (past,) = {key.split("/")[1] for key in copies(world) if key.startswith("fork?call/")}
    await world.pass_(FORK_STARTS_KEPT + SECOND)
    wire = ground.caller()
    await remove_given_up(wire)  # type: ignore[arg-type]
    assert wire.labels == [f"{FORK} {label.format(past=past)}" for label in SWEEP]


async def half_a_past(ground: Ground) -> None:
    """Let a process that was frozen in a start go on after that was given up, and begun again by another."""
    world = ground.world
    frozen = ground.caller()
    frozen.before("/000003", frozen._clock.going.clear)
    held = frozen.hold("/000003")
    task = ground.start(frozen)
    await world.settle()
    assert not task.done()
    await world.pass_(FORK_STARTS_KEPT + SECOND)
    assert await remove_given_up(world.store)
    await dies(ground, "/000002")
    frozen._clock.going.set()
    held.set()
    started = await task
    assert started.created and starts(world) == []
    await ground.lives()
    await ground.check()


async def test_a_frozen_start_makes_no_fork_with_half_a_past(world: World) -> None:
    ground = Ground(world, CASES["recorded"])
    await ground.play()
    await half_a_past(ground)


async def test_a_sweep_that_was_overtaken_deletes_nothing_of_the_next_start(world: World) -> None:
    """Two sweeps: one is frozen before it deletes copies, and goes on when the fork has been begun again."""
    ground = await given_up(world)
    await world.pass_(FORK_STARTS_KEPT + SECOND)
    frozen = ground.caller()
    held = frozen.hold("give up fork")
    task = asyncio.get_running_loop().create_task(remove_given_up(frozen))  # type: ignore[arg-type]
    await world.settle()
    await swept(ground)
    await dies(ground, "start")
    before = copies(world)
    assert len(before) == 5
    held.set()
    await task
    assert copies(world) == before
    await begins_again(ground)


async def test_two_callers_begin_one_start(world: World) -> None:
    ground = Ground(world, CASES["recorded"])
    await ground.play()
    both = await asyncio.gather(ground.start(ground.caller()), ground.start(ground.caller()))
    assert sorted(each.created for each in both) == [False, True]
    assert starts(world) == [] and len(copies(world)) == 5
    await ground.lives()
    await ground.check()


async def test_a_caller_that_was_overtaken_leaves_no_start(world: World) -> None:
    """It looked for a start before the first one, and begins after the run is there."""
    ground = Ground(world, CASES["recorded"])
    await ground.play()
    late = ground.caller()
    other: list[Any] = []

    def overtake() -> None:
        late._clock.going.clear()
        other.append(ground.start(ground.caller()))

    load = late.load

    async def slow(kind: Any, key: Any) -> Any:
        found = await load(kind, key)
        if key[-1] == fork_starts.START and not other:
            overtake()
            await other[0]
            late._clock.going.set()
        return found

    late.load = slow  # type: ignore[method-assign]
    assert not (await ground.start(late)).created
    assert starts(world) == []
    assert await findings(world) == ()


async def test_a_start_of_another_run_is_not_touched(world: World) -> None:
    """Starts are swept by their age, and one that cannot be read hides no other."""
    ground = await given_up(world)
    spoilt = ForkStart("t", "f0", "r1", 1)
    await world.store.commit(Commit((Put(META, spoilt.row()._replace(value="{"), 0),)))
    await world.pass_(FORK_STARTS_KEPT - SECOND)
    young = ForkStart("t", "f2", "r1", (await world.store.now()).business)
    await world.store.commit(begin(young))
    await world.pass_(2 * SECOND)
    assert await remove_given_up(ground.caller())  # type: ignore[arg-type]
    left = [row.key for row in world.core.rows.under(META, (STORE,)) if row.key.startswith(STARTS)]
    assert left == [spoilt.key[1], young.key[1]]
    assert [(each.check, each.key) for each in await findings(world)] == [("fork_started", spoilt.key)]


async def test_fsck_finds_copies_of_no_start(world: World) -> None:
    ground = await given_up(world)
    (start,) = starts(world)
    world.core.rows.drop(META, start.key)
    assert await findings(world) == (), "its memo names it still"
    world.core.rows.drop(MEMO, ("t", FORK, 0, fork_starts.START))
    (found,) = await findings(world)
    assert (found.check, found.kind, found.key[1]) == ("fork_started", "memo", FORK)
    assert is_copy(world.core.rows.get(MEMO, found.key))  # type: ignore[arg-type]
    await world.store.commit(Commit((Put(META, start.row(), 0),)))
    assert {(each.kind, each.text) for each in await findings(world)} == {
        ("memo", found.text),
        ("meta", f"no memo of run {FORK} names this start"),
    }
    assert ground.grown() == []


async def test_fsck_finds_a_start_of_a_fork(world: World) -> None:
    ground = Ground(world, CASES["recorded"])
    await ground.play()
    await ground.start(ground.caller())
    start = ForkStart("t", FORK, "r1", 7)
    await world.store.commit(Commit((Put(META, start.row(), 0), Put(MEMO, start.memo(), 0))))
    (found,) = await findings(world)
    assert (found.check, found.key, found.text) == ("fork_started", start.key, f"run {FORK} was forked already")


async def test_a_start_that_is_replaced_all_the_time_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    ground = Ground(world, CASES["recorded"])
    await ground.play()
    start = ForkStart("t", FORK, "r1", 7)
    await world.store.commit(Commit((Put(MEMO, start.memo(), 0),)))
    with pytest.raises(Conflict, match="was not forked"):
        await ground.start(ground.caller())
    assert await world.store.load(RUN, ("t", FORK)) is None


REMOVED: Final[dict[str, Callable[[World], Awaitable[None]]]] = {
    "given_up_starts_go_on": test_a_frozen_start_makes_no_fork_with_half_a_past,
    "starts_of_one_name": test_a_frozen_start_makes_no_fork_with_half_a_past,
    "given_up_starts_stay": test_a_worker_sweeps_by_itself,
    "starts_after_the_run": test_a_caller_that_was_overtaken_leaves_no_start,
}
"""The test that fails without each safeguard."""


@pytest.mark.parametrize("removed", REMOVED)
async def test_without_a_safeguard_its_test_fails(world: World, monkeypatch: pytest.MonkeyPatch, removed: str) -> None:
    remove(removed, monkeypatch)
    with pytest.raises((AssertionError, Conflict)):
        await REMOVED[removed](world)

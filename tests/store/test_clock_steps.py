"""After a step of the wall clock, real time follows the boot-time clock, and business time never stops (S-4)."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.core.approvals import Actor
from outlast.core.commit import Commit, Mapping, Put
from outlast.core.durations import CLOCK_STEP, HOUR, MINUTE, SECOND
from outlast.core.rows.run_columns import TIMERS, Timer
from outlast.core.rows.run_rows import RUN, Run
from outlast.core.rows.store_rows import META, WORKER, Meta
from outlast.core.run_transition import rearmed
from outlast.engine.store_maintenance import ClockStep
from outlast.errors import Rejected
from outlast.runtime.operations import Operations
from outlast.store.port import AnchoredClock
from outlast.store.sqlite.database import Database
from outlast.store.sqlite.store import SqliteStore, open_without_sync
from outlast.store.store_clock import ANCHOR_ROW, Anchor, anchored
from outlast.upkeep.whole_store import examine
from tests.conformance.subject import LANE, T0, HandClock, run_row, start, worker_row


class Machine:
    """One machine: a boot-time clock shared by all processes, and the wall clock that an operator sets."""

    def __init__(self) -> None:
        self.boot, self.wall, self.boot_id = 5 * MINUTE, T0, "boot-1"

    def pass_(self, ms: int) -> None:
        self.boot += ms
        self.wall += ms

    def boot_again(self, *, off_for: int = MINUTE) -> None:
        """The wall clock goes on while the machine is off."""
        self.boot, self.boot_id = 0, f"{self.boot_id}+"
        self.wall += off_for


class ProcessOn(HandClock):
    """The clocks of a process on such a machine."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self.machine = machine

    def wall(self) -> int:
        return self.machine.wall

    def boot(self) -> int:
        return self.machine.boot

    def boot_id(self) -> str:
        return self.machine.boot_id


class World:
    """A machine and the processes that have the store's file open."""

    def __init__(self, path: Path) -> None:
        self.path, self.machine = path, Machine()
        self._opened: list[SqliteStore] = []

    async def open(self) -> SqliteStore:
        name = f"writer-{len(self._opened) + 1}"
        store = await open_without_sync(self.path, writer=name, clock=ProcessOn(self.machine))
        self._opened.append(store)
        return store

    async def close(self) -> None:
        for store in self._opened:
            await store.close()


def play(tmp_path: Path, test: Callable[[World], Awaitable[None]]) -> None:
    async def whole() -> None:
        world = World(tmp_path / "s.db")
        try:
            await test(world)
        finally:
            await world.close()

    asyncio.run(whole())


async def due(store: SqliteStore) -> list[str]:
    """Return the runs that a take is offered now."""
    found: list[str] = []

    def step(run: Run, *_: Any) -> None:
        found.append(run.run)

    await store.take((LANE,), 100, step)
    return found


def asleep(run: str, ms: int) -> Run:
    """Start a run with a business timer."""
    return run_row(run, due_at=T0 + ms, timers_text=TIMERS.encode([Timer("timer", T0 + ms)]))


@pytest.mark.req("REC-6")
def test_timers_and_leases_go_on_when_the_wall_clock_is_set_back(tmp_path: Path) -> None:
    async def live(world: World) -> None:
        store = await world.open()
        await store.commit(Commit((Put(WORKER, worker_row("w"), 0),)))
        await store.commit(start(asleep("r", MINUTE)))
        world.machine.pass_(SECOND)
        world.machine.wall -= 6 * HOUR
        assert (await store.now()).real == T0 + SECOND
        world.machine.pass_(MINUTE)
        assert (await store.now()).real == T0 + MINUTE + SECOND
        assert await due(store) == ["r"], "the lease of 15 s has run out by the same time"
        late = await world.open()
        assert (await late.now())[:2] == (await store.now())[:2], "a process that begins after the step agrees"
        assert await late.clock_step() == -6 * HOUR

    play(tmp_path, live)


@pytest.mark.req("REC-6")
def test_no_lease_expires_when_the_wall_clock_is_set_forward_and_business_time_follows_once(tmp_path: Path) -> None:
    """The machine started with a wrong clock. Timers set by the calendar fire in time."""

    async def live(world: World) -> None:
        a, b = await world.open(), await world.open()
        await a.commit(start(asleep("r", 8 * HOUR)))
        world.machine.pass_(SECOND)
        world.machine.wall += 6 * HOUR
        late = await world.open()
        for store in (a, b, late):
            assert (await store.now())[:2] == (T0 + SECOND, T0 + SECOND)
            assert await store.clock_step() == 6 * HOUR
        assert await b.follow_clock(rearmed) == 6 * HOUR
        assert [await store.follow_clock(rearmed) for store in (a, b, late)] == [0, 0, 0], "one process follows, once"
        for store in (a, b, late):
            assert (await store.now())[:2] == (T0 + SECOND, T0 + SECOND + 6 * HOUR)
        world.machine.pass_(2 * HOUR - 2 * SECOND)
        assert await due(a) == []
        world.machine.pass_(SECOND)
        assert await due(a) == ["r"]

    play(tmp_path, live)


def test_a_clock_that_is_set_back_and_then_right_again_moves_nothing(tmp_path: Path) -> None:
    async def live(world: World) -> None:
        store = await world.open()
        world.machine.wall -= HOUR
        assert await store.follow_clock(rearmed) == 0
        world.machine.pass_(MINUTE)
        world.machine.wall += HOUR
        assert (await store.follow_clock(rearmed), await store.clock_step()) == (0, 0)
        assert (await store.now())[:2] == (T0 + MINUTE, T0 + MINUTE)

    play(tmp_path, live)


def test_small_steps_are_followed_once_they_come_to_ten_seconds(tmp_path: Path) -> None:
    async def live(world: World) -> None:
        store = await world.open()
        world.machine.wall += CLOCK_STEP - 1
        assert await store.follow_clock(rearmed) == 0
        world.machine.wall += 1
        assert await store.follow_clock(rearmed) == CLOCK_STEP

    play(tmp_path, live)


def test_business_time_at_another_rate_ignores_the_wall_clock(tmp_path: Path) -> None:
    async def live(world: World) -> None:
        store = await world.open()
        await store.set_mapping(Mapping(0, T0, T0, 60.0), rearmed)
        world.machine.wall += HOUR
        assert await store.follow_clock(rearmed) == HOUR
        assert (await store.now())[:2] == (T0, T0)

    play(tmp_path, live)


@pytest.mark.req("REC-6")
def test_after_a_reboot_time_goes_on_by_the_wall_clock_and_never_backwards(tmp_path: Path) -> None:
    async def live(world: World) -> None:
        store = await world.open()
        world.machine.wall += HOUR
        await store.follow_clock(rearmed)
        world.machine.pass_(MINUTE)
        before = await store.now()
        await store.commit(
            Commit((Put(WORKER, worker_row("w")._replace(renewed_at=before.real, lease_until=before.real), 0),))
        )
        await store.close()
        world.machine.boot_again(off_for=MINUTE)
        again = await world.open()
        now = await again.now()
        assert (now.real, now.business) == (before.real + MINUTE, before.business + MINUTE)
        assert now.business == world.machine.wall, "the step is not followed a second time"
        await again.close()
        world.machine.boot_again(off_for=-9 * HOUR)
        late = await world.open()
        assert (await late.now()).real >= before.real, "not before what its rows hold, though the clock is wrong now"
        world.machine.pass_(MINUTE)
        assert (await late.now()).real >= before.real + MINUTE

    play(tmp_path, live)


def test_a_process_that_only_reads_has_the_same_time(tmp_path: Path) -> None:
    async def live(world: World) -> None:
        store = await world.open()
        world.machine.pass_(SECOND)
        world.machine.wall -= HOUR
        reader = SqliteStore(Database(world.path, reads=True), "", ProcessOn(world.machine))
        assert (await reader.now())[:2] == (await store.now())[:2]
        await reader.close()

    play(tmp_path, live)


def test_the_anchor_is_written_by_the_store_itself(tmp_path: Path) -> None:
    async def live(world: World) -> None:
        store = await world.open()
        with pytest.raises(Rejected, match="written by the store itself"):
            await store.commit(Commit((Put(META, Meta(*ANCHOR_ROW, 2, "{}"), 1),)))
        assert isinstance(store, AnchoredClock) and await store.load(RUN, ("t", "none")) is None

    play(tmp_path, live)


@pytest.mark.parametrize(("off", "said"), [(HOUR, "60m forward"), (-HOUR, "60m behind the store's time"), (SECOND, "")])
def test_doctor_reports_a_clock_that_was_set(tmp_path: Path, off: int, said: str) -> None:
    async def live(world: World) -> None:
        store = await world.open()
        world.machine.wall += off
        findings = await examine(Operations(store, tenant="t", actor=Actor("me"), workflows={}))
        (clock,) = [finding for finding in findings if finding.what == "clock"]
        assert said in clock.fix and bool(clock.fix) is bool(said)

    play(tmp_path, live)


class Stepped:
    """A store that reports a given step of the wall clock."""

    def __init__(self) -> None:
        self.step = 0
        self.followed: list[int] = []

    async def clock_step(self) -> int:
        return self.step

    async def follow_clock(self, rearm: object) -> int:
        self.followed.append(self.step)
        step, self.step = self.step, 0
        return step


def test_a_worker_logs_a_step_once_and_follows_it_at_the_second_check(caplog: pytest.LogCaptureFixture) -> None:
    store: Any = Stepped()
    look = ClockStep(store)

    def looks(step: int) -> list[str]:
        store.step = step
        caplog.clear()
        asyncio.run(look.look())
        return caplog.messages

    assert looks(CLOCK_STEP - 1) == []
    (said,) = looks(HOUR)
    assert "3600 s ahead of the store's" in said and store.followed == []
    assert looks(0) == [], "it was set right again at once"
    looks(HOUR)
    assert (looks(HOUR), store.followed) == ([], [HOUR])
    (said,) = looks(-2 * HOUR)
    assert "7200 s behind the store's" in said
    assert (looks(-2 * HOUR), store.followed) == ([], [HOUR])


@given(
    lives=st.lists(
        st.tuples(st.booleans(), st.integers(0, 10**6), st.integers(-(10**7), 10**7)), min_size=1, max_size=8
    )
)
def test_real_time_never_goes_backwards(lives: list[tuple[bool, int, int]]) -> None:
    """Each life: whether the machine boots before it, how long it lasts, and by how much the wall clock is off."""
    anchor: Anchor | None = None
    boot_id, boot, seen = "b", 0, 0
    for i, (reboots, ms, off) in enumerate(lives):
        if reboots:
            boot_id, boot = f"b{i}", 0
        anchor = anchored(anchor, boot_id, boot, T0 + off, seen)
        assert anchor.real + boot - anchor.boot >= seen
        boot += ms
        seen = anchor.real + boot - anchor.boot

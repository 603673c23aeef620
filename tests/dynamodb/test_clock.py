"""A process tells its own time only while DynamoDB's answers show that it is right (S-4, REC-6)."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable

import pytest
from pydantic import BaseModel

from outlast import Context, Workflow
from outlast.clocks import SystemClock
from outlast.core.approvals import Actor
from outlast.core.commit import Commit, Put
from outlast.core.durations import CLOCK_DIFFERENCE_MAX, CLOCK_SKEW, Liveness
from outlast.core.rows.run_rows import RUN, Run
from outlast.core.rows.store_rows import STORE, WORKER
from outlast.engine import commands
from outlast.engine.lease import opened
from outlast.errors import StoreUnusable, Unavailable
from outlast.runtime.local_worker import worker_of
from outlast.runtime.operations import Operations
from outlast.store.dynamodb.clock import Bounds, CheckedClock
from outlast.store.dynamodb.store import open_dynamodb
from outlast.upkeep.whole_store import Diagnosis, examine
from tests.mutants import remove

LIMIT = CLOCK_DIFFERENCE_MAX
NOW = 1_800_000_000_000
LIVE = Liveness(heartbeat_window=3_000, heartbeat_every=200, drain_grace=200)
PATIENCE_S = 60


class SetClock(SystemClock):
    """The machine's clocks, with differences that a test sets."""

    def __init__(self, wall_off: int = 0, boot_off: int = 0) -> None:
        self.wall_off = wall_off
        self.boot_off = boot_off

    def wall(self) -> int:
        return super().wall() + self.wall_off

    def boot(self) -> int:
        return super().boot() + self.boot_off


class Machine(SystemClock):
    """Clocks that a test moves."""

    def __init__(self) -> None:
        self.walls, self.boots = NOW, 5_000

    def wall(self) -> int:
        return self.walls

    def boot(self) -> int:
        return self.boots

    def boot_id(self) -> str:
        return "this boot"

    def pass_(self, ms: int) -> None:
        self.walls += ms
        self.boots += ms


def checked(machine: SystemClock, bounds: Bounds | None) -> CheckedClock:
    clock = CheckedClock(machine, checked=True)
    clock.compare(lambda: bounds)
    return clock


# --- values in, values out -----------------------------------------------------------------
@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        ((-LIMIT, LIMIT), ""),
        ((-900, 250), ""),
        ((LIMIT + 1_100, LIMIT + 2_000), "3.1 s or more behind"),
        ((-LIMIT - 9_000, -LIMIT - 8_000), "10.0 s or more ahead of"),
        ((-LIMIT - 1, 0), "not known to be right"),
        ((0, LIMIT + 1), "not known to be right"),
        (None, "cannot be compared"),
    ],
)
def test_it_opens_only_with_a_clock_that_is_shown_to_be_right(bounds: Bounds | None, said: str) -> None:
    clock = checked(Machine(), bounds)
    if not said:
        clock.check_at_opening("dynamodb://here/test")
        assert clock.refusal() is None
        return
    with pytest.raises(StoreUnusable, match=said) as raised:
        clock.check_at_opening("dynamodb://here/test")
    assert "dynamodb://here/test" in raised.value.why and "may differ" in raised.value.why
    assert raised.value.fix.endswith("then start again")
    if bounds is not None:
        assert (off := clock.refusal()) is not None and said in off.what and "its lease ends" in off.why


def test_a_shared_clock_is_not_checked() -> None:
    clock = CheckedClock(Machine(), checked=False)
    clock.compare(lambda: (90_000, 91_000))
    clock.check_at_opening("dynamodb://here/test")
    assert clock.refusal() is None and clock.skew == 0 and clock.facts() == {}


def test_the_wall_clock_moves_nothing_while_time_is_right() -> None:
    machine = Machine()
    clock = checked(machine, (-500, 300))
    assert clock.skew == CLOCK_SKEW == 2 * LIMIT and clock.facts() == {"clock_ahead_ms": 100, "clock_known_ms": 400}
    machine.walls += 3_600_000
    machine.pass_(10)
    assert clock.refusal() is None
    assert clock.store_clock.real() == NOW + 10


def test_after_a_pause_of_the_machine_time_continues_by_a_wall_clock_that_is_right() -> None:
    """The boot-time clock of a paused virtual machine stops; then the wall clock is set."""
    machine = Machine()
    clock = CheckedClock(machine, checked=True)
    bounds = [(9_600, 10_200)]  # the service is ahead
    clock.compare(lambda: bounds[0])
    assert clock.refusal() is not None
    assert clock.store_clock.real() == NOW, "the wall clock is as wrong"
    machine.walls += 10_000
    assert clock.refusal() is not None, "no answer has confirmed it yet"
    assert clock.store_clock.real() == NOW + 10_000
    bounds[0] = (-400, 200)
    assert clock.refusal() is None


def test_time_that_was_ahead_pauses_and_never_goes_back() -> None:
    machine = Machine()
    clock = checked(machine, (-10_200, -9_600))
    machine.boots += 10_000
    before = clock.store_clock.real()
    assert clock.refusal() is not None
    assert clock.store_clock.real() == before == NOW + 10_000
    machine.pass_(4_000)
    assert clock.store_clock.real() == before
    machine.pass_(7_000)
    assert clock.store_clock.real() == NOW + 11_000


# --- a service that tells its time -----------------------------------------------------------
def test_doctor_says_how_far_the_clock_is_off(url: str) -> None:
    async def live() -> list[Diagnosis]:
        store = await open_dynamodb(url, writer="w", clock=SystemClock(), checked=True)
        try:
            return await examine(Operations(store, tenant="t", actor=Actor("me"), workflows={}))
        finally:
            await store.close()

    (clock,) = [each for each in asyncio.run(live()) if each.what == "clock"]
    assert re.fullmatch(r"\d\.?\d?s from DynamoDB's, known to within \d\.?\d?s", clock.found) and not clock.fix


@pytest.mark.req("REC-6")
@pytest.mark.parametrize(("off", "said"), [(60_000, "ahead of"), (-60_000, "behind")])
def test_a_machine_with_a_wrong_clock_does_not_open_the_store(url: str, off: int, said: str) -> None:
    async def live() -> None:
        store = await open_dynamodb(url, writer="right", clock=SystemClock(), checked=True)
        assert store.skew == CLOCK_SKEW
        assert abs(int(store.facts()["clock_ahead_ms"])) < LIMIT
        with pytest.raises(StoreUnusable, match=said):
            await open_dynamodb(url, writer="wrong", clock=SetClock(wall_off=off), checked=True)
        await store.close()

    asyncio.run(live())


@pytest.mark.req("REC-6")
def test_a_process_whose_clock_jumps_writes_nothing(url: str) -> None:
    async def live() -> None:
        clock = SetClock()
        store = await open_dynamodb(url, writer="jumps", clock=clock, checked=True)
        now = await store.now()
        row = opened("w", name="", lanes="", now_real=now.real, now_business=now.business, live=LIVE)
        await store.commit(Commit((Put(WORKER, row, 0),), label="open worker"))
        clock.boot_off = 3_600_000
        assert await store.load(WORKER, (STORE, "w")) == row, "it reads, and the answer tells the time"
        after = Commit((Put(WORKER, row._replace(version=2, lease_until=row.lease_until * 2), 1),), label="renew")
        with pytest.raises(Unavailable, match="ahead of DynamoDB's"):
            await asyncio.to_thread(store.urgent_sync, after)
        with pytest.raises(Unavailable, match="ahead of DynamoDB's"):
            await store.commit(after)
        with pytest.raises(Unavailable, match="ahead of DynamoDB's"):
            await store.take(["w@1"], 1, lambda run, now, mapping: None)
        assert await store.load(WORKER, (STORE, "w")) == row
        await store.close()

    asyncio.run(live())


class Nothing(BaseModel):
    """An empty state."""


still = Workflow("still", state=Nothing)


@still.node(start=True)
async def stand(ctx: Context[Nothing]) -> None:
    """Keep a node running as long as its worker holds the run."""
    await asyncio.sleep(3_600)  # outlast: ignore[OL303] a node that occupies its worker


async def when(holds: Callable[[], Awaitable[bool]]) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not await holds():
        assert time.monotonic() < give_up
        await asyncio.sleep(0.05)


async def _is_robbed_by_a_jump(url: str, *, checks: bool) -> bool:
    """Return True if a worker whose clock jumped takes a run of a healthy one. `checks`: its first failure ends it."""
    right = await open_dynamodb(url, writer="right", clock=SystemClock(), checked=True)
    clock = SetClock()
    jumped = await open_dynamodb(url, writer="jumped", clock=clock, checked=True)
    holder, other = worker_of(right, [still], live=LIVE), worker_of(jumped, [still], live=LIVE)
    tasks = [asyncio.create_task(holder.run())]
    await commands.start(right, still, {}, tenant="t", actor="me", run="r")

    async def run() -> Run:
        row = await right.load(RUN, ("t", "r"))
        assert isinstance(row, Run)
        return row

    async def is_held() -> bool:
        return (await run()).owner == holder.id

    async def tried() -> bool:
        return (await run()).epoch > 1 or (checks and bool(other.counters.all()))

    await when(is_held)
    await other.open()
    clock.boot_off = 3_600_000
    tasks.append(asyncio.create_task(other.run()))
    await when(tried)
    epoch = (await run()).epoch
    for worker in (holder, other):
        worker.drain()
    await asyncio.gather(*tasks)
    await jumped.close()
    await right.close()
    return epoch > 1


@pytest.mark.req("REC-6")
def test_a_worker_whose_clock_jumps_takes_nothing(url: str) -> None:
    assert not asyncio.run(_is_robbed_by_a_jump(url, checks=True))


def test_without_the_check_a_worker_whose_clock_jumps_takes_a_run(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    remove("jumps_not_noticed", monkeypatch)
    assert asyncio.run(_is_robbed_by_a_jump(url, checks=False))

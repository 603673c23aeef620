"""Rate limits hold for all workers together, are visible, and cost nothing without a limit (S-23)."""

import asyncio
from typing import Any

import pytest

from outlast.core.rate_limit import BookedCalls, book_calls, limit_row, rate_limit_of
from outlast.core.rows.store_rows import META, Meta
from outlast.engine.lease import Lease
from outlast.engine.limit_seats import RateLimiter, _LimitQueue
from outlast.errors import DefinitionError
from outlast.flow import RateLimit, activity, lookup
from tests.engine.world import SECOND, World, ordering

pytestmark = pytest.mark.req("RUN-6")


class Gauge:
    """A receiver that counts how many calls it has at once, and when each began."""

    def __init__(self, world: World, ms: int) -> None:
        self.world = world
        self.ms = ms
        self.now = 0
        self.most = 0
        self.begun: list[int] = []

    async def call(self) -> str:
        self.begun.append(self.world.time.wall())
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.world.time.sleep(self.ms)
        finally:
            self.now -= 1
        return "done"

    def most_within(self, ms: int) -> int:
        return max(sum(at <= other < at + ms for other in self.begun) for at in self.begun)


def limited(gauge: Gauge, limit: RateLimit | None, name: str = "order", provider: str = "erp") -> Any:
    @activity(key=name + "/{what}", name=name, provider=provider, limit=limit, no_undo="a test undoes nothing")
    async def act(what: str) -> str:
        return await gauge.call()

    return act


async def runs(world: World, flow: Any, n: int) -> list[str]:
    names = [f"r{i:03}" for i in range(n)]
    for name in names:
        await world.start(flow, name)
    return names


def limit_state(world: World, name: str = "provider/erp") -> Any:
    row = world.core.rows.get(META, limit_row(name))
    return rate_limit_of(row if isinstance(row, Meta) else None)


async def test_two_workers_together_make_so_many_calls_at_once_and_no_more(world: World) -> None:
    gauge = Gauge(world, SECOND)
    flow = ordering(limited(gauge, RateLimit(concurrent=3)), "a")
    world.worker(flow, concurrency=20)
    world.worker(flow, concurrency=20)
    names = await runs(world, flow, 40)
    await world.pass_(60 * SECOND)
    assert {world.status(name) for name in names} == {"completed"}
    assert gauge.most == 3 and len(gauge.begun) == 40
    assert gauge.begun[-1] - gauge.begun[0] < 3 * 40 * SECOND // 3, "the room is used"
    assert limit_state(world).inside == {}, "who has left is not counted"


async def test_two_workers_together_begin_so_many_calls_a_second(world: World) -> None:
    gauge = Gauge(world, 10)
    flow = ordering(limited(gauge, RateLimit(per_second=10)), "a")
    world.worker(flow, concurrency=30)
    world.worker(flow, concurrency=30)
    names = await runs(world, flow, 60)
    await world.pass_(60 * SECOND)
    assert {world.status(name) for name in names} == {"completed"}
    assert gauge.most_within(SECOND) <= 11
    assert gauge.begun[-1] - gauge.begun[0] < 20 * SECOND


async def test_a_slow_answer_of_the_store_lets_no_call_begin_before_its_turn(world: World) -> None:
    """The store reads its clock at the end of its answer: the time before that is not counted as passed."""
    begun: list[int] = []

    async def waits(turn: asyncio.Future[None]) -> None:
        await turn
        begun.append(world.time.wall())

    async def slow_now() -> Any:
        await world.time.sleep(200)
        return await world.store.now()

    process = world.worker(ordering(limited(Gauge(world, 10), None), "a"))
    process.wire.now = slow_now  # type: ignore[method-assign]
    throttle = RateLimiter(process.wire, process.clock, Lease("wk"), lambda: 0.5)
    line = _LimitQueue()
    line.waiting.extend(asyncio.get_running_loop().create_future() for _ in range(2))
    tasks = [asyncio.create_task(waits(turn)) for turn in line.waiting]
    first_at = world.time.wall() + 300
    letting_in = asyncio.create_task(throttle._let_in(line, BookedCalls(2, first_at, 100, rate_limit_of(None))))
    await world.pass_(SECOND)
    await asyncio.gather(letting_in, *tasks)
    assert begun == [first_at, first_at + 100]


async def test_activities_of_one_provider_share_its_limit(world: World) -> None:
    gauge, limit = Gauge(world, SECOND), RateLimit(concurrent=2)
    flows = [ordering(limited(gauge, limit, name), "a", name=name) for name in ("order", "refund")]
    world.worker(*flows)
    for flow in flows:
        for i in range(4):
            await world.start(flow, f"{flow.name}{i}")
    await world.pass_(30 * SECOND)
    assert gauge.most == 2 and len(gauge.begun) == 8


async def test_a_run_that_waits_for_a_limit_shows_it_and_uses_up_no_attempt(world: World) -> None:
    gauge = Gauge(world, 30 * SECOND)
    flow = ordering(limited(gauge, RateLimit(concurrent=1)), "a")
    world.worker(flow)
    names = await runs(world, flow, 3)
    await world.pass_(10 * SECOND)
    waiting = [name for name in names if world.run(name).waiting_for]
    assert len(waiting) == 2 and gauge.now == 1
    for name in waiting:
        (wait,) = world.run(name).waiting_for
        assert (wait.kind, wait.what) == ("limit", "provider/erp: 1 at once")
        assert world.run(name).owner == "" and wait.until is not None
        assert world.effects(name) == [], "nothing is intended while there is no room"
    await world.pass_(200 * SECOND)
    assert {world.status(name) for name in names} == {"completed"}
    assert gauge.most == 1 and {world.effect("order/a", name).attempts for name in names} == {1}


async def test_the_slots_of_a_dead_worker_are_free_once_its_row_is_closed(world: World) -> None:
    gauge = Gauge(world, 2_000 * SECOND)
    flow = ordering(limited(gauge, RateLimit(concurrent=1)), "a")
    first = world.worker(flow, concurrency=1)
    await runs(world, flow, 1)
    await world.pass_(SECOND)
    assert len(gauge.begun) == 1
    gauge.ms = 10
    other = ordering(limited(gauge, RateLimit(concurrent=1), "other"), "a", name="other")
    world.worker(other)
    await world.start(other, "next")
    first.kill()
    await world.pass_(10 * SECOND)
    assert len(gauge.begun) == 1, "its lease runs, and its call may"
    await world.pass_(50 * SECOND)
    assert world.status("next") == "completed"


async def test_lookups_wait_for_a_slot_too(world: World) -> None:
    gauge = Gauge(world, SECOND)

    @lookup(provider="erp", limit=RateLimit(concurrent=2))
    async def price(what: str) -> str:
        return await gauge.call()

    flow = ordering(price, "a")
    world.worker(flow)
    names = await runs(world, flow, 8)
    await world.pass_(30 * SECOND)
    assert gauge.most == 2 and {world.status(name) for name in names} == {"completed"}


async def test_without_a_limit_the_store_is_not_asked(world: World) -> None:
    gauge = Gauge(world, SECOND)
    flow = ordering(limited(gauge, None), "a")
    world.worker(flow)
    await runs(world, flow, 20)
    await world.pass_(5 * SECOND)
    assert gauge.most == 20 and not [row for row in world.core.rows.under(META, ()) if "limit" in str(row)]


def test_a_limit_admits_as_many_calls_as_it_has_slots() -> None:
    empty = rate_limit_of(None)
    first = book_calls(empty, "a", 0, 5, concurrent=3, per_second=0, now=0)
    assert (first.n, first.limit_state.inside, set(first.limit_state.wanting)) == (3, {"a": 3}, {"a"})
    second = book_calls(first.limit_state, "b", 0, 1, concurrent=3, per_second=0, now=0)
    assert (second.n, set(second.limit_state.wanting)) == (0, {"a", "b"})
    assert book_calls(first.limit_state, "b", 0, 1, concurrent=3, per_second=0, now=0, living={"b"}).n == 1, "a is dead"
    left = book_calls(first.limit_state, "a", 1, 0, concurrent=3, per_second=0, now=0)
    assert book_calls(left.limit_state, "b", 0, 5, concurrent=3, per_second=0, now=0).n == 2


def test_calls_of_all_workers_are_spaced_evenly() -> None:
    first = book_calls(rate_limit_of(None), "a", 0, 9, concurrent=0, per_second=10, now=1_000)
    assert (first.n, first.first_at, first.gap_ms, first.limit_state.next_at) == (2, 1_000, 100, 1_200)
    second = book_calls(first.limit_state, "b", 0, 1, concurrent=0, per_second=10, now=1_010)
    assert (second.n, second.first_at, second.limit_state.next_at) == (1, 1_200, 1_300)
    back = book_calls(first.limit_state._replace(next_at=10**12), "b", 0, 1, concurrent=0, per_second=10, now=1_010)
    assert back.first_at == 1_010, "a clock that was set back closes no door"


@pytest.mark.parametrize("wrong", [{}, {"concurrent": -1}, {"per_second": -0.5}, {"concurrent": 5, "per_second": -1}])
def test_a_limit_has_a_bound(wrong: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError, match=r"above zero|from 0 to"):
        RateLimit(**wrong)

"""A million waiting runs: cost of a take, of the next due run, of pages and counts, beside 1,000 and 100,000."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bench import bulk
from bench.engines import Place, Setup
from bench.figures import Figures, Goal, Size, counted, percentile
from bench.flows import asking
from bench.serving import TENANT, opened, start_runs, until_status, worker_process
from outlast.core.commit import Commit, Instant, Mapping
from outlast.core.rows.run_rows import RUN, Run
from outlast.core.verbs import claim
from outlast.store.port import Store
from outlast.store.queries import CountBy, NextDue

REPEATS = 1
COUNTS = {Size.FULL: (1_000, 100_000, 1_000_000), Size.QUICK: (10, 1_000, 10_000), Size.TINY: (30, 40, 50)}
TIMES = 50
AT_ONCE = 100
DUE = 6_000  # due runs for the takes to claim
LOOKS = ("take_p50", "take_p99", "idle", "next_due", "page", "page_status", "tally", "load")
GOALS_OF = {
    size: tuple(Goal(f"{look}_{counted(count)}", "ms", digits=2) for look in LOOKS for count in counts)
    for size, counts in COUNTS.items()
}


def measure(size: Size, setup: Setup) -> Figures:
    """Measure with copies of one waiting run. Each take claims 100 due ones. Figures are medians unless named p99."""
    due = size.of(DUE, DUE // 4, 20)
    found: Figures = {}
    with setup.engine.place() as place:
        _seed(place)
        there = 0
        for count in COUNTS[size]:
            _fill(place, there, count - there, due)
            there = count
            for look, ms in asyncio.run(_look(place, size.of(TIMES, 10, 2))).items():
                found[f"{look}_{counted(count)}"] = ms
    return found


def _seed(place: Place) -> None:
    async def start() -> None:
        async with opened(place.url) as store:
            await start_runs(store, asking, 1, prefix="waits")
            await until_status(store, "waiting", 1)

    with worker_process(place.url, asking):
        asyncio.run(start())


def _fill(place: Place, first: int, count: int, due: int) -> None:
    """Insert waiting runs with the event that a take reads, and some due ones."""
    rows = asyncio.run(bulk.rows_of(place, "waits0", (RUN, bulk.EVENT)))
    bulk.insert(place, bulk.copies(rows, "waits0", bulk.names("waits", first, count)))
    bulk.insert(place, bulk.copies(rows, "waits0", bulk.names(f"due{first}x", 0, due), due_at=1))


async def _look(place: Place, times: int) -> dict[str, float]:
    async with opened(place.url) as store:
        taken = await _times(times, lambda: _take(store))
        while await _take(store):
            pass
        page = await store.page(RUN, TENANT, {})
        looks: dict[str, Callable[[], Awaitable[Any]]] = {
            "idle": lambda: _take(store),
            "next_due": lambda: store.query(NextDue((asking.lane,))),
            "page": lambda: store.page(RUN, TENANT, {}, cursor=page.cursor),
            "page_status": lambda: store.page(RUN, TENANT, {"status": "waiting"}, cursor=page.cursor),
            "load": lambda: store.load(RUN, (TENANT, page.rows[0][1])),
        }
        found = {name: percentile(await _times(times, look), 0.5) for name, look in looks.items()}
        tally = await _times(3, lambda: store.query(CountBy(RUN, TENANT, "status")))
    return {"take_p50": percentile(taken, 0.5), "take_p99": percentile(taken, 0.99), **found, "tally": min(tally)}


async def _take(store: Store) -> int:
    def step(run: Run, now: Instant, mapping: Mapping) -> Commit | None:
        return claim(run, worker="w_bench", now=now, claim_ms=10**9, closed={})

    return len(await store.take((asking.lane,), AT_ONCE, step))


async def _times(n: int, look: Callable[[], Awaitable[Any]]) -> list[float]:
    found: list[float] = []
    for _ in range(n):
        begun = time.perf_counter()
        await look()
        found.append((time.perf_counter() - begun) * 1_000)
    return found

"""W3: 2,000 and 100,000 runs wait for a decision: decision to next node, memory, and a poll for due work."""

import asyncio
import time
from typing import Any

from bench import bulk
from bench.deciding import Decider, figures
from bench.engines import Place, Setup
from bench.figures import Figures, Goal, Size, percentile
from bench.flows import asking
from bench.serving import Process, opened, start_runs, until_status, worker_process
from outlast.core.commit import Commit
from outlast.store.port import Store
from outlast.store.queries import NextDue

REPEATS = 1
LOOKS = 200
GOALS = (
    Goal("few_p50_ms", "ms", digits=1),
    Goal("few_p99_ms", "ms", gate=50, digits=1),
    Goal("few_look_p99_ms", "ms", digits=2),
    Goal("few_runs", ""),
    Goal("many_p50_ms", "ms", digits=1),
    Goal("many_p99_ms", "ms", gate=50, digits=1),
    Goal("many_look_p99_ms", "ms", digits=2),
    Goal("many_runs", ""),
    Goal("bytes_each", "B", gate=1_024),
    Goal("decisions", ""),
)


def measure(size: Size, setup: Setup) -> Figures:
    """Measure a worker in another process. Decided runs were really executed; the others are copies of one of them."""
    decided = size.of(1_000, 200, 3)
    few, many = size.of(2_000, 500, 10), size.of(100_000, 10_000, 20)
    with setup.engine.place() as place:
        with worker_process(place.url, asking) as process:
            asyncio.run(_wait(place.url, 2 * decided + 1))
            _fill(place, 0, few - 2 * decided - 1)
            light = process.used().resident
            first = asyncio.run(_decide(place.url, process, 0, decided))
        _fill(place, few, many - few)
        with worker_process(place.url, asking) as process:
            second = asyncio.run(_decide(place.url, process, decided, 2 * decided))
            heavy = process.used().resident
    return {
        **{f"few_{name}": value for name, value in first.items()},
        "few_runs": few,
        **{f"many_{name}": value for name, value in second.items()},
        "many_runs": many,
        "bytes_each": max(heavy - light, 0) / many,
        "decisions": decided,
    }


async def _wait(url: str, count: int) -> None:
    async with opened(url) as store:
        await start_runs(store, asking, count, loops=1)
        await until_status(store, "waiting", count)


def _fill(place: Place, first: int, count: int) -> None:
    if count > 0:
        rows = asyncio.run(bulk.rows_of(place, "r0"))
        bulk.insert(place, bulk.copies(rows, "r0", bulk.names("copy", first, count)))


async def _decide(url: str, process: Process, first: int, last: int) -> dict[str, float]:
    """Decide runs one after the other: r1, r2, …"""
    async with opened(url) as store:
        runs = [f"r{n}" for n in range(first + 1, last + 1)]
        decider = await Decider.of(store, runs)
        for run in runs:
            await decider.decide(run)
            line = process.line()
            assert line.run == run, line
            decider.line(run, line.at_ns)
        looks = await looked(store, (asking.lane,))
    found = figures(decider)
    return {"p50_ms": found["p50_ms"], "p99_ms": found["p99_ms"], "look_p99_ms": percentile(looks, 0.99)}


async def looked(store: Store, lanes: tuple[str, ...]) -> list[float]:
    """Return ms of each poll for due work with nothing due: a take, and the time of the next due run."""

    def step(*_: Any) -> Commit | None:
        raise AssertionError("nothing is due")

    found: list[float] = []
    for _ in range(LOOKS):
        begun = time.perf_counter()
        assert not await store.take(lanes, 100, step)
        await store.query(NextDue(lanes))
        found.append((time.perf_counter() - begun) * 1_000)
    return found

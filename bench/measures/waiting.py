"""10,000 waiting runs: memory per run, CPU of an idle worker, and time of a poll for due work."""

import asyncio
import time

from bench.engines import Setup
from bench.figures import Figures, Goal, Size, percentile
from bench.flows import waiting
from bench.serving import Process, opened, start_runs, until_status, worker_process
from outlast.core.commit import Commit
from outlast.store.port import Store
from outlast.store.queries import NextDue

REPEATS = 2
GOALS = (
    Goal("bytes_each", "B", gate=1_024),
    Goal("restarted_bytes_each", "B", gate=1_024),
    Goal("idle_percent", "% CPU", gate=1, digits=2),
    Goal("look_ms", "ms", gate=5, digits=2),
    Goal("look_max_ms", "ms", digits=2),
    Goal("runs", ""),
)
LOOKS = 200
SETTLE_S = 0.3  # until the log is copied and memory is released
WARM = 300  # waiting runs before the first reading of memory


def measure(size: Size, setup: Setup) -> Figures:
    """Measure a worker in another process. Runs are started and polls are made from here."""
    count, idle_s = size.of(10_000, 2_000, 20), size.of(100, 50, 1) / 10
    with setup.engine.place() as place:
        url = place.url
        with worker_process(url, waiting) as process:
            walked = asyncio.run(_park(url, process, count, size.of(WARM, WARM, 5)))
        with worker_process(url, waiting) as process:
            time.sleep(SETTLE_S)
            before = process.used()
            time.sleep(idle_s)
            after = process.used()
        looks = asyncio.run(_looks(url))
        with setup.engine.place() as empty, worker_process(empty.url, waiting) as other:
            time.sleep(SETTLE_S)
            restarted = (before.resident - other.used().resident) / count
    return {
        "bytes_each": walked,
        "restarted_bytes_each": max(restarted, 0.0),
        "idle_percent": (after.cpu_s - before.cpu_s) / (after.wall_s - before.wall_s) * 100,
        "look_ms": percentile(looks, 0.99),
        "look_max_ms": max(looks),
        "runs": count,
    }


async def _park(url: str, process: Process, count: int, warm: int) -> float:
    """Return the memory that each parked run leaves in the process that executed it."""
    async with opened(url) as store:
        await start_runs(store, waiting, warm)
        await until_status(store, "waiting", warm)
        before = process.used().resident
        await start_runs(store, waiting, count, first=warm)
        await until_status(store, "waiting", warm + count)
        await asyncio.sleep(SETTLE_S)
        return (process.used().resident - before) / count


async def _looks(url: str) -> list[float]:
    """Return ms of each poll for due work with nothing due: a take, and the time of the next due run."""
    async with opened(url) as store:
        found: list[float] = []
        for _ in range(LOOKS):
            begun = time.perf_counter()
            await _look(store)
            found.append((time.perf_counter() - begun) * 1_000)
    return found


async def _look(store: Store) -> None:
    def step(*_: object) -> Commit | None:
        raise AssertionError("nothing is due")

    assert not await store.take((waiting.lane,), 100, step)
    await store.query(NextDue((waiting.lane,)))

"""`outlast purge` deletes 100,000 ended runs beside a process that commits: how long its commits wait."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench import bulk
from bench.engines import Place, Setup
from bench.figures import Figures, Goal, Size, percentile
from bench.flows import effectful
from bench.serving import opened, start_runs, until_status, worker_process
from outlast.core.durations import DAY
from outlast.core.rows.run_rows import RUN, Run
from outlast.store.port import Store

REPEATS = 1
EVERY_S = 0.01  # between two commits
GOALS = (
    Goal("quiet_p50_ms", "ms", digits=1),
    Goal("quiet_p99_ms", "ms", digits=1),
    Goal("quiet_max_ms", "ms", digits=1),
    Goal("purge_p50_ms", "ms", digits=1),
    Goal("purge_p99_ms", "ms", gate=50, digits=1),
    Goal("purge_max_ms", "ms", digits=1),
    Goal("runs_per_s", "runs/s"),
    Goal("rows_per_s", "rows/s"),
    Goal("runs", ""),
)


def measure(size: Size, setup: Setup) -> Figures:
    """Commit starts of runs one after the other, before and during the command."""
    count = size.of(100_000, 10_000, 20)
    with setup.engine.place() as place:
        rows = _fill(place, count)
        quiet = asyncio.run(_commit(place, "quiet", _for(size.of(50, 20, 1) / 10)))
        begun = time.perf_counter()
        command = [Path(sys.executable).with_name("outlast"), "purge", "--yes", "--store", place.url]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as purge:
            busy = asyncio.run(_commit(place, "busy", lambda: purge.poll() is None))
            took = time.perf_counter() - begun
        assert purge.returncode == 0
    return {
        "quiet_p50_ms": percentile(quiet, 0.5),
        "quiet_p99_ms": percentile(quiet, 0.99),
        "quiet_max_ms": max(quiet),
        "purge_p50_ms": percentile(busy, 0.5),
        "purge_p99_ms": percentile(busy, 0.99),
        "purge_max_ms": max(busy),
        "runs_per_s": count / took,
        "rows_per_s": rows / took,
        "runs": count,
    }


def _fill(place: Place, count: int) -> int:
    """Insert runs of ten effects that ended 60 days ago. Returns their number of rows."""

    async def start() -> None:
        async with opened(place.url) as store:
            await start_runs(store, effectful, 1, prefix="ended")
            await until_status(store, "completed", 1)

    with worker_process(place.url, effectful):
        asyncio.run(start())
    rows = asyncio.run(bulk.rows_of(place, "ended0"))
    (run,) = rows[RUN]
    assert isinstance(run, Run)
    rows[RUN] = (run._replace(ended_at=run.ended_at - 60 * DAY),)
    bulk.insert(place, bulk.copies(rows, "ended0", bulk.names("ended", 0, count)))
    return count * sum(map(len, rows.values()))


def _for(seconds: float) -> Callable[[], bool]:
    until = time.monotonic() + seconds
    return lambda: time.monotonic() < until


async def _commit(place: Place, prefix: str, go_on: Callable[[], bool]) -> list[float]:
    async with opened(place.url) as store:
        found: list[float] = []
        while not found or go_on():  # at least one, even if opening the store was slow
            begun = time.perf_counter()
            await _one(store, prefix, len(found))
            found.append((time.perf_counter() - begun) * 1_000)
            await asyncio.sleep(EVERY_S)
    return found


async def _one(store: Store, prefix: str, n: int) -> None:
    await start_runs(store, effectful, 1, first=n, prefix=prefix)

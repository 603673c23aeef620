"""Sum of the usage of a tree of 10 and 10,000 runs, as each call below a root with a budget reads it."""

import asyncio
import time

from bench.engines import Setup
from bench.figures import Figures, Goal, Size, counted, percentile
from bench.serving import TENANT, opened
from outlast.core.commit import Commit, Put
from outlast.core.durations import DAY
from outlast.core.rows.limit_rows import CALL_USAGE
from outlast.core.usage import CallUsage
from outlast.store.usage_sums import TreeUsage

REPEATS = 2
STORES = ("sqlite", "postgres", "dynamodb")
COUNTS = {Size.FULL: (10, 10_000), Size.QUICK: (10, 1_000), Size.TINY: (3,)}
CALLS = 3  # of each run
READS = {Size.FULL: 50, Size.QUICK: 20, Size.TINY: 2}
AT_ONCE = 40  # rows of a commit
AT = 20_000 * DAY


def _goals(size: Size) -> tuple[Goal, ...]:
    return tuple(
        goal
        for count in COUNTS[size]
        for goal in (
            Goal(f"sum_ms_p50_{counted(count)}", "ms", digits=2),
            Goal(f"sum_ms_p99_{counted(count)}", "ms", digits=2),
        )
    )


GOALS_OF = {size: _goals(size) for size in Size}


def measure(size: Size, setup: Setup) -> Figures:
    """Read the sum again and again in this process."""
    found: Figures = {}
    for count in COUNTS[size]:
        with setup.engine.place() as place:
            found |= asyncio.run(_sums(place.url, count, READS[size]))
    return found


async def _sums(url: str, count: int, reads: int) -> Figures:
    async with opened(url) as store:
        rows = [_row(f"run-{i}", n) for i in range(count) for n in range(CALLS)]
        for i in range(0, len(rows), AT_ONCE):
            await store.commit(Commit(tuple(Put(CALL_USAGE, row, 0) for row in rows[i : i + AT_ONCE])))
        took = []
        for _ in range(reads):
            began = time.perf_counter()
            found = await store.query(TreeUsage(TENANT, "root", but="run-0"))
            took.append(1_000 * (time.perf_counter() - began))
        assert found.calls == (count - 1) * CALLS, found
    name = counted(count)
    return {f"sum_ms_p50_{name}": percentile(took, 0.5), f"sum_ms_p99_{name}": percentile(took, 0.99)}


def _row(run: str, n: int) -> CallUsage:
    day = AT // DAY
    return CallUsage(
        TENANT, run, 1, n + 1, 1, f"ask/{n}", 1, "ask", day, "m-1", 900, 800, 100, 2_500, 1, AT, root="root"
    )

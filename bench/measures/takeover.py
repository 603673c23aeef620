"""Kill a worker with SIGKILL during a node, and measure until another one runs its first line again."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

from bench.engines import Engine, Setup
from bench.figures import Figures, Goal, Size
from bench.flows import holding
from bench.serving import opened, start_runs, worker_process
from outlast.core.durations import SECOND, Liveness

REPEATS = 1
GRACE_S = 2
DEFAULT = Liveness()
SHORT = Liveness(heartbeat_window=3 * SECOND, heartbeat_every=1 * SECOND)
TINY = Liveness(heartbeat_window=600, heartbeat_every=200)
GOALS = (
    Goal("default_s", "s", gate=DEFAULT.heartbeat_window / SECOND + GRACE_S, digits=2),
    Goal("short_s", "s", gate=SHORT.heartbeat_window / SECOND + GRACE_S, digits=2),
    Goal("default_min_s", "s", digits=2),
    Goal("short_min_s", "s", digits=2),
    Goal("kills", ""),
)
NS = 1_000_000_000


def measure(size: Size, setup: Setup) -> Figures:
    """Run several pairs of workers on separate stores, killed at times spread over a heartbeat."""
    tiny = size is Size.TINY
    short = _kills(setup.engine, TINY if tiny else SHORT, size.of(4, 3))
    default = short if tiny else _kills(setup.engine, DEFAULT, size.of(4, 2))
    return {
        "default_s": max(default),
        "short_s": max(short),
        "default_min_s": min(default),
        "short_min_s": min(short),
        "kills": len(default) + len(short),
    }


def _kills(engine: Engine, live: Liveness, count: int) -> list[float]:
    with ThreadPoolExecutor(count) as pool:
        shares = [n / count for n in range(count)]
        return list(pool.map(lambda share: _kill(engine, live, live.heartbeat_every / SECOND * share), shares))


def _kill(engine: Engine, live: Liveness, wait_s: float) -> float:
    """Return seconds from the kill to the first line in the other process."""
    with engine.place() as place, worker_process(place.url, holding, live) as first:
        asyncio.run(_start(place.url))
        first.line()
        with worker_process(place.url, holding, live) as second:
            time.sleep(wait_s)
            killed = time.monotonic_ns()
            first.kill()
            line = second.line()
            assert line.pid == second.pid, line
            taken = (line.at_ns - killed) / NS
            second.kill()
    return taken


async def _start(url: str) -> None:
    async with opened(url) as store:
        await start_runs(store, holding, 1, loops=1)

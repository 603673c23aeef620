"""W4: kill the worker of 500 or 10,000 runs with SIGKILL, and measure until another one executes each of them."""

import asyncio
import time

from bench.engines import Engine, Setup
from bench.figures import Figures, Goal, Size, percentile
from bench.flows import holding
from bench.serving import opened, start_runs, worker_process
from outlast.core.durations import SECOND, Liveness

REPEATS = 1
TINY = Liveness(heartbeat_window=600, heartbeat_every=200)
SHORT = Liveness(heartbeat_window=3 * SECOND, heartbeat_every=1 * SECOND)
NS = 1_000_000_000
GATE_S, AIM_S = 30, 10  # default lease of 15 s
KINDS = {"code": 1, "call": 0}  # in code of the node, and in a slow call with an open effect
TIMES = tuple(
    Goal(f"{number}_{kind}_{figure}", "s", gate, aim, digits=2)
    for number in ("few", "many", "short")
    for kind in KINDS
    for figure, gate, aim in (("p50_s", None, None), ("p99_s", GATE_S, AIM_S))
)
GOALS = (*TIMES, Goal("few_runs", ""), Goal("many_runs", ""))


def measure(size: Size, setup: Setup) -> Figures:
    """Measure from the kill to the next first line of each run. `short` uses many runs and a lease of 3 s."""
    few, many = size.of(500, 100, 2), size.of(10_000, 1_000, 2)
    if size is Size.TINY:
        taken = _kill(setup.engine, TINY, few, 0)
        return {**{goal.name: max(taken) for goal in TIMES}, "few_runs": few, "many_runs": many}
    default = Liveness()
    found: Figures = {"few_runs": few, "many_runs": many}
    for number, count, live in (("few", few, default), ("many", many, default), ("short", many, SHORT)):
        for kind, loops in KINDS.items():
            taken = _kill(setup.engine, live, count, loops)
            found[f"{number}_{kind}_p50_s"] = percentile(taken, 0.5)
            found[f"{number}_{kind}_p99_s"] = percentile(taken, 0.99)
    return found


def _kill(engine: Engine, live: Liveness, count: int, loops: int) -> list[float]:
    with engine.place() as place:
        asyncio.run(_start(place.url, count, loops))
        with worker_process(place.url, holding, live, count) as first:
            for _ in range(count):
                first.line()
            with worker_process(place.url, holding, live, count) as second:
                time.sleep(1)  # the second worker serves, and the first one's last intents are written
                killed = time.monotonic_ns()
                first.kill()
                lines = [second.line() for _ in range(count)]
                second.kill()
    assert len({line.run for line in lines}) == count and {line.pid for line in lines} == {second.pid}
    return [(line.at_ns - killed) / NS for line in lines]


async def _start(url: str, count: int, loops: int) -> None:
    async with opened(url) as store:
        await start_runs(store, holding, count, loops=loops)

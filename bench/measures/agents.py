"""200 agents in one process at 2 s per answer: memory, CPU, and decisions and takeovers with and without them.

The garbage collector has the thresholds of `outlast worker`. Takeovers are compared with those of 200 runs that wait in
their node. The kills are spread over a heartbeat, at the same times for both.
"""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from bench.agents import ANSWER_S, ANSWERS, SlowModel, slow_agents
from bench.deciding import Decider
from bench.deciding import figures as of_decisions
from bench.engines import Engine, Setup
from bench.figures import Figures, Goal, Size, percentile
from bench.flows import asking, holding, reached, reached_at
from bench.serving import ACTOR, CONCURRENCY, TENANT, opened, start_runs, until_let_go, worker_process
from bench.usage import usage
from outlast import Workflow
from outlast.cli.serving import GC_THRESHOLDS
from outlast.clocks import SystemClock, chance, process_id
from outlast.core.durations import SECOND, Liveness
from outlast.engine import commands
from outlast.engine.worker import WorkerProcess
from outlast.store.port import Store

STORES = ("sqlite",)
REPEATS = 1
TINY = Liveness(heartbeat_window=600, heartbeat_every=200)
SHORT = Liveness(heartbeat_window=3 * SECOND, heartbeat_every=1 * SECOND)
MEGA = 1_000_000
NS = 1_000_000_000
PACE_S = 0.05  # between two decisions, so that they meet the agents at all times
GOALS = (
    Goal("cpu_ms", "ms CPU/step", gate=2.5, digits=2),
    Goal("cpu_share", "of one core", digits=2),
    Goal("mb_each", "MB/agent", digits=2),
    Goal("decision_p50_ms", "ms", digits=1),
    Goal("decision_p99_ms", "ms", digits=1),
    Goal("alone_decision_p50_ms", "ms", digits=1),
    Goal("alone_decision_p99_ms", "ms", digits=1),
    Goal("takeover_p50_s", "s", digits=2),
    Goal("takeover_p99_s", "s", gate=5, digits=2),
    Goal("alone_takeover_p50_s", "s", digits=2),
    Goal("alone_takeover_p99_s", "s", digits=2),
)


def measure(size: Size, setup: Setup) -> Figures:
    """Run the agents in this process beside decisions, then kill processes that have them, and ones without."""
    tiny = size is Size.TINY
    count, decisions = size.of(200, 50, 2), size.of(200, 50, 2)
    SlowModel.answer_s = 0.05 if tiny else ANSWER_S
    reached.clear()
    with _collecting_seldom(), setup.engine.place() as place:
        found = asyncio.run(_beside(place.url, count, decisions, 0 if tiny else PACE_S))
    for name, workflow in (("", slow_agents), ("alone_", holding)):
        live, kills = TINY if tiny else SHORT, size.of(3, 1)
        taken = [each for n in range(kills) for each in _kill(setup.engine, workflow, live, count, n / kills)]
        found |= {f"{name}takeover_p{share}_s": percentile(taken, share / 100) for share in (50, 99)}
    return found


@contextmanager
def _collecting_seldom() -> Iterator[None]:
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@asynccontextmanager
async def _serving(store: Store) -> AsyncIterator[WorkerProcess]:
    serving = WorkerProcess(
        store,
        [slow_agents, asking],
        worker=process_id("w"),
        clock=SystemClock(),
        chance=chance,
        concurrency=2 * CONCURRENCY,
    )
    task = asyncio.create_task(serving.run())
    try:
        yield serving
    finally:
        serving.drain()
        await task


async def _beside(url: str, count: int, decisions: int, pace_s: float) -> Figures:
    SlowModel.prints = False
    async with opened(url) as store:
        runs = await start_runs(store, asking, 2 * decisions, prefix="ask")
        async with _serving(store) as serving:
            await until_let_go(serving, store, "waiting", len(runs))
            before = usage()
            alone = await _decided(store, runs[:decisions], pace_s)
            await until_let_go(serving, store, "completed", decisions)
            without = usage().minus(before)
            before = usage()
            await _start(store, slow_agents, count)
            await asyncio.sleep(2 * SlowModel.answer_s)
            beside = await _decided(store, runs[decisions:], pace_s)
            await until_let_go(serving, store, "completed", len(runs) + count)
            took = usage().minus(before)
    return {
        "cpu_ms": (took.cpu_s - without.cpu_s) / (count * ANSWERS) * 1_000,
        "cpu_share": took.cpu_s / took.wall_s,
        "mb_each": took.resident / count / MEGA,
        **{f"decision_{name}": beside[name] for name in ("p50_ms", "p99_ms")},
        **{f"alone_decision_{name}": alone[name] for name in ("p50_ms", "p99_ms")},
    }


async def _decided(store: Store, runs: list[str], pace_s: float) -> Figures:
    decider = await Decider.of(store, runs)
    for run in runs:
        await decider.decide(run)
        decider.line(run, await reached_at(run))
        await asyncio.sleep(pace_s)
    return of_decisions(decider)


async def _start(store: Store, workflow: Workflow[Any], count: int) -> None:
    if workflow is holding:
        await start_runs(store, holding, count, loops=1)
        return
    given = {"objective": "look around"}
    for n in range(count):
        await commands.start(store, slow_agents, given, tenant=TENANT, actor=ACTOR, run=f"agent-{n}")


def _kill(engine: Engine, workflow: Workflow[Any], live: Liveness, count: int, share: float) -> list[float]:
    """Return for each run the seconds from the kill to its next line in another process.

    The line of an agent is its next request. The kill comes after this share of a heartbeat.
    """
    with engine.place() as place:
        asyncio.run(_started(place.url, workflow, count))
        with worker_process(place.url, workflow, live, count) as first:
            for _ in range(count):
                first.line()
            with worker_process(place.url, workflow, live, count) as second:
                time.sleep((1 + share) * live.heartbeat_every / SECOND)
                killed = time.monotonic_ns()
                first.kill()
                seen: dict[str, int] = {}
                while len(seen) < count:
                    line = second.line()
                    seen.setdefault(line.run, line.at_ns)
                second.kill()
    return [(at - killed) / NS for at in seen.values()]


async def _started(url: str, workflow: Workflow[Any], count: int) -> None:
    async with opened(url) as store:
        await _start(store, workflow, count)

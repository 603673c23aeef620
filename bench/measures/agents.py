"""200 agents in one process at 2 s per answer: memory and CPU, takeovers after a kill, and decisions beside them."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.agents import ANSWER_S, ANSWERS, SlowModel, slow_agents
from bench.deciding import Decider
from bench.deciding import figures as of_decisions
from bench.engines import Engine, Setup
from bench.figures import Figures, Goal, Size, percentile
from bench.flows import asking, reached, reached_at
from bench.serving import ACTOR, CONCURRENCY, TENANT, opened, start_runs, until_let_go, worker_process
from bench.usage import usage
from outlast.core.durations import SECOND, Liveness
from outlast.engine import commands
from outlast.engine.worker import WorkerProcess
from outlast.runtime.clocks import SystemClock, chance, process_id
from outlast.store.port import Store

STORES = ("sqlite",)
REPEATS = 1
TINY = Liveness(heartbeat_window=600, heartbeat_every=200)
SHORT = Liveness(heartbeat_window=3 * SECOND, heartbeat_every=1 * SECOND)
MEGA = 1_000_000
NS = 1_000_000_000
GOALS = (
    Goal("cpu_ms", "ms CPU/step", digits=2),
    Goal("cpu_share", "of one core", digits=2),
    Goal("mb_each", "MB/agent", digits=2),
    Goal("takeover_p99_s", "s", gate=5, digits=2),
    Goal("decision_p50_ms", "ms", digits=1),
    Goal("decision_p99_ms", "ms", digits=1),
    Goal("alone_p50_ms", "ms", digits=1),
    Goal("alone_p99_ms", "ms", digits=1),
)


def measure(size: Size, setup: Setup) -> Figures:
    """Run the agents in this process beside decisions, then kill a process that has them."""
    count, decisions = size.of(200, 50, 2), size.of(200, 50, 2)
    SlowModel.answer_s = 0.05 if size is Size.TINY else ANSWER_S
    reached.clear()
    with setup.engine.place() as place:
        found = asyncio.run(_beside(place.url, count, decisions))
    taken = _kill(setup.engine, TINY if size is Size.TINY else SHORT, count)
    return found | {"takeover_p99_s": percentile(taken, 0.99)}


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


async def _beside(url: str, count: int, decisions: int) -> Figures:
    SlowModel.prints = False
    async with opened(url) as store:
        runs = await start_runs(store, asking, 2 * decisions, prefix="ask")
        async with _serving(store) as serving:
            await until_let_go(serving, store, "waiting", len(runs))
            alone = await _decided(store, runs[:decisions])
            await until_let_go(serving, store, "completed", decisions)
            before = usage()
            await _start(store, count)
            await asyncio.sleep(2 * SlowModel.answer_s)
            beside = await _decided(store, runs[decisions:])
            await until_let_go(serving, store, "completed", len(runs) + count)
            took = usage().minus(before)
    return {
        "cpu_ms": took.cpu_s / (count * ANSWERS) * 1_000,
        "cpu_share": took.cpu_s / took.wall_s,
        "mb_each": took.resident / count / MEGA,
        **{f"decision_{name}": beside[name] for name in ("p50_ms", "p99_ms")},
        **{f"alone_{name}": alone[name] for name in ("p50_ms", "p99_ms")},
    }


async def _decided(store: Store, runs: list[str]) -> Figures:
    decider = await Decider.of(store, runs)
    for run in runs:
        await decider.decide(run)
        decider.line(run, await reached_at(run))
    return of_decisions(decider)


async def _start(store: Store, count: int) -> None:
    given = {"objective": "look around"}
    for n in range(count):
        await commands.start(store, slow_agents, given, tenant=TENANT, actor=ACTOR, run=f"agent-{n}")


def _kill(engine: Engine, live: Liveness, count: int) -> list[float]:
    """Return for each agent the seconds from the kill to its next request in another process."""
    with engine.place() as place:
        asyncio.run(_started(place.url, count))
        with worker_process(place.url, slow_agents, live, count) as first:
            for _ in range(count):
                first.line()
            with worker_process(place.url, slow_agents, live, count) as second:
                time.sleep(1)
                killed = time.monotonic_ns()
                first.kill()
                seen: dict[str, int] = {}
                while len(seen) < count:
                    line = second.line()
                    seen.setdefault(line.run, line.at_ns)
                second.kill()
    return [(at - killed) / NS for at in seen.values()]


async def _started(url: str, count: int) -> None:
    async with opened(url) as store:
        await _start(store, count)

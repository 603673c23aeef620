"""The same runs scheduled by our workers, LangGraph and a Temporal server: cost of a step and a wait, time of a wake.

The server is Temporal's development server on a file. Its CPU counts, and so does that of the worker. `dead` is a wait
for a time while no bridge wakes anything: the engine's own timer finds the run.
"""

import asyncio
import time
from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

from bench import flows
from bench.deciding import Decider
from bench.engines import Setup
from bench.figures import Figures, Goal, Size, percentile
from bench.serving import TENANT, opened, served, start_runs, until_let_go
from bench.usage import resident_tree, tree
from outlast import Workflow
from outlast.core.lanes import OWN
from outlast.core.rows.run_rows import RUN, Run
from outlast.engine.guest import Guest
from outlast.langgraph import LangGraphGuest
from outlast.store.port import Store
from outlast.store.queries import CountBy
from outlast.temporal import TemporalGuest
from outlast.temporal.run_workflow import workflow_id
from tests.temporal.server import TemporalServer

REPEATS = 1
MS = 1_000_000
NAMES = (OWN, "langgraph", "temporal")
EACH = (
    Goal("step_ms", "ms", digits=2),
    Goal("step_cpu_ms", "ms", digits=2),
    Goal("alone_ms", "ms", digits=1),
    Goal("wait_cpu_ms", "ms", digits=2),
    Goal("decision_p50_ms", "ms", digits=1),
    Goal("decision_p99_ms", "ms", digits=1),
    Goal("nap_late_p50_ms", "ms", digits=1),
)
GOALS = (
    *(goal._replace(name=f"{name}_{goal.name}") for name in NAMES for goal in EACH),
    Goal("temporal_dead_late_p50_ms", "ms", digits=1),
    Goal("temporal_events_run", ""),
    Goal("temporal_events_wait", ""),
    Goal("temporal_bytes_run", "B"),
    Goal("temporal_disk_run", "B"),
    Goal("temporal_idle_percent", "% CPU", digits=1),
    Goal("temporal_server_mb", "MB"),
)


class DeafGuest(TemporalGuest):
    """A guest whose bridge starts workflows and wakes none."""

    async def wake(self, runs: Sequence[Run]) -> None:
        """Start the workflows of new runs."""
        await super().wake([run for run in runs if run.epoch == 0])


class Bench(NamedTuple):
    """What is measured on: a store, the server if it schedules, and their CPU."""

    name: str
    store: Store
    server: TemporalServer | None

    async def guest(self, flow: Workflow[Any], kind: type[TemporalGuest] = TemporalGuest) -> Guest | None:
        """Return a new guest, or None for our scheduler."""
        if self.server is not None:
            return kind(client=await self.server.client())
        return LangGraphGuest(self.store, [flow]) if self.name == "langgraph" else None

    def cpu_s(self) -> float:
        """Return the CPU seconds of this process and of the server."""
        return time.process_time() + (tree(self.server.pid).cpu_s if self.server is not None else 0.0)


def measure(size: Size, setup: Setup) -> Figures:
    """Measure one scheduler after the other."""
    found: Figures = {}
    for name in NAMES[:-1]:
        with setup.engine.place() as place:
            found |= asyncio.run(_measure(size, name, place.url, None))
    server = TemporalServer()
    try:
        with setup.engine.place() as place:
            found |= asyncio.run(_measure(size, "temporal", place.url, server))
    finally:
        server.close()
    return found


async def _measure(size: Size, name: str, url: str, server: TemporalServer | None) -> Figures:
    async with opened(url) as store:
        at = Bench(name, store, server)
        if server is not None:
            await server.client()
        found = await _steps(at, size.of(500, 100, 5), size.of(20, 10, 1))
        found |= await _waits(at, size.of(200, 50, 3))
        found["nap_late_p50_ms"] = await _naps(at, size.of(20, 10, 2), TemporalGuest, "nap")
        figures = {f"{name}_{key}": value for key, value in found.items()}
        if server is not None:
            figures["temporal_dead_late_p50_ms"] = await _naps(at, size.of(20, 10, 2), DeafGuest, "dead")
            figures |= await _server(at, server, size.of(50, 30, 5) / 10)
        return figures


async def _steps(at: Bench, count: int, alone: int) -> Figures:
    """Measure many runs of ten steps at once, and then single ones from start to end."""
    flow = flows.effectful.scheduled_by(at.name)
    async with served(at.store, flow, await at.guest(flow)) as worker:
        await start_runs(at.store, flow, 2, prefix="warm")
        await until_let_go(worker, at.store, "completed", 2)
        before, begun = at.cpu_s(), time.monotonic()
        await start_runs(at.store, flow, count)
        await until_let_go(worker, at.store, "completed", 2 + count)
        took, used = time.monotonic() - begun, at.cpu_s() - before
        times = []
        for n in range(alone):
            begun = time.monotonic()
            await start_runs(at.store, flow, 1, prefix=f"alone{n}")
            await until_let_go(worker, at.store, "completed", 3 + count + n)
            times.append((time.monotonic() - begun) * 1_000)
    steps = count * flows.STEPS
    return {"step_ms": took / steps * 1_000, "step_cpu_ms": used / steps * 1_000, "alone_ms": median(times)}


async def _waits(at: Bench, count: int) -> Figures:
    """Decide approvals one after the other, until the run's next node begins."""
    flows.reached.clear()
    flow = flows.asking.scheduled_by(at.name)
    before_waits = await _count(at, "completed")
    async with served(at.store, flow, await at.guest(flow)) as worker:
        before = at.cpu_s()
        runs = await start_runs(at.store, flow, count, prefix="asks")
        await until_let_go(worker, at.store, "waiting", count)
        decider = await Decider.of(at.store, runs)
        for run in runs:
            await decider.decide(run)
            decider.line(run, await flows.reached_at(run))
        await until_let_go(worker, at.store, "completed", before_waits + count)
        used = at.cpu_s() - before
    acks = [sample.from_ack for sample in decider.samples]
    return {
        "wait_cpu_ms": used / count * 1_000,
        "decision_p50_ms": percentile(acks, 0.5),
        "decision_p99_ms": percentile(acks, 0.99),
    }


async def _naps(at: Bench, count: int, kind: type[TemporalGuest], prefix: str) -> float:
    """Return how late runs go on after a wait for a time."""
    flows.reached.clear()
    flows.slept.clear()
    flow = flows.napping.scheduled_by(at.name)
    before = await _count(at, "completed")
    async with served(at.store, flow, await at.guest(flow, kind)) as worker:
        runs = await start_runs(at.store, flow, count, prefix=prefix)
        late = [await flows.reached_at(run) - flows.slept[run] for run in runs]
        await until_let_go(worker, at.store, "completed", before + count)
    return median(each / MS - flows.NAP.total_seconds() * 1_000 for each in late)


async def _server(at: Bench, server: TemporalServer, idle_s: float) -> Figures:
    """Measure histories, the file, and the idle server."""
    client = await server.client()
    whole = await client.get_workflow_handle(workflow_id(TENANT, "r0")).fetch_history()
    waits = await client.get_workflow_handle(workflow_id(TENANT, "asks0")).fetch_history()
    runs = await client.count_workflows("WorkflowType = 'outlast.run'")
    file = sum(path.stat().st_size for path in server.folder.glob("temporal.db*"))
    before = tree(server.pid).cpu_s
    await asyncio.sleep(idle_s)
    used = tree(server.pid).cpu_s
    return {
        "temporal_events_run": len(whole.events),
        "temporal_events_wait": len(waits.events) - len(whole.events),
        "temporal_bytes_run": sum(event.ByteSize() for event in whole.events),
        "temporal_disk_run": file / max(1, runs.count),
        "temporal_idle_percent": (used - before) / idle_s * 100,
        "temporal_server_mb": resident_tree(server.pid) / 1_000_000,
    }


async def _count(at: Bench, status: str) -> int:
    return (await at.store.query(CountBy(RUN, TENANT, "status"))).get(status, 0)

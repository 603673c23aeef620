"""A decision in another process than the worker: from the acknowledgement to the first line of the next node."""

import asyncio

from bench.deciding import Decider, figures, goals
from bench.engines import Setup
from bench.figures import Figures, Size
from bench.flows import asking
from bench.serving import Process, opened, start_runs, until_status, worker_process

REPEATS = 1
GOALS = goals(gate_ms=500)


def measure(size: Size, setup: Setup) -> Figures:
    """Make one decision after the other. The worker prints when each next node begins, by the shared clock."""
    with setup.engine.place() as place, worker_process(place.url, asking) as process:
        return asyncio.run(_decide(size.of(1_000, 150, 3), place.url, process))


async def _decide(count: int, url: str, process: Process) -> Figures:
    async with opened(url) as store:
        runs = await start_runs(store, asking, count, loops=1)
        await until_status(store, "waiting", count)
        decider = await Decider.of(store, runs)
        for run in runs:
            await decider.decide(run)
            line = process.line()
            assert line.run == run, line
            decider.line(run, line.at_ns)
    return figures(decider)

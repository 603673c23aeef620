"""A person decides in one process, the worker is another: from the acknowledgement to the next node's first line."""

import asyncio
from pathlib import Path

from bench.deciding import Decider, figures, goals
from bench.figures import Figures, Size
from bench.flows import asking
from bench.place import folder
from bench.serving import Process, opened, start_runs, until_status, worker_process

REPEATS = 1
GOALS = goals(gate_ms=500)


def measure(size: Size) -> Figures:
    """One decision after the other; the worker says when each run's next node has begun, by the clock both share."""
    with folder() as path, worker_process(path, asking) as process:
        return asyncio.run(_decide(size.of(1_000, 150, 3), path, process))


async def _decide(count: int, path: Path, process: Process) -> Figures:
    async with opened(path) as store:
        runs = await start_runs(store, asking, count, loops=1)
        await until_status(store, "waiting", count)
        decider = await Decider.of(store)
        for run in runs:
            await decider.decide(run)
            line = process.line()
            assert line.run == run, line
            decider.line(run, line.at_ns)
    return figures(decider)

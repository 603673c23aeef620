"""A person decides, in the worker's own process: from the acknowledgement to the first line of the next node."""

import asyncio
from pathlib import Path

from bench.deciding import Decider, figures, goals
from bench.figures import Figures, Size
from bench.flows import asking, reached_at
from bench.place import folder
from bench.serving import opened, served, start_runs, until_let_go

REPEATS = 2
GOALS = goals(gate_ms=50)


def measure(size: Size) -> Figures:
    """One decision after the other; each waits until its run has gone on."""
    with folder() as path:
        return asyncio.run(_decide(size.of(1_000, 200, 5), path))


async def _decide(count: int, path: Path) -> Figures:
    async with opened(path) as store:
        runs = await start_runs(store, asking, count)
        async with served(store, asking) as serving:
            await until_let_go(serving, store, "waiting", count)
            decider = await Decider.of(store)
            for run in runs:
                await decider.decide(run)
                decider.line(run, await reached_at(run))
            await until_let_go(serving, store, "completed", count)
    return figures(decider)

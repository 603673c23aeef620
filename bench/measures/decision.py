"""A decision in the worker's process: from the acknowledgement to the first line of the next node."""

import asyncio

from bench.deciding import Decider, figures, goals
from bench.engines import Setup
from bench.figures import Figures, Size
from bench.flows import asking, reached, reached_at
from bench.serving import opened, served, start_runs, until_let_go

REPEATS = 2
GOALS = goals(gate_ms=50)


def measure(size: Size, setup: Setup) -> Figures:
    """Make one decision after the other. Each waits until its run has continued."""
    reached.clear()  # left by an earlier measurement of this process
    with setup.engine.place() as place:
        return asyncio.run(_decide(size.of(1_000, 200, 5), place.url))


async def _decide(count: int, url: str) -> Figures:
    async with opened(url) as store:
        runs = await start_runs(store, asking, count)
        async with served(store, asking) as serving:
            await until_let_go(serving, store, "waiting", count)
            decider = await Decider.of(store, runs)
            for run in runs:
                await decider.decide(run)
                decider.line(run, await reached_at(run))
            await until_let_go(serving, store, "completed", count)
    return figures(decider)

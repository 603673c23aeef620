"""One run alone, where every commit waits for the one before it: its share of the disk's single commits."""

import asyncio
import time
from pathlib import Path
from typing import Any

from bench.commits import commit_rate
from bench.figures import Figures, Goal, Size
from bench.flows import long_effectful, long_readonly
from bench.place import folder
from bench.serving import opened, served, start_runs, until_let_go
from outlast import Workflow

REPEATS = 5
GOALS = (
    Goal("effectful_share", "of control", aim=0.3, least=True, digits=2),
    Goal("readonly_share", "of control", aim=0.5, least=True, digits=2),
    Goal("effectful_per_s", "steps/s"),
    Goal("readonly_per_s", "steps/s"),
    Goal("control_per_s", "commits/s"),
)


def measure(size: Size) -> Figures:
    """The control is taken before, between and after the two, so that each stands beside its own."""
    steps, pause = size.of(500, 200, 20), size.of(50, 20, 5) / 100
    with folder() as first, folder() as second:
        controls = [commit_rate(first, pause)]
        effectful = asyncio.run(_walk(long_effectful, steps, first))
        controls.append(commit_rate(first, pause))
        readonly = asyncio.run(_walk(long_readonly, steps, second))
        controls.append(commit_rate(second, pause))
    return {
        "effectful_share": effectful / ((controls[0] + controls[1]) / 2),
        "readonly_share": readonly / ((controls[1] + controls[2]) / 2),
        "effectful_per_s": effectful,
        "readonly_per_s": readonly,
        "control_per_s": sum(controls) / len(controls),
    }


async def _walk(workflow: Workflow[Any], steps: int, path: Path) -> float:
    async with opened(path) as store:
        await start_runs(store, workflow, 1, loops=steps)
        begun = time.perf_counter()
        async with served(store, workflow) as serving:
            await until_let_go(serving, store, "completed", 1)
            return steps / (time.perf_counter() - begun)

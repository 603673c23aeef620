"""Many runs of ten nodes in one worker process: steps a second, and what a step costs."""

import asyncio
from pathlib import Path
from typing import Any

from bench.commits import commit_rate
from bench.figures import Figures, Goal, Size
from bench.flows import STEPS
from bench.place import folder, size_of
from bench.serving import opened, served, start_runs, until_let_go
from bench.usage import Usage, usage
from outlast import Workflow

MICRO = 1_000_000
SHOWN = (
    Goal("loop_us", "µs CPU/step"),
    Goal("writer_us", "µs CPU/step"),
    Goal("other_us", "µs CPU/step"),
    Goal("kept_bytes", "B/step"),
    Goal("disk_bytes", "B/step"),
    Goal("control_per_s", "commits/s"),
)


def measure_steps(workflow: Workflow[Any], size: Size) -> Figures:
    """All runs are started first; then one worker walks them to their end."""
    runs = size.of(1_000, 300, 20)
    pause = size.of(50, 30, 5) / 100
    with folder() as path:
        before = commit_rate(path, pause)
        used = asyncio.run(_walk(workflow, runs, path))
        kept = size_of(path, "bench.db*")
        after = commit_rate(path, pause)
    steps = runs * STEPS
    threads = {name: seconds / steps * MICRO for name, seconds in used.threads_s.items()}
    loop, writer = threads.get("loop", 0.0), threads.get("writer", 0.0)
    cpu = used.cpu_s / steps * MICRO
    return {
        "steps_per_s": steps / used.wall_s,
        "cpu_us": cpu,
        "loop_us": loop,
        "writer_us": writer,
        "other_us": max(cpu - loop - writer, 0.0),
        "kept_bytes": kept / steps,
        "disk_bytes": used.written / steps,
        "control_per_s": (before + after) / 2,
    }


async def _walk(workflow: Workflow[Any], runs: int, path: Path) -> Usage:
    async with opened(path) as store:
        await start_runs(store, workflow, runs)
        begun = usage()
        async with served(store, workflow) as serving:
            await until_let_go(serving, store, "completed", runs)
            return usage().minus(begun)

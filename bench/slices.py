"""One side of bench/pairs.py: `python -P bench/slices.py METRIC URL time|count`, with PYTHONPATH naming a checkout.

Each line on standard input asks for a slice: runs are started, then a worker executes them and their cost is printed as
JSON. Between two slices the process only reads standard input. The workflows and the way to serve come from the
checkout, so this file uses nothing else of it. With `count` it counts calls of Python functions, which is slow.
"""

import asyncio
import gc
import json
import signal
import sys
import threading
from types import FrameType
from typing import Any, NamedTuple

import outlast
from bench import flows, serving
from bench.usage import usage
from outlast import Workflow
from outlast.store.port import Store

LOOK_S, SELDOM_S = 0.002, 0.05  # poll intervals for the end of a slice; seldom while calls are counted
WRITERS = ("writer", "postgres")  # threads that access a store


class Slice(NamedTuple):
    """One slice: runs of one workflow with a number of steps each."""

    workflow: Workflow[Any]
    runs: int
    steps: int
    start: dict[str, Any]


METRICS = {
    "steps_effectful": Slice(flows.effectful, 100, 10, {}),
    "steps_readonly": Slice(flows.readonly, 100, 10, {}),
    "one_run": Slice(flows.long_effectful, 1, 300, {"loops": 300}),
    "one_run_readonly": Slice(flows.long_readonly, 1, 300, {"loops": 300}),
    "state": Slice(flows.cargo, 1, 80, {"loops": 80, "size": 1_000_000}),
    "logged": Slice(flows.logging, 100, 10, {}),
}


class Calls:
    """Number of calls of Python functions, in all threads that were started later."""

    def __init__(self) -> None:
        self.made = 0

    def install(self) -> None:
        """Count from now on."""
        threading.setprofile(self._count)
        sys.setprofile(self._count)

    def _count(self, frame: FrameType, event: str, arg: object) -> None:
        self.made += event == "call"


async def measure(store: Store, what: Slice, number: int, before: int) -> dict[str, float]:
    """Execute one slice and return its cost per step. `before` runs have completed earlier."""
    starts = {"prefix": f"slice{number}-", **what.start}
    await serving.start_runs(store, what.workflow, what.runs, **starts)
    gc.collect()
    steps = what.runs * what.steps
    begun = usage()
    async with serving.served(store, what.workflow) as worker:
        await serving.until_let_go(worker, store, "completed", before + what.runs)
        used = usage().minus(begun)
    threads = used.threads_s
    return {
        "steps": float(steps),
        "wall_us": used.wall_s / steps * 1e6,
        "cpu_us": used.cpu_s / steps * 1e6,
        "loop_us": threads.get("loop", 0.0) / steps * 1e6,
        "writer_us": sum(threads.get(name, 0.0) for name in WRITERS) / steps * 1e6,
    }


async def answer(what: Slice, url: str, calls: Calls | None) -> None:
    """Measure a slice for each line. Blocks the loop in between, so that the process is idle."""
    async with serving.opened(url) as store:
        for number, _ in enumerate(sys.stdin):
            made = calls.made if calls else 0
            figures = await measure(store, what, number, number * what.runs)
            figures["calls"] = (calls.made - made) / (what.runs * what.steps) if calls else 0.0
            print(json.dumps(figures), flush=True)


def main(metric: str, url: str, mode: str) -> None:
    """Answer until the end of standard input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends this process
    serving.LOOK_S = SELDOM_S if mode == "count" else LOOK_S
    calls = Calls() if mode == "count" else None
    if calls:
        calls.install()
    print(outlast.__file__, flush=True)
    asyncio.run(answer(METRICS[metric], url, calls))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A worker process of a measurement: `python -m bench.serve STORE WORKFLOW CONCURRENCY [WINDOW EVERY]`.

It prints that it is ready, serves after `go` on standard input, and answers each `report` with its resource usage.
"""

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from bench import agents, flows
from bench.serving import opened, served, start_runs, until_let_go, worker
from bench.usage import usage
from outlast import Workflow
from outlast.core import crash_points
from outlast.core.durations import Liveness
from outlast.flow.workflow import workflows_of
from outlast.runtime.stores import open_store

WARM_RUNS, WARM_LOOPS = 4, 25


def listen(loop: asyncio.AbstractEventLoop, go: asyncio.Event) -> None:
    """Read commands from standard input, line by line."""
    for line in sys.stdin:
        if line.strip() == "go":
            loop.call_soon_threadsafe(go.set)
        else:
            os.write(1, (json.dumps(usage()._asdict()) + "\n").encode())


def noting(path: str) -> crash_points.Hook:
    """Write the run of each intent and the time its commit returned (monotonic ns)."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(name: str, labels: Sequence[str]) -> None:
        if name == "store.batch:after":
            runs = [label.split()[0] for label in labels if " intend " in label]
            os.write(file, "".join(f"{run} {time.monotonic_ns()}\n" for run in runs).encode())

    return note


async def warm(workflow: Workflow[Any]) -> None:
    """Run a few runs in memory first, because a worker is measured after its first runs."""
    if workflow in flows.WARMED:
        async with opened("memory:") as store, served(store, workflow) as serving:
            await start_runs(store, workflow, WARM_RUNS, loops=WARM_LOOPS)
            await until_let_go(serving, store, "completed", WARM_RUNS)


async def serve(url: str, name: str, concurrency: int, live: Liveness | None) -> None:
    """Serve one workflow of bench/flows.py until SIGTERM."""
    served_here = [*workflows_of(flows), agents.slow_agents.validate()]
    workflow = next(w for w in served_here if w.name == name)
    await warm(workflow)
    if path := os.environ.get(flows.NOTES):
        crash_points.hook = noting(path)
        flows.open_clients()
    store = await open_store(url)
    serving = worker(store, workflow, live, concurrency)
    loop, go = asyncio.get_running_loop(), asyncio.Event()
    threading.Thread(target=listen, args=(loop, go), daemon=True).start()
    loop.add_signal_handler(signal.SIGTERM, lambda: (go.set(), serving.drain()))
    os.write(1, f"ready - {os.getpid()} {time.monotonic_ns()}\n".encode())
    await go.wait()
    await serving.run()
    await store.close()


if __name__ == "__main__":
    times = [int(ms) for ms in sys.argv[4:6]]
    lives = Liveness(heartbeat_window=times[0], heartbeat_every=times[1]) if times else None
    asyncio.run(serve(sys.argv[1], sys.argv[2], int(sys.argv[3]), lives))

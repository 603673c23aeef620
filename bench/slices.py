"""One side of bench/pairs.py: `python -P bench/slices.py METRIC URL time|count`, with PYTHONPATH naming a checkout.

Each line on standard input asks for a slice: runs are started, then a worker executes them and their cost is printed as
JSON. Or a client starts runs or sends signals, in this process or over HTTP, and no worker executes them; then a step
is one call. Between two slices the process only reads standard input. The workflows and the way to serve come from the
checkout, so this file uses nothing else of it. With `count` it counts calls of Python functions, which is slow.
"""

import asyncio
import gc
import json
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from types import FrameType
from typing import Any, NamedTuple

import outlast
from bench import flows, serving
from bench.usage import Usage, tree, usage
from outlast import Context, Workflow
from outlast.core.rows.store_rows import WRITER
from outlast.store.port import Store

LOOK_S, SELDOM_S = 0.002, 0.05  # poll intervals for the end of a slice; seldom while calls are counted
WRITERS = ("writer", "postgres")  # threads that access a store


class Slice(NamedTuple):
    """One slice: runs of one workflow with a number of steps each."""

    workflow: Workflow[Any]
    runs: int
    steps: int
    start: dict[str, Any]
    ends: str = "completed"
    """Status of a run that its worker has released."""


flagged = Workflow("bench-flagged", state=flows.Count)  # here, because an earlier checkout has no such workflow


@flagged.node(start=True)
async def fail_at_once(ctx: Context[flows.Count]) -> None:
    """Raise, so that the run needs a person. The messages differ and have one normal form."""
    raise ValueError(f"order {ctx.run_id!r} of {ctx.state.n + 7} EUR is unknown at 10.0.0.1")


METRICS = {
    "steps_effectful": Slice(flows.effectful, 100, 10, {}),
    "steps_readonly": Slice(flows.readonly, 100, 10, {}),
    "one_run": Slice(flows.long_effectful, 1, 300, {"loops": 300}),
    "one_run_readonly": Slice(flows.long_readonly, 1, 300, {"loops": 300}),
    "state": Slice(flows.cargo, 1, 80, {"loops": 80, "size": 1_000_000}),
    "logged": Slice(flows.logging, 100, 10, {}),
    "flagged": Slice(flagged, 100, 1, {}, "waiting"),
}


class Acts(NamedTuple):
    """One slice of calls of a client, one after the other."""

    of: str
    """Method of the client: start or signal."""
    over_http: bool
    calls: int = 100
    runs: int = 10
    """Runs that the signals are sent to."""


ACTS = {
    "start": Acts("start", over_http=False),
    "start_http": Acts("start", over_http=True),
    "signal": Acts("signal", over_http=False),
    "signal_http": Acts("signal", over_http=True),
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


async def measure(store: Store, url: str, what: Slice, number: int, before: int) -> dict[str, float]:
    """Execute one slice and return its cost per step. `before` runs have completed earlier."""
    starts = {"prefix": f"slice{number}-", **what.start}
    await serving.start_runs(store, what.workflow, what.runs, **starts)
    gc.collect()
    steps = what.runs * what.steps
    pages, commits = size_of(url), await batches(store)
    begun = usage()
    async with serving.served(store, what.workflow) as worker:
        await serving.until_let_go(worker, store, what.ends, before + what.runs)
        used = usage().minus(begun)
    written = {
        "commits": (await batches(store) - commits) / steps,
        "kept_bytes": (size_of(url) - pages) / steps,
        "written_bytes": used.written / steps,
    }
    return {"steps": float(steps), **costs_of(used, steps), **written}


async def batches(store: Store) -> int:
    """Return the number of transactions of all writers; on DynamoDB and in memory there are none."""
    return sum(writer.batch for writer in await store.rows(WRITER, ()))


def size_of(url: str) -> int:
    """Return the bytes of a SQLite store without its free pages, 0 for any other store."""
    scheme, _, path = url.partition(":")
    if scheme != "sqlite":
        return 0
    with closing(sqlite3.connect(path)) as db:
        pages, free, size = (
            int(db.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("page_count", "freelist_count", "page_size")
        )
    return (pages - free) * size


def costs_of(used: Usage, steps: int) -> dict[str, float]:
    """Return what was used for a step, in µs."""
    threads = used.threads_s
    return {
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
            figures = await measure(store, url, what, number, number * what.runs)
            figures["calls"] = (calls.made - made) / (what.runs * what.steps) if calls else 0.0
            print(json.dumps(figures), flush=True)


@contextmanager
def service_of(url: str) -> Iterator[tuple[str, int]]:
    """Run the service of the checkout over a store, without a worker. Yield its URL and its process id."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("OUTLAST_")}
    words = ("--store", url, "-o", "ndjson", "serve", "bench.flows", "--port", "0", "--no-worker", "--no-dispatcher")
    command = [sys.executable, "-P", "-m", "outlast", *words]
    with subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"], process.pid
        finally:
            process.terminate()


@asynccontextmanager
async def client_of(what: Acts, url: str) -> AsyncIterator[tuple[Any, int]]:
    """Yield a client of a store, and 0; or one of a service over it, and the process id of the service."""
    if not what.over_http:
        async with outlast.connect(url, workflows=[flows.waiting]) as client:
            yield client, 0
        return
    with service_of(url) as (service, pid):
        async with outlast.connect(service) as client:
            yield client, pid


async def act(client: Any, service: int, what: Acts) -> dict[str, float]:
    """Make the calls of one slice and return their cost per call."""
    runs = [await client.start(flows.waiting, {"loops": 0}) for _ in range(what.runs if what.of == "signal" else 0)]
    gc.collect()
    served = tree(service).cpu_s if service else 0.0
    begun = usage()
    for n in range(what.calls):
        if what.of == "signal":
            await client.signal(runs[n % what.runs].id, "never", {"loops": n})
        else:
            await client.start(flows.waiting, {"loops": 0}, key=f"{begun.wall_s}-{n}")
    used = usage().minus(begun)
    served = tree(service).cpu_s - served if service else 0.0
    return {"steps": float(what.calls), **costs_of(used, what.calls), "service_us": served / what.calls * 1e6}


async def answer_acts(what: Acts, url: str, calls: Calls | None) -> None:
    """Measure a slice of calls for each line, as `answer` does."""
    async with client_of(what, url) as (client, service):
        for _ in sys.stdin:
            made = calls.made if calls else 0
            figures = await act(client, service, what)
            figures["calls"] = (calls.made - made) / what.calls if calls else 0.0
            print(json.dumps(figures), flush=True)


def main(metric: str, url: str, mode: str) -> None:
    """Answer until the end of standard input."""
    logging.getLogger("outlast").addHandler(logging.NullHandler())  # for the tracebacks of `flagged`
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which ends this process
    serving.LOOK_S = SELDOM_S if mode == "count" else LOOK_S
    calls = Calls() if mode == "count" else None
    if calls:
        calls.install()
    print(outlast.__file__, flush=True)
    asyncio.run(answer_acts(ACTS[metric], url, calls) if metric in ACTS else answer(METRICS[metric], url, calls))


if __name__ == "__main__":
    main(*sys.argv[1:])

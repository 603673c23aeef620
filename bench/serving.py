"""A store, runs started on it, and a worker in this process or in another one."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NamedTuple

from bench.usage import Usage
from outlast import Workflow
from outlast.clocks import SystemClock, chance, process_id
from outlast.core.durations import Liveness
from outlast.core.rows.run_rows import RUN
from outlast.engine import commands
from outlast.engine.guest import Guest
from outlast.engine.worker import WorkerProcess
from outlast.runtime.stores import open_store
from outlast.store.port import Store
from outlast.store.queries import CountBy

TENANT = "bench"
ACTOR = "bench"
STARTS = 100  # at once
CONCURRENCY = 200  # concurrency of a measured worker
LOOK_S = 0.005


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    """Open the store of a measurement."""
    store = await open_store(url)
    try:
        yield store
    finally:
        await store.close()


async def start_runs(
    store: Store, workflow: Workflow[Any], count: int, *, first: int = 0, prefix: str = "r", **state: Any
) -> list[str]:
    """Start runs durably and return their ids."""
    ids = [f"{prefix}{n}" for n in range(first, first + count)]
    start = {"loops": 0, **state}
    for at in range(0, count, STARTS):
        starts = [
            commands.start(store, workflow, start, tenant=TENANT, actor=ACTOR, run=run) for run in ids[at : at + STARTS]
        ]
        await asyncio.gather(*starts)
    return ids


def worker(
    store: Store,
    workflow: Workflow[Any],
    live: Liveness | None = None,
    concurrency: int = CONCURRENCY,
    guest: Guest | None = None,
) -> WorkerProcess:
    """Return a worker in this process that does not serve yet."""
    return WorkerProcess(
        store,
        [workflow],
        worker=process_id("w"),
        clock=SystemClock(),
        chance=chance,
        live=live,
        concurrency=concurrency,
        guest=guest,
    )


@asynccontextmanager
async def served(store: Store, workflow: Workflow[Any], guest: Guest | None = None) -> AsyncIterator[WorkerProcess]:
    """Run a worker for this block, then drain it."""
    serving = worker(store, workflow, guest=guest)
    task = asyncio.create_task(serving.run())
    try:
        yield serving
    finally:
        serving.drain()
        await task


async def until_status(store: Store, status: str, count: int) -> None:
    """Return when this many runs have the status."""
    while (await store.query(CountBy(RUN, TENANT, "status"))).get(status, 0) < count:  # noqa: ASYNC110 - in another process
        await asyncio.sleep(0.1)


async def until_let_go(serving: WorkerProcess, store: Store, status: str, count: int) -> None:
    """Return when this worker has released its runs. Polls the worker, which costs the measured process nothing."""
    while True:
        await asyncio.sleep(LOOK_S)
        if not serving.held and (await store.query(CountBy(RUN, TENANT, "status"))).get(status, 0) >= count:
            return


class Line(NamedTuple):
    """A line printed by a measured process, with its time (monotonic ns)."""

    word: str
    run: str
    pid: int
    at_ns: int


class Process:
    """A worker in another process, and its output."""

    def __init__(self, popen: "subprocess.Popen[str]") -> None:
        self._popen = popen
        self.pid = popen.pid

    def line(self) -> Line:
        """Return the next line. Blocks, and raises EOFError when the process has ended."""
        assert self._popen.stdout is not None
        while text := self._popen.stdout.readline():
            parts = text.split()
            if len(parts) == 4:
                return Line(parts[0], parts[1], int(parts[2]), int(parts[3]))
        raise EOFError(f"the measured process has ended: {self._popen.wait()}")

    def begin(self) -> None:
        """Let the worker serve from now on."""
        self._say("go")

    def used(self) -> Usage:
        """Return its resource usage since the start. Other output until then is skipped."""
        self._say("report")
        assert self._popen.stdout is not None
        while text := self._popen.stdout.readline():
            if text.startswith("{"):
                return Usage(**json.loads(text))
        raise EOFError("the measured process has ended")

    def _say(self, word: str) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.write(f"{word}\n")
        self._popen.stdin.flush()

    def kill(self) -> None:
        """Send SIGKILL, so that no handler runs."""
        os.kill(self.pid, signal.SIGKILL)
        self._popen.wait()

    def end(self) -> None:
        """Drain the worker, and kill it if it does not end."""
        if self._popen.poll() is None:
            self._popen.terminate()
            try:
                self._popen.wait(10)
            except subprocess.TimeoutExpired:
                self._popen.kill()
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None:
                pipe.close()
        self._popen.wait()


@contextmanager
def waiting_process(
    url: str, workflow: Workflow[Any], live: Liveness | None = None, concurrency: int = CONCURRENCY
) -> Iterator[Process]:
    """Run a worker process for this block, ready but idle."""
    command = [sys.executable, "-m", "bench.serve", url, workflow.name, str(concurrency)]
    if live is not None:
        command += [str(live.heartbeat_window), str(live.heartbeat_every)]
    process = Process(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    try:
        said = process.line()
        assert said.word == "ready", said
        yield process
    finally:
        process.end()


@contextmanager
def worker_process(
    url: str, workflow: Workflow[Any], live: Liveness | None = None, concurrency: int = CONCURRENCY
) -> Iterator[Process]:
    """Run a worker process for this block that serves at once."""
    with waiting_process(url, workflow, live, concurrency) as process:
        process.begin()
        yield process

"""A store, runs started on it, and a worker: in this process, or each in one of its own."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from outlast import Workflow
from outlast.core.budget import Liveness
from outlast.core.rows import RUN
from outlast.engine import commands
from outlast.engine.worker import WorkerProcess
from outlast.runtime.clocks import SystemClock, chance, process_id
from outlast.runtime.open import open_store
from outlast.store.port import Store

TENANT = "bench"
ACTOR = "bench"
STARTS = 100  # at once
CONCURRENCY = 200  # of a measured worker
LOOK_S = 0.005


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Store]:
    """The store of a measurement."""
    store = await open_store(f"sqlite:{folder / 'bench.db'}")
    try:
        yield store
    finally:
        await store.close()


async def start_runs(store: Store, workflow: Workflow[Any], count: int, *, first: int = 0, loops: int = 0) -> list[str]:
    """Start so many runs, durably; answers their ids."""
    ids = [f"r{n}" for n in range(first, first + count)]
    for at in range(0, count, STARTS):
        starts = [
            commands.start(store, workflow, {"loops": loops}, tenant=TENANT, actor=ACTOR, run=run)
            for run in ids[at : at + STARTS]
        ]
        await asyncio.gather(*starts)
    return ids


def worker(store: Store, workflow: Workflow[Any], live: Liveness | None = None) -> WorkerProcess:
    """A worker of this process, not yet serving."""
    return WorkerProcess(
        store,
        [workflow],
        worker=process_id("w"),
        clock=SystemClock(),
        chance=chance,
        live=live,
        concurrency=CONCURRENCY,
    )


@asynccontextmanager
async def served(store: Store, workflow: Workflow[Any]) -> AsyncIterator[WorkerProcess]:
    """A worker that serves while the block runs, then drains."""
    serving = worker(store, workflow)
    task = asyncio.create_task(serving.run())
    try:
        yield serving
    finally:
        serving.drain()
        await task


async def until_status(store: Store, status: str, count: int) -> None:
    """Return when so many runs have this status."""
    while (await store.tally(RUN, TENANT, "status")).get(status, 0) < count:  # noqa: ASYNC110 - in another process
        await asyncio.sleep(0.1)


async def until_let_go(serving: WorkerProcess, store: Store, status: str, count: int) -> None:
    """The same for a worker of this process, which is asked first: that costs the measured process nothing."""
    while True:
        await asyncio.sleep(LOOK_S)
        if not serving.held and (await store.tally(RUN, TENANT, "status")).get(status, 0) >= count:
            return


class Line(NamedTuple):
    """What a measured process has said: that a run's line is reached, or that it serves, and when (monotonic ns)."""

    word: str
    run: str
    pid: int
    at_ns: int


class Process:
    """A worker in a process of its own, and what it says."""

    def __init__(self, popen: "subprocess.Popen[str]") -> None:
        self._popen = popen
        self.pid = popen.pid

    def line(self) -> Line:
        """The next thing it says; blocks. Raises EOFError when it has ended."""
        assert self._popen.stdout is not None
        while text := self._popen.stdout.readline():
            parts = text.split()
            if len(parts) == 4:
                return Line(parts[0], parts[1], int(parts[2]), int(parts[3]))
        raise EOFError(f"the measured process has ended: {self._popen.wait()}")

    def report(self) -> dict[str, float]:
        """Ask it what it uses; see bench/serve.py."""
        assert self._popen.stdin is not None and self._popen.stdout is not None
        self._popen.stdin.write("report\n")
        self._popen.stdin.flush()
        while text := self._popen.stdout.readline():
            if text.startswith("{"):
                found: dict[str, float] = json.loads(text)
                return found
        raise EOFError("the measured process has ended")

    def kill(self) -> None:
        """SIGKILL: no handler, no goodbye."""
        os.kill(self.pid, signal.SIGKILL)
        self._popen.wait()

    def end(self) -> None:
        """Let it drain; kill it if it does not."""
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
def worker_process(folder: Path, workflow: Workflow[Any], live: Liveness | None = None) -> Iterator[Process]:
    """A worker in a process of its own, serving when the block begins, gone when it ends."""
    command = [sys.executable, "-m", "bench.serve", str(folder / "bench.db"), workflow.name]
    if live is not None:
        command += [str(live.heartbeat_window), str(live.heartbeat_every)]
    process = Process(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    try:
        said = process.line()
        assert said.word == "serving", said
        yield process
    finally:
        process.end()

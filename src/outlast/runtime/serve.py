"""The workers of this process, put together: the engine's, with the system's clock and dice."""

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from outlast.core.budget import FILE_CHECK, SECOND, STORE_RETRY, Liveness
from outlast.core.clock import Clock
from outlast.core.generation import GENERATION
from outlast.core.rows import META
from outlast.engine.alerts import Notifier
from outlast.engine.worker import WorkerProcess, budget_of
from outlast.errors import StoreError, StoreReplaced, restored
from outlast.flow.workflow import Workflow
from outlast.runtime.clocks import SystemClock, chance, process_id
from outlast.store.port import Store, lost
from outlast.telemetry import Counters, Observer
from outlast.telemetry.logs import Outage, RunLog
from outlast.telemetry.traces import Traces


def worker_of(
    store: Store,
    workflows: Sequence[Workflow[Any]],
    *,
    live: Liveness | None = None,
    concurrency: int = 100,
    name: str = "",
    clock: Clock | None = None,
    threads: bool = True,
    notifier: Notifier | None = None,
    watch: Observer | None = None,
) -> WorkerProcess:
    """A worker that was never started before. `watch`: who looks at what it does (default: see `observability`).

    Raises DefinitionError, ValueError for durations that contradict.
    """
    return WorkerProcess(
        store,
        workflows,
        worker=process_id("w"),
        clock=clock or SystemClock(),
        chance=chance,
        live=live,
        concurrency=concurrency,
        name=name,
        threads=threads,
        notifier=notifier,
        about=process_info(),
        watch=watch if watch is not None else observability(),
    )


def observability(counters: Counters | None = None) -> Observer | None:
    """What this process is watched by: spans where it has loaded OpenTelemetry's SDK, log lines where it logs them,
    and `counters`, where somebody reads them; None where nobody looks, and then nothing is looked at."""
    traces, journal = Traces.wanted(), RunLog.wanted()
    if counters is None and traces is None and journal is None:
        return None
    return Observer(counters, traces, journal)


def process_info() -> dict[str, str | int]:
    """Where this process runs and of which version it is, for the list of workers."""
    found: dict[str, str | int] = {"pid": os.getpid(), "host": socket.gethostname()}
    with suppress(PackageNotFoundError):  # run from a tree that was never installed
        found["version"] = version("outlast")
    return found


class Serving:
    """The workers of this process, one after the other: one that was replaced is followed by a new one (S-2).

    A database that is away for longer than the heartbeat window would else have ended every worker for ever.
    """

    def __init__(self, store: Store, make: Callable[[], WorkerProcess], clock: Clock | None = None) -> None:
        """`make` gives a worker that was never started before."""
        self.worker = make()  # the one that serves now
        self._store = store
        self._make = make
        self._clock = clock or SystemClock()
        self._stopping = False

    def drain(self) -> None:
        """Take nothing new, give back what is held, and return from `run`."""
        self._stopping = True
        self.worker.drain()

    async def open(self) -> None:
        """Be seen as a worker by others, before `run`. Raises StoreError if the store cannot be reached."""
        await self.worker.open()

    async def run(self, again: Callable[[WorkerProcess, WorkerProcess], None] = lambda old, new: None) -> None:
        """Serve until drained.

        `again` is told of each worker that was replaced and of its successor. Raises StoreReplaced if the store is gone
        and this process must not go on; StoreError if the store cannot be reached at the start, unless `open` reached
        it before.
        """
        await self.worker.run()
        generation = self.worker.generation
        while self.worker.replaced and not self._stopping:
            before, outage = self.worker, Outage(f"worker {self.worker.id}", self._clock)
            while not self._stopping:  # a store that is away again is asked until it answers
                try:
                    if await self._store.load(META, GENERATION) != generation:
                        raise restored()
                    if self._told():  # while the store was asked: a new worker would never hear of it
                        break
                    self.worker = self._make()
                    await self.worker.open()
                    outage.over()
                    again(before, self.worker)
                    await self.worker.run()
                    break
                except StoreReplaced:
                    raise
                except StoreError as error:
                    outage.met("cannot begin anew", error)
                    await self._clock.sleep(STORE_RETRY)
        if self.worker.store_replaced is not None:
            raise self.worker.store_replaced

    def _told(self) -> bool:
        return self._stopping  # read anew after every await, which a type checker cannot know


class StoreFileWatch:
    """A part of a service: ends it when the store's file is gone."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._drained = asyncio.Event()

    def drain(self) -> None:
        """Return from `run`."""
        self._drained.set()

    async def run(self) -> None:
        """Look each second until drained, and once after that. Raises StoreReplaced."""
        while (gone := lost(self._store)) is None and not self._drained.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(FILE_CHECK / SECOND):
                    await self._drained.wait()
        if gone is not None:
            raise gone


def lease_view(workflows: Sequence[Workflow[Any]], live: Liveness) -> dict[str, Any]:
    """The durations of a worker that serves these workflows, and how its execution budget comes about (REC-2).

    Raises ValueError with the sentence that names a broken relation, DefinitionError.
    """
    budget = budget_of(workflows, live.checked())
    own = [(workflow.lane, budget_of([workflow], live)) for workflow in workflows]
    return {
        **{f"{name}_ms": value for name, value in live._asdict().items() if name != "attempts_max"},
        "attempts_max": live.attempts_max,
        "execution_budget_ms": budget.ms,
        "derivation": budget.derivation,
        "workflows": [
            {"lane": lane, "execution_budget_ms": each.ms, "derivation": each.derivation} for lane, each in own
        ],
    }

"""The worker of this process: made, replaced when it loses its lease, and described to operators."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from outlast.clocks import SystemClock, chance, process_id
from outlast.core.argument_checks import Arguments
from outlast.core.clock_port import Clock
from outlast.core.durations import FILE_CHECK, SECOND, STORE_RETRY, Liveness
from outlast.core.generation import GENERATION
from outlast.core.limits import CONCURRENCY_MAX
from outlast.core.rows.columns import WorkerHealth
from outlast.core.rows.store_rows import META
from outlast.engine.alerts import Notifier
from outlast.engine.call_errors import CallErrors
from outlast.engine.guest import Guest
from outlast.engine.worker import WorkerProcess, claim_time_of
from outlast.errors import StoreError, StoreReplaced, restored
from outlast.flow.workflow import Workflow
from outlast.runtime.bulk_answers import bulk
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
    guest: Guest | None = None,
    errors: CallErrors | None = None,
) -> WorkerProcess:
    """Return a worker that is not started. It serves the built-in workflows, too, unless a guest schedules its runs.

    `watch`: the observer of its work (default: `observability()`). `guest`: the engine that schedules its runs.
    `errors`: as for WorkerProcess. Raises DefinitionError, ValueError for durations that contradict each other.
    """
    check = Arguments("worker")
    workflows = check.members("workflows", workflows, Workflow, "list workflows: [orders]")
    check.number("concurrency", concurrency, 1, CONCURRENCY_MAX)
    check.is_text("name", name, 'name="mail-1"')
    built_in = () if guest is not None else (bulk,)
    return WorkerProcess(
        store,
        [*workflows, *built_in],
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
        guest=guest,
        errors=errors,
    )


def observability(counters: Counters | None = None) -> Observer | None:
    """Return this process's observer, or None if nothing observes.

    It makes spans if OpenTelemetry's SDK is loaded, log lines if logging is on, and adds to `counters` if given.
    """
    traces, journal = Traces.wanted(), RunLog.wanted()
    if counters is None and traces is None and journal is None:
        return None
    return Observer(counters, traces, journal)


def process_info() -> WorkerHealth:
    """Return process id, host and version, for the list of workers."""
    found = WorkerHealth(pid=os.getpid(), host=socket.gethostname())
    with suppress(PackageNotFoundError):  # run from a tree that is not installed
        found = found._replace(version=version("outlast"))
    return found


class Serving:
    """The workers of this process, one after the other: a replaced worker is followed by a new one (S-2).

    Without that, an outage longer than the heartbeat window would end every worker.
    """

    def __init__(
        self, store: Store, make: Callable[[], WorkerProcess], clock: Clock | None = None, *, stays: bool = False
    ) -> None:
        """`make` returns a worker that is not started.

        `stays`: when an operator has drained the worker, `run` waits for `drain`: a service goes on without it.
        """
        self.worker = make()
        self._stays = stays
        self._stopped = asyncio.Event()
        self._store = store
        self._make = make
        self._clock = clock or SystemClock()
        self._stopping = False

    def drain(self) -> None:
        """Take no new runs, give back the held ones, and return from `run`."""
        self._stopping = True
        self._stopped.set()
        self.worker.drain()

    async def open(self) -> None:
        """Register the worker before `run`. Raises StoreError if the store is unreachable."""
        await self.worker.open()

    async def run(self, again: Callable[[WorkerProcess, WorkerProcess], None] = lambda old, new: None) -> None:
        """Serve until drained.

        `again` is called with each replaced worker and its successor. Raises StoreReplaced if the store is gone. Raises
        StoreError if the store is unreachable at the start, unless `open` reached it before.
        """
        await self.worker.run()
        generation = self.worker.generation
        while self.worker.replaced and not self._stopping:
            before, outage = self.worker, Outage(f"worker {self.worker.id}", self._clock)
            while not self._stopping:  # retry while the store is unavailable
                try:
                    if await self._store.load(META, GENERATION) != generation:
                        raise restored()
                    if self._is_stopping():  # drained during the read, and a new worker would not learn of it
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
                    outage.met("cannot start a new worker", error)
                    await self._clock.sleep(STORE_RETRY)
        if self.worker.store_replaced is not None:
            raise self.worker.store_replaced
        if self._stays:
            await self._stopped.wait()

    def _is_stopping(self) -> bool:
        return (
            self._stopping
        )  # a method, because a type checker assumes that an attribute does not change during an await


@asynccontextmanager
async def serving(
    store: Store,
    workflows: Sequence[Workflow[Any]],
    *,
    live: Liveness | None = None,
    concurrency: int = 100,
    name: str = "",
) -> AsyncIterator[None]:
    """Serve workflows while the block runs, then give back the runs that the worker holds.

    Raises DefinitionError, StoreError if the store is unreachable at the start, StoreReplaced at the end.
    """
    process = Serving(store, lambda: worker_of(store, workflows, live=live, concurrency=concurrency, name=name))
    await process.open()
    work = asyncio.create_task(process.run())
    try:
        yield
    except BaseException:  # a cancelled block drains, too
        process.drain()
        await asyncio.gather(work, return_exceptions=True)  # because the error of the block is raised
        raise
    process.drain()
    await work


class StoreFileWatch:
    """A part of a service that stops it when the store's file is gone."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._drained = asyncio.Event()

    def drain(self) -> None:
        """Stop checking and return from `run`."""
        self._drained.set()

    async def run(self) -> None:
        """Check each second until drained, and once after. Raises StoreReplaced."""
        while (gone := lost(self._store)) is None and not self._drained.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(FILE_CHECK / SECOND):
                    await self._drained.wait()
        if gone is not None:
            raise gone


def lease_view(workflows: Sequence[Workflow[Any]], live: Liveness, skew: int) -> dict[str, Any]:
    """Return the durations of a worker for these workflows, and how its execution budget is computed (REC-2).

    `skew`: of the store; it widens what another process judges. Raises ValueError with the violated relation,
    DefinitionError.
    """
    longest = claim_time_of(workflows, live.checked())
    own = [(workflow.lane, claim_time_of([workflow], live)) for workflow in workflows]
    return {
        **{f"{name}_ms": value for name, value in live._asdict().items() if name != "attempts_max"},
        "attempts_max": live.attempts_max,
        "execution_budget_ms": longest.ms,
        "derivation": longest.derivation,
        "clock_skew_ms": skew,
        "takeover_ms": live.heartbeat_window + skew,
        "settle_time_ms": live.start_budget + live.attempt_timeout + live.settle_margin + skew,
        "workflows": [
            {"lane": lane, "execution_budget_ms": each.ms, "derivation": each.derivation} for lane, each in own
        ],
    }

"""Waiting for runs: until a run has ended, or until another condition on its row holds. Following of one run.

A commit of this process reports the row that it wrote (`CommitNotifier`), so waiters of runs that this process executes
are notified at once and read nothing. One poll for all waiters of an event loop finds commits of other processes.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar

from outlast.core.rows.run_rows import RUN, Event, Run, RunKey, is_over
from outlast.core.state.delta_packets import Delta
from outlast.engine.commands import no_run
from outlast.engine.delta_sender import DeltaBuffer
from outlast.insight.row_models import run_delta
from outlast.insight.tenant_rows import EVENTS_PER_READ, TenantRows
from outlast.models.runs import RunDelta
from outlast.store.port import CommitNotifier, DeltaChannel, Store

POLL_S: Final = 0.05  # after a new waiter; each further poll waits longer
POLL_MAX_S: Final = 0.25
POLL_GROWTH: Final = 1.25
POLL_S_PER_RUN: Final = 0.001  # bounds a poll for many runs to a few percent of one core

Condition = Callable[[Run], bool]


class RunWaiters:
    """Waiters for runs of one store, by event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._loops: dict[asyncio.AbstractEventLoop, _LoopWaiters] = {}

    async def wait(self, tenant: str, run: str, condition: Condition, *, within_s: float | None = None) -> Run | None:
        """Return the row of a run once it meets the condition; None after `within_s` seconds.

        Raises NotFound, StoreError, errors of `condition`.
        """
        try:
            async with asyncio.timeout(within_s) as waiting:
                return await self._wait(tenant, run, condition)
        except TimeoutError:
            if not waiting.expired():
                raise
            return None

    async def _wait(self, tenant: str, run: str, condition: Condition) -> Run:
        loop = asyncio.get_running_loop()
        here = self._loops.get(loop)
        if here is None:
            here = self._loops[loop] = _LoopWaiters(self._store)
        try:
            return await here.wait((tenant, run), condition)
        finally:
            if here.is_idle() and self._loops.get(loop) is here:
                del self._loops[loop]
                here.stop()


class _LoopWaiters:
    """Waiters of one event loop: one subscription, and one task that polls for all of them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiters: dict[RunKey, list[tuple[asyncio.Future[Run], Condition]]] = {}
        self._new: set[RunKey] = set()  # not read since a waiter came
        self._wake = asyncio.Event()
        # before the first read, so that no commit is missed between them
        self._unsubscribe = store.on_commit(self._landed) if isinstance(store, CommitNotifier) else None
        self._task = asyncio.get_running_loop().create_task(self._poll())

    def is_idle(self) -> bool:
        """Return True if no waiter is left."""
        return not self._waiters

    def stop(self) -> None:
        """End the subscription and the task."""
        if self._unsubscribe is not None:
            self._unsubscribe()
        self._task.cancel()

    async def wait(self, key: RunKey, condition: Condition) -> Run:
        """Return the row of a run once it meets the condition."""
        future: asyncio.Future[Run] = asyncio.get_running_loop().create_future()
        waiter = (future, condition)
        self._waiters.setdefault(key, []).append(waiter)
        self._new.add(key)
        self._wake.set()
        try:
            return await future
        finally:
            others = self._waiters[key]
            others.remove(waiter)
            if not others:
                del self._waiters[key]
                self._new.discard(key)

    def _landed(self, tenant: str, run: str, row: Run | None) -> None:
        if row is not None and (waiters := self._waiters.get((tenant, run))):
            _offer(row, waiters)

    async def _poll(self) -> None:
        pause = POLL_S
        while True:
            keys = tuple(self._new or self._waiters)
            pause = POLL_S if self._new else min(pause * POLL_GROWTH, POLL_MAX_S)
            self._new.clear()
            self._wake.clear()
            await self._read(keys)
            await self._new_or_due(max(pause, len(self._waiters) * POLL_S_PER_RUN))

    async def _read(self, keys: tuple[RunKey, ...]) -> None:
        try:
            rows = await self._store.load_many(RUN, keys, listed=True)
        except Exception as error:  # any error, because a waiter may wait without a limit
            _fail(error, [waiter for key in keys for waiter in self._waiters.get(key, ())])
            return
        for key, row in zip(keys, rows, strict=True):
            waiters = self._waiters.get(key, [])
            if row is None:
                _fail(no_run(*key), waiters)
            else:
                _offer(row, waiters)

    async def _new_or_due(self, pause: float) -> None:
        try:
            async with asyncio.timeout(pause):
                await self._wake.wait()
        except TimeoutError:
            pass  # time to poll


def _offer(row: Run, waiters: list[tuple["asyncio.Future[Run]", Condition]]) -> None:
    for future, condition in waiters:
        if future.done():
            continue
        try:
            if condition(row):
                future.set_result(row)
        except Exception as error:  # an error of the condition is the waiter's
            future.set_exception(error)


def _fail(error: Exception, waiters: list[tuple["asyncio.Future[Run]", Condition]]) -> None:
    for future, _ in waiters:
        if not future.done():
            future.set_exception(error)


T = TypeVar("T")


class Until(Protocol):
    """`Client.until`."""

    async def __call__(self, read: Callable[[], Awaitable[T | None]]) -> T | None: ...


async def follow(rows: TenantRows, until: Until, run: str, after: int) -> AsyncGenerator[str]:
    """Yield the text of each event after a number, until the run has ended. Raises NotFound, StoreError."""

    async def look() -> tuple[Sequence[Event], Run] | None:
        row = await rows.run(run)  # read before the events, which then include the end
        events = await rows.history(run, after=after, limit=EVENTS_PER_READ)
        return (events, row) if events or is_over(row) else None

    while True:
        found = await until(look)
        assert found is not None
        if not found[0]:
            return
        for event in found[0]:
            after = event.seq
            yield event.body.decode()


async def updates(rows: TenantRows, until: Until, run: str, after: int) -> AsyncGenerator[str | RunDelta]:
    """Yield as `follow`, and the deltas of the run as they come. Deltas beyond the limits of a DeltaBuffer are lost."""
    buffer, came = DeltaBuffer(), asyncio.Event()

    def hear(deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            if delta.origin[:2] == (rows.tenant, run):
                buffer.add(delta)
                came.set()

    leave = rows.store.on_deltas(hear) if isinstance(rows.store, DeltaChannel) else None
    events = follow(rows, until, run, after)
    event = asyncio.ensure_future(anext(events, None))
    delta = asyncio.ensure_future(came.wait())
    try:
        while True:
            await asyncio.wait((event, delta), return_when=asyncio.FIRST_COMPLETED)
            if delta.done():
                came.clear()
                delta = asyncio.ensure_future(came.wait())
            for each in buffer.take():  # before the event, because they were sent before it was committed
                yield run_delta(each)
            if event.done():
                if (text := event.result()) is None:
                    return
                yield text
                event = asyncio.ensure_future(anext(events, None))
    finally:
        if leave is not None:
            leave()
        delta.cancel()
        event.cancel()
        await asyncio.gather(event, delta, return_exceptions=True)
        await events.aclose()

"""The store without a server to operate. Its writer and reads run in one thread with its own event loop."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from typing_extensions import override

from outlast.core.clock_port import Clock
from outlast.core.commit import Instant, Mapping
from outlast.core.rows.run_rows import Run
from outlast.errors import OutlastError, Unavailable
from outlast.store.batching_store import LoopStore
from outlast.store.dynamodb.clock import CheckedClock
from outlast.store.dynamodb.connection import (
    Away,
    ConditionRefused,
    Conflicted,
    Connection,
    DynamoAddress,
    Throttled,
    Unusable,
)
from outlast.store.dynamodb.landing import Lander
from outlast.store.dynamodb.maintenance import Housekeeper
from outlast.store.dynamodb.plans import answer
from outlast.store.dynamodb.reads import DynamoReads
from outlast.store.dynamodb.receipts import Receipts
from outlast.store.dynamodb.tables import open_tables, unusable
from outlast.store.dynamodb.takes import RunFinder
from outlast.store.dynamodb.writer import CommitScheduler
from outlast.store.migrations import SCHEMA
from outlast.store.port import Expiry, Maintenance, RunRows
from outlast.store.queries import Query
from outlast.store.threads import WakeSubscribers

T = TypeVar("T")
POLL_S: Final = 1.0
"""Interval at which subscribers of changes are woken, because nothing announces the commits of other processes.

They then ask the index of due runs. Any other way to find that it has changed costs as much, or an item that every
commit writes.
"""
FAILED = (Away, ConditionRefused, Conflicted, Throttled, Unusable)


class DynamoStore(LoopStore, Maintenance, Expiry):
    """Store in four tables of DynamoDB. Opened with `open_dynamodb`, usable only in the process that opened it."""

    count_max = 100  # a row costs 0.6 ms of CPU, and every page counts
    not_inherited = "a connection does not pass to a child"

    def __init__(self, address: DynamoAddress, writer: str, clock: Clock, *, checked: bool = False) -> None:
        super().__init__("outlast-dynamodb")
        self.url = address.shown
        self.writer = writer
        self._address = address
        self._wakes = WakeSubscribers()
        self._checked = CheckedClock(clock, checked=checked)
        self.skew = self._checked.skew
        self._store_clock = store_clock = self._checked.store_clock
        self._connection = Connection(address, wall_ms=store_clock.real)
        self._checked.compare(self._connection.clock_difference)
        self._receipts = Receipts(self._connection, writer)
        self._lander = Lander(self._connection, self._receipts, store_clock, self._checked.refusal, skew=self.skew)
        self._reads = DynamoReads(self._connection, self._store_clock)
        self._finder = RunFinder(self._lander, self._receipts.items)
        self._housekeeper = Housekeeper(self._lander, self._finder, self._reads, self._store_clock, writer)
        self._poll: asyncio.Task[None] | None = None

    # --- life ----------------------------------------------------------------------------
    async def open(self, *, make: bool = True) -> None:
        """Create or check the tables, register the writer and start it.

        Raises StoreUnusable.
        """
        await self._opened(self._open(make), (Unavailable, *FAILED), partial(unusable, self._address))

    async def _open(self, make: bool) -> None:
        await self._connection.open()
        await open_tables(self._connection, make=make)
        self._checked.check_at_opening(self.url)
        await self._register()
        self._tasks = CommitScheduler(self._lander, self._finder, self._wakes)

    async def _register(self) -> None:
        """Write the writer's row by the present settings. It is refused if they change meanwhile."""
        while True:
            await self._lander.refresh()
            try:
                await self._receipts.register(self._lander.now().business)
                return
            except ConditionRefused:
                pass

    @override
    async def _close_in_loop(self) -> None:
        if self._poll is not None:
            self._poll.cancel()
            await asyncio.wait([self._poll])
        if self._tasks is not None:
            await self._tasks.close()
            try:
                await self._receipts.resign()
            except (OutlastError, *FAILED):
                pass  # the receipts stay readable, and purge deletes the row later
        reading = asyncio.all_tasks() - {asyncio.current_task()}
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
        await self._connection.close()

    # --- maintenance --------------------------------------------------------------------------
    @override
    async def set_mapping(self, mapping: Mapping, rearm: Callable[[Run, Mapping], int | None]) -> Mapping:
        stored: Mapping = await self._alone(lambda _: self._housekeeper.set_mapping(mapping, rearm), "set_mapping")
        self._wakes.fire()
        return stored

    @override
    async def purge(self, before: int, n: int) -> int:
        purged: int = await self._alone(lambda _: self._housekeeper.purge(before, n), "purge")
        return purged

    @override
    async def purge_runs(self, runs: Sequence[Run]) -> None:
        await self._alone(lambda _: self._housekeeper.purge_runs(runs), "purge runs")

    @override
    async def purge_ledgers(self, before: int, n: int) -> int:
        purged: int = await self._alone(lambda _: self._housekeeper.purge_ledgers(before, n), "purge ledgers")
        return purged

    @override
    async def expire(self, before: int, n: int, *, runs_kept: int, ledger_kept: int) -> int:
        expire = self._housekeeper.expire
        marked: int = await self._alone(lambda _: expire(before, n, runs_kept, ledger_kept), "expire")
        return marked

    @override
    async def forget(self, n: int) -> int:
        forgotten: int = await self._alone(lambda _: self._housekeeper.forget(n), "forget")
        return forgotten

    # --- reading -------------------------------------------------------------------------
    async def _read(self, read: Coroutine[Any, Any, T]) -> T:
        try:
            self._check_process()
            return await self._in_loop(read)
        except Unavailable:
            read.close()  # if it was not started
            raise
        except (asyncio.CancelledError, RuntimeError):
            task = asyncio.current_task()
            if not self._closed or (task is not None and task.cancelling()):
                raise
            read.close()
            raise self._unusable() from None  # the store was closed meanwhile

    @override
    async def query(self, query: Query[T]) -> T:
        return await self._read(answer(self._reads, query))

    @override
    async def run_rows(self, runs: Sequence[tuple[str, str]]) -> tuple[RunRows | None, ...]:
        return await self._read(self._reads.run_rows(runs))

    @override
    async def now(self) -> Instant:
        return await self._read(self._reads.now())

    @override
    def mapping(self) -> Mapping:
        return self._lander.mapping

    @override
    def facts(self) -> dict[str, str | int]:
        self._check_process()
        return {"store": self.url, "schema": SCHEMA, "region": self._address.region, **self._checked.facts()}

    # --- the rest ------------------------------------------------------------------------
    @override
    def on_change(self, wake: Callable[[], None]) -> Callable[[], None]:
        self._check_process()
        end = self._wakes.subscribe(wake)
        self._loop.call_soon_threadsafe(self._begin_poll)
        return end

    def _begin_poll(self) -> None:
        if self._poll is None or self._poll.done():
            self._poll = asyncio.create_task(self._wake_often(), name="outlast-poll")

    async def _wake_often(self) -> None:
        while self._wakes.has_any():
            await asyncio.sleep(POLL_S)
            if self._loop.time() - self._lander.refreshed_at > 2 * POLL_S:  # a process that takes runs refreshes itself
                try:
                    await self._lander.refresh()
                except (OutlastError, *FAILED):
                    pass  # the subscribers meet the same error
            self._wakes.fire()


async def open_dynamodb(
    url: str, *, writer: str, clock: Clock, checked: bool = False, make: bool = True
) -> DynamoStore:
    """Open or create the store at a URL. Without `make`, it must exist. Raises StoreUnusable.

    `checked`: `clock` is the machine's, so it is compared with DynamoDB's; otherwise all processes share it.
    """
    store = DynamoStore(DynamoAddress.parse(url), writer, clock, checked=checked)
    await store.open(make=make)
    return store

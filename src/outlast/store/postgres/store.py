"""The store for many machines. Its writer, reads and listener run in one thread with its own event loop."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, TypeVar

import asyncpg
from typing_extensions import override

from outlast.core.clock_port import Clock
from outlast.core.commit import Instant, Mapping
from outlast.core.rows.run_rows import Run
from outlast.core.state.delta_packets import Delta
from outlast.errors import OutlastError
from outlast.store.batch import Batch
from outlast.store.batching_store import URGENT_WAIT_S, LoopStore
from outlast.store.delta_channel import DeltaCallback
from outlast.store.port import DeltaChannel, Maintenance, RunRows, Transactions
from outlast.store.postgres import maintenance
from outlast.store.postgres.connection import AWAY, Address, check_durability, connect, unusable
from outlast.store.postgres.deltas import PostgresDeltas
from outlast.store.postgres.listener import NotificationListener
from outlast.store.postgres.maintenance import migrate
from outlast.store.postgres.reads import Reads, answer, present, rows_of_runs
from outlast.store.postgres.session import PostgresSession
from outlast.store.postgres.statements import BEGIN_MAPPING, CHANNEL
from outlast.store.postgres.transactions import PostgresTransaction, TransactionPool
from outlast.store.postgres.writer import WriterTask
from outlast.store.queries import Query
from outlast.store.store_clock import StoreClock
from outlast.store.threads import WakeSubscribers

T = TypeVar("T")
RENEWAL_S: Final = 4.0  # below the heartbeat interval: after an unanswered renewal there is time for two more


class PostgresStore(LoopStore, Maintenance, Transactions, DeltaChannel):
    """Store in one PostgreSQL schema. Opened with `open_postgres`, usable only in the process that opened it."""

    serializes = True
    not_inherited = "a connection does not pass to a child"

    def __init__(self, address: Address, writer: str, clock: Clock | None) -> None:
        super().__init__("outlast-postgres")
        self.url = address.shown
        self.writer = writer
        self._urgent_writer = f"{writer}.renewals"  # has its own receipts, so that a renewal waits for no batch
        self._address = address
        self._wakes = WakeSubscribers()
        self._store_clock = store_clock = StoreClock(clock)
        self._session = PostgresSession(address, writer, store_clock)
        self._urgent = PostgresSession(address, self._urgent_writer, store_clock, answer_s=RENEWAL_S)
        self._reads = Reads(address)
        self._listener = NotificationListener(address, CHANNEL, self._notified, self._wakes.fire)
        self._transactions = TransactionPool(address, writer, store_clock)
        self._deltas = PostgresDeltas(address, writer, self._loop)

    # --- life ----------------------------------------------------------------------------
    async def open(self, *, make: bool = True) -> None:
        """Migrate the schema, register the writer rows and start the writer.

        Raises StoreUnusable.
        """
        await self._opened(self._open(make), (*AWAY, asyncpg.PostgresError), partial(unusable, self._address))

    async def _open(self, make: bool) -> None:
        await self._migrate(make)
        for session, name in self._writers():
            await session.alone(partial(maintenance.register, writer=name), "register", receipt=False)
        self._tasks = WriterTask(self._session, self._urgent, self._wakes)

    async def _migrate(self, make: bool = True) -> None:
        db = await connect(self._address, writes=True, answer_s=None)  # creating an index may take long
        try:
            await check_durability(db, self._address)
            await migrate(db, self._address, make=make)
        finally:
            await db.close(timeout=5)

    @override
    async def _close_here(self) -> None:
        await self._transactions.close()

    @override
    async def _close_in_loop(self) -> None:
        await self._listener.close()
        await self._deltas.close()
        if self._tasks is not None:
            await self._tasks.close()
            try:
                for session, name in self._writers():
                    await session.alone(partial(maintenance.resign, writer=name), "resign", receipt=False)
            except (OutlastError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                pass  # the receipts stay readable, and purge deletes the row later
        await self._reads.close()
        await self._session.close()
        await self._urgent.close()

    def _writers(self) -> tuple[tuple[PostgresSession, str], ...]:
        """Return the writing sessions, each with the id of its writer row."""
        return ((self._session, self.writer), (self._urgent, self._urgent_writer))

    # --- maintenance --------------------------------------------------------------------------
    async def _transact(self, work: "Callable[[asyncpg.Connection[Any], Batch], Awaitable[T]]", label: str) -> T:
        """Run `work` in its own transaction, in order with the commits."""
        answer: T = await self._alone(lambda session: session.alone(work, label), label)
        return answer

    @override
    async def set_mapping(self, mapping: Mapping, rearm: Callable[[Run, Mapping], int | None]) -> Mapping:
        async def work(session: PostgresSession) -> Mapping:
            old = session.mapping
            stored = await session.alone(
                lambda db, b: maintenance.set_mapping(db, b, session.mapping, mapping, rearm),
                "set",
                begin=BEGIN_MAPPING,
            )
            assert stored.version > old.version
            session.mapping = stored
            return stored

        stored: Mapping = await self._alone(work, "set_mapping")
        return stored

    @override
    async def purge(self, before: int, n: int) -> int:
        return await self._transact(lambda db, batch: maintenance.purge(db, batch, before, n), "purge")

    @override
    async def purge_runs(self, runs: Sequence[Run]) -> None:
        await self._transact(lambda db, _: maintenance.purge_runs(db, runs), "purge runs")

    @override
    async def purge_ledgers(self, before: int, n: int) -> int:
        return await self._transact(lambda db, batch: maintenance.purge_ledgers(db, before, n), "purge ledgers")

    @override
    async def forget(self, n: int) -> int:
        return await self._transact(lambda db, batch: maintenance.forget(db, batch, n), "forget")

    @override
    @asynccontextmanager
    async def transaction(self, timeout_ms: int, *, serializable: bool = False) -> AsyncIterator[PostgresTransaction]:
        self._check_process()
        async with self._transactions.open(timeout_ms, serializable=serializable) as opened:
            yield opened

    # --- reading -------------------------------------------------------------------------
    async def _read(self, read: "Callable[[asyncpg.Connection[Any]], Awaitable[T]]") -> T:
        self._check_process()
        return await self._in_loop(self._reads.do(read))

    @override
    async def query(self, query: Query[T]) -> T:
        return await self._read(lambda db: answer(db, query))

    @override
    async def run_rows(self, runs: Sequence[tuple[str, str]]) -> tuple[RunRows | None, ...]:
        return await self._read(lambda db: rows_of_runs(db, runs, self._store_clock))

    @override
    async def now(self) -> Instant:
        return await self._read(lambda db: present(db, self._store_clock))

    @override
    def mapping(self) -> Mapping:
        return self._session.mapping

    @override
    def facts(self) -> dict[str, str | int]:
        self._check_process()
        read = self._reads.do(lambda db: maintenance.facts(db, self._address))
        return asyncio.run_coroutine_threadsafe(read, self._loop).result(URGENT_WAIT_S)

    # --- the rest ------------------------------------------------------------------------
    @override
    def on_change(self, wake: Callable[[], None]) -> Callable[[], None]:
        self._check_process()
        end = self._wakes.subscribe(wake)
        self._loop.call_soon_threadsafe(self._listener.begin)
        return end

    def _notified(self, schema: str) -> None:
        if schema == self._address.schema:
            self._wakes.fire()

    @override
    def publish(self, deltas: Sequence[Delta]) -> None:
        self._deltas.publish(deltas)

    @override
    def on_deltas(self, callback: DeltaCallback) -> Callable[[], None]:
        self._check_process()
        return self._deltas.subscribe(callback)


async def open_postgres(url: str, *, writer: str, clock: Clock | None = None, make: bool = True) -> PostgresStore:
    """Open, create or migrate the store at a URL.

    `clock` is a simulation's, else the server tells the time. Without `make`, the store must exist. Raises
    StoreUnusable.
    """
    store = PostgresStore(Address.parse(url), writer, clock)
    await store.open(make=make)
    return store

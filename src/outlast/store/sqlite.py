"""The embedded store: one SQLite file, any number of processes, one thread that writes (S-7, S-9, S-12)."""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path

from outlast.core.clock import Clock
from outlast.core.commit import Chain, Commit, Done, Instant, Mapping
from outlast.core.rows import STORE, Key, Kind, Row, Run
from outlast.errors import OutlastError, Rejected, StoreUnusable, Unavailable
from outlast.store import chores, sql
from outlast.store.bounds import check
from outlast.store.database import FULL, OFF, Database, unusable
from outlast.store.port import Page, RunRows, Step
from outlast.store.readers import ALL_ROWS, Readers
from outlast.store.session import Session
from outlast.store.ticker import Ticker
from outlast.store.tickets import Take, Task, Ticket
from outlast.store.wakes import Wakes
from outlast.store.writer import Writer

URGENT_WAIT_S = 60.0


class SqliteStore:
    """Promises what store/port.py says. Opened with `open_sqlite`; of use only in the process that opened it."""

    def __init__(self, database: Database, writer: str, clock: Clock) -> None:
        self.url = f"sqlite:{database.path}"
        self.writer = writer
        self._process = os.getpid()
        self._database = database
        self._ticker = Ticker(clock)
        self._wakes = Wakes()
        self._session = Session(database, writer, self._ticker)
        self._register(writer)
        self._readers = Readers(database, self._ticker)
        self._thread = Writer(self._session, self._wakes)
        self._closed = False

    def _register(self, writer: str) -> None:
        try:
            self._session.register()
        except sqlite3.IntegrityError as error:
            raise StoreUnusable(f"writer {writer} exists already", "a writer id is new at each start") from error
        except sqlite3.Error as error:
            raise unusable(self._database.path, error) from error

    def _check_process(self) -> None:
        if self._closed:
            raise Unavailable("the store is closed")
        if os.getpid() != self._process:
            raise Unavailable("this process was forked from the one that opened the store",
                              "SQLite's locks do not pass to a child", "open the store after the fork")  # fmt: skip

    # --- writing -------------------------------------------------------------------------
    def submit(self, commit: Commit, *, chain: Chain | None = None, linger: bool = False) -> "asyncio.Future[Done]":
        """See the port."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Done] = loop.create_future()
        ticket = Ticket(commit, future, loop, chain, linger)
        try:
            check(commit)
        except Rejected as error:
            ticket.out_of_bounds = error
        try:
            self._check_process()
        except Unavailable as error:
            if chain is not None:
                chain.broken = True
            future.set_exception(error)
            future.exception()  # read: a refused commit that nobody awaits is no mistake
        else:
            self._thread.submit(ticket)
        return future

    async def commit(self, commit: Commit, *, chain: Chain | None = None) -> Done:
        """See the port."""
        return await self.submit(commit, chain=chain)

    def hasten(self) -> None:
        """See the port."""
        self._thread.hasten()

    async def urgent(self, commit: Commit) -> Done:
        """See the port."""
        check(commit)
        self._check_process()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Done] = loop.create_future()
        self._thread.submit_first(Ticket(commit, future, loop))
        return await future

    def urgent_sync(self, commit: Commit) -> Done:
        """See the port. Raises Unavailable when the writer's thread is stuck for a minute."""
        check(commit)
        self._check_process()
        future: Future[Done] = Future()
        self._thread.submit_first(Ticket(commit, future, None))
        try:
            return future.result(URGENT_WAIT_S)
        except TimeoutError as error:
            if future.cancel():
                raise Unavailable("the store's writer does not answer") from error
            return future.result()

    async def take(self, lanes: Sequence[str], n: int, step: Step, *, owners: Sequence[str] = ()) -> tuple[Run, ...]:
        """See the port."""
        self._check_process()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[tuple[Run, ...]] = loop.create_future()
        self._thread.submit(Ticket(Take(lanes, n, step, owners), future, loop))
        return await future

    async def set_mapping(self, mapping: Mapping, rearm: Callable[[Run, Mapping], int | None]) -> Mapping:
        """See the port."""

        def work(session: Session) -> Mapping:
            stored = session.alone(lambda s, batch: chores.set_mapping(s, batch, mapping, rearm), "set_mapping")
            session.mapping = stored
            return stored

        stored = await self._alone(work, "set_mapping")
        assert isinstance(stored, Mapping)
        return stored

    async def purge(self, before: int, n: int) -> int:
        """See the port."""
        count = await self._alone(lambda s: s.alone(lambda s, b: chores.purge(s, b, before, n), "purge"), "purge")
        assert isinstance(count, int)
        return count

    async def _alone(self, run: Callable[[Session], object], label: str) -> object:
        """Have the writer's thread do something in a transaction of its own, in order with the commits."""
        self._check_process()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[object] = loop.create_future()
        self._thread.submit(Ticket(Task(run, label), future, loop))
        return await future

    # --- reading -------------------------------------------------------------------------
    async def load(self, kind: Kind, key: Key) -> Row | None:
        """See the port."""
        self._check_process()
        return await self._readers.do(lambda db: self._readers.load(db, kind, key))

    async def load_many(self, kind: Kind, keys: Sequence[Key]) -> tuple[Row | None, ...]:
        """See the port."""
        self._check_process()
        return await self._readers.do(lambda db: tuple(self._readers.load(db, kind, key) for key in keys))

    async def rows(self, kind: Kind, prefix: Key, *, after: Key = (), limit: int = 10_000) -> tuple[Row, ...]:
        """See the port."""
        self._check_process()
        return await self._readers.do(lambda db: self._readers.rows(db, kind, prefix, after, limit))

    async def run_rows(self, runs: Sequence[tuple[str, str]]) -> tuple[RunRows | None, ...]:
        """See the port."""
        self._check_process()
        return await self._readers.do(lambda db: self._readers.run_rows(db, runs))

    async def page(
        self, kind: Kind, tenant: str, where: dict[str, str | int], *, cursor: str = "", limit: int = 50
    ) -> Page:
        """See the port."""
        self._check_process()
        return await self._readers.do(lambda db: self._readers.page(db, kind, tenant, where, cursor, limit))

    async def tally(self, kind: Kind, tenant: str, column: str) -> dict[str, int]:
        """See the port."""
        self._check_process()
        return await self._readers.do(lambda db: self._readers.tally(db, kind, tenant, column))

    async def next_due(self, lanes: Sequence[str]) -> int | None:
        """See the port."""
        self._check_process()
        return await self._readers.do(lambda db: self._readers.next_due(db, lanes))

    async def queued(self, tenant: str, limit: int) -> tuple[Run, ...]:
        """See the port."""
        self._check_process()
        statement, values = (sql.QUEUED_ALL, (limit,)) if tenant == STORE else (sql.QUEUED, (tenant, limit))
        return await self._readers.do(lambda db: self._readers.runs(db, statement, values))

    async def owned(self, owner: str) -> tuple[Run, ...]:
        """See the port."""
        self._check_process()
        return await self._readers.do(lambda db: self._readers.runs(db, sql.OWNED, (owner, ALL_ROWS)))

    async def now(self) -> Instant:
        """See the port."""
        self._check_process()
        return await self._readers.do(self._readers.now)

    def mapping(self) -> Mapping:
        """See the port."""
        return self._session.mapping

    def facts(self) -> dict[str, str | int]:
        """See the port. Reads the settings back from a connection opened as the writer's is."""
        db = self._database.writer()
        try:
            return self._database.facts(db)
        finally:
            db.close()

    # --- the rest ------------------------------------------------------------------------
    def on_change(self, wake: Callable[[], None]) -> Callable[[], None]:
        """See the port."""
        self._check_process()
        end = self._wakes.subscribe(wake)
        self._thread.look()
        return end

    async def migrate(self) -> None:
        """See the port. Opening has done it; a second time changes nothing."""
        await asyncio.to_thread(self._database.migrate)

    async def close(self) -> None:
        """See the port. The log is copied into the file and the writer's row closed."""
        if not self._closed and os.getpid() == self._process:
            self._closed = True
            await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._thread.close()
        self._readers.close()
        try:
            self._session.resign()
            self._session.checkpoint("PASSIVE")  # waits for no reader: a frozen one must not stall the other writers
        except (sqlite3.Error, OutlastError):
            pass  # everything acknowledged is in the log; the next one to open the file finds it there
        self._session.drop()
        self._database.turn.close()


async def open_sqlite(path: str | Path, *, writer: str, clock: Clock) -> SqliteStore:
    """Open, make or migrate the store in a file. Raises StoreUnusable with one clear sentence."""
    return await asyncio.to_thread(partial(_open, Path(path), writer, clock, FULL))


async def open_without_sync(path: str | Path, *, writer: str, clock: Clock) -> SqliteStore:
    """For tests that kill processes only: commits survive a kill, not a power cut. No URL leads here."""
    return await asyncio.to_thread(partial(_open, Path(path), writer, clock, OFF))


def _open(path: Path, writer: str, clock: Clock, synchronous: int) -> SqliteStore:
    database = Database(path, synchronous=synchronous)
    try:
        database.migrate()
        return SqliteStore(database, writer, clock)
    except BaseException:  # whatever it was, the lock is let go of and it is told
        database.turn.close()
        raise

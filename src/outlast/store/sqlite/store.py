"""The embedded store: one SQLite file, any number of processes, one writing thread each (S-7, S-9, S-12)."""

import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from typing_extensions import override

from outlast.core.clock_port import Clock
from outlast.core.commit import Commit, Instant, Mapping, Put
from outlast.core.durations import ANSWERS_KEPT, CLOCK_STEP, WORKERS_KEPT
from outlast.core.generation import FILE, LEDGERS, compare_files, ledgers_after, ledgers_of, store_file_of
from outlast.core.machine import LeaseStatus
from outlast.core.rows.run_rows import TOKEN, Run, start_token_of
from outlast.core.rows.store_rows import META, REQUEST, STORE, WORKER
from outlast.core.state.delta_packets import Delta
from outlast.errors import Conflict, OutlastError, Rejected, StoreReplaced, StoreUnusable
from outlast.store import sql
from outlast.store.batch import Batch
from outlast.store.batching_store import BatchingStore
from outlast.store.delta_channel import DeltaCallback, FileDeltas
from outlast.store.migrations import SCHEMA
from outlast.store.port import (
    LEDGER_KINDS,
    RUN_KINDS,
    AnchoredClock,
    DeltaChannel,
    Maintenance,
    OnFile,
    RunRows,
    Transactions,
)
from outlast.store.queries import Query
from outlast.store.sql import SQL
from outlast.store.sqlite.database import FULL, OFF, Database, copied, unusable
from outlast.store.sqlite.readers import Readers, present, rows_of_run, select_all
from outlast.store.sqlite.session import SqliteSession
from outlast.store.sqlite.writer import WriterThread
from outlast.store.store_clock import ANCHOR_ROW, StoreClock, anchor_of, mapping_row, successor
from outlast.store.threads import WakeSubscribers, run_in_thread
from outlast.store.tickets import Ticket, deliver, refuse

if TYPE_CHECKING:
    from outlast.store.sqlite.transactions import AuthorReader, SqliteTransaction


def set_mapping(
    session: SqliteSession, batch: Batch, wanted: Mapping, rearm: Callable[[Run, Mapping], int | None]
) -> Mapping:
    """Store the next clock mapping, and set the due_at of every unowned, unfinished run."""
    stored = successor(session.mapping, wanted, batch.now.real)
    moved = sql.rearmed_runs(session.db.execute(sql.UNOWNED), rearm, stored, batch.now.real)
    session.db.executemany(sql.REARM, moved)
    row = mapping_row(stored)
    if session.mapping.version:
        values = sql.update_values(META, row, session.mapping.version)
        session.db.execute(SQL[META.name].update, values)
    else:
        session.db.execute(SQL[META.name].insert, row)
    return stored


def follow_clock(session: SqliteSession, batch: Batch, rearm: Callable[[Run, Mapping], int | None]) -> int:
    """Skip business time forward by a step of the wall clock, and return the step or 0."""
    row = session.read(META, ANCHOR_ROW)
    anchor = anchor_of(row)
    step = session.store_clock.step(anchor)
    if anchor is None or step < CLOCK_STEP:
        return 0
    old = session.mapping
    if old.rate == 1.0:  # business time at another rate does not follow the wall clock
        wanted = Mapping(0, batch.now.real, old.business(batch.now.real) + step, old.rate)
        set_mapping(session, batch, wanted, rearm)
    session.write_anchor(anchor._replace(ahead=anchor.ahead + step), row)
    return step


def purge(session: SqliteSession, batch: Batch, before: int, n: int) -> int:
    """Delete at most `n` runs whose trees ended before an instant, roots last, and what belongs to no other run.

    Tokens stay. Shared effects and receipts go when their retention is over.
    """
    roots = session.db.execute(sql.OVER, (before, before, n)).fetchall()
    over: list[tuple[Any, ...]] = []
    for root in roots:
        over += session.db.execute(sql.BELOW, (*root, n - len(over))).fetchall()
    over += roots[: n - len(over)]
    for kind in RUN_KINDS:
        session.db.executemany(SQL[kind.name].forget, over)
    session.db.execute(sql.FORGET_SHARED, (batch.now.business, n))
    session.db.execute(sql.OLD_WRITERS, (STORE, LeaseStatus.CLOSED.value, before))
    return len(over)


def purge_runs(session: SqliteSession, runs: Sequence[Run]) -> None:
    """Delete all rows of ended runs, and the tokens that name them."""
    for kind in (*RUN_KINDS, TOKEN):
        session.db.executemany(SQL[kind.name].forget, [run[:2] for run in runs])
    session.db.executemany(SQL[TOKEN.name].delete, [start_token_of(run) for run in runs])


def purge_ledgers(session: SqliteSession, batch: Batch, before: int, n: int) -> int:
    """Delete the ledgers of at most `n` runs that ended before an instant, and note the last of these runs."""
    row = session.read(META, LEDGERS)
    purged = ledgers_of(row)
    over = session.db.execute(sql.OVER_AFTER, (before, *purged.last, n)).fetchall()
    for kind in LEDGER_KINDS:
        session.db.executemany(SQL[kind.name].forget, [found[1:] for found in over])
    after = ledgers_after(purged, over, before, n)
    if after != purged:
        batch.land(Commit((Put(META, after.row(row), row.version if row else 0),)))
    return len(over)


def forget(session: SqliteSession, batch: Batch, n: int) -> int:
    """Delete at most `n` stored answers and `n` rows of workers whose retention is over."""
    now = batch.now
    answers = session.db.execute(sql.OLD_REQUESTS, (now.business - ANSWERS_KEPT, n)).fetchall()
    gone = (STORE, LeaseStatus.CLOSED.value, now.real - WORKERS_KEPT, n)
    workers = session.db.execute(sql.OLD_WORKERS, gone).fetchall()
    session.db.executemany(SQL[REQUEST.name].delete, answers)
    session.db.executemany(SQL[WORKER.name].delete, workers)
    return len(answers) + len(workers)


T = TypeVar("T")
SAVED_S: Final = 10.0  # enough to save a deleted log of any size


class SqliteStore(BatchingStore, Maintenance, OnFile, AnchoredClock, DeltaChannel, Transactions):
    """Store in one SQLite file. Opened with `open_sqlite`, usable only in the process that opened it."""

    serializes = False  # a call reads what is committed, and its statements are executed later
    not_inherited = "SQLite's locks do not pass to a child"

    def __init__(self, database: Database, writer: str, clock: Clock, *, recovers: bool = False) -> None:
        """With `recovers`, also open a backup or a copy, to make it a store.

        Raises StoreUnusable.
        """
        super().__init__()
        self.url = f"sqlite:{database.path}"
        self.writer = writer
        self._database = database
        self._store_clock = StoreClock(clock)
        self._wakes = WakeSubscribers()
        self._deltas = FileDeltas(str(database.path), writer)
        self._session = SqliteSession(database, writer, self._store_clock)
        self._facts: dict[str, str | int] = {}  # only if the store is read only: as they were at opening
        if database.reads:
            self._read_state()
        else:
            self._register(writer, recovers=recovers)
        self._readers = Readers(database)
        self._author_reader: AuthorReader | None = None
        self._thread = WriterThread(self._session, self._wakes, clock)

    def _read_state(self) -> None:
        """Read what a registration would read, over one connection.

        On a full disk a second connection may fail.
        """
        try:
            self._session.see_writes()
            self._session.anchor()
            self._facts = self._database.facts(self._session.db)
        except sqlite3.Error as error:
            raise unusable(self._database.path, error) from error
        finally:
            self._session.drop()

    def _register(self, writer: str, *, recovers: bool) -> None:
        try:
            self._session.register(recovers=recovers)
        except StoreUnusable:
            self._session.drop()
            raise
        except sqlite3.IntegrityError as error:
            raise StoreUnusable(f"writer {writer} exists already", "each start needs a new writer id") from error
        except sqlite3.Error as error:
            raise unusable(self._database.path, error) from error

    @override
    def _send(self, tickets: list[Ticket]) -> None:
        if self._database.reads:
            refuse(tickets, Rejected("the store was opened for reading"))
            deliver(tickets)
            return
        self._thread.submit(tickets)

    @override
    def _send_first(self, ticket: Ticket) -> None:
        if self._database.reads:
            self._send([ticket])
            return
        self._thread.submit_first(ticket)

    @override
    def _land_here(self, tickets: list[Ticket]) -> bool:
        return not self._database.reads and self._thread.land_here(tickets)

    # --- maintenance ---------------------------------------------------------------------
    async def _transact(self, work: Callable[[SqliteSession, Batch], T], label: str) -> T:
        """Run `work` in its own transaction, in order with the commits."""
        answer: T = await self._alone(lambda session: session.alone(work, label), label)
        return answer

    @override
    async def set_mapping(self, mapping: Mapping, rearm: Callable[[Run, Mapping], int | None]) -> Mapping:
        def work(session: SqliteSession) -> Mapping:
            stored = session.alone(lambda s, batch: set_mapping(s, batch, mapping, rearm), "set_mapping")
            session.mapping = stored
            return stored

        stored: Mapping = await self._alone(work, "set_mapping")
        return stored

    @override
    async def purge(self, before: int, n: int) -> int:
        return await self._transact(lambda session, batch: purge(session, batch, before, n), "purge")

    @override
    async def purge_runs(self, runs: Sequence[Run]) -> None:
        await self._transact(lambda session, _: purge_runs(session, runs), "purge runs")

    @override
    async def purge_ledgers(self, before: int, n: int) -> int:
        return await self._transact(lambda session, batch: purge_ledgers(session, batch, before, n), "purge ledgers")

    @override
    async def forget(self, n: int) -> int:
        return await self._transact(lambda session, batch: forget(session, batch, n), "forget")

    @override
    def transaction(
        self, timeout_ms: int, *, serializable: bool = False
    ) -> "AbstractAsyncContextManager[SqliteTransaction]":
        from outlast.store.sqlite.transactions import AuthorReader, transaction  # few programs need it

        if self._author_reader is None:
            self._author_reader = AuthorReader(self._database)
        return transaction(self._author_reader, self._alone, timeout_ms)

    # --- reading -------------------------------------------------------------------------
    async def _read(self, read: Callable[[sqlite3.Connection], T], *, long: bool = False) -> T:
        self._check_process()
        return await self._readers.do(read, long=long)

    @override
    async def query(self, query: Query[T]) -> T:
        statements = query.statements()  # in the caller, so that a column that does not exist is refused at once
        return await self._read(lambda db: query.answer(select_all(db, statements)), long=query.long)

    @override
    async def run_rows(self, runs: Sequence[tuple[str, str]]) -> tuple[RunRows | None, ...]:
        return await self._read(lambda db: tuple(rows_of_run(db, key, self._store_clock) for key in runs))

    @override
    async def now(self) -> Instant:
        return await self._read(lambda db: present(db, self._store_clock))

    @override
    def mapping(self) -> Mapping:
        return self._session.mapping

    @override
    def facts(self) -> dict[str, str | int]:
        if self._database.reads:
            return {**self._facts, "wal_bytes": self._database.wal_bytes()}
        db = self._database.writer()
        try:
            return self._database.facts(db)
        finally:
            db.close()

    # --- the rest ------------------------------------------------------------------------
    @override
    def on_change(self, wake: Callable[[], None]) -> Callable[[], None]:
        self._check_process()
        end = self._wakes.subscribe(wake)
        self._thread.watch()
        return end

    @override
    def publish(self, deltas: Sequence[Delta]) -> None:
        self._deltas.publish(deltas)

    @override
    def on_deltas(self, callback: DeltaCallback) -> Callable[[], None]:
        self._check_process()
        return self._deltas.subscribe(callback)

    @override
    async def clock_step(self) -> int:
        return self._store_clock.step(anchor_of(await self.load(META, ANCHOR_ROW)))

    @override
    async def follow_clock(self, rearm: Callable[[Run, Mapping], int | None]) -> int:
        return await self._transact(lambda session, batch: follow_clock(session, batch, rearm), "follow the clock")

    @override
    def lost(self) -> StoreReplaced | None:
        return self._database.check()

    @override
    async def adopt_file(self, *, moved: bool = False) -> None:
        named = store_file_of(await self.load(META, FILE))
        verdict = compare_files(named, self._database.found())
        if moved and named is not None and verdict == "backup":
            raise copied(self._database.path, named)
        if moved and named is not None and verdict == "copy" and self._database.is_at(named):
            raise Conflict(
                f"the store {self._database.path} was not moved",
                f"the file that was written last is still at {named.path}: this one is a copy of it",
                "use that one; or make this one a store: outlast recover --after-restore",
            )
        await self._transact(lambda session, _: session.name_file(adopt=True), "name the file")

    @override
    async def close(self) -> None:
        if not self._closed and os.getpid() == self._process:
            self._closed = True
            await run_in_thread(self._close)

    def _close(self) -> None:
        self._hand_over_all()
        self._deltas.close()
        if self._database.check() is not None:
            self._thread.watch()
            self._session.saved.wait(SAVED_S)
            return  # threads and connections live until the process ends, see SqliteSession.drop
        self._thread.close()
        self._readers.close()
        if self._author_reader is not None:
            self._author_reader.close()
        if not self._database.reads:
            try:
                self._session.resign()
                self._session.checkpoint("PASSIVE")  # waits for no reader: a stopped one must not block other writers
            except (sqlite3.Error, OutlastError):
                pass  # every acknowledged commit is in the log, where the next process finds it
        self._session.drop()
        self._database.write_lock.close()


async def open_sqlite(path: str | Path, *, writer: str, clock: Clock, recovers: bool = False) -> SqliteStore:
    """Open, create or migrate the store in a file. With `recovers`, also open a backup or a copy.

    Raises StoreUnusable.
    """
    return await run_in_thread(partial(_open, Path(path), writer, clock, FULL, recovers=recovers))


async def read_sqlite(path: str | Path, *, reader: str, clock: Clock) -> SqliteStore:
    """Open the store in a file without writing, even on a full or read-only disk.

    `reader` is unique, because a socket for deltas has its name. A file of an older schema is migrated first. Every
    commit raises Rejected. Raises StoreUnusable.
    """
    return await run_in_thread(partial(_read, Path(path), reader, clock))


async def open_without_sync(path: str | Path, *, writer: str, clock: Clock) -> SqliteStore:
    """Open a store whose commits survive a kill but not a power cut. For tests; no URL leads here.

    A copy is opened like its original, because tests continue one state from many copies.
    """
    return await run_in_thread(partial(_open, Path(path), writer, clock, OFF, recovers=True))


def _read(path: Path, reader: str, clock: Clock) -> SqliteStore:
    database = Database(path, reads=True)
    try:
        db = database.reader()
        try:
            present = database.schema(db) == SCHEMA
        finally:
            db.close()
    except sqlite3.Error as error:
        raise unusable(path, error) from error
    if not present:
        older = Database(path)
        try:
            older.migrate()
        finally:
            older.write_lock.close()
    return SqliteStore(database, reader, clock)


def _open(path: Path, writer: str, clock: Clock, synchronous: int, *, recovers: bool = False) -> SqliteStore:
    database = Database(path, synchronous=synchronous)
    try:
        database.migrate()
        return SqliteStore(database, writer, clock, recovers=recovers)
    except BaseException:  # release the lock on any error
        database.write_lock.close()
        raise

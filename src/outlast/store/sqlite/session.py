"""Lands batches in a SQLite file, each in one transaction with a receipt (S-7, S-9).

Possible faults, and why each commit is answered with its true result:

- *The cached rows are outdated*, because another process wrote. The transaction begins with the write lock of SQLite,
  and `see_writes` compares `data_version` inside it. From then on nothing changes the rows before COMMIT.
- *A row that is not read first has another version.* Updates compare it. An optimistic batch that changes fewer rows
  than it must is rolled back, and judged again with every row read. Under the lock that happens once at most.
- *One commit makes a statement fail.* All are tried together, then with all rows read, then each in its own
  transaction, so only the one at fault is refused. Errors of the machine (OUTAGES) refuse all at once: a smaller
  transaction would fail, too.
- *COMMIT fails, and the transaction may have landed.* The number of the batch is in the writer's row, written by the
  same transaction. `_resolve` opens the file again and reads it. After a failed sync the log alone is not trusted: the
  number counts only once the whole log was synced into the database. Where this fails, the answer is Uncertain.
- *This writer was declared dead by another process.* Its row is closed, the receipt changes no row, and nothing lands.
"""

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from threading import Event
from typing import Any, Final, TypeVar

from outlast.core import crash_points
from outlast.core.commit import IDENTITY
from outlast.core.generation import FILE, compare_files, store_file_of
from outlast.core.machine import NO_HOLDER, EffectStatus, LeaseStatus
from outlast.core.rows.all_kinds import KINDS, R, Row
from outlast.core.rows.effect_rows import EFFECT
from outlast.core.rows.outbox_rows import UNPUBLISHED
from outlast.core.rows.row_kind import AnyKind, Key, Kind
from outlast.core.rows.run_rows import RUN, Run
from outlast.core.rows.store_rows import META, STORE, WRITER, Meta, Writer
from outlast.core.webhooks.deliveries import SUBSCRIBED_TENANTS, tenants_of
from outlast.errors import OutlastError, Rejected, StoreError, StoreUnusable, Unavailable, Uncertain
from outlast.store import sql
from outlast.store.batch import Batch
from outlast.store.fair_queueing import DueQuery, FairQueue
from outlast.store.queries import OWNED
from outlast.store.sql import DECODE, SQL
from outlast.store.sqlite.database import Database, copied, error_name, read_leniently, unavailable
from outlast.store.sqlite.row_cache import RowCache
from outlast.store.store_clock import ANCHOR_ROW, MAPPING_ROW, Anchor, StoreClock, anchor_of, anchor_row, mapping_of
from outlast.store.tickets import Offers, Take, Ticket, candidates, judge, refuse, rows_to_read, taken

T = TypeVar("T")

# Errors of the machine rather than a commit. A smaller transaction would fail, too.
OUTAGES: Final = frozenset({
    "SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN",
    "SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_NOMEM", "SQLITE_PROTOCOL", "SQLITE_PERM", "SQLITE_INTERRUPT",
})  # fmt: skip
# Errors after which the connection is still usable.
PASSING: Final = frozenset({"SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL"})

# Estimated pages of the log per batch: a row, its index entries, and the receipt.
PAGES_PER_ROW: Final = 2
PAGES_PER_BATCH: Final = 2
ALIVE: Final = LeaseStatus.ALIVE.value
BUSY_BATCHES: Final = 20  # number of batches after which a log is preallocated


class _Mismatch(Exception):
    """An optimistic batch met a row of another version, and is judged again with every row read first."""


class OpenedAtUse:
    """A connection that is opened where it is missing. An open one is an attribute, so that its use is no call."""

    def __get__(self, session: "SqliteSession", owner: type["SqliteSession"]) -> sqlite3.Connection:
        return session.open()


class SqliteSession:
    """The only writing connection of a store. Used by one thread at a time."""

    def __init__(self, database: Database, writer: str, store_clock: StoreClock) -> None:
        self.database = database
        self.store_clock = store_clock
        self.mapping = IDENTITY  # as last seen
        # tenants whose events are noted as unpublished; as last seen
        self.subscribed_tenants: frozenset[str] = frozenset()
        self.woken = False  # a run may have become due since the last wake
        self.written = 0  # estimated pages written since the last checkpoint
        self._writer = writer
        self._cache = RowCache()
        self._fair = FairQueue()
        self._offers = Offers()
        self._seen = -1  # data_version at which the cache was valid
        self._batches = 0
        self._preallocated = False
        self.saved = Event()  # set when the file is gone and its log was saved as far as possible

    db = OpenedAtUse()
    """The connection, reopened if the last one was given up. Raises StoreUnusable or sqlite3.Error."""

    @property
    def _db(self) -> sqlite3.Connection | None:
        """The connection if it is open."""
        return self.__dict__.get("db")

    def open(self) -> sqlite3.Connection:
        """Open the connection. Raises as `db`."""
        db = self.database.reader() if self.database.reads else self.database.writer()
        self.__dict__["db"] = db
        self.database.remember_log()
        self._seen = -1
        return db

    # --- one transaction -----------------------------------------------------------------
    def land(self, tickets: Sequence[Ticket], *, waits: bool = True) -> bool:
        """Answer every ticket and return True.

        Try one transaction for all, then one with all rows read first, then one per ticket. Unless this `waits`, do
        nothing and return False while another process holds the write lock.
        """
        labels = [t.work.label for t in tickets] if crash_points.hook else ()
        crash_points.point("store.batch:before", labels)
        if not (waits or self.database.write_lock.try_lock()):
            return False
        for optimistic in (True, False):
            if self._attempt(tickets, optimistic) is None:
                return True
        for ticket in tickets:
            error = self._attempt((ticket,), False)
            if error is not None:
                refuse((ticket,), Rejected("the database refused a statement of this commit", str(error)))
        return True

    def _attempt(self, tickets: Sequence[Ticket], optimistic: bool) -> sqlite3.Error | _Mismatch | None:
        """Land tickets in one transaction.

        Return an error if one of the tickets caused a rollback.
        """
        try:
            with self.database.write_lock:
                self._transact(tickets, optimistic)
        except StoreError as error:
            refuse(tickets, error)
        except StoreUnusable as error:
            refuse(tickets, Unavailable(error.what, error.why, error.fix))
        except sqlite3.Error as error:
            if read_leniently(self._db, error):
                return self._attempt(tickets, optimistic)
            name = error_name(error)
            if name not in OUTAGES:
                return error  # one ticket caused it, and the next attempts find out which
            refuse(tickets, unavailable(error))
            if name not in PASSING:
                self.drop()  # after an error of the file, the connection's own state is not trusted
        except _Mismatch as error:
            assert optimistic, "rows read under the lock do not change under the lock"
            return error
        return None

    def _transact(self, tickets: Sequence[Ticket], optimistic: bool) -> None:
        batch = self.begin(optimistic=optimistic)
        try:
            for ticket in tickets:
                work = ticket.work
                ticket.answer = self._take(work, batch) if isinstance(work, Take) else judge(ticket, batch)
            rows = self._apply(batch)
            if not rows:
                self.db.execute("ROLLBACK")
            else:
                self._land_receipt([t.work.label for t in tickets] if crash_points.hook else ())
        finally:
            self._roll_back()
        self._remember(batch, rows)
        for chain in batch.broken:
            chain.broken = True

    def alone(self, work: Callable[["SqliteSession", Batch], T], label: str) -> T:
        """Run `work` in its own transaction with a receipt, and return its result.

        Raises StoreError or sqlite3.Error.
        """
        with self.database.write_lock:
            batch = self.begin()
            before = self.db.total_changes
            try:
                answer = work(self, batch)
                self._apply(batch)
                changed = self.db.total_changes - before
                self._land_receipt((label,))
            finally:
                self._roll_back()
            self.written += PAGES_PER_BATCH + PAGES_PER_ROW * changed
            self._cache.clear()  # `work` may have written rows without the batch
            self._seen = -1
            self.woken = True
        return answer

    def begin(self, *, optimistic: bool = False) -> Batch:
        """Open a transaction, notice writes of other processes, and read the time under the lock.

        Raises StoreReplaced if a check has found that the opened file is gone.
        """
        if self.database.lost is not None:
            raise self.database.lost
        self.db.execute("BEGIN IMMEDIATE")
        self.see_writes()
        now = self.mapping.at(self.store_clock.real())
        return Batch(self.read, now, optimistic=optimistic, subscribed_tenants=self.subscribed_tenants)

    def see_writes(self) -> bool:
        """Return True if another process has written since the last call, and outdate the cache then."""
        seen = self.db.execute("PRAGMA data_version").fetchone()[0]
        if seen == self._seen:
            return False
        self._cache.outdate()
        self._seen = seen
        self.mapping = mapping_of(self.read(META, MAPPING_ROW))
        self.subscribed_tenants = tenants_of(self.read(META, SUBSCRIBED_TENANTS))
        self.woken = True
        return True

    def read(self, kind: Kind[R], key: Key) -> R | None:
        """Return a row as the transaction sees it."""
        row = self._cache.get(kind, key)
        if row is None:
            if kind is RUN and (run := self._unchanged(key)) is not None:
                self._cache.put(kind, key, run)
                return run  # type: ignore[return-value]
            values = self.db.execute(SQL[kind.name].select, key).fetchone()
            if values is not None:
                row = DECODE[kind.name](values)
                if kind.read_first:
                    self._cache.put(kind, key, row)
        return row

    def _unchanged(self, key: Key) -> Run | None:
        """Return a run that was cached before another process wrote, if the stored row is still the same.

        A batch of another process would otherwise cost a read of every run. Within the life of a run, each change
        raises its version or its inbox_seq, or moves its due_at (S-1). A run that was purged and started
        again under the same id has another created_at.
        """
        run = self._cache.outdated(key)
        if run is None or self.db.execute(sql.CHANGING, key).fetchone() != sql.changing(run):
            return None
        return run

    # --- taking --------------------------------------------------------------------------
    def _take(self, take: Take, batch: Batch) -> object:
        offered = self._candidates(take, batch)
        try:
            moves = self._offers.moves(take.step, offered, batch.now, self.mapping)
        except Exception as error:  # an error in one step must not refuse other commits
            return error
        return taken(moves, batch)

    def _candidates(self, take: Take, batch: Batch) -> list[Run]:
        """Return the runs to move, as earlier commits of the batch leave them."""
        real, limit = batch.now.real, rows_to_read(take, batch)
        if not take.owners:
            queries = self._fair.queries(take.lanes, limit, real, take.held)
            while query := queries.query:
                queries.answer(self._due(query, real))
            return candidates(take, batch, queries.found)
        found: list[Run] = []
        for owner in take.owners:
            found += self._runs_of(self.db.execute(OWNED, (owner, limit)))
        return candidates(take, batch, found)

    def _due(self, query: DueQuery, real: int) -> list[Run]:
        without, limit = json.dumps(sorted(query.without)), query.limit
        while True:
            if not query.without:
                found = self.db.execute(sql.DUE, (query.lane, real, limit)).fetchall()
            else:
                found = self.db.execute(sql.DUE_BUT, (query.lane, real, query.since, without, limit)).fetchall()
            runs = self._runs_of(found)
            if len(runs) >= query.limit or len(found) < limit:
                return runs[: query.limit]
            limit += len(found) - len(runs)  # those that cannot be read hide no others

    def _runs_of(self, found: Iterable[tuple[Any, ...]]) -> list[Run]:
        """Decode selected runs and keep them in the cache, or take the cached ones. Unreadable ones are left out."""
        runs: list[Run] = []
        for values in found:
            run = self._cache.get(RUN, values[:2])
            if run is not None:
                runs += self._offers.of((run,))
                continue
            for run in self._offers.read((values,)):
                self._cache.put(RUN, run[:2], run)
                runs.append(run)
        return runs

    # --- applying ------------------------------------------------------------------------
    def _apply(self, batch: Batch) -> int:
        """Write the rows of a batch, one statement per kind and form, and return their number."""
        count = len(batch.erased)
        for kind, key in batch.erased:
            self.db.execute(SQL[kind.name].delete, key)
        for kind in KINDS:
            changes = batch.changes[kind.name]
            if not changes:
                continue
            statements, width, narrow = SQL[kind.name], kind.key, sql.NARROW.get(kind.name)
            inserts: list[Row] = []
            updates: list[tuple[object, ...]] = []
            moves: list[tuple[object, ...]] = []
            for key, (_, row, replaces) in changes.items():
                if not replaces:
                    inserts.append(row)
                elif narrow is not None and self._suffices(narrow, kind, key, row):
                    moves.append(narrow.values(row, replaces))
                else:
                    updates.append((*row[width:], *row[:width], replaces))
            if inserts:
                self.db.executemany(statements.insert, inserts)
            if updates and self.db.executemany(statements.update, updates).rowcount != len(updates):
                raise _Mismatch
            if narrow and moves and self.db.executemany(narrow.statement, moves).rowcount != len(moves):
                raise _Mismatch
            count += len(changes)
        if batch.published:
            self.db.executemany(SQL[UNPUBLISHED.name].delete, batch.published)
        return count + len(batch.published)

    def _suffices(self, narrow: sql.NarrowUpdate, kind: AnyKind, key: Key, row: Row) -> bool:
        """Return True if the columns that the update omits are as in the stored row, which must be cached."""
        before = self._cache.get(kind, key)
        return before is not None and narrow.resting(before) == narrow.resting(row)

    def _land_receipt(self, labels: Sequence[str]) -> None:
        """Write the number of this transaction into the writer's row, and COMMIT.

        Raises Unavailable or Uncertain.
        """
        self._batches += 1  # also if COMMIT fails: a number is used once, so it tells which batch landed
        receipt = (self._batches, STORE, self._writer, ALIVE)
        if self.db.execute(sql.RECEIPT, receipt).rowcount != 1:
            raise Unavailable(
                f"writer {self._writer} has been closed",
                "another process declared this one dead",
                "restart this process",
            )
        crash_points.point("store.batch:inside", labels)
        try:
            self.db.execute("COMMIT")
        except sqlite3.Error as error:
            self._resolve(self._batches, error)
        crash_points.point("store.batch:after", labels)

    def _resolve(self, number: int, error: sqlite3.Error) -> None:
        """Find out if a COMMIT with a lost answer landed.

        Returns if it did. Raises Unavailable if not, and Uncertain if this is unknown.
        """
        self.drop()  # so the transaction has ended before the row is read, and cannot land afterwards
        try:
            whole = error_name(error) != "SQLITE_IOERR" or self._copy_whole_log()
            row = self.read(WRITER, (STORE, self._writer))
        except (sqlite3.Error, OutlastError) as second:
            self.drop()
            raise Uncertain("the store's answer was lost", f"{error}; then {second}") from error
        if not whole or row is None:
            raise Uncertain("the store's answer was lost", str(error)) from error
        if row.batch != number:
            raise unavailable(error) from error

    def _copy_whole_log(self) -> bool:
        """Return True if the whole log was synced into the database.

        After a failed sync, the log alone is not trusted.
        """
        busy, log, copied = self.db.execute("PRAGMA wal_checkpoint(FULL)").fetchone()
        return not busy and bool(log == copied)

    def _roll_back(self) -> None:
        """Leave no transaction open. A connection that cannot roll back is given up."""
        db = self.__dict__.get("db")
        if db is not None and db.in_transaction:
            try:
                db.execute("ROLLBACK")
            except sqlite3.Error:
                self.drop()

    def _remember(self, batch: Batch, rows: int) -> None:
        if (subscribed_tenants := batch.changes[META.name].get(SUBSCRIBED_TENANTS)) is not None:
            self.subscribed_tenants = tenants_of(subscribed_tenants.row)
        for kind in KINDS:
            if kind.read_first:
                for key, left in batch.changes[kind.name].items():
                    row = left.row
                    if isinstance(row, Run) and row.owner in NO_HOLDER:
                        self._cache.drop(RUN, key)  # it may wait for days, and 10,000 such runs must cost no memory
                        self.woken = self.woken or row.due_at is not None
                    else:
                        self._cache.put(kind, key, row)
        for kind, key in batch.erased:
            if kind.read_first and key not in batch.changes[kind.name]:
                self._cache.drop(kind, key)
        for key, left in batch.changes[EFFECT.name].items():
            if left.row.status is EffectStatus.INTENDED:
                self._cache.put(EFFECT, key, left.row)
            else:
                self._cache.drop(EFFECT, key)
        self.written += PAGES_PER_BATCH + PAGES_PER_ROW * rows

    def drop(self) -> None:
        """Give the connection up, which rolls its transaction back.

        A connection to a replaced file stays open: closing the last one would delete the log by name, and that may be
        the log of the present file.
        """
        db = self._db
        if db is not None and self.database.check() is None:
            db.close()
            del self.__dict__["db"]
            self.database.forget_log()
        self._cache.clear()
        self._seen = -1

    # --- the writer's own row, the log ---------------------------------------------------
    def register(self, *, recovers: bool = False) -> None:
        """Insert this writer's row if the store is in its own file, or if `recovers`.

        Raises sqlite3.IntegrityError if the id exists, and StoreUnusable for a backup or a copy.
        """
        with self.database.write_lock:
            self.begin()
            try:
                if not recovers:
                    self.name_file()
                self.anchor()
                now = self.mapping.at(self.store_clock.real())
                row = Writer(STORE, self._writer, 1, LeaseStatus.ALIVE, 0, now.business)
                self.db.execute(SQL[WRITER.name].insert, row)
                self.db.execute("COMMIT")
            finally:
                self._roll_back()

    def resign(self) -> None:
        """Close this writer's row. No more batches land under its id."""
        with self.database.write_lock:
            self.begin()
            try:
                row = self.read(WRITER, (STORE, self._writer))
                if row is not None and row.status is LeaseStatus.ALIVE:
                    closed = row._replace(status=LeaseStatus.CLOSED, version=row.version + 1)
                    values = sql.update_values(WRITER, closed, row.version)
                    self.db.execute(SQL[WRITER.name].update, values)
                    self.db.execute("COMMIT")
            finally:
                self._roll_back()

    def name_file(self, *, adopt: bool = False) -> None:
        """Name the present file in the store, within a transaction. `move_to_version` permits another file.

        Raises StoreUnusable for a backup or a copy that is not adopted.
        """
        row = self.read(META, FILE)
        named, found = store_file_of(row), self.database.found()
        verdict = compare_files(named, found)
        if named is not None and verdict in ("copy", "backup") and not adopt:
            raise copied(self.database.path, named)
        if row is None:
            self.db.execute(SQL[META.name].insert, found.row(None))
        elif verdict != "same":
            values = sql.update_values(META, found.row(row), row.version)
            self.db.execute(SQL[META.name].update, values)
        self._cache.clear()

    def anchor(self) -> None:
        """Tie the store's time to this boot of the machine. Call it within a transaction to store it."""
        row = self.read(META, ANCHOR_ROW)
        last = anchor_of(row)
        (seen,) = self.db.execute(sql.RENEWED, (STORE,)).fetchone()
        found = self.store_clock.anchor(last, seen or 0)
        if found is not None and found != last and not self.database.reads:
            self.write_anchor(found, row)

    def write_anchor(self, anchor: Anchor, row: Meta | None) -> None:
        """Insert or replace the anchor's row, within a transaction."""
        if row is None:
            self.db.execute(SQL[META.name].insert, anchor_row(anchor, 1))
        else:
            values = sql.update_values(META, anchor_row(anchor, row.version + 1), row.version)
            self.db.execute(SQL[META.name].update, values)
        self._cache.drop(META, ANCHOR_ROW)

    def check_file(self) -> None:
        """Compare the file and its log with the opened ones. After a difference nothing is written.

        A deleted log is copied into the file first, unless another process has started a new one.
        """
        if self.database.check() is None or self.saved.is_set():
            return
        if self.database.log_is_gone and not self.database.reads:
            with suppress(sqlite3.Error, OSError), self.database.write_lock:
                self.db.execute("PRAGMA wal_checkpoint(FULL)")
        self.saved.set()

    def checkpoint(self, mode: str) -> None:
        """Copy the write-ahead log into the database.

        PASSIVE waits for no reader, TRUNCATE for the last one.
        """
        with self.database.write_lock:
            crash_points.point("store.checkpoint:before")
            self.db.execute(f"PRAGMA wal_checkpoint({mode})")
            crash_points.point("store.checkpoint:after")
        self.written = 0

    def needs_log(self) -> bool:
        """Return True if this writer has landed enough batches to need a preallocated log, and has none."""
        return self._batches >= BUSY_BATCHES and not self._preallocated

    def preallocate_log(self) -> None:
        """Preallocate the log once this writer needs it."""
        if self.needs_log():
            self._preallocated = True
            with self.database.write_lock:
                self.database.preallocate_log()

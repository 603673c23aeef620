"""Rows of authors in the store's file that land with their effect, or neither (S-12).

Theory of operation. SQLite has one writer, so an open transaction of an author would stop every run of the machine.
The author's function therefore runs outside: its reads see the last committed state, its statements are collected. The
writing thread executes them in the transaction that records the effect. Faults:

1. *A statement fails, or changes other rows than it named with `rows=`.* The transaction is rolled back, and the effect
   with it. Rows that another run has changed are a passing reason, so the call is made again.
2. *A statement takes long.* All statements of a call together have one second; then they are interrupted and rolled
   back. No function of the author runs under the lock: values are of SQLite's types, and the connection has no
   function, adapter or collation of anyone else.
3. *A statement, or a trigger that it fires, touches rows of Outlast.* An authorizer refuses every table without the
   prefix, and all but reading and changing rows. So no statement begins, ends or nests a transaction.
"""

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final, NamedTuple

from typing_extensions import override

from outlast.core import crash_points
from outlast.core.commit import Commit, Done
from outlast.core.durations import SECOND
from outlast.core.limits import AUTHOR_PREFIX, AUTHOR_STATEMENT_BYTES_MAX, AUTHOR_STATEMENTS_MAX, AUTHOR_STATEMENTS_MS
from outlast.errors import Misplaced
from outlast.store.batch import Batch
from outlast.store.bounds import check
from outlast.store.port import Transaction
from outlast.store.sqlite.database import Database, error_name
from outlast.store.sqlite.session import OUTAGES, SqliteSession

TYPES: Final = (type(None), int, float, str, bytes)
INTERRUPTED: Final = "SQLITE_INTERRUPT"  # by the limit on time
STEPS: Final = 1_000  # virtual instructions between two looks at the clock
_READS: Final = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})
_OF_A_TABLE: Final = frozenset({sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE})


class RowsChanged(Exception):
    """A statement changed another number of rows than it named: another run was there before."""


class _Failed(Exception):
    """A statement of the author failed under the lock, and nothing landed."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class _NotLanded(NamedTuple):
    """Answer of the writing thread for `_Failed`. An error of it would be raised in another form."""

    error: Exception


class Statement(NamedTuple):
    """A collected statement, its values, and the number of rows that it must change."""

    text: str
    values: tuple[Any, ...]
    rows: int | None


def _may(writes: bool) -> Callable[..., int]:
    """Return an authorizer that allows only rows of tables with the prefix."""

    def allows(action: int, table: str | None, _: str | None, database: str | None, __: str | None) -> int:
        if action in _READS or (action == sqlite3.SQLITE_READ and database is None):  # None: a table of WITH
            return sqlite3.SQLITE_OK
        known = action == sqlite3.SQLITE_READ or (writes and action in _OF_A_TABLE)
        allowed = known and (table or "").lower().startswith(AUTHOR_PREFIX)
        return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY

    return allows


@contextmanager
def _limited(db: sqlite3.Connection, ms: int, *, writes: bool) -> Iterator[None]:
    """Let a connection execute statements of an author, for a time."""
    ends = time.monotonic() + ms / SECOND
    db.set_authorizer(_may(writes))
    db.set_progress_handler(lambda: time.monotonic() > ends, STEPS)
    try:
        yield
    finally:
        db.set_progress_handler(None, 0)
        db.set_authorizer(None)


def execute(db: sqlite3.Connection, statements: Sequence[Statement]) -> None:
    """Execute collected statements in the open transaction of a connection. Raises sqlite3.Error and RowsChanged."""
    with _limited(db, AUTHOR_STATEMENTS_MS, writes=True):
        for text, values, rows in statements:
            changed = db.execute(text, values).rowcount
            if rows is not None and changed != rows:
                raise RowsChanged(f"{changed} rows instead of {rows}: {text}")


class AuthorReader:
    """The reading connection of authors' functions, opened when the first one reads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None

    def read(self, text: str, values: tuple[Any, ...], ms: int, *, explain: bool = False) -> list[tuple[Any, ...]]:
        """Return the rows of a query, or only compile a statement. Raises sqlite3.Error and StoreReplaced."""
        with self._lock:
            if self._db is None:
                self._db = self._database.reader()
            with _limited(self._db, ms, writes=explain):
                return self._db.execute(f"EXPLAIN {text}" if explain else text, values).fetchall()

    def close(self) -> None:
        """Close the connection, if a function has read over it."""
        with self._lock, suppress(sqlite3.Error):
            if self._db is not None:
                self._db.close()
                self._db = None


class CollectedStatements:
    """Connection of an activity declared with `transaction=True`, on SQLite.

    `fetch`, `fetchrow` and `fetchval` read the last committed state. `execute` adds a statement to those that are
    executed when the function has returned, together with the record of its effect.
    """

    def __init__(self, reader: AuthorReader, timeout_ms: int) -> None:
        self._reader = reader
        self._timeout_ms = timeout_ms
        self._bytes = 0
        self._ended = False
        self.statements: list[Statement] = []

    async def fetch(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query. Statements of this call are not executed yet. Raises sqlite3.Error."""
        self._check(query, values)
        return await asyncio.to_thread(self._reader.read, query, values, self._timeout_ms)

    async def fetchrow(self, query: str, *values: Any) -> tuple[Any, ...] | None:
        """Return the first row of a query, or None."""
        found = await self.fetch(query, *values)
        return found[0] if found else None

    async def fetchval(self, query: str, *values: Any) -> Any:
        """Return the first value of the first row, or None."""
        row = await self.fetchrow(query, *values)
        return row[0] if row else None

    async def execute(self, statement: str, *values: Any, rows: int | None = None) -> None:
        """Collect a statement, which is compiled now and executed with the effect.

        `rows`: number of rows that it must change. If it changes another number, the call is rolled back and made
        again. Raises sqlite3.Error for a statement that does not compile, and Misplaced beyond the limits.
        """
        self._check(statement, values)
        self._bytes += len(statement.encode()) + sum(len(v) for v in values if isinstance(v, str | bytes))
        if len(self.statements) >= AUTHOR_STATEMENTS_MAX or self._bytes > AUTHOR_STATEMENT_BYTES_MAX:
            raise Misplaced(
                "too many statements in one call",
                f"a call in a transaction has at most {AUTHOR_STATEMENTS_MAX} statements of "
                f"{AUTHOR_STATEMENT_BYTES_MAX:,} bytes together, because they hold the store's write lock",
                "split the call into several",
            )
        await asyncio.to_thread(self._reader.read, statement, values, self._timeout_ms, explain=True)
        self.statements.append(Statement(statement, values, rows))

    def _check(self, text: str, values: tuple[Any, ...]) -> None:
        if self._ended:
            raise Misplaced(
                "a statement after the call has ended", f"nothing would execute it: {text}", "await it in the function"
            )
        for value in values:
            if type(value) not in TYPES:  # an adapter of the author would run under the lock
                raise Misplaced(
                    f"a value of type {type(value).__name__} in a statement",
                    "SQLite stores None, int, float, str and bytes",
                    "convert the value",
                )

    def end(self) -> tuple[Statement, ...]:
        """Return the statements. Later ones are refused."""
        self._ended = True
        return tuple(self.statements)


class SqliteTransaction(Transaction):
    """The statements of a call, and their execution with its commits."""

    def __init__(self, collected: CollectedStatements, alone: Callable[[Any, str], Awaitable[Any]]) -> None:
        self._collected = collected
        self._alone = alone

    @property
    @override
    def connection(self) -> CollectedStatements:
        return self._collected

    @override
    async def land(self, commits: Sequence[Commit]) -> Done:
        for commit in commits:
            check(commit)
        statements, label = self._collected.end(), commits[-1].label

        def work(session: SqliteSession, batch: Batch) -> Done:
            done = [batch.land(commit) for commit in commits][-1]
            try:
                execute(session.db, statements)
            except (sqlite3.Error, sqlite3.Warning, RowsChanged) as error:
                if isinstance(error, sqlite3.Error) and error_name(error) in OUTAGES - {INTERRUPTED}:
                    raise  # the store is away, and the statement is not at fault
                raise _Failed(error) from error
            return done

        def run(session: SqliteSession) -> Done | _NotLanded:
            crash_points.point("store.batch:before", [label] if crash_points.hook else ())
            try:
                return session.alone(work, label)
            except _Failed as failed:  # answered, because an error of the writing thread would drop its connection
                return _NotLanded(failed.error)

        answer: Done | _NotLanded = await self._alone(run, label)
        if isinstance(answer, _NotLanded):
            raise answer.error
        return answer

    @override
    def is_passing(self, error: BaseException) -> bool:
        return isinstance(error, RowsChanged)


@asynccontextmanager
async def transaction(
    reader: AuthorReader, alone: Callable[[Any, str], Awaitable[Any]], timeout_ms: int
) -> AsyncIterator[SqliteTransaction]:
    """Collect the statements of a call, as `Transactions.transaction`. Nothing is open while its function runs."""
    collected = CollectedStatements(reader, timeout_ms)
    try:
        yield SqliteTransaction(collected, alone)
    finally:
        collected.end()

"""Reads of a SQLite file in two threads, each with its own connection.

A read holds no transaction for longer than it fetches rows. All reads of one turn of a loop are handed over together,
because handing a read to a thread and its result back costs more than most reads.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

from outlast.core.commit import Instant, Mapping
from outlast.core.rows import (
    EFFECT,
    EVENT,
    META,
    RUN,
    Cursor,
    Event,
    Key,
    Kind,
    Row,
    Run,
)
from outlast.errors import Unavailable
from outlast.store import sql
from outlast.store.clock import MAPPING_ROW, StoreClock, mapping_of
from outlast.store.database import Database, unavailable
from outlast.store.pages import PAGE_MAX, check_columns, cursor_of, place_after
from outlast.store.port import HOLDER_KINDS, Page, RunRows, gather_rows
from outlast.store.sql import DECODE, SQL

T = TypeVar("T")

THREADS = 2
TOGETHER = 16
"""Number of results that go back to the event loop in one call."""
ALL_ROWS = -1  # SQLite: no limit


class _Read(NamedTuple):
    """A read and the future of its result."""

    read: Callable[[sqlite3.Connection], Any]
    answer: "asyncio.Future[Any]"


class _Reads(NamedTuple):
    """Reads that a loop requested in one turn."""

    loop: asyncio.AbstractEventLoop
    reads: list[_Read]


_Found = tuple["asyncio.Future[Any]", Any, Exception | None]


class Readers:
    """The reading half of a SQLite store."""

    def __init__(self, database: Database, store_clock: StoreClock) -> None:
        self._database = database
        self._store_clock = store_clock
        self._queue: SimpleQueue[_Reads | None] = SimpleQueue()  # None ends one thread
        self._unsent: dict[asyncio.AbstractEventLoop, list[_Read]] = {}  # requested by each loop in its present turn
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._closed = False

    async def do(self, read: Callable[[sqlite3.Connection], T], *, long: bool = False) -> T:
        """Run `read` in a reader thread, with other reads of this turn, or by itself if `long`.

        Raises Unavailable if the file cannot be read.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        with self._lock:
            if self._closed:
                raise Unavailable("the store is closed")
            if len(self._threads) < (1 if self._database.reads else THREADS):
                self._begin()
            if long:
                self._queue.put(_Reads(loop, [_Read(read, answer)]))
            elif (turn := self._unsent.get(loop)) is not None:
                turn.append(_Read(read, answer))
            else:
                self._unsent[loop] = [_Read(read, answer)]
                loop.call_soon(self._hand_over, loop)
        try:
            return await answer
        except sqlite3.Error as error:
            raise unavailable(error, "read") from error

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            turn = self._unsent.pop(loop, None)
            if turn is not None:  # else `close` has handed them over
                self._queue.put(_Reads(loop, turn))

    def _begin(self) -> None:
        name = f"outlast-reader_{len(self._threads)}"
        self._threads.append(threading.Thread(target=self._serve, name=name, daemon=True))
        self._threads[-1].start()

    def _serve(self) -> None:
        """Serve requests until the end of the queue, over a connection that the first one opens."""
        db: sqlite3.Connection | None = None
        try:
            while (asked := self._queue.get()) is not None:
                db = self._answer(asked, db)
                del asked  # releases the rows while the thread waits
        finally:
            if db is not None:
                db.close()

    def _answer(self, asked: _Reads, db: sqlite3.Connection | None) -> sqlite3.Connection | None:
        found: list[_Found] = []
        for each in asked.reads:
            if each.answer.cancelled():
                continue
            try:
                db = db or self._database.reader()
                found.append((each.answer, each.read(db), None))
            except Exception as error:  # re-raised in the caller
                found.append((each.answer, None, error))
            if len(found) == TOGETHER:
                _send_back(asked.loop, found)
                found = []
        _send_back(asked.loop, found)
        return db

    def close(self) -> None:
        """End the threads and their connections. Blocks until the last read is over."""
        with self._lock:
            self._closed = True
            for loop, turn in self._unsent.items():
                self._queue.put(_Reads(loop, turn))
            self._unsent.clear()
            for _ in self._threads:
                self._queue.put(None)
        for thread in self._threads:
            thread.join()

    # --- what is read --------------------------------------------------------------------
    def load(self, db: sqlite3.Connection, kind: Kind, key: Key) -> Row | None:
        """Return one row, or None."""
        values = db.execute(SQL[kind.name].select, key).fetchone()
        return None if values is None else DECODE[kind.name](values)

    def mapping(self, db: sqlite3.Connection) -> Mapping:
        """Return the clock mapping in the store."""
        return mapping_of(self.load(db, META, MAPPING_ROW))

    def now(self, db: sqlite3.Connection) -> Instant:
        """Return the store's real and business time."""
        return self.mapping(db).at(self._store_clock.real())

    def rows(self, db: sqlite3.Connection, kind: Kind, prefix: Key, after: Key, limit: int) -> tuple[Row, ...]:
        """Return rows under a prefix, in key order, starting after a key."""
        assert not after or after[: len(prefix)] == prefix, "the key after which to begin lies under the prefix"
        statement = sql.prefix(kind, len(prefix), len(after))
        values = db.execute(statement, (*prefix, *after[len(prefix) :], limit))
        return tuple(map(DECODE[kind.name], values))

    def in_order(self, db: sqlite3.Connection, kind: Kind, prefix: Key, after: int, limit: int) -> tuple[Row, ...]:
        """Return rows under a prefix, by ordinal."""
        values = db.execute(sql.in_order(kind, len(prefix)), (*prefix, after, limit))
        return tuple(map(DECODE[kind.name], values))

    def count(self, db: sqlite3.Connection, kind: Kind, prefixes: Sequence[Key]) -> tuple[int, ...]:
        """Count the rows under each prefix, in one snapshot."""
        db.execute("BEGIN")
        try:
            return tuple(int(db.execute(sql.count(kind, len(each)), each).fetchone()[0]) for each in prefixes)
        finally:
            db.execute("COMMIT")

    def runs(self, db: sqlite3.Connection, statement: str, values: sql.Values) -> tuple[Run, ...]:
        """Return the runs that a statement finds."""
        return tuple(map(sql.run_of, db.execute(statement, values)))

    def moving(self, db: sqlite3.Connection, tenant: str, since: int, limit: int) -> tuple[Run, ...]:
        """Return the owned runs of a tenant, then those that ended since."""
        held = self.runs(db, sql.HELD, (tenant, limit))
        return sql.each_once(held, self.runs(db, sql.OVER_SINCE, (since, tenant, limit)))

    def run_rows(self, db: sqlite3.Connection, runs: Sequence[tuple[str, str]]) -> tuple[RunRows | None, ...]:
        """Return all rows of each run, each run in one snapshot."""
        return tuple(self._run_rows(db, key) for key in runs)

    def _run_rows(self, db: sqlite3.Connection, key: tuple[str, str]) -> RunRows | None:
        db.execute("BEGIN")
        try:
            run = self.load(db, RUN, key)
            if run is None:
                return None
            values = db.execute(sql.LAST_SNAPSHOT, key).fetchone()
            last = None if values is None else DECODE[EVENT.name](values)
            rest = [self.rows(db, kind, key, (), ALL_ROWS) for kind in HOLDER_KINDS]
            shared = tuple(map(DECODE[EFFECT.name], db.execute(sql.SHARED, key)))
            now = self.now(db)
        finally:
            db.execute("COMMIT")
        assert isinstance(run, Run) and (last is None or isinstance(last, Event))
        return gather_rows(run, last, rest, now, shared)

    def page(
        self, db: sqlite3.Connection, kind: Kind, tenant: str, where: dict[str, str | int], cursor: str, limit: int
    ) -> Page:
        """Return one page of a list, newest first."""
        check_columns(kind, list(where))
        limit = min(limit, PAGE_MAX)
        after = place_after(kind, cursor)
        statement = sql.page(kind, list(where), after=after is not None)
        found = db.execute(statement, (tenant, *where.values(), *(after or ()), limit + 1)).fetchall()
        rows = tuple(map(DECODE[kind.name], found[:limit]))
        return Page(rows, cursor_of(kind, rows[-1]) if len(found) > limit else "")

    def tally(self, db: sqlite3.Connection, kind: Kind, tenant: str, column: str) -> dict[str, int]:
        """Count a tenant's rows by the value of a column."""
        check_columns(kind, [column])
        return {str(value): count for value, count in db.execute(sql.tally(kind, column), (tenant,))}

    def owing(self, db: sqlite3.Connection, tenant: str, subscription: str, n: int) -> tuple[Cursor, ...]:
        """Return the cursors of a subscription with deliveries left."""
        return tuple(Cursor._make(values) for values in db.execute(sql.OWING, (tenant, subscription, n)))

    def census(
        self, db: sqlite3.Connection, kind: Kind, columns: Sequence[str], filled: str
    ) -> dict[tuple[str, ...], int]:
        """Count the rows of all tenants by these columns."""
        check_columns(kind, [*columns, *([filled] if filled else [])])
        return {tuple(map(str, values)): n for *values, n in db.execute(sql.census(kind, columns, filled))}

    def next_due(self, db: sqlite3.Connection, lanes: Sequence[str]) -> int | None:
        """Return the earliest due_at of these lanes, or None."""
        found = [db.execute(sql.NEXT_DUE, (lane,)).fetchone()[0] for lane in lanes]
        return min((due for due in found if due is not None), default=None)


def _send_back(loop: asyncio.AbstractEventLoop, found: list[_Found]) -> None:
    if found:
        try:
            loop.call_soon_threadsafe(_resolve, found)
        except RuntimeError:
            pass  # the loop is closed, and its futures with it


def _resolve(answers: list[_Found]) -> None:
    for answer, found, failed in answers:
        if answer.done():
            continue  # the caller was cancelled
        if failed is not None:
            answer.set_exception(failed)
        else:
            answer.set_result(found)

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

from outlast.core.commit import Instant
from outlast.core.rows.effect_rows import EFFECT
from outlast.core.rows.run_rows import EVENT, RUN, Event
from outlast.core.rows.store_rows import META
from outlast.errors import Unavailable
from outlast.store import sql
from outlast.store.port import HOLDER_KINDS, RunRows, gather_rows
from outlast.store.queries import ALL_ROWS, Load, Query, Select, Under
from outlast.store.sql import DECODE
from outlast.store.sqlite.database import Database, read_leniently, unavailable
from outlast.store.store_clock import MAPPING_ROW, StoreClock, mapping_of

T = TypeVar("T")

THREADS = 2
TOGETHER = 16
"""Number of results that go back to the event loop in one call."""


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

    def __init__(self, database: Database) -> None:
        self._database = database
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
                try:
                    value = each.read(db)
                except sqlite3.OperationalError as error:
                    if not read_leniently(db, error):
                        raise
                    value = each.read(db)
                found.append((each.answer, value, None))
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


def select_all(db: sqlite3.Connection, statements: Sequence[Select]) -> list[list[Any]]:
    """Return the rows that each statement finds. Several statements read one snapshot."""
    if len(statements) == 1:
        return [db.execute(*statements[0]).fetchall()]
    db.execute("BEGIN")
    try:
        return [db.execute(text, values).fetchall() for text, values in statements]
    finally:
        db.execute("COMMIT")


def answer(db: sqlite3.Connection, query: Query[T]) -> T:
    """Return the answer of a query of one statement, within a transaction or without one."""
    (statement,) = query.statements()
    return query.answer([db.execute(*statement).fetchall()])


def present(db: sqlite3.Connection, store_clock: StoreClock) -> Instant:
    """Return the store's real and business time."""
    return mapping_of(answer(db, Load(META, MAPPING_ROW))).at(store_clock.real())


def rows_of_run(db: sqlite3.Connection, key: tuple[str, str], store_clock: StoreClock) -> RunRows | None:
    """Return all rows of a run in one snapshot, or None."""
    db.execute("BEGIN")
    try:
        run = answer(db, Load(RUN, key))
        if run is None:
            return None
        values = db.execute(sql.LAST_SNAPSHOT, key).fetchone()
        last: Event | None = None if values is None else DECODE[EVENT.name](values)
        rest = [answer(db, Under(kind, key, limit=ALL_ROWS)) for kind in HOLDER_KINDS]
        shared = sql.rows_of(EFFECT, db.execute(sql.SHARED, key))
        now = present(db, store_clock)
    finally:
        db.execute("COMMIT")
    return gather_rows(run, last, rest, now, shared)

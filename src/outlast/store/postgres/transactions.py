"""Transactions of authors' code that land the author's rows with the effect, or neither (S-12)."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import Any, Final
from weakref import WeakKeyDictionary

import asyncpg
import asyncpg.transaction
from typing_extensions import override

from outlast.core import crash_points
from outlast.core.commit import Commit, Done
from outlast.errors import Stale, StoreUnusable, Unavailable
from outlast.store.batch import VERSION, Batch
from outlast.store.bounds import check
from outlast.store.port import Transaction, TransactionEnded
from outlast.store.postgres import maintenance
from outlast.store.postgres.connection import (
    AGAIN,
    ANSWER_S,
    AWAY,
    CONNECT_S,
    LOCK_TIMEOUT_MS,
    PLANNER,
    Address,
    remedy,
)
from outlast.store.postgres.session import Mismatch, PostgresSession
from outlast.store.postgres.statements import SESSION, row_keys
from outlast.store.store_clock import StoreClock

CONNECTIONS: Final = 10  # open transactions per event loop; further ones wait
HELD_S: Final = 0.005  # wait before a row that another batch holds is tried again
PASSING: Final = (*AWAY, *AGAIN)

# Limits how long a stopped process keeps its rows locked. Parameters: the time of the attempt in ms, twice.
LIMIT_TRANSACTION: Final = (
    "SELECT pg_current_xact_id()::text, set_config('statement_timeout', $1, true), "
    "set_config('idle_in_transaction_session_timeout', $2, true)"
)
# Restores our settings for the last statements, whatever the author has set. The author's search_path is put back
# before COMMIT, because triggers of the author may run there. Parameters: our schema, lock timeout.
RESTORE_SETTINGS: Final = (
    "SELECT pg_current_xact_id()::text, current_setting('search_path'), set_config('search_path', $1, true), "
    "set_config('lock_timeout', $2, true), set_config('synchronous_commit', 'on', true), "
    + ", ".join(f"set_config('{name}', '{value}', true)" for name, value in PLANNER.items())
)
RESTORE_PATH: Final = "SELECT set_config('search_path', $1, true)"


class AuthorSession:
    """A connection for authors' code with the server's own settings, and a writer row for receipts (S-9)."""

    def __init__(self, address: Address, writer: str, store_clock: StoreClock) -> None:
        self._address = address
        self._writer = writer
        self._session = PostgresSession(address, writer, store_clock)
        self._registered = False
        self._author: asyncpg.Connection[Any] | None = None
        self._transaction: asyncpg.transaction.Transaction | None = None
        self._xid = ""
        self._search_path = ""

    async def begin(self, timeout_ms: int, *, serializable: bool) -> "asyncpg.Connection[Any]":
        """Begin a transaction.

        Raises asyncpg's errors.
        """
        if not self._registered:
            await self._session.alone(partial(maintenance.register, writer=self._writer), "register", receipt=False)
            self._registered = True
        await self._session.close()  # this connection registers and resolves only
        if self._author is None or self._author.is_closed():
            self._author = await asyncpg.connect(
                self._address.dsn, timeout=CONNECT_S, server_settings={"application_name": "outlast"}
            )
            self._session.server_session = tuple(await self._author.fetchrow(SESSION) or ())
        self._transaction = self._author.transaction(
            isolation="serializable" if serializable else "read_committed", readonly=False
        )
        await self._transaction.start()
        ms = str(timeout_ms)
        self._xid = await self._author.fetchval(LIMIT_TRANSACTION, ms, ms)
        return self._author

    async def land_with(self, commits: Sequence[Commit]) -> Done:
        """Land commits in the author's transaction, as `Transaction.land`."""
        db = self._author
        assert db is not None
        for commit in commits:
            check(commit)
        await self._take_over(db)
        labels = [commit.label for commit in commits] if crash_points.hook else ()
        crash_points.point("store.batch:before", labels)
        async with asyncio.timeout(ANSWER_S):
            while True:
                rows, busy = await self._session.lock(db, row_keys(commits, optimistic=False))
                if not busy:
                    break
                await asyncio.sleep(HELD_S)
            now = await self._session.now(db)
            batch = Batch(
                lambda kind, key: rows.get((kind.name, key)), now, subscribed_tenants=self._session.subscribed_tenants
            )
            done = [batch.land(commit) for commit in commits][-1]
        try:
            await self._session.write(db, batch, labels, commit=self._commit)
        except Mismatch:
            raise Stale(VERSION) from None
        return done

    async def _take_over(self, db: "asyncpg.Connection[Any]") -> None:
        """Restore our settings for the end of the transaction.

        Raises EndedByItself if this is not the transaction of `begin`.
        """
        if db.is_in_transaction():
            xid, path, *_ = await db.fetchrow(RESTORE_SETTINGS, self._address.schema, str(LOCK_TIMEOUT_MS))  # type: ignore[misc]
            if xid == self._xid:
                self._search_path = self._search_path or path
                return
        state = await db.fetchval("SELECT pg_xact_status($1::text::xid8)", self._xid)
        raise TransactionEnded(may_be_committed=state != "aborted")

    async def _commit(self, db: "asyncpg.Connection[Any]") -> None:
        """COMMIT, and find out the result if the answer is lost.

        Raises Unavailable, Uncertain, and errors of the author's deferred constraints.
        """
        assert self._transaction is not None
        try:
            async with asyncio.timeout(ANSWER_S):
                await db.fetchval(RESTORE_PATH, self._search_path)
                await self._transaction.commit()
        except AWAY as error:
            self.forget()
            await self._session.resolve(error)
        finally:
            self._transaction = None

    async def end(self) -> None:
        """Roll back an uncommitted transaction and reset the connection, or give it up."""
        db, self._transaction, self._search_path = self._author, None, ""
        if db is not None and not db.is_closed():
            try:
                await db.reset(timeout=5)
            except (*AWAY, asyncpg.PostgresError):
                self.forget()

    def forget(self) -> None:
        """Give the author's connection up. The server rolls back its open transaction."""
        db, self._author = self._author, None
        if db is not None:
            db.terminate()

    async def drop(self) -> None:
        """Give up the author's connection and the one that registers."""
        self.forget()
        await self._session.drop()

    async def resign(self) -> None:
        """Close the writer row and both connections."""
        self.forget()
        if self._registered:
            await self._session.alone(partial(maintenance.resign, writer=self._writer), "resign", receipt=False)
        await self._session.close()


class PostgresTransaction(Transaction):
    """An open transaction of an author."""

    def __init__(self, session: AuthorSession, connection: "asyncpg.Connection[Any]") -> None:
        self._connection = connection
        self._session = session

    @property
    @override
    def connection(self) -> "asyncpg.Connection[Any]":
        return self._connection

    @override
    async def land(self, commits: Sequence[Commit]) -> Done:
        try:
            return await self._session.land_with(commits)
        except TimeoutError as error:  # COMMIT was not sent
            self._session.forget()
            raise Unavailable("the store does not answer", str(error)) from error

    @override
    def is_passing(self, error: BaseException) -> bool:
        return isinstance(error, PASSING)


class TransactionPool:
    """The connections of authors' transactions, by event loop."""

    def __init__(self, address: Address, writer: str, store_clock: StoreClock) -> None:
        self._address = address
        self._writer = writer
        self._store_clock = store_clock
        self._numbers = count(1)
        self._idle: WeakKeyDictionary[asyncio.AbstractEventLoop, list[AuthorSession]] = WeakKeyDictionary()
        self._free: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    @asynccontextmanager
    async def open(self, timeout_ms: int, *, serializable: bool) -> AsyncIterator[PostgresTransaction]:
        """Begin a transaction, as `Transactions.transaction`."""
        loop = asyncio.get_running_loop()
        idle = self._idle.setdefault(loop, [])
        async with self._free.setdefault(loop, asyncio.Semaphore(CONNECTIONS)):
            session = idle.pop() if idle else self._new()
            try:
                connection = await self._begin(session, timeout_ms, serializable=serializable)
                yield PostgresTransaction(session, connection)
                await session.end()
            except Exception:  # the author's code may raise anything, and nothing it wrote stays
                await session.end()
                raise
            except BaseException:  # a cancelled execution waits for nothing
                session.forget()
                raise
            finally:
                idle.append(session)

    def _new(self) -> AuthorSession:
        return AuthorSession(self._address, f"{self._writer}.t{next(self._numbers)}", self._store_clock)

    async def _begin(self, session: AuthorSession, timeout_ms: int, *, serializable: bool) -> "asyncpg.Connection[Any]":
        """Begin a transaction, over a new connection if the idle one was cut."""
        for again in (True, False):
            try:
                async with asyncio.timeout(ANSWER_S):
                    return await session.begin(timeout_ms, serializable=serializable)
            except AWAY as error:
                await session.drop()
                if not again:
                    raise Unavailable(
                        "the store does not answer", f"{type(error).__name__}: {error}", remedy(error)
                    ) from error
            except (asyncpg.PostgresError, StoreUnusable) as error:
                session.forget()
                raise Unavailable("the store cannot begin a transaction", f"{type(error).__name__}: {error}") from error
        raise AssertionError("unreachable")

    async def close(self) -> None:
        """Resign the writers of this loop's connections, and give up those of other loops."""
        mine = asyncio.get_running_loop()
        for loop, idle in list(self._idle.items()):
            while idle:
                session = idle.pop()
                if loop is not mine:
                    if loop.is_running():
                        loop.call_soon_threadsafe(session.forget)
                    continue
                try:
                    await session.resign()
                except (*PASSING, asyncpg.PostgresError, Unavailable):
                    session.forget()

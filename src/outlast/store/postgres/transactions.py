"""Transactions of authors' code that land commits at their end: the user's rows and the effect's, or neither (S-12)."""

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

from outlast.core import points
from outlast.core.commit import Commit, Done
from outlast.errors import Stale, StoreUnusable, Unavailable
from outlast.store.batch import VERSION, Batch
from outlast.store.bounds import check
from outlast.store.clock import StoreClock
from outlast.store.port import EndedByItself, Transaction
from outlast.store.postgres import maintenance
from outlast.store.postgres.connection import AGAIN, ANSWER_S, AWAY, CONNECT_S, LOCK_TIMEOUT_MS, PLANNER, Address
from outlast.store.postgres.session import Mismatch, PostgresSession
from outlast.store.postgres.statements import SESSION, row_keys

CONNECTIONS: Final = 10  # transactions open at once in one loop; more wait for their turn
HELD_S: Final = 0.005  # a row of ours that another batch holds is asked for again
PASSING: Final = (*AWAY, *AGAIN)

# A frozen process keeps its rows locked no longer than its attempt lasts. Parameters: that, in ms, twice.
BEGUN: Final = (
    "SELECT pg_current_xact_id()::text, set_config('statement_timeout', $1, true), "
    "set_config('idle_in_transaction_session_timeout', $2, true)"
)
# From here on the statements are ours, whatever the author has set; what was is put back before COMMIT, where
# triggers of the author may yet run. Parameters: our schema, and how long a lock is waited for.
OURS: Final = (
    "SELECT pg_current_xact_id()::text, current_setting('search_path'), set_config('search_path', $1, true), "
    "set_config('lock_timeout', $2, true), set_config('synchronous_commit', 'on', true), "
    + ", ".join(f"set_config('{name}', '{value}', true)" for name, value in PLANNER.items())
)
THEIRS: Final = "SELECT set_config('search_path', $1, true)"


class AuthorSession(PostgresSession):
    """A connection for authors' code, with the server's own settings, and a writer row for its receipts (S-9)."""

    def __init__(self, address: Address, writer: str, ticker: StoreClock) -> None:
        super().__init__(address, writer, ticker)
        self._registered = False
        self._author: asyncpg.Connection[Any] | None = None
        self._top: asyncpg.transaction.Transaction | None = None
        self._began = ""
        self._path = ""

    async def begin(self, timeout_ms: int, *, serializable: bool) -> "asyncpg.Connection[Any]":
        """A new transaction. Raises asyncpg's errors."""
        if not self._registered:
            await self.alone(partial(maintenance.register, writer=self._writer), "register", receipt=False)
            self._registered = True
        await super().close()  # what registers and resolves is needed no more
        if self._author is None or self._author.is_closed():
            self._author = await asyncpg.connect(
                self._address.dsn, timeout=CONNECT_S, server_settings={"application_name": "outlast"}
            )
            self._session = tuple(await self._author.fetchrow(SESSION) or ())
        self._top = self._author.transaction(
            isolation="serializable" if serializable else "read_committed", readonly=False
        )
        await self._top.start()
        ms = str(timeout_ms)
        self._began = await self._author.fetchval(BEGUN, ms, ms)
        return self._author

    async def land_with(self, commits: Sequence[Commit]) -> Done:
        """See `land` of store/port.py."""
        db = self._author
        assert db is not None
        for commit in commits:
            check(commit)
        await self._take_over(db)
        labels = [commit.label for commit in commits] if points.hook else ()
        points.point("store.batch:before", labels)
        async with asyncio.timeout(ANSWER_S):
            while True:
                rows, busy = await self._lock(db, row_keys(commits, optimistic=False))
                if not busy:
                    break
                await asyncio.sleep(HELD_S)
            now = await self.now(db)
            batch = Batch(lambda kind, key: rows.get((kind.name, key)), now, subscribed_tenants=self.subscribed_tenants)
            done = [batch.land(commit) for commit in commits][-1]
        try:
            await self._write(db, batch, labels)
        except Mismatch:
            raise Stale(VERSION) from None
        return done

    async def _take_over(self, db: "asyncpg.Connection[Any]") -> None:
        """The last part of the transaction is ours. Raises EndedByItself where it is not the one that was begun."""
        if db.is_in_transaction():
            xid, path, *_ = await db.fetchrow(OURS, self._address.schema, str(LOCK_TIMEOUT_MS))  # type: ignore[misc]
            if xid == self._began:
                self._path = self._path or path
                return
        state = await db.fetchval("SELECT pg_xact_status($1::text::xid8)", self._began)
        raise EndedByItself(stands=state != "aborted")

    async def _commit(self, db: "asyncpg.Connection[Any]") -> None:
        """COMMIT; where its answer is lost, the receipt tells. Raises Unavailable, Uncertain, and what the author's
        deferred constraints say."""
        assert self._top is not None
        try:
            async with asyncio.timeout(ANSWER_S):
                await db.fetchval(THEIRS, self._path)
                await self._top.commit()
        except AWAY as error:
            self.forget()
            await self._resolve(error)
        finally:
            self._top = None

    async def end(self) -> None:
        """Roll back what was not committed, and leave the connection as it was. What fails gives it up."""
        db, self._top, self._path = self._author, None, ""
        if db is not None and not db.is_closed():
            try:
                await db.reset(timeout=5)
            except (*AWAY, asyncpg.PostgresError):
                self.forget()

    def forget(self) -> None:
        """Give the connection up at once; what it had open is rolled back by the server."""
        db, self._author = self._author, None
        if db is not None:
            db.terminate()

    async def resign(self) -> None:
        """Close the writer row; nothing more is written under it."""
        self.forget()
        if self._registered:
            await self.alone(partial(maintenance.resign, writer=self._writer), "resign", receipt=False)
        await self.close()


class PostgresTransaction(Transaction):
    """What store/port.py calls a Transaction."""

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
        except TimeoutError as error:  # before COMMIT was sent
            self._session.forget()
            raise Unavailable("the store does not answer", str(error)) from error

    @override
    def is_passing(self, error: BaseException) -> bool:
        return isinstance(error, PASSING)


class TransactionPool:
    """The connections of authors' transactions, in the loops that use them."""

    def __init__(self, address: Address, writer: str, ticker: StoreClock) -> None:
        self._address = address
        self._writer = writer
        self._ticker = ticker
        self._numbers = count(1)
        self._idle: WeakKeyDictionary[asyncio.AbstractEventLoop, list[AuthorSession]] = WeakKeyDictionary()
        self._room: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    @asynccontextmanager
    async def open(self, timeout_ms: int, *, serializable: bool) -> AsyncIterator[PostgresTransaction]:
        """See the port."""
        loop = asyncio.get_running_loop()
        idle = self._idle.setdefault(loop, [])
        async with self._room.setdefault(loop, asyncio.Semaphore(CONNECTIONS)):
            session = idle.pop() if idle else self._new()
            try:
                connection = await self._begun(session, timeout_ms, serializable=serializable)
                yield PostgresTransaction(session, connection)
                await session.end()
            except Exception:  # whatever the author's code raised: nothing of it stays
                await session.end()
                raise
            except BaseException:  # a walk that is cut off waits for nothing
                session.forget()
                raise
            finally:
                idle.append(session)

    def _new(self) -> AuthorSession:
        return AuthorSession(self._address, f"{self._writer}.t{next(self._numbers)}", self._ticker)

    async def _begun(self, session: AuthorSession, timeout_ms: int, *, serializable: bool) -> "asyncpg.Connection[Any]":
        """A transaction, over another connection where the idle one was cut meanwhile."""
        for again in (True, False):
            try:
                async with asyncio.timeout(ANSWER_S):
                    return await session.begin(timeout_ms, serializable=serializable)
            except AWAY as error:
                session.forget()
                await session.drop()
                if not again:
                    raise Unavailable("the store does not answer", f"{type(error).__name__}: {error}") from error
            except (asyncpg.PostgresError, StoreUnusable) as error:
                session.forget()
                raise Unavailable("the store gives no transaction", f"{type(error).__name__}: {error}") from error
        raise AssertionError("unreachable")

    async def close(self) -> None:
        """Resign the writers of this loop's connections, and give up those of others."""
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

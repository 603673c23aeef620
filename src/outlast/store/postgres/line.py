"""A connection that writes to PostgreSQL, down to what became of a COMMIT whose answer was lost (S-9)."""

import asyncio
from typing import Any, Final

import asyncpg

from outlast.core.machine import LeaseStatus
from outlast.core.rows import STORE, WRITER, Writer
from outlast.errors import Unavailable, Uncertain
from outlast.store.postgres import statements
from outlast.store.postgres.connect import AWAY, Address, reconnect
from outlast.store.sql import DECODE

RESOLVE_S: Final = 30.0  # how long a lost COMMIT is asked after
ASK_AGAIN_S: Final = 0.2


class Line:
    """A connection, and the writer row in which each of its batches leaves its number. Used by one task at a time."""

    def __init__(self, address: Address, writer: str, *, answer_s: float) -> None:
        self._address = address
        self._writer = writer
        self._answer_s = answer_s
        self._db: asyncpg.Connection[Any] | None = None
        self._session: tuple[Any, ...] = ()  # who the connection is to the server
        self._batches = 0

    async def db(self) -> "asyncpg.Connection[Any]":
        """The connection, opened anew if the last one is gone. Raises asyncpg's errors."""
        if self._db is None or self._db.is_closed():
            db = await reconnect(self._address, writes=True, answer_s=self._answer_s)
            self._session = tuple(await db.fetchrow(statements.SESSION) or ())
            self._db = db
        return self._db

    async def drop(self) -> None:
        """Give the connection up; what it had open is rolled back by the server."""
        db, self._db = self._db, None
        if db is not None:
            db.terminate()

    async def close(self) -> None:
        """End the connection in order."""
        db, self._db = self._db, None
        if db is not None and not db.is_closed():
            await db.close(timeout=5)

    def _receipt(self) -> tuple[int, str, str, str]:
        return (self._batches, STORE, self._writer, LeaseStatus.ALIVE.value)

    async def _commit(self, db: "asyncpg.Connection[Any]") -> None:
        """COMMIT; where its answer is lost, ask the server what became of it. Raises Unavailable, Uncertain."""
        try:
            await db.execute("COMMIT")
        except AWAY as error:
            await self.drop()
            await self._resolve(error)

    async def _resolve(self, error: BaseException) -> None:
        """Return if the batch landed: its receipt tells, once the session that may still write it is gone.

        A transaction's number would not: after a crash of the server it can be given to another (docs/decisions).
        The receipt is read by a commit: ending a session that waits for a standby leaves its batch on this server
        alone, and a commit after it is not answered before the standby has both.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + RESOLVE_S
        old = self._session
        while loop.time() < until:
            try:
                db = await self.db()
                if old and not await db.fetch(statements.END, *old):
                    record = await db.fetchrow(statements.CONFIRM, STORE, self._writer)
                    break
            except (*AWAY, asyncpg.PostgresError, Unavailable):
                await self.drop()
            await asyncio.sleep(ASK_AGAIN_S)
        else:
            raise Uncertain("the store's answer was lost", f"{type(error).__name__}: {error}") from error
        row = None if record is None else DECODE[WRITER.name](tuple(record))
        if not isinstance(row, Writer):
            raise Uncertain("the store's answer was lost", "and this writer's receipts are gone") from error
        if row.batch != self._batches:
            raise Unavailable("the store did not take the batch", str(error)) from error

    async def _roll_back(self, db: "asyncpg.Connection[Any]") -> None:
        """Leave no transaction open; a connection that cannot even do that is given up."""
        if self._db is db and not db.is_closed() and db.is_in_transaction():
            try:
                await db.execute("ROLLBACK")
            except (*AWAY, asyncpg.PostgresError):
                await self.drop()

"""Hears from other processes that a run has fallen due: LISTEN, and again after every cut (S-12)."""

import asyncio
import contextlib
from typing import Any, Final

import asyncpg

from outlast.store.postgres.connect import AWAY, Address, connect
from outlast.store.postgres.statements import CHANNEL
from outlast.store.threads import WakeSubscribers

AGAIN_S: Final = 0.5  # after a cut; doubled up to the next
AGAIN_MAX_S: Final = 10.0
PING_S: Final = 10.0  # nothing heard for so long: is anybody there?


class Listener:
    """One connection that only listens; what was missed while it was cut is made good by one wake."""

    def __init__(self, address: Address, wakes: WakeSubscribers) -> None:
        self._address = address
        self._wakes = wakes
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Listen from now on, if it does not yet."""
        if self._task is None:
            self._task = asyncio.create_task(self._listen(), name="outlast-listener")

    async def close(self) -> None:
        """Stop listening."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _listen(self) -> None:
        pause = AGAIN_S
        while True:
            try:
                db = await connect(self._address, writes=False)
                try:
                    await self._until_cut(db)
                finally:
                    db.terminate()
                pause = AGAIN_S
            except (*AWAY, asyncpg.PostgresError):
                pass  # polling is the fallback meanwhile
            await asyncio.sleep(pause)
            pause = min(pause * 2, AGAIN_MAX_S)

    async def _until_cut(self, db: "asyncpg.Connection[Any]") -> None:
        cut = asyncio.Event()
        db.add_termination_listener(lambda _: cut.set())
        await db.add_listener(CHANNEL, self._heard)
        self._wakes.fire()
        while not cut.is_set():
            try:
                async with asyncio.timeout(PING_S):
                    await cut.wait()
            except TimeoutError:
                await db.execute("SELECT 1")

    def _heard(self, _db: object, _pid: int, _channel: str, schema: object) -> None:
        if schema == self._address.schema:
            self._wakes.fire()

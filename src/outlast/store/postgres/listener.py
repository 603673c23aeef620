"""A connection that listens to the notifications of one channel and reconnects after every cut (S-12)."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final

import asyncpg

from outlast.store.postgres.connection import AWAY, Address, connect

AGAIN_S: Final = 0.5  # first wait after a cut; doubled up to the next
AGAIN_MAX_S: Final = 10.0
PING_S: Final = 10.0  # interval of checks that the server is still there


class NotificationListener:
    """Listener to a channel. `receive` gets each payload, `connected` is called after each connection."""

    def __init__(
        self,
        address: Address,
        channel: str,
        receive: Callable[[str], None],
        connected: Callable[[], None] = lambda: None,
    ) -> None:
        self._address = address
        self._channel = channel
        self._receive = receive
        self._connected = connected
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start listening, if it has not started."""
        if self._task is None:
            self._task = asyncio.create_task(self._listen(), name="outlast-listener")

    def end(self) -> None:
        """Stop listening; `begin` starts again."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def close(self) -> None:
        """Stop listening and wait for the task."""
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
                pass  # workers poll until the connection is back
            await asyncio.sleep(pause)
            pause = min(pause * 2, AGAIN_MAX_S)

    async def _until_cut(self, db: "asyncpg.Connection[Any]") -> None:
        cut = asyncio.Event()
        db.add_termination_listener(lambda _: cut.set())
        await db.add_listener(self._channel, lambda _db, _pid, _channel, payload: self._receive(str(payload)))
        self._connected()
        while not cut.is_set():
            try:
                async with asyncio.timeout(PING_S):
                    await cut.wait()
            except TimeoutError:
                await db.execute("SELECT 1")

"""Deltas between the processes of one schema, as notifications. A lost connection loses them."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import asyncpg

from outlast.core.state.delta_packets import Delta, packets, read_packet
from outlast.store.delta_channel import DeltaCallback
from outlast.store.postgres.connection import AWAY, Address, connect
from outlast.store.postgres.listener import NotificationListener
from outlast.store.postgres.statements import DELTA_CHANNEL, NOTIFY_DELTAS
from outlast.store.threads import Subscribers

PAYLOAD_BYTES: Final = 7_900  # the server takes less than 8,000
QUEUED_MAX: Final = 100  # payloads that wait for the connection; further ones are lost
AT_ONCE: Final = 20  # payloads of one statement
AGAIN_S: Final = 1.0


class PostgresDeltas:
    """Sender and listener of deltas of one opened store. Its connections are opened when they are first needed."""

    def __init__(self, address: Address, writer: str, loop: asyncio.AbstractEventLoop) -> None:
        """`loop`: the event loop of the store."""
        self._address = address
        self._writer = writer
        self._loop = loop
        self._subscribers = Subscribers[Sequence[Delta]]()
        self._listener = NotificationListener(address, DELTA_CHANNEL, self._receive)
        self._queue: deque[str] = deque()
        self._sending: asyncio.Task[None] | None = None
        self._db: asyncpg.Connection[Any] | None = None

    def subscribe(self, callback: DeltaCallback) -> Callable[[], None]:
        """Call `callback` in the current event loop from now on. Return the function that unsubscribes."""
        unsubscribe = self._subscribers.subscribe(callback)
        self._loop.call_soon_threadsafe(self._listener.begin)

        def end() -> None:
            unsubscribe()
            with contextlib.suppress(RuntimeError):  # the store is closed
                self._loop.call_soon_threadsafe(self._end_unless_received)

        return end

    def _end_unless_received(self) -> None:
        if not self._subscribers.has_any():
            self._listener.end()

    def publish(self, deltas: Sequence[Delta]) -> None:
        """Send deltas to the subscribers of this process and to those of others."""
        self._subscribers.report([(deltas,)])
        texts = packets(deltas, PAYLOAD_BYTES, sender=self._writer, to=self._address.schema)
        with contextlib.suppress(RuntimeError):  # the store is closed
            self._loop.call_soon_threadsafe(self._enqueue, texts)

    def _enqueue(self, texts: Sequence[str]) -> None:
        self._queue.extend(texts[: QUEUED_MAX - len(self._queue)])
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send(), name="outlast-deltas")

    async def _send(self) -> None:
        while self._queue:
            some = [self._queue.popleft() for _ in range(min(AT_ONCE, len(self._queue)))]
            try:
                if self._db is None:
                    self._db = await connect(self._address, writes=False)
                    await self._db.execute("SET synchronous_commit = off")  # because nothing is stored
                await self._db.execute(NOTIFY_DELTAS, DELTA_CHANNEL, some)
            except (*AWAY, asyncpg.PostgresError, asyncpg.InterfaceError):
                self._disconnect()
                await asyncio.sleep(AGAIN_S)
                self._queue.clear()

    def _disconnect(self) -> None:
        if self._db is not None:
            self._db.terminate()
            self._db = None

    def _receive(self, payload: str) -> None:
        packet = read_packet(payload)
        if packet is not None and packet.to == self._address.schema and packet.sender != self._writer:
            self._subscribers.report([(packet.deltas,)])

    async def close(self) -> None:
        """Stop sending and listening, and close both connections."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
        self._disconnect()
        await self._listener.close()

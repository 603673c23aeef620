"""Server-sent events: how one is spelt, and an answer that ends when its listener is cut, has gone or has heard all."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from outlast.core.limits import KIB
from outlast.core.rows import Event
from outlast.errors import OutlastError

BUFFER: Final = 1_024
"""Frames that a listener may be behind; each is kept once, however many listen …"""
BUFFER_BYTES: Final = 16 * KIB * KIB
"""… and how large they are together."""
Share = tuple[str, str]
"""Who holds a stream: the kind of holder, and its name."""
Item = tuple[int, bytes]
"""The number of an event of the run that is listened to (0: none of its), and the frame."""


class EventListener:
    """Of one run, or ('') of every run of its tenant."""

    def __init__(self, tenant: str, run: str, shares: tuple[Share, ...] = ()) -> None:
        self.tenant = tenant
        self.run = run
        self.shares = shares
        self.cut = asyncio.Event()  # it was too slow, or the service stops
        self._frames: list[Item] = []
        self._bytes = 0
        self._ended = False
        self._news = asyncio.Event()

    def __len__(self) -> int:
        return len(self._frames)

    def push(self, seq: int, data: bytes) -> None:
        """One more frame; too many, and it is cut."""
        if len(self._frames) >= BUFFER or self._bytes > BUFFER_BYTES:
            self.cut.set()
        if not self.cut.is_set():
            self._frames.append((seq, data))
            self._bytes += len(data)
            self._news.set()

    def end(self) -> None:
        """Nothing more will come."""
        self._ended = True
        self._news.set()

    async def heard(self) -> list[Item]:
        """All that has come since, at least one; none: after the last event of a run, or at the service's end."""
        await self._news.wait()
        found, self._frames, self._bytes = self._frames, [], 0
        if not self._ended:
            self._news.clear()
        return found


HEARTBEAT: Final = b": heartbeat\n\n"
MEDIA_TYPE: Final = "text/event-stream"
RETRY: Final = b"retry: 1000\n\n"
GOODBYE_S: Final = 2.0
log: Final = logging.getLogger("outlast.service")


def frame(event: Event, id_: str) -> bytes:
    """One event: an id to go on after, its type, and the CloudEvent as it is stored, on one line."""
    body = event.body.replace(b"\r", b"").replace(b"\n", b" ")  # JSON has none outside of escapes; ours is written so
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (id_.encode(), event.type.encode(), body)


def notice(name: str, data: dict[str, object]) -> bytes:
    """Something that is no event of a run."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


def wants_stream(accept: str | None) -> bool:
    """Does the caller ask for a stream?"""
    return accept is not None and MEDIA_TYPE in accept.lower()


class EventStream(Response):
    """An answer of frames, until the run ends, the listener goes, is too slow, or (`expired`) is not allowed any more:
    then the last thing it hears is an event `credential`."""

    media_type = MEDIA_TYPE

    def __init__(
        self,
        frames: AsyncIterator[bytes],
        listener: EventListener,
        *,
        leave: Callable[[EventListener], None],
        expired: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._frames = frames
        self._listener = listener
        self._leave = leave
        self._expired = expired

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until it is over, however it ends."""
        work = [
            asyncio.ensure_future(self._send(send)),
            asyncio.ensure_future(_gone(receive)),
            asyncio.ensure_future(self._listener.cut.wait()),
            asyncio.ensure_future(self._close()),
        ]
        try:
            await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._leave(self._listener)
            for each in work:
                each.cancel()
            done = await asyncio.gather(*work, return_exceptions=True)
        if isinstance(done[0], Exception) and not isinstance(done[0], OSError):
            raise done[0]

    async def _close(self) -> None:
        """Say goodbye once the credential has ended; whoever does not read it is left."""
        await self._expired()
        self._listener.push(0, notice("credential", {"why": "the credential is not good any more"}))
        self._listener.end()
        await asyncio.sleep(GOODBYE_S)

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": RETRY, "more_body": True})
        try:
            async for data in self._frames:
                if data:
                    await send({"type": "http.response.body", "body": data, "more_body": True})
        except OutlastError as error:  # as the store that is away; whoever listens comes again, behind the last event
            log.warning("a stream of events ends: %s", error.what)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

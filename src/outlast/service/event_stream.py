"""Server-sent events: their encoding, the buffer of one listener, and the streaming response."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from typing_extensions import override

from outlast.core.limits import KIB
from outlast.core.rows.run_rows import Event
from outlast.core.state.delta_packets import Delta
from outlast.errors import OutlastError
from outlast.insight.row_models import run_delta

BUFFER: Final = 1_024
"""Frames that a listener may be behind. Listeners share the frames in memory."""
BUFFER_BYTES: Final = 16 * KIB * KIB
"""Total size of these frames."""
DELTAS_BEHIND: Final = BUFFER // 4
"""Frames from which on a listener gets no deltas, so that these never cut it off."""
DELTA_BYTES_BEHIND: Final = KIB * KIB
Share = tuple[str, str]
"""Party that a stream counts towards: `tenant`, `address` or `caller`, and its name."""
Item = tuple[int, bytes]
"""Number of the event in the run that is listened to, or 0, and the frame."""


class EventListener:
    """Subscriber to the events of one run, or of all runs of its tenant if `run` is empty."""

    def __init__(self, tenant: str, run: str, shares: tuple[Share, ...] = ()) -> None:
        self.tenant = tenant
        self.run = run
        self.shares = shares
        self.cut = asyncio.Event()  # set if it read too slowly
        self.reopens = False  # it has ended, but events may follow in another stream
        self._frames: list[Item] = []
        self._bytes = 0
        self._ended = False
        self._news = asyncio.Event()

    def __len__(self) -> int:
        return len(self._frames)

    def push(self, seq: int, data: bytes) -> None:
        """Add a frame. Cut the listener off if its buffer is full."""
        if len(self._frames) >= BUFFER or self._bytes > BUFFER_BYTES:
            self.cut.set()
        if not self.cut.is_set():
            self._frames.append((seq, data))
            self._bytes += len(data)
            self._news.set()

    def offer(self, data: bytes) -> None:
        """Add a frame that may be lost: drop it if the listener is behind."""
        if len(self._frames) < DELTAS_BEHIND and self._bytes + len(data) <= DELTA_BYTES_BEHIND:
            self.push(0, data)

    def end(self, *, reopens: bool = False) -> None:
        """Let `received` return without waiting from now on.

        `reopens`: not because the run has ended, but the service stops or a credential has expired, so that the
        listener connects again.
        """
        self._ended, self.reopens = True, reopens
        self._news.set()

    async def received(self) -> list[Item]:
        """Wait for frames and return them. Return an empty list if the run or the service has ended."""
        await self._news.wait()
        found, self._frames, self._bytes = self._frames, [], 0
        if not self._ended:
            self._news.clear()
        return found


HEARTBEAT: Final = b": heartbeat\n\n"
MEDIA_TYPE: Final = "text/event-stream"
RETRY: Final = b"retry: 1000\n\n"
GOODBYE_S: Final = 2.0
HEAD_ONLY: Final = "outlast.head_only"
"""Key of the scope of a HEAD, which the routes handle as a GET."""
log: Final = logging.getLogger("outlast.service")


def frame(event: Event, id_: str) -> bytes:
    """Encode one event: its id, its type, and the CloudEvent on one line."""
    body = event.body.replace(b"\r", b"").replace(b"\n", b" ")  # events have no line breaks; this guards the framing
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (id_.encode(), event.type.encode(), body)


def notice(name: str, data: dict[str, object]) -> bytes:
    """Encode a notice of the service, which is not an event of a run."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


def delta_frame(delta: Delta) -> bytes:
    """Encode a delta. It has no id, so `Last-Event-ID` stays at the last event of the run."""
    return notice("delta", run_delta(delta).model_dump())


def wants_stream(accept: str | None) -> bool:
    """Return True if the header Accept asks for an event stream."""
    return accept is not None and MEDIA_TYPE in accept.lower()


class EventStream(Response):
    """Streaming response that sends the frames of one listener.

    It ends when the run ends, the caller disconnects or reads too slowly, or `expired` returns. In the last case its
    last event is `credential`. The answer to a HEAD is the head alone, at once.
    """

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

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get(HEAD_ONLY):
            self._leave(self._listener)
            await self._send_head(send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        work = [
            asyncio.ensure_future(self._send(send)),
            asyncio.ensure_future(_disconnected(receive)),
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
        """Send the event `credential` once the credential has expired, and allow GOODBYE_S for it to be read."""
        await self._expired()
        self._listener.push(0, notice("credential", {"why": "the credential is no longer valid"}))
        self._listener.end(reopens=True)
        await asyncio.sleep(GOODBYE_S)

    async def _send_head(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})

    async def _send(self, send: Send) -> None:
        await self._send_head(send)
        await send({"type": "http.response.body", "body": RETRY, "more_body": True})
        try:
            async for data in self._frames:
                if data:
                    await send({"type": "http.response.body", "body": data, "more_body": True})
        except OutlastError as error:  # e.g. the store is unavailable; the caller reconnects after its last event
            log.warning("an event stream ends: %s", error.what)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

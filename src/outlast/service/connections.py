"""Listening sockets, and limits on connections and their HTTP/1.1 bytes that hold before authentication (S17)."""

import asyncio
import socket
import sys
from collections import Counter
from functools import partial
from typing import Any, Final

import uvicorn
from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.utils import get_remote_addr

from outlast.core.limits import CONNECTIONS_MAX, connections_within
from outlast.errors import InvalidInput
from outlast.service.identity.lockout import address_group
from outlast.service.request_limits import Bounds

UNREAD_MS: Final = 60_000
"""Time after which Linux ends a connection whose peer acknowledges nothing, so that answers are not buffered."""


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Return a socket bound to this address.

    If `shared`, other processes may bind to the same port, and the system distributes connections among them. Raises
    InvalidInput if the address cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named, because asyncio leaves Nagle's algorithm on without it.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_MS)
    if shared:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        made.bind((host, port))
    except OSError as error:
        made.close()
        raise InvalidInput(
            f"cannot listen on {host}:{port}",
            error.strerror or str(error),
            "stop the process that listens there, or choose another port; 0 chooses a free one",
        ) from None
    made.set_inheritable(True)
    return made


def reserve(host: str, port: int) -> socket.socket:
    """Reserve a free port for processes that share it, without listening. Raises InvalidInput."""
    if not hasattr(socket, "SO_REUSEPORT"):
        raise InvalidInput(
            "processes cannot share a port on this system",
            "it has no SO_REUSEPORT",
            "start `outlast serve --no-worker` several times on different ports, behind a proxy",
        )
    with listen(host, port) as free:  # because a shared bind would silently join a port that is in use
        port = free.getsockname()[1]
    return listen(host, port, shared=True)


def url_of(listening: socket.socket) -> str:
    """Return the URL of this socket as seen from this machine."""
    host, port = listening.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}"


class Server(uvicorn.Server):
    """Uvicorn server without signal handlers, because the command drains it together with the worker."""

    @override
    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        await self._serve(sockets)


if sys.platform != "win32":
    import resource

STRANGERS_SHARE: Final = 4
"""Divisor: one address has at most this fraction of the connections until it sends a credential."""
REFUSAL: Final = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


def connections_max() -> int:
    """Return the limit on connections that leaves descriptors for the store, the worker and its calls."""
    if sys.platform == "win32":  # because it has no limit on descriptors
        return CONNECTIONS_MAX
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return connections_within(descriptors) if descriptors != resource.RLIM_INFINITY else CONNECTIONS_MAX


class Connections:
    """Open connections of one process. At the limit, the connection that has been idle longest is closed."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._open: dict[asyncio.Transport, str] = {}  # address group until a credential arrives, then ""
        self._waiting: dict[asyncio.Transport, None] = {}  # idle connections, the longest idle first
        self._strangers: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, transport: asyncio.Transport, address: str) -> bool:
        """Register a connection. Return False if the limit is reached and no other connection is idle."""
        where = address_group(address) or "?"
        if self._strangers[where] >= max(1, self.most // STRANGERS_SHARE) and not self._end_one(where):
            return False
        if len(self._open) >= self.most and not self._end_one(""):
            return False
        self._open[transport] = where
        self._strangers[where] += 1
        self._waiting[transport] = None
        return True

    def leave(self, transport: asyncio.Transport) -> None:
        """Remove a connection that has been closed."""
        self._waiting.pop(transport, None)
        self._forget_stranger(self._open.pop(transport, ""))

    def begin(self, transport: asyncio.Transport) -> None:
        """Mark the connection as busy with a request, so that it is not closed."""
        self._waiting.pop(transport, None)

    def rest(self, transport: asyncio.Transport) -> None:
        """Mark the connection as idle because its requests are answered, so that it may be closed."""
        if transport in self._open:
            self._waiting[transport] = None

    def prove(self, transport: asyncio.Transport) -> None:
        """Stop counting the connection towards its address, because it sent a valid credential."""
        if where := self._open.get(transport):
            self._open[transport] = ""
            self._forget_stranger(where)

    def _forget_stranger(self, where: str) -> None:
        if where:
            self._strangers[where] -= 1
            if not self._strangers[where]:
                del self._strangers[where]

    def _end_one(self, where: str) -> bool:
        """Close the longest idle connection, unauthenticated ones first. With `where`, only of this address group."""
        strangers = (each for each in self._waiting if self._open[each] and where in ("", self._open[each]))
        found = next(strangers, None if where else next(iter(self._waiting), None))
        if found is None:
            return False
        self.leave(found)
        found.abort()  # not close(), which would wait for unsent data before the descriptor is free
        return True


class AdmittedConnection(asyncio.Protocol):
    """Protocol mix-in that registers its connection or refuses it. Precedes a protocol of uvicorn in the bases."""

    admitted: Connections
    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Register the connection, or refuse it with status 503."""
        super().connection_made(transport)
        if not self.admitted.enter(transport, (get_remote_addr(transport) or ("", 0))[0]):
            transport.write(REFUSAL)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from the open ones."""
        self.admitted.leave(self.transport)
        super().connection_lost(exc)


PROVED: Final = "outlast.proved"
"""Scope key of the function to call when a request has a valid credential."""
PIPELINED_MAX: Final = 16
"""Pipelined requests that may wait on one connection for an earlier answer."""
FRAMING: Final = 8
"""Framing bytes allowed per byte of a chunked body, because a chunk of one byte needs five."""


def bounded(bounds: Bounds, connections: Connections) -> type[HttpToolsProtocol]:
    """Return a protocol class with these limits.

    A head that arrives in a single read is parsed first, and RequestLimitsMiddleware refuses it.
    """
    return type("Bounded", (_Bounded,), {"bounds": bounds, "admitted": connections})


class _Bounded(AdmittedConnection, HttpToolsProtocol):
    """HTTP/1.1 protocol that counts bytes first, because the parser buffers heads and trailers without a limit."""

    bounds: Bounds

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._head = 0  # bytes of an incomplete head
        self._within = False  # the head is complete and the body is not
        self._framing = 0  # framing bytes that the current body may still use
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Accept the connection and start the timer of its first head."""
        super().connection_made(transport)
        if not transport.is_closing():
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer and remove the connection."""
        self._in_time()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse the data, or refuse it if the head or the framing of the body is too large."""
        if self._within:
            self._framing -= len(data)
            super().data_received(data)
            if self._framing < 0:
                self._refuse("The framing of the body is too large.")
            return
        if self._head > self.bounds.header_bytes + self.bounds.url_bytes:
            self._refuse()
            return
        self._head += len(data)
        super().data_received(data)
        if self._head and self._late is None:
            self._await_head()

    def on_message_begin(self) -> None:
        """Give the new request the function that marks its caller as authenticated."""
        super().on_message_begin()
        scope: Any = self.scope
        scope[PROVED] = partial(self.admitted.prove, self.transport)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header field and drop a trailer field, because uvicorn would add it to the header."""
        if not self._within:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the request. Raises ValueError, which closes the connection, if too many requests wait."""
        self._head = 0
        self._in_time()
        if len(self.pipeline) >= PIPELINED_MAX:
            raise ValueError("too many requests wait on this connection")
        super().on_headers_complete()
        self.admitted.begin(self.transport)
        self._within = True
        self._framing = self.bounds.header_bytes
        parser: Any = self.parser
        if parser.should_upgrade():  # not supported, and the parser accepts nothing more on this connection
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Pass a part of the body on and allow the framing for it."""
        self._framing = min(self.bounds.header_bytes, self._framing + len(body) * (1 + FRAMING))
        super().on_body(body)

    def on_response_complete(self) -> None:
        """Mark the connection as idle; if the body is incomplete, limit the time for its rest."""
        super().on_response_complete()
        if self.cycle.response_complete:
            self.admitted.rest(self.transport)
        if self._within and self.cycle.response_complete and not self.transport.is_closing():
            self._late = self.loop.call_later(self.bounds.body_s, self.transport.close)

    def on_message_complete(self) -> None:
        """End the body and expect the next head."""
        self._within = False
        self._framing = 0
        self._in_time()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer 400 and close.

        Close without an answer if the client would take it for the answer to an earlier request.
        """
        self._in_time()
        if self.transport.is_closing():
            return
        cycle: Any = self.cycle  # None before the first head
        answered = cycle is None or cycle.response_complete
        own = self._within and not self.pipeline and not (cycle is not None and cycle.response_started)
        if answered or own:
            super().send_400_response(msg)
        else:
            self.transport.close()

    def _await_head(self) -> None:
        self._late = self.loop.call_later(self.bounds.head_s, self._refuse)

    def _in_time(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _refuse(self, why: str = "The head of the request is too large or arrived too slowly.") -> None:
        self.send_400_response(why)

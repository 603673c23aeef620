"""The connections of one process: as many as its descriptors leave room for, and a share of them per address."""

import asyncio
import sys
from collections import Counter
from functools import partial
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.utils import get_remote_addr

from outlast.core.limits import CONNECTIONS_MAX, connections_within
from outlast.service.identity.lockout import place
from outlast.service.request_limits import Bounds

if sys.platform != "win32":
    import resource

STRANGERS_SHARE: Final = 4
"""One address has at most one in so many of the connections, until a credential came over them."""
REFUSAL: Final = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


def room() -> int:
    """Return how many connections this process may have, so that its store, worker and calls have descriptors."""
    if sys.platform == "win32":  # it counts no descriptors
        return CONNECTIONS_MAX
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return connections_within(descriptors) if descriptors != resource.RLIM_INFINITY else CONNECTIONS_MAX


class Connections:
    """Those that are open. Where there is no room, the one that has waited longest without a request is ended."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._open: dict[asyncio.Transport, str] = {}  # and the place of each stranger; "" after a credential
        self._waiting: dict[asyncio.Transport, None] = {}  # no request is under way, the longest first
        self._strangers: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, transport: asyncio.Transport, address: str) -> bool:
        """Take a connection in. False if there is no room: every other one has a request under way."""
        where = place(address) or "?"
        if self._strangers[where] >= max(1, self.most // STRANGERS_SHARE) and not self._end_one(where):
            return False
        if len(self._open) >= self.most and not self._end_one(""):
            return False
        self._open[transport] = where
        self._strangers[where] += 1
        self._waiting[transport] = None
        return True

    def leave(self, transport: asyncio.Transport) -> None:
        """Forget a connection that has ended."""
        self._waiting.pop(transport, None)
        self._forget_stranger(self._open.pop(transport, ""))

    def begin(self, transport: asyncio.Transport) -> None:
        """Keep this one: a request is under way."""
        self._waiting.pop(transport, None)

    def rest(self, transport: asyncio.Transport) -> None:
        """Let this one be ended where there is no room: its requests are answered."""
        if transport in self._open:
            self._waiting[transport] = None

    def prove(self, transport: asyncio.Transport) -> None:
        """Count this one as no stranger's any more: a credential came over it."""
        if where := self._open.get(transport):
            self._open[transport] = ""
            self._forget_stranger(where)

    def _forget_stranger(self, where: str) -> None:
        if where:
            self._strangers[where] -= 1
            if not self._strangers[where]:
                del self._strangers[where]

    def _end_one(self, where: str) -> bool:
        """End the connection that has waited longest, a stranger's first; `where`: of this place only."""
        strangers = (each for each in self._waiting if self._open[each] and where in ("", self._open[each]))
        found = next(strangers, None if where else next(iter(self._waiting), None))
        if found is None:
            return False
        self.leave(found)
        found.abort()  # what it was to be sent is not waited for, and its descriptor is free
        return True


class Admitted(asyncio.Protocol):
    """The part of a protocol that takes its connection in, or refuses it. Stands before a protocol of uvicorn."""

    admitted: Connections
    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Take the connection in, or refuse it with 503."""
        super().connection_made(transport)
        if not self.admitted.enter(transport, (get_remote_addr(transport) or ("", 0))[0]):
            transport.write(REFUSAL)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.admitted.leave(self.transport)
        super().connection_lost(exc)


PROVED: Final = "outlast.proved"
"""In the scope of a request: what to call once a credential came with it."""
PIPELINED_MAX: Final = 16
"""Requests that wait on one connection for the answer to an earlier one."""
FRAMING: Final = 8
"""Bytes of framing per byte of a chunked body, because a chunk of one byte takes five."""


def bounded(bounds: Bounds, connections: Connections) -> type[HttpToolsProtocol]:
    """Return the protocol with these limits. A head that comes in a single read is parsed, and the gate refuses it."""
    return type("Bounded", (_Bounded,), {"bounds": bounds, "admitted": connections})


class _Bounded(Admitted, HttpToolsProtocol):
    """A protocol that counts bytes before the parser, which keeps a head and every trailer field without a limit."""

    bounds: Bounds

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._head = 0  # bytes of a head that is not whole
        self._within = False  # a request whose head is whole, and whose body is not
        self._framing = 0  # bytes of framing that the body under way may still bring
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Expect a head within its time."""
        super().connection_made(transport)
        if not transport.is_closing():
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release what the connection held."""
        self._in_time()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse `data`, unless its head or the framing of its body is too large already."""
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
        """Begin a head."""
        super().on_message_begin()
        scope: Any = self.scope
        scope[PROVED] = partial(self.admitted.prove, self.transport)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a field of the head. Drop one of the trailer: uvicorn would add it to the head's fields."""
        if not self._within:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin the request. Raises ValueError, which ends the connection, if too many wait for their answer."""
        self._head = 0
        self._in_time()
        if len(self.pipeline) >= PIPELINED_MAX:
            raise ValueError("too many requests wait on this connection")
        super().on_headers_complete()
        self.admitted.begin(self.transport)
        self._within = True
        self._framing = self.bounds.header_bytes
        parser: Any = self.parser
        if parser.should_upgrade():  # to what we do not speak: it takes nothing else on this connection
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Keep a part of the body, and count it as such."""
        self._framing = min(self.bounds.header_bytes, self._framing + len(body) * (1 + FRAMING))
        super().on_body(body)

    def on_response_complete(self) -> None:
        """Answered, perhaps before the body was there: what is left of it has to come, so that the next head can."""
        super().on_response_complete()
        if self.cycle.response_complete:
            self.admitted.rest(self.transport)
        if self._within and self.cycle.response_complete and not self.transport.is_closing():
            self._late = self.loop.call_later(self.bounds.body_s, self.transport.close)

    def on_message_complete(self) -> None:
        """End the body: a head comes next."""
        self._within = False
        self._framing = 0
        self._in_time()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what came, and close. Close only, where the answer would be taken for that of an earlier request."""
        self._in_time()
        if self.transport.is_closing():
            return
        cycle: Any = self.cycle  # None until the first head
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

    def _refuse(self, why: str = "The head of the request is too large, or came too slowly.") -> None:
        self.send_400_response(why)

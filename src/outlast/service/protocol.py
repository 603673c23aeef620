"""HTTP/1.1 as bytes: limits of one connection that hold before the caller is known (S17)."""

import asyncio
from functools import partial
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from outlast.service.body import Bounds
from outlast.service.connections import Admitted, Connections

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

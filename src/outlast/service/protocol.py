"""HTTP/1.1 as bytes: how large a head may become and how long it may take, before anybody knows whose it is (S17)."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from outlast.service.body import Bounds


def bounded(bounds: Bounds) -> type[HttpToolsProtocol]:
    """The protocol with these limits of a head. One that comes in a single read is parsed, and refused by the gate."""
    return type("Bounded", (_Bounded,), {"bounds": bounds})


class _Bounded(HttpToolsProtocol):
    """Parsed in C, which keeps whatever a head brings: so it is counted before."""

    bounds: Bounds

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._head = 0  # bytes of a head that is not whole
        self._within = False  # a request whose head is whole, and whose body is not
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Somebody is there: a head has to come."""
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is there any more."""
        self._in_time()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse it, unless it goes on with a head that is too large already."""
        if self._within:
            super().data_received(data)
            return
        if self._head > self.bounds.header_bytes + self.bounds.url_bytes:
            self._refuse()
            return
        self._head += len(data)
        super().data_received(data)
        if self._head and self._late is None:
            self._await_head()

    def on_headers_complete(self) -> None:
        """A head is whole."""
        self._head = 0
        self._within = True
        self._in_time()
        super().on_headers_complete()
        parser: Any = self.parser
        if parser.should_upgrade():  # to what we do not speak: it takes nothing else on this connection
            self.cycle.keep_alive = False

    def on_response_complete(self) -> None:
        """Answered, perhaps before the body was there: what is left of it has to come, so that the next head can."""
        super().on_response_complete()
        if self._within and self.cycle.response_complete and not self.transport.is_closing():
            self._late = self.loop.call_later(self.bounds.body_s, self.transport.close)

    def on_message_complete(self) -> None:
        """What comes now is a head."""
        self._within = False
        self._in_time()
        super().on_message_complete()

    def _await_head(self) -> None:
        self._late = self.loop.call_later(self.bounds.head_s, self._refuse)

    def _in_time(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _refuse(self) -> None:
        self._in_time()
        if self.transport.is_closing():
            return
        cycle: Any = self.cycle  # None until the first head
        if cycle is not None and not cycle.response_complete:
            self.transport.close()  # an answer is under way: nothing may come between
        else:
            self.send_400_response("The head of the request is too large, or came too slowly.")

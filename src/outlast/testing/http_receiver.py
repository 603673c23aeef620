"""A small HTTP server on the loopback address whose handler may answer, stay silent, or cut the connection.

Each connection carries one request, so every request is known exactly and ends with its connection.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

import h11
from typing_extensions import override

HOST: Final = "127.0.0.1"
BODY_BYTES_MAX: Final = 50_000_000
BLOCK: Final = 65_536


@dataclass(frozen=True)
class HttpRequest:
    """A complete request."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes

    @property
    def route(self) -> str:
        """METHOD and path of the request."""
        return f"{self.method} {self.path}"

    @property
    def key(self) -> str:
        """Return the Idempotency-Key header; empty without one."""
        return self.headers.get("idempotency-key", "")


@dataclass(frozen=True)
class Reply:
    """An answer, followed by `padding` bytes of spaces. With `cut`, the connection ends in place of the padding."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    padding: int = 0
    cut: bool = False


class CutConnection(Exception):
    """Raised by a handler to cut the connection without an answer."""


Handle = Callable[[HttpRequest], Awaitable[Reply | None]]
"""Answers a request. None leaves it unanswered until the caller closes. Raises CutConnection to cut the connection."""


class _Connection(asyncio.StreamReaderProtocol):
    """A connection that is closed as soon as its caller has closed it, while its request is still being handled.

    Ten thousand callers that a kill ended would otherwise keep ten thousand descriptors until their answers.
    """

    def __init__(
        self,
        connected: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(asyncio.StreamReader(loop=loop), connected, loop)

    @override
    def eof_received(self) -> bool:
        super().eof_received()
        return False


class HttpReceiver:
    """A server between `open` and `close`."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._under_way: set[asyncio.Task[Any]] = set()
        self._server: asyncio.Server | None = None
        self.url = ""

    async def open(self) -> None:
        """Bind a free port. The server accepts connections when this returns."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self._connected, loop), HOST, 0, backlog=256)
        host, port = self._server.sockets[0].getsockname()[:2]
        self.url = f"http://{host}:{port}"

    async def close(self) -> None:
        """Stop listening, and cut all open connections."""
        assert self._server is not None
        self._server.close()
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def quiet(self) -> None:
        """Wait until every request that a dead process sent has been handled.

        A new connection queues behind the connections of that process, so they have been accepted when it is.
        """
        assert self._server is not None
        reader, writer = await asyncio.open_connection(*self._server.sockets[0].getsockname()[:2])
        writer.write_eof()
        await reader.read()
        writer.close()
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._under_way.add(task)
        try:
            await self._serve(reader, writer)
        except CutConnection:
            writer.transport.abort()
        except (ConnectionError, h11.RemoteProtocolError):
            pass  # the caller has closed, or does not speak HTTP
        finally:
            writer.close()
            self._under_way.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = h11.Connection(h11.SERVER)
        request = await _read(wire, reader, writer)
        if request is None:
            return
        reply = await self._while_there(reader, request)
        if reply is None:
            return
        length = str(len(reply.body) + reply.padding)
        headers = [("Content-Length", length), ("Connection", "close"), *reply.headers]
        if not any(name.lower() == "content-type" for name, _ in headers):
            headers.append(("Content-Type", "application/json"))
        writer.write(wire.send(h11.Response(status_code=reply.status, headers=headers)) or b"")
        writer.write(wire.send(h11.Data(data=reply.body)) or b"")
        if reply.cut:
            await writer.drain()
            writer.close()
            return
        for sent in range(0, reply.padding, BLOCK):
            writer.write(wire.send(h11.Data(data=b" " * min(BLOCK, reply.padding - sent))) or b"")
            await writer.drain()
        writer.write(wire.send(h11.EndOfMessage()) or b"")
        await writer.drain()

    async def _while_there(self, reader: asyncio.StreamReader, request: HttpRequest) -> Reply | None:
        """Return the handler's reply, or None after the caller closed a connection that gets no answer."""
        reply = await self._handle(request)
        if reply is None:
            await reader.read()
        return reply


async def _read(wire: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> HttpRequest | None:
    head: h11.Request | None = None
    body = b""
    while True:
        event = wire.next_event()
        if event is h11.NEED_DATA:
            if wire.they_are_waiting_for_100_continue:
                writer.write(wire.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
            data = await reader.read(BLOCK)
            if not data and head is None:
                return None
            wire.receive_data(data)
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
            if len(body) > BODY_BYTES_MAX:
                raise CutConnection
        elif isinstance(event, h11.EndOfMessage):
            assert head is not None
            return _request(head, body)
        else:
            return None


def _request(head: h11.Request, body: bytes) -> HttpRequest:
    parts = urlsplit(head.target.decode("ascii"))
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in head.headers}
    return HttpRequest(head.method.decode("ascii"), unquote(parts.path), parse_qs(parts.query), headers, body)

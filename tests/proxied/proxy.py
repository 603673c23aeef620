"""A TCP proxy in its own process that breaks answers by a seed, and counts what it did.

    python -m tests.proxied.proxy UPSTREAM SEED RATE     prints its URL; its counts at the end of its input

Of a run whose id begins with DOOMED, no answer of the service comes: each stream opens and ends, each read gets a page.
Now and then the proxy is away: its connections are reset and no new ones are accepted.
"""

import asyncio
import gzip
import json
import random
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple
from urllib.parse import urlsplit

PAGE: Final = b"<!doctype html><title>Bad gateway</title>"
BOMB: Final = gzip.compress(bytes(64 * 1024 * 1024))
HIDING: Final = (200, 201, 204, 302, 400, 401, 403, 404, 408, 409, 429, 499, 500, 502, 503, 504, 511, 524)
REFUSING: Final = (407, 413, 414, 431)
HEAD_MAX: Final = 1 << 20
CLOSED: Final = b""
DOOMED: Final = "doomed"
EMPTY_STREAMS: Final = (
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\nevent: hello\ndata: x\n\n",
)
HERE_S: Final = (10.0, 30.0)
AWAY_S: Final = (0.3, 2.0)
"""Shortest and longest time between two outages, and of one. The clients repeat what was not sent for longer."""


class Request(NamedTuple):
    """A request as bytes."""

    head: bytes
    body: bytes

    @property
    def streams(self) -> bool:
        """True if the answer is a stream of events."""
        return b"text/event-stream" in self.head.lower()

    @property
    def is_doomed(self) -> bool:
        """True if it reads a run that no caller can read here."""
        return self.head.startswith(f"GET /v1/runs/{DOOMED}".encode())


def page(status: int, body: bytes = PAGE, kind: str = "text/html", more: str = "") -> bytes:
    """Return an answer of the proxy's own."""
    head = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


class Cut(Exception):
    """The connection to the client is reset."""


class Proxy:
    """Faults by a seed. `rate` is the share of answers that are broken."""

    def __init__(self, upstream: str, seed: int, rate: float) -> None:
        self._to = (urlsplit(upstream).hostname, urlsplit(upstream).port)
        self._dice = random.Random(seed)
        self._rate = rate
        self._last = page(200)
        self._writers = set[asyncio.StreamWriter]()
        self._serving = set[asyncio.Task[None] | None]()  # the loop itself holds a task weakly
        self.did: Counter[str] = Counter()
        self._faults: dict[str, Callable[[Request], Awaitable[tuple[bytes, ...]]]] = {
            "reset before": self._reset_before, "reset after": self._reset_after, "refuse": self._refuse,
            "delay": self._delay, "silence": self._silence, "drip": self._drip, "truncate": self._truncate,
            "double": self._double, "displace": self._displace, "hide": self._hide, "break json": self._break_json,
            "wrong type": self._wrong_type, "byte order mark": self._mark, "gzip": self._gzip, "bomb": self._bomb,
            "forward twice": self._twice,
        }  # fmt: skip

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass requests on until the client closes or the connection is cut."""
        self._writers.add(writer)
        self._serving.add(asyncio.current_task())
        try:
            while (request := await read(reader)) is not None:
                if request.is_doomed:
                    self.did["doomed stream" if request.streams else "doomed read"] += 1
                    writer.write(self._dice.choice(EMPTY_STREAMS) if request.streams else page(200))
                    await writer.drain()
                    if request.streams:
                        return
                    continue
                if request.streams:
                    await self._stream(request, writer)
                    return
                broken = self._dice.random() < self._rate
                name = self._dice.choice([*self._faults]) if broken else "pass"
                self.did[name] += 1
                for part in await self._faults[name](request) if broken else (await self._forward(request),):
                    if part == CLOSED:
                        return
                    writer.write(part)
                    await writer.drain()
        except Cut:
            writer.transport.abort()
        except (ConnectionError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            pass  # one of both has closed
        finally:
            self._writers.discard(writer)
            self._serving.discard(asyncio.current_task())
            writer.close()

    async def come_and_go(self, server: asyncio.Server) -> None:
        """Be away now and then, on the same port."""
        host, port = server.sockets[0].getsockname()
        while True:
            await asyncio.sleep(self._dice.uniform(*HERE_S))
            self.did["away"] += 1
            server.close()
            for writer in list(self._writers):
                writer.transport.abort()
            await asyncio.sleep(self._dice.uniform(*AWAY_S))
            server = await asyncio.start_server(self.serve, host, port, limit=HEAD_MAX)

    async def _open(self, request: Request) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(*self._to, limit=HEAD_MAX)
        lines = [line for line in request.head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
        writer.write(b"\r\n".join([*lines[:-2], b"connection: close", b"", b""]) + request.body)
        await writer.drain()
        return reader, writer

    async def _forward(self, request: Request) -> bytes:
        """Return the answer of the service, as one that keeps the connection."""
        reader, writer = await self._open(request)
        try:
            whole = await reader.read(-1)
        finally:
            writer.close()
        head, _, body = whole.partition(b"\r\n\r\n")
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
        self._last, before = b"\r\n".join(lines) + b"\r\n\r\n" + body, self._last
        self._before = before
        return self._last

    async def _reset_before(self, request: Request) -> tuple[bytes, ...]:
        raise Cut

    async def _reset_after(self, request: Request) -> tuple[bytes, ...]:
        await self._forward(request)
        raise Cut

    async def _refuse(self, request: Request) -> tuple[bytes, ...]:
        return (page(self._dice.choice(REFUSING)),)

    async def _delay(self, request: Request) -> tuple[bytes, ...]:
        answer = await self._forward(request)
        await asyncio.sleep(self._dice.random() * 2)
        return (answer,)

    async def _silence(self, request: Request) -> tuple[bytes, ...]:
        await self._forward(request)
        await asyncio.sleep(30)
        return (CLOSED,)

    async def _drip(self, request: Request) -> tuple[bytes, ...]:
        answer = await self._forward(request)
        return tuple(answer[i : i + 40] for i in range(0, len(answer), 40))

    async def _truncate(self, request: Request) -> tuple[bytes, ...]:
        answer = await self._forward(request)
        return answer[: self._dice.randrange(1, len(answer))], CLOSED

    async def _double(self, request: Request) -> tuple[bytes, ...]:
        return (2 * await self._forward(request),)

    async def _displace(self, request: Request) -> tuple[bytes, ...]:
        await self._forward(request)
        return (self._before,)

    async def _hide(self, request: Request) -> tuple[bytes, ...]:
        await self._forward(request)
        status = self._dice.choice(HIDING)
        return (page(status, b"" if status == 204 else PAGE, more="location: /login\r\n" if status == 302 else ""),)

    async def _break_json(self, request: Request) -> tuple[bytes, ...]:
        body = (await self._forward(request)).partition(b"\r\n\r\n")[2]
        return (page(200, body[: len(body) // 2], "application/json"),)

    async def _wrong_type(self, request: Request) -> tuple[bytes, ...]:
        await self._forward(request)
        return (page(self._dice.choice((200, 409, 500)), b'{"code": "OUT-504", "title": "x"}', "text/plain"),)

    async def _mark(self, request: Request) -> tuple[bytes, ...]:
        body = (await self._forward(request)).partition(b"\r\n\r\n")[2]
        return (page(200, b"\xef\xbb\xbf" + body, "application/json"),)

    async def _gzip(self, request: Request) -> tuple[bytes, ...]:
        head, _, body = (await self._forward(request)).partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 2"):
            return (page(502),)
        packed = gzip.compress(body)
        return (page(200, packed, "application/json", "content-encoding: gzip\r\n"),)

    async def _bomb(self, request: Request) -> tuple[bytes, ...]:
        await self._forward(request)
        return (page(200, BOMB, "application/json", "content-encoding: gzip\r\n"),)

    async def _twice(self, request: Request) -> tuple[bytes, ...]:
        await self._forward(request)
        return (await self._forward(request),)

    async def _stream(self, request: Request, writer: asyncio.StreamWriter) -> None:
        """Pass a stream on in pieces, and break it off, double a frame, or put a page into it."""
        reader, back = await self._open(request)
        try:
            writer.write(await reader.readuntil(b"\r\n\r\n"))
            while size := int((await reader.readline()).strip() or b"0", 16):
                chunk = (await reader.readexactly(size + 2))[:-2]
                name = self._dice.choice(("cut", "double", "page", "half")) if self._dice.random() < self._rate else ""
                self.did[f"stream {name or 'pass'}"] += 1
                if name == "cut":
                    raise Cut
                if name == "half":
                    chunk = chunk[: len(chunk) // 2] + b"\n\n"
                chunk = {"double": 2 * chunk, "page": b"id: 3\ndata: " + PAGE + b"\n\n" + chunk}.get(name, chunk)
                writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                await writer.drain()
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        finally:
            back.close()


async def read(reader: asyncio.StreamReader) -> Request | None:
    """Return the next request of a connection, or None at its end."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    lengths = [line.partition(b":")[2] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    return Request(head, await reader.readexactly(int(lengths[0])) if lengths else b"")


async def main(upstream: str, seed: int, rate: float) -> None:
    """Serve until the end of the input."""
    proxy = Proxy(upstream, seed, rate)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, limit=HEAD_MAX)
    sys.stdout.write(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    changes = asyncio.create_task(proxy.come_and_go(server))
    await asyncio.to_thread(sys.stdin.read)
    if changes.done():
        await changes
    changes.cancel()
    sys.stdout.write(json.dumps(proxy.did) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
    sys.stdout.flush()

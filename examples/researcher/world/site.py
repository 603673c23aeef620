"""The site over HTTP. It answers, or misbehaves, as its pages say, and records each request."""

import asyncio
import gzip
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import parse_qs

from .hostile import HOSTILE
from .pages import Site
from .record import Hit, Journal, now

HTML: Final = "text/html; charset=utf-8"
CHUNK: Final = b"<p>and so on</p>" * 4_096
CHUNKS_MAX: Final = 200
"""Of an endless page: 13 MB. A reader without a limit would take them all."""
SLOW_S: Final = 0.3
STALLED_S: Final = 60.0
NO_LINGER: Final = struct.pack("ii", 1, 0)
Send = Callable[[dict[str, Any]], Awaitable[None]]


class SiteServer:
    """ASGI application of one site."""

    def __init__(self, site: Site, journal: Journal) -> None:
        self._site = site
        self._journal = journal
        self._seen: set[str] = set()

    async def __call__(
        self, scope: dict[str, Any], receive: Callable[[], Awaitable[dict[str, Any]]], send: Send
    ) -> None:
        if scope["type"] == "lifespan":
            await lifespan(receive, send)
            return
        at, path = now(), scope["path"] + ("?" + scope["query_string"].decode() if scope["query_string"] else "")
        status = 0
        try:
            status = await self._answer(scope["path"], scope["query_string"].decode(), send)
        finally:  # also of a request whose client went away
            headers = dict(scope["headers"])
            agent = headers.get(b"user-agent", b"").decode(errors="replace")
            self._journal.add(Hit(f"site:{scope['server'][1]}", at, now(), scope["method"], path, status, agent))

    async def _answer(self, path: str, query: str, send: Send) -> int:
        if path == "/robots.txt":
            return await (
                reply(send, 503) if self._site.shape.closed else reply(send, 200, self._site.robots, "text/plain")
            )
        if path == "/":
            return await reply(send, 200, self._site.front(), HTML)
        if path.startswith("/topic/"):
            number = parse_qs(query).get("page", ["1"])[0]
            text = self._site.listing(path.removeprefix("/topic/"), int(number) if number.isdigit() else 0)
        elif path.startswith("/private/"):
            text = "<p>secret: members only</p>"
        else:
            text = self._site.page(path.rstrip("/"))
        if text is None:
            return await reply(send, 404)
        return await self._behave(path, query, text, send)

    async def _behave(self, path: str, query: str, text: str, send: Send) -> int:
        entry = self._site.by_path.get(path.rstrip("/"))
        match entry.behaviour if entry else "ok":
            case "broken":
                return await reply(send, 500)
            case "gone":
                return await reply(send, 410)
            case "flaky" if path not in self._seen:
                self._seen.add(path)
                return await reply(send, 503)
            case "slow":
                await asyncio.sleep(SLOW_S)
            case "stalled":
                await asyncio.sleep(STALLED_S)
            case "cut":
                return await _cut(send)
            case "endless":
                return await _endless(send)
            case "bomb":
                return await reply(send, 200, gzip.compress(b"0" * 20_000_000), HTML, ("content-encoding", "gzip"))
            case "binary":
                return await reply(send, 200, bytes(range(256)) * 64, "application/octet-stream")
            case "moved":
                topic, number = path.strip("/").split("/")
                return await reply(send, 301, "", HTML, ("location", f"/{topic}/{int(number) - 1}/?utm_source=moved"))
            case "loop":
                hop = int(parse_qs(query).get("hop", ["0"])[0]) + 1
                return await reply(send, 302, "", HTML, ("location", f"{path}?hop={hop}"))
            case "elsewhere":
                assert entry is not None
                return await reply(send, 302, "", HTML, ("location", HOSTILE[entry.attack].target))
        return await reply(send, 200, text, HTML)


async def reply(
    send: Send, status: int, body: str | bytes = "", kind: str = "text/plain", *more: tuple[str, str]
) -> int:
    """Send a whole answer and return its status."""
    content = body.encode() if isinstance(body, str) else body
    headers = [("content-type", kind), ("content-length", str(len(content))), *more]
    pairs = [(name.encode(), value.encode()) for name, value in headers]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": content})
    return status


async def lifespan(receive: Callable[[], Awaitable[dict[str, Any]]], send: Send) -> None:
    """Answer the start and the end of the server."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


async def _endless(send: Send) -> int:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", HTML.encode())]})
    for _ in range(CHUNKS_MAX):
        await send({"type": "http.response.body", "body": CHUNK, "more_body": True})
        await asyncio.sleep(0)
    await send({"type": "http.response.body", "body": b""})
    return 200


async def _cut(send: Send) -> int:
    """Begin an answer and reset the connection, through the transport that uvicorn keeps behind `send`."""
    headers = [(b"content-type", HTML.encode()), (b"content-length", b"10000")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"<!doctype html>", "more_body": True})
    transport = getattr(getattr(send, "__self__", None), "transport", None)
    assert transport is not None, "the site must be served by uvicorn to cut connections"
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
    transport.abort()
    await asyncio.sleep(0)  # until the server knows; it would log an unfinished answer
    return 0

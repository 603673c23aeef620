"""Peers that speak bytes: the return value of a script is sent as it is, over connections that stay open."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple


class Asked(NamedTuple):
    """A request that reached a peer."""

    method: str
    path: str
    headers: dict[str, str]


Script = Callable[[Asked], Sequence[bytes]]
"""Parts of the answer to a request. A peer closes the connection after an empty part, and is silent without parts."""


@asynccontextmanager
async def peer(script: Script, *, pause: Callable[[], Awaitable[None]] | None = None) -> AsyncIterator[str]:
    """Serve a script and give its URL. `pause` is awaited between the parts of an answer."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode("latin-1").split("\r\n")
                method, path, _ = first.split(" ")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
                await reader.readexactly(int(headers.get("content-length", 0)))
                parts = script(Asked(method, path, headers))
                if not parts:
                    await reader.read()
                    return
                for part in parts:
                    if not part:
                        return
                    writer.write(part)
                    await writer.drain()
                    if pause is not None:
                        await pause()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has closed
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def http(body: bytes, status: int = 200, kind: str = "application/json", **headers: str) -> bytes:
    """Return the bytes of an answer."""
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    head = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


def summary(run: str, status: str = "running") -> bytes:
    """Return a run as the service shows it."""
    texts = ("workflow", "lane", "scheduler", "node", "owner", "requested_by", "correlation_id", "trace_id")
    run_of = {"run": run, "status": status, "shown": status.upper(), "visit": 1, "version": 1, "results": 0, "depth": 0}
    times, lists = (
        ("created_at", "entered_at", "ended_at"),
        {"waiting_for": [], "attention": [], "causes": [], "served": True},
    )
    return json.dumps(
        {
            **dict.fromkeys((*texts, "objective", "forked_from", "parent", "root", "waiting_text"), ""),
            **dict.fromkeys(times),
            **lists,
            "attributes": {},
            **run_of,
        }
    ).encode()


def event(run: str, number: int, kind: str = "dev.outlast.run.checkpoint") -> bytes:
    """Return the frame of an event."""
    body = {
        "specversion": "1.0", "id": f"{run}/{number}", "source": "/t/w", "type": kind, "subject": run,
        "time": "2026-11-28T00:00:00.000Z", "data": {},
    }  # fmt: skip
    return f"id: {number}\nevent: {kind}\ndata: {json.dumps(body)}\n\n".encode()


def stream(*frames: bytes) -> bytes:
    """Return the head of a stream that ends with its connection, and its first frames."""
    return b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n" + b"".join(frames)

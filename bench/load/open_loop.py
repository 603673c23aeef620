"""Requests at fixed times, however slow the service is: `python -m bench.load.open_loop CONFIG`.

CONFIG is JSON: url, and `streams`, each with a rate per second and its requests: [method, path, headers, body]. Latency
counts from the time a request was due, so a stalled service also delays the requests behind it (no coordinated
omission). Prints one line of JSON.
"""

import asyncio
import json
import sys
import time
from collections import Counter, deque
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.figures import percentile

CONNECTIONS_MAX = 400
TIMEOUT_S = 20.0
LEAD_S = 0.2


class Connection(asyncio.Protocol):
    """A connection that sends one request after the other."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._raw = bytearray()
        self._length = -1
        self._answer: asyncio.Future[int] | None = None
        self.open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Mark the connection as open."""
        assert isinstance(transport, asyncio.Transport)
        self._transport, self.open = transport, True

    def ask(self, request: bytes) -> "asyncio.Future[int]":
        """Send a request and return the status of its answer."""
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._raw.clear()
        self._length = -1
        self._transport.write(request)
        return self._answer

    def data_received(self, data: bytes) -> None:
        """Read until the answer is complete."""
        self._raw += data
        if self._length < 0:
            end = self._raw.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self._raw[:end]).lower()
            at = head.index(b"content-length: ") + 16
            self._length = end + 4 + int(head[at:].split(b"\r\n", 1)[0])
        if len(self._raw) >= self._length and self._answer is not None and not self._answer.done():
            self._answer.set_result(int(self._raw[9:12]))

    def connection_lost(self, error: Exception | None) -> None:
        """Fail the request that waits for an answer."""
        self.open = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(0)

    def close(self) -> None:
        """Close the connection to the service."""
        if self._transport is not None:
            self._transport.close()


class Stream:
    """Requests of one kind at one rate."""

    def __init__(self, url: str, rate: float, requests: list[list[Any]]) -> None:
        parts = urlsplit(url)
        self._where = (parts.hostname or "", parts.port or 80)
        self._rate = rate
        self._requests = [_bytes(parts.netloc, *each) for each in requests]
        self._idle: deque[Connection] = deque()
        self._count = 0
        self.took_ms: list[float] = []
        self.statuses: Counter[int] = Counter()

    async def run(self, begin: float) -> None:
        """Send each request at its time, and wait for the answers."""
        loop = asyncio.get_running_loop()
        tasks: list[asyncio.Task[None]] = []
        for n, request in enumerate(self._requests):
            at = begin + n / self._rate
            if (pause := at - loop.time()) > 0:
                await asyncio.sleep(pause)
            tasks.append(loop.create_task(self._one(at, request)))
        await asyncio.gather(*tasks)
        for connection in self._idle:
            connection.close()

    async def _one(self, at: float, request: bytes) -> None:
        loop = asyncio.get_running_loop()
        status = 0
        try:
            async with asyncio.timeout(TIMEOUT_S):
                connection = await self._connection()
                status = await connection.ask(request)
        except (OSError, TimeoutError):
            pass  # counted as a missing answer
        else:
            if connection.open:
                self._idle.append(connection)
        self.took_ms.append((loop.time() - at) * 1_000)
        self.statuses[status] += 1

    async def _connection(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.open:
                return connection
        _, made = await asyncio.get_running_loop().create_connection(Connection, *self._where)
        return made

    def figures(self, seconds: float) -> dict[str, Any]:
        """Return the counts and latencies."""
        return {
            "count": len(self.took_ms),
            "per_s": len(self.took_ms) / seconds,
            "p50_ms": percentile(self.took_ms, 0.5),
            "p99_ms": percentile(self.took_ms, 0.99),
            "max_ms": max(self.took_ms),
            "statuses": {str(status): count for status, count in self.statuses.items()},
        }


def _bytes(host: str, method: str, path: str, headers: dict[str, str], body: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", *(f"{name}: {value}" for name, value in headers.items())]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body.encode())}"]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


async def main(config: dict[str, Any]) -> None:
    """Send every request of the configuration."""
    streams = [Stream(config["url"], each["rate"], each["requests"]) for each in config["streams"]]
    begin = asyncio.get_running_loop().time() + LEAD_S
    await asyncio.gather(*(stream.run(begin) for stream in streams))
    seconds = asyncio.get_running_loop().time() - begin
    print(json.dumps([stream.figures(seconds) for stream in streams] + [{"cpu_s": time.process_time()}]))


if __name__ == "__main__":
    asyncio.run(main(json.loads(Path(sys.argv[1]).read_text())))

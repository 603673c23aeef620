"""Receive the calls of activities in a separate process: `python -m bench.load.calls RECORD MS` prints its address.

It writes the path of each request and the moment of its arrival (monotonic ns) into RECORD, and answers after MS.
"""

import asyncio
import os
import sys
import time
from pathlib import Path

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"


class Calls(asyncio.Protocol):
    """One connection, which may bring one request after another. No request here is longer than a packet."""

    def __init__(self, record: int, answer_s: float) -> None:
        self._record, self._answer_s = record, answer_s
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the connection of a new caller."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Handle a request. The second packet of a request is its body."""
        if not data.startswith(b"POST "):
            return
        os.write(self._record, b"%s %d\n" % (data.split(b" ", 2)[1].strip(b"/"), time.monotonic_ns()))
        asyncio.get_running_loop().call_later(self._answer_s, self._answer)

    def _answer(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(ANSWER)


async def serve(record: Path, answer_s: float) -> None:
    """Serve calls until the process is killed."""
    file = os.open(record, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Calls(file, answer_s), "127.0.0.1", 0, backlog=1_000)
    host, port = server.sockets[0].getsockname()[:2]
    sys.stdout.write(f"http://{host}:{port}/\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2]) / 1_000))

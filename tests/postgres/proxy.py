"""A proxy between a store and its server that can be cut just before or after a COMMIT passes."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Literal
from urllib.parse import urlsplit

Cut = Literal["", "before", "after"]
COMMIT = b"COMMIT\0"
OF_AUTHORS = b"COMMIT;\0"  # as asyncpg ends the transactions of authors


class Wire:
    """One listening port that passes each connection on to the server."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname and parts.port
        self._target = (parts.hostname, parts.port)
        self._parts = parts
        self.cut_next: Cut = ""
        self.cuts = 0
        self.only = COMMIT  # which COMMITs are meant
        self.silent = False  # nothing comes back any more, and nothing is closed
        self.hush_next = False  # fall silent with the next COMMIT that passes
        self.connections = 0  # ever made
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._connection, "127.0.0.1", 0), self._loop
        ).result(10)
        self.port = self._server.sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        """Return the server's URL by way of this proxy."""
        netloc = self._parts.netloc.replace(f":{self._target[1]}", f":{self.port}")
        return self._parts._replace(netloc=netloc).geturl()

    def cut_all(self) -> None:
        """Reset every open connection now."""
        asyncio.run_coroutine_threadsafe(self._cut_all(), self._loop).result(10)

    async def _cut_all(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(*self._target)
        except OSError:  # the server is away: so is the wire
            writer.transport.abort()
            return
        self._writers |= {writer, back}
        self.connections += 1
        try:
            lost, answered = asyncio.Event(), asyncio.Event()
            await asyncio.gather(
                self._up(reader, back, writer, lost, answered), self._down(there, writer, lost, answered)
            )
        except (ConnectionError, OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # that is what it is for; cancelled: the wire is closed
        finally:
            self._writers -= {writer, back}
            writer.transport.abort()
            back.transport.abort()

    async def _up(
        self, reader: asyncio.StreamReader, out: asyncio.StreamWriter, client: asyncio.StreamWriter,
        lost: asyncio.Event, answered: asyncio.Event,
    ) -> None:  # fmt: skip
        """Pass on what the client sends. A cut `after` loses the answer, which shows that the server has committed."""
        while data := await reader.read(65_536):
            cut = self.cut_next if self.only in data else ""
            if cut:
                self.cut_next = ""
                self.cuts += 1
            if self.hush_next and COMMIT in data:
                self.hush_next, self.silent = False, True
            if cut == "before":
                raise ConnectionResetError
            if cut == "after":
                lost.set()
            out.write(data)
            await out.drain()
            if cut == "after":
                await answered.wait()  # a reset may discard a COMMIT that the server has not read yet
                client.transport.abort()
                return
        out.transport.abort()

    async def _down(
        self, reader: asyncio.StreamReader, out: asyncio.StreamWriter, lost: asyncio.Event, answered: asyncio.Event
    ) -> None:
        while data := await reader.read(65_536):
            if lost.is_set():
                answered.set()
            elif not self.silent:
                out.write(data)
                await out.drain()
        answered.set()
        out.transport.abort()

    def close(self) -> None:
        """Cut every connection and stop listening."""

        async def end() -> None:
            self._server.close()
            await self._cut_all()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await asyncio.sleep(0)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextlib.contextmanager
def wire(url: str) -> Iterator[Wire]:
    """Open a proxy for the time of a test."""
    made = Wire(url)
    try:
        yield made
    finally:
        made.close()

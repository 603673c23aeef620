"""One process of a service: HTTP, a worker and a dispatcher over one store, each of which may be left out."""

import asyncio
import gc
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import uvicorn

from outlast.errors import StoreError, StoreReplaced
from outlast.service.app import create
from outlast.service.house import House
from outlast.service.protocol import bounded
from outlast.service.sockets import Server

BACKLOG: Final = 2_048
GRACE_S: Final = 10
"""How long a request under way may take once the service stops; a stream ends at once."""
KEEP_ALIVE_S: Final = 15
log: Final = logging.getLogger("outlast.service")


class Part(Protocol):
    """A worker or a dispatcher: serves until it is drained."""

    def drain(self) -> None:
        """Take nothing new."""

    async def run(self) -> Any:
        """Return once drained."""


class Process:
    """Serves until `stop`. Everything that is under way ends first; a second signal is the caller's business."""

    def __init__(self, house: House, listening: socket.socket, parts: list[Part], options: dict[str, Any]) -> None:
        """`options`: further ones of uvicorn, such as which proxies are believed."""
        self.house = house
        self._listening = listening
        self._parts = parts
        config = uvicorn.Config(
            create(house),
            http=bounded(house.bounds, house.connections),
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=min(BACKLOG, house.connections.most),
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
            **options,
        )
        self._server = _Server(config)

    def stop(self) -> None:
        """End streams, finish what is under way, give runs back."""
        self.house.stop()
        self._server.should_exit = True
        for part in self._parts:
            part.drain()

    async def run(self, ready: Callable[[], None]) -> list[Any]:
        """Serve; `ready` is called once requests are answered. Answers what each part's `run` answered.

        A part that ends by itself ends the process: whoever watches over it starts it anew. Raises what a part raises.
        """
        server = asyncio.create_task(self._server.serve(sockets=[self._listening]))
        await self._server.answers.wait()
        if not self._server.started:
            await server
            return []
        gc.collect()
        gc.freeze()  # what is loaded now stays: no collection has to look at it again
        ready()
        return await until_one_ends(server, self._parts, self.stop)


async def until_one_ends(first: "asyncio.Task[None]", parts: Sequence[Part], stop: Callable[[], None]) -> list[Any]:
    """Run the parts beside `first`; once any has ended, `stop` all. Answers what each part's `run` answered, and
    raises what it raises."""
    running = [asyncio.create_task(part.run()) for part in parts]
    try:
        await asyncio.wait([first, *running], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop()
    results = await asyncio.gather(*running, return_exceptions=True)
    await first
    for each in results:
        if isinstance(each, StoreError) and not isinstance(each, StoreReplaced):
            log.error("a part of this process ended: %s", each.what)
        if isinstance(each, BaseException):
            raise each
    return list(results)


class _Server(Server):
    """Says when it answers."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.answers = asyncio.Event()

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve."""
        try:
            await super().serve(sockets)
        finally:
            self.answers.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        await super().startup(sockets)
        self.answers.set()

"""One process of a service: HTTP, a worker and a dispatcher over one store, each of which may be left out."""

import asyncio
import gc
import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import uvicorn

from outlast.errors import StoreError, StoreReplaced
from outlast.service.app import create
from outlast.service.connections import bounded
from outlast.service.service_state import ServiceState
from outlast.service.sockets import Server

BACKLOG: Final = 2_048
GRACE_S: Final = 10
"""How long a request under way may take once the service stops; a stream ends at once."""
KEEP_ALIVE_S: Final = 15
log: Final = logging.getLogger("outlast.service")


class ServicePart(Protocol):
    """A worker or a dispatcher: serves until it is drained."""

    def drain(self) -> None:
        """Take nothing new."""

    async def run(self) -> Any:
        """Return once drained."""


class ServiceProcess:
    """Serves until `stop`. Everything that is under way ends first; a second signal is the caller's business."""

    def __init__(
        self, state: ServiceState, listening: socket.socket, parts: list[ServicePart], options: dict[str, Any]
    ) -> None:
        """`options`: further ones of uvicorn, such as which proxies are believed."""
        self.state = state
        self._listening = listening
        self._parts = parts
        config = uvicorn.Config(
            create(state),
            http=bounded(state.bounds, state.connections),
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=min(BACKLOG, state.connections.most),
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
            **options,
        )
        self._server = _Server(config)

    def stop(self) -> None:
        """End streams, finish what is under way, give runs back."""
        self.state.stop()
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


async def until_one_ends(
    first: "asyncio.Task[None]", parts: Sequence[ServicePart], stop: Callable[[], None]
) -> list[Any]:
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


STOP_S: Final = GRACE_S + 20
"""What is left of one after this long is killed: more than it takes."""


class ProcessGroup:
    """So many processes of `command`, and the parts of this one. They live as long as this process holds their standard
    input; each says a line once it answers."""

    def __init__(
        self,
        reserved: socket.socket,
        command: Sequence[str],
        env: Mapping[str, str],
        count: int,
        parts: Sequence[ServicePart],
        shared: int,
    ) -> None:
        """`reserved`: the port, bound and not listened at, so that nobody else takes it. `shared`: the descriptor of a
        file that each of them inherits under this number."""
        self._reserved = reserved
        self._command = command
        self._env = env
        self._count = count
        self._parts = parts
        self._shared = shared
        self._processes: list[asyncio.subprocess.Process] = []
        self._stopping = False
        self.failed: int | None = None
        """The exit code of one that ended by itself; all have been stopped then."""

    def stop(self) -> None:
        """End what is under way in each of them, and give runs back."""
        self._stopping = True
        for each in self._processes:
            if each.stdin is not None:
                each.stdin.close()
        for part in self._parts:
            part.drain()

    async def run(self, ready: Callable[[], None]) -> list[Any]:
        """Serve; `ready` is called once all of them answer. Answers what each part's `run` answered, and raises what it
        raises."""
        watch = asyncio.create_task(self._watch(ready))
        try:
            return await until_one_ends(watch, self._parts, self.stop)
        finally:
            self._reserved.close()
            os.close(self._shared)

    async def _watch(self, ready: Callable[[], None]) -> None:
        """Return once all of them have ended."""
        try:
            for _ in range(self._count):
                self._processes.append(await self._begin())
            said = await asyncio.gather(*(_line(each) for each in self._processes))
            if self._stopping:
                self.stop()  # those that were begun since, too
            elif all(said):
                ready()
            await asyncio.wait(
                [asyncio.create_task(each.wait()) for each in self._processes], return_when=asyncio.FIRST_COMPLETED
            )
            if not self._stopping:
                self.failed = next(each.returncode for each in self._processes if each.returncode is not None)
        finally:
            self.stop()
            await asyncio.gather(*(_ended(each) for each in self._processes))

    async def _begin(self) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            *self._command, env=self._env, stdin=pipe, stdout=pipe, pass_fds=(self._shared,)
        )


async def _line(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    return await process.stdout.readline()


async def _ended(process: asyncio.subprocess.Process) -> None:
    try:
        async with asyncio.timeout(STOP_S):
            await process.wait()
    except TimeoutError:
        log.warning("process %s did not end in %s s, and is killed", process.pid, STOP_S)
        process.kill()
        await process.wait()

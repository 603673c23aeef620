"""Processes of a service: one with HTTP, worker and dispatcher, or several that answer HTTP on one port."""

import asyncio
import gc
import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import uvicorn
from typing_extensions import override

from outlast.errors import StoreError, StoreReplaced
from outlast.service.connections import Server, bounded
from outlast.service.service_app import create
from outlast.service.service_state import ServiceState

BACKLOG: Final = 2_048
GRACE_S: Final = 10
"""Time for requests in progress once the service stops. Streams end at once."""
KEEP_ALIVE_S: Final = 15
log: Final = logging.getLogger("outlast.service")


class ServicePart(Protocol):
    """Part of a process that runs beside HTTP until it is drained: a worker or a dispatcher."""

    def drain(self) -> None:
        """Stop taking new work, and let `run` return."""

    async def run(self) -> Any:
        """Work until drained, and return a summary."""


class ServiceProcess:
    """HTTP server with its worker and dispatcher, from `run` until `stop`.

    Work in progress ends first. Handling a second signal is left to the caller.
    """

    def __init__(
        self, state: ServiceState, listening: socket.socket, parts: list[ServicePart], options: dict[str, Any]
    ) -> None:
        """`options` are further options of uvicorn, such as the trusted proxies."""
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
            **{"timeout_graceful_shutdown": GRACE_S, **options},
        )
        self._server = _Server(config)

    def stop(self) -> None:
        """End streams, finish requests in progress, and drain the parts."""
        self.state.stop()
        self._server.should_exit = True
        for part in self._parts:
            part.drain()

    async def run(self, ready: Callable[[], None]) -> list[Any]:
        """Serve until stopped and return the results of the parts. Call `ready` once requests are answered.

        A part that ends by itself stops the process, so that a supervisor restarts it. Raises the exception of a part.
        """
        server = asyncio.create_task(self._server.serve(sockets=[self._listening]))
        await self._server.answers.wait()
        if not self._server.started:
            await server
            return []
        gc.collect()
        gc.freeze()  # loaded modules stay, so garbage collection can skip them
        ready()
        return await until_one_ends(server, self._parts, self.stop)


async def until_one_ends(
    first: "asyncio.Task[None]", parts: Sequence[ServicePart], stop: Callable[[], None]
) -> list[Any]:
    """Run the parts beside `first`, and call `stop` when any of them ends.

    Returns the results of the parts. Raises the exception of a part.
    """
    running = [asyncio.create_task(part.run()) for part in parts]
    try:
        await asyncio.wait([first, *running], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stop()
    results = await asyncio.gather(*running, return_exceptions=True)
    await first
    for each in results:
        if isinstance(each, StoreError) and not isinstance(each, StoreReplaced):
            log.error("a part of this process failed: %s", each.what)
        if isinstance(each, BaseException):
            raise each
    return list(results)


class _Server(Server):
    """Server that sets `answers` once it accepts requests, or has failed to."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.answers = asyncio.Event()

    @override
    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().serve(sockets)
        finally:
            self.answers.set()

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.answers.set()


STOP_S: Final = GRACE_S + 20
"""Time after which a process that has not ended is killed, longer than a clean stop takes."""


class ProcessGroup:
    """`count` processes of `command`, and the parts of this process.

    Each process writes one line once it answers requests, and stops when its standard input is closed.
    """

    def __init__(
        self,
        reserved: socket.socket,
        command: Sequence[str],
        env: Mapping[str, str],
        count: int,
        parts: Sequence[ServicePart],
        shared: int,
    ) -> None:
        """`reserved` is a socket that keeps the port without listening. `shared` is a descriptor that they inherit."""
        self._reserved = reserved
        self._command = command
        self._env = env
        self._count = count
        self._parts = parts
        self._shared = shared
        self._processes: list[asyncio.subprocess.Process] = []
        self._stopping = False
        self.failed: int | None = None
        """Exit code of a process that ended by itself, which stops all others."""

    def stop(self) -> None:
        """Stop all processes and drain the parts. Work in progress ends first."""
        self._stopping = True
        for each in self._processes:
            if each.stdin is not None:
                each.stdin.close()
        for part in self._parts:
            part.drain()

    async def run(self, ready: Callable[[], None]) -> list[Any]:
        """Serve until stopped and return the results of the parts. Call `ready` once all processes answer.

        Raises the exception of a part.
        """
        watch = asyncio.create_task(self._watch(ready))
        try:
            return await until_one_ends(watch, self._parts, self.stop)
        finally:
            self._reserved.close()
            os.close(self._shared)

    async def _watch(self, ready: Callable[[], None]) -> None:
        """Start the processes, and return once all have ended."""
        try:
            for _ in range(self._count):
                self._processes.append(await self._start())
            lines = await asyncio.gather(*(_line(each) for each in self._processes))
            if self._stopping:
                self.stop()  # includes processes that were started since
            elif all(lines):
                ready()
            await asyncio.wait(
                [asyncio.create_task(each.wait()) for each in self._processes], return_when=asyncio.FIRST_COMPLETED
            )
            if not self._stopping:
                self.failed = next(each.returncode for each in self._processes if each.returncode is not None)
        finally:
            self.stop()
            await asyncio.gather(*(_ended(each) for each in self._processes))

    async def _start(self) -> asyncio.subprocess.Process:
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
        log.warning("killing process %s, which did not end within %s s", process.pid, STOP_S)
        process.kill()
        await process.wait()

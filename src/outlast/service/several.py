"""HTTP in several processes at one port, watched over by this one: for more than one interpreter bears."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from outlast.service.process import GRACE_S, Part, until_one_ends

STOP_S: Final = GRACE_S + 20
"""What is left of one after this long is killed: more than it takes."""
log: Final = logging.getLogger("outlast.service")


class Several:
    """So many processes of `command`, and the parts of this one. They live as long as this process holds their standard
    input; each says a line once it answers."""

    def __init__(
        self,
        reserved: socket.socket,
        command: Sequence[str],
        env: Mapping[str, str],
        count: int,
        parts: Sequence[Part],
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

"""The processes of the story: each of its own session, so that Ctrl-C reaches the teller alone, who then ends them."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from outlast.errors import OutlastError
from outlast.runtime.clocks import SystemClock

LOOK_S = 0.02
GRACE_MS = 10_000
READY_MS = 30_000
LAST_WORDS = 8


class StoryBroken(OutlastError):
    """Something the story rests on did not happen; what did is in the folder."""


class Child:
    """One process, its output in a file."""

    def __init__(self, name: str, command: Sequence[str], log: Path, env: Mapping[str, str]) -> None:
        self.name = name
        self.log = log
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=env, start_new_session=True
            )
        self.pid = self._process.pid

    def status(self) -> int | None:
        """What waitpid says of it; None while it runs."""
        return self._process.poll()

    def check(self) -> None:
        """Raises StoryBroken when it has ended by itself."""
        if self.status() is not None:
            raise StoryBroken(f"{self.name} ended by itself with status {self.status()}", self.last_words())

    async def kill(self) -> None:
        """SIGKILL, and make sure by its status that this is what it died of."""
        os.kill(self.pid, signal.SIGKILL)
        status = await self.ended()
        if status != -signal.SIGKILL:
            raise StoryBroken(f"{self.name} was to die by SIGKILL and ended with status {status}", self.last_words())

    async def stop(self) -> None:
        """SIGTERM, then SIGKILL where that is not heeded."""
        if self.status() is None:
            self._process.terminate()
            try:
                await self.ended()
            except StoryBroken:
                self._process.kill()
                await self.ended()

    async def ended(self) -> int:
        """Its status, once it has ended. Raises StoryBroken when it does not."""
        clock = SystemClock()
        give_up = clock.mono() + GRACE_MS
        while (status := self.status()) is None:
            if clock.mono() > give_up:
                raise StoryBroken(f"{self.name} (pid {self.pid}) does not end", self.last_words())
            await asyncio.sleep(LOOK_S)
        return status

    async def first_line(self) -> str:
        """Its first line of output: how a process says that it is ready."""
        clock = SystemClock()
        give_up = clock.mono() + READY_MS
        while "\n" not in (text := self.log.read_text(encoding="utf-8")):
            self.check()
            if clock.mono() > give_up:
                raise StoryBroken(f"{self.name} (pid {self.pid}) does not get ready", self.last_words())
            await asyncio.sleep(LOOK_S)
        return text.partition("\n")[0]

    def last_words(self) -> str:
        """The end of its output."""
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_WORDS:])

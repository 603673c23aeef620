"""Who plays: the market, the workers, and the commands of a person in another terminal; all real processes."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from outlast.cli.failure import CONFLICT
from outlast.cli.story.children import Child
from outlast.cli.story.example import Example
from outlast.cli.story.notes import Notes

SCENARIO = "demo"
STORE, SERVICE = "OUTLAST_STORE", "OUTLAST_URL"
REPLACED = CONFLICT  # how a worker ends whose lease was taken while it was silent
# With the defaults, the invitation cut by the kill would be settled after three minutes.
SHORT = (
    *("--heartbeat-window", "3s", "--heartbeat-every", "1s"),
    *("--attempt-timeout", "2s", "--start-budget", "1s", "--quiet-margin", "1s", "--drain-grace", "5s"),
)


class Place(NamedTuple):
    """Where a story is kept: a folder, and a store."""

    folder: Path
    store: str  # as it is opened; processes find it in their environment, since it may hold a password
    shown: str  # as people are told it
    kept: bool  # False: the folder is deleted after a story that ends well


class Cast:
    """The processes of one telling, their files in the story's folder."""

    def __init__(self, place: Place, example: Example, notes: Notes, scenario: str = SCENARIO) -> None:
        self.folder = folder = place.folder
        self._kept = place.kept
        self.store_url = place.shown
        self._store = {STORE: place.store, SERVICE: ""}  # the store, whatever service the user has named elsewhere
        self.record = folder / "market.jsonl"
        self.workers: list[Child] = []
        self._example = example
        self._notes = notes
        self._scenario = scenario
        self._market: Child | None = None
        self._hired = 0

    def open_market(self) -> None:
        """Start it; on the port it had, for its address is in the purchase."""
        module = f"{self._example.package}.market"
        port, record = f"{self._notes.market_port}", f"{self.record}"
        command = [sys.executable, "-m", module, "--record", record, "--scenario", self._scenario, "--port", port]
        self._market = Child("the market", command, self.folder / "market.log", self._example.environment())

    async def market(self) -> str:
        """Its address, when it takes requests."""
        assert self._market is not None
        url: str = json.loads(await self._market.first_line())["url"]
        self._notes.market_port = urlsplit(url).port or 0
        return url

    def hire(self, inbox: str) -> Child:
        """Start a worker process."""
        self._hired += 1
        name = f"w-{self._hired}"
        command = [*program(), "worker", f"{self._example.package}.workflow", "--name", name, *SHORT]
        env = self._example.environment(NEGOTIATION_INBOX=inbox, **self._store)
        worker = Child(name, command, self.folder / f"{name}.log", env)
        self.workers.append(worker)
        return worker

    def holder(self, owner: str) -> Child | None:
        """The process of a worker id, which names it."""
        return next((worker for worker in self.workers if owner.startswith(f"w-{worker.pid}-")), None)

    def name_of(self, owner: str) -> str:
        """What the story calls a worker."""
        worker = self.holder(owner)
        return worker.name if worker else owner

    async def kill(self, worker: Child) -> None:
        """SIGKILL, proven by its status."""
        self.workers.remove(worker)
        await worker.kill()

    async def send_home(self) -> None:
        """SIGTERM to every worker; they give back what they hold."""
        await asyncio.gather(*(worker.stop() for worker in self.workers))
        self.workers.clear()

    def check(self, inbox: str) -> list[str]:
        """Replace the workers that found themselves replaced by others (a machine that stood still), by name.

        Raises StoryBroken when anybody else left the stage unasked.
        """
        silent = [worker for worker in self.workers if worker.status() == REPLACED]
        for worker in silent:
            self.workers.remove(worker)
            self.hire(inbox)
        for child in [*self.workers, *([self._market] if self._market else [])]:
            child.check()
        return [worker.name for worker in silent]

    async def person(self, *arguments: str) -> tuple[int, str]:
        """Run a command of the CLI as a process of its own: its status and its output."""
        process = await asyncio.create_subprocess_exec(
            *program(), *arguments, env={**os.environ, **self._store},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        out, _ = await process.communicate()
        return process.returncode or 0, out.decode(errors="replace").strip()

    def command(self, *arguments: str) -> list[str]:
        """Return the words of the same command as a person types it, in any folder."""
        return [*program(), "--store", self.store_url, *arguments]

    def stays(self, *, well: bool) -> bool:
        """True if the folder outlives the demo. `well`: the story has ended as it should."""
        return self._kept or not well

    async def close(self) -> None:
        """End every process."""
        await asyncio.gather(*(child.stop() for child in [*self.workers, *([self._market] if self._market else [])]))


def program() -> Sequence[str]:
    """Return how `outlast` is called from any folder and terminal, with this virtual environment active or not."""
    mine = Path(sys.executable).with_name("outlast")
    return [f"{mine}"] if mine.exists() else [sys.executable, "-m", "outlast"]

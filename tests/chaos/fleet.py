"""The processes of a round: receivers, client and workers, each behind its own proxy if the store is a server."""

import os
import random
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from tests import forked
from tests.chaos.flows import WORLD
from tests.postgres.proxy import Wire

ROOT = Path(__file__).parents[2]
START_S = 180.0  # because other processes use the machine
AWAY = 7  # exit code of a command that cannot open its store
LIVE = (
    *("--heartbeat-window", "3s", "--heartbeat-every", "1s", "--attempt-timeout", "5s", "--start-budget", "1s"),
    *("--settle-margin", "5s", "--drain-grace", "10s", "--backoff-ceiling", "2s", "--checkpoint-write", "1s"),
)
"""Durations that allow for a freeze of up to attempt timeout + settle margin, the longest that the semantics cover."""
SWIFT = (
    *("--heartbeat-window", "3s", "--heartbeat-every", "1s", "--attempt-timeout", "3s", "--start-budget", "1s"),
    *("--settle-margin", "2s", "--drain-grace", "5s", "--backoff-ceiling", "1s", "--checkpoint-write", "1s"),
)
"""Durations for rounds without freezes: an interrupted call is settled after 6 s instead of 11."""
CALL_S = 0.3
SKEWS_S = (-7200.0, 7200.0, -30.0, 30.0)


class Worker:
    """One worker process, and the time of its kill."""

    def __init__(self, process: subprocess.Popen[bytes], wire: Wire | None, log: Path) -> None:
        self.process = process
        self.log = log
        self.wire = wire

    @property
    def pid(self) -> int:
        """Id of the process. The worker's id contains it."""
        return self.process.pid


class Fleet:
    """All processes of one round, in one folder."""

    def __init__(
        self, folder: Path, store: str, wires: bool, live: tuple[str, ...] = LIVE, concurrency: int = 100
    ) -> None:
        self.folder, self.store, self.wires = folder, store, wires
        self.workers: list[Worker] = []
        self.kills: dict[int, int] = {}  # pid → ms
        self.faults: list[str] = []  # workers with an unexpected exit code
        self._live, self._concurrency = live, concurrency
        self._hired = 0
        self._others: list[subprocess.Popen[bytes]] = []
        self.world = ""
        self.without = ""  # id of the removed safeguard

    def through(self, wire: Wire | None) -> str:
        """Return the store's address through a proxy."""
        if wire is None:
            return self.store
        return wire.url + "?" + self.store.partition("?")[2]

    def wire(self) -> Wire | None:
        """Return a new proxy, or None if the store is a file."""
        return Wire(self.store.partition("?")[0]) if self.wires else None

    def _spawn(self, name: str, *args: str, pipe: bool = False) -> subprocess.Popen[bytes]:
        env = {
            **os.environ,
            WORLD: self.world,
            "PYTHONPATH": os.pathsep.join((f"{ROOT}", os.environ.get("PYTHONPATH", ""))),
        }
        out: IO[bytes]
        with (self.folder / f"{name}.log").open("ab") as out:
            return forked.Popen(
                args,
                cwd=ROOT,
                env=env,
                stdin=subprocess.PIPE if pipe else subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipe else out,
                stderr=out,
            )

    def open_world(self, seed: int, longest_s: float = CALL_S) -> None:
        """Start the receivers. A call takes up to `longest_s`."""
        args = (f"{self.folder / 'world'}", str(seed), str(longest_s))
        process = self._spawn("world", "tests.chaos.receivers", *args, pipe=True)
        self._others.append(process)
        assert process.stdout is not None
        self.world = process.stdout.readline().decode().strip()

    def open_client(self, seed: int, rate: float, wire: Wire | None) -> subprocess.Popen[bytes]:
        """Start the client. The end of its input stops further starts."""
        args = (self.through(wire), self.world, f"{self.folder / 'history'}", str(seed), str(rate), self.without)
        process = self._spawn("client", "tests.chaos.client", *args, pipe=True)
        self._others.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n", (self.folder / "client.log").read_text()
        return process

    def hire(self, dice: random.Random, skew: bool = False, module: str = "tests.chaos.flows") -> Worker:
        """Start a worker; with `skew` its wall clock is wrong."""
        self._hired += 1
        wire = self.wire()
        command = ["tests.chaos.skewed", str(dice.choice(SKEWS_S) if skew else 0), self.without]
        options = ("--store", self.through(wire), "worker", module, "-c", str(self._concurrency), *self._live)
        name = f"worker-{self._hired}"
        worker = Worker(self._spawn(name, *command, *options), wire, self.folder / f"{name}.log")
        self.workers.append(worker)
        return worker

    def hire_plain(self, module: str) -> Worker:
        """Start a worker with a correct clock and without a proxy."""
        return self.hire(random.Random(0), module=module)

    def await_serving(self) -> None:
        """Wait until every worker started so far has registered its versions."""
        until = time.monotonic() + START_S
        while not all(b" serves " in worker.log.read_bytes() for worker in self.workers):
            assert time.monotonic() < until, "\n".join(path.read_text() for path in self.folder.glob("worker-*.log"))
            time.sleep(0.1)

    def replace_ended(self, dice: random.Random) -> int:
        """Replace workers that could not reach their store at the start. Returns their number."""
        ended = [worker for worker in self.workers if worker.process.poll() is not None]
        for worker in ended:
            if worker.process.returncode != AWAY:
                self.faults.append(f"{worker.log.name}: a worker ended by itself with {worker.process.returncode}")
            self.workers.remove(worker)
            if worker.wire is not None:
                worker.wire.close()
            self.hire(dice)
        return len(ended)

    def kill(self, worker: Worker) -> None:
        """Send SIGKILL and note the time."""
        self.kills[worker.pid] = time.time_ns() // 1_000_000
        worker.process.kill()
        worker.process.wait()
        self.workers.remove(worker)
        if worker.wire is not None:
            worker.wire.close()

    def drain(self) -> list[int]:
        """Send SIGTERM to all workers and return their exit codes."""
        for worker in self.workers:
            with suppress(ProcessLookupError):
                worker.process.send_signal(signal.SIGCONT)
                worker.process.terminate()
        codes = [worker.process.wait(START_S) for worker in self.workers]
        self._forget()
        return codes

    def _forget(self) -> None:
        for worker in self.workers:
            if worker.wire is not None:
                worker.wire.close()
        self.workers.clear()

    def close(self) -> None:
        """End every process that is left."""
        for worker in self.workers:
            worker.process.kill()
            worker.process.wait()
        self._forget()
        for process in self._others:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

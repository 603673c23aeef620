"""Real worker processes on one SQLite file, and a receiver that records its requests."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from outlast import Workflow
from outlast.core.approvals import Actor
from outlast.core.machine import LeaseStatus
from outlast.core.rows.run_rows import Event, Run
from outlast.runtime.operations import Operations
from outlast.runtime.stores import open_store
from tests import forked
from tests.e2e import flows

ROOT = Path(__file__).parents[2]
OUTLAST = Path(sys.executable).with_name("outlast")
GIVE_UP_S = 60
"""Time limit of a wait. Only a failing test reaches it."""

SHORT = (
    *("--heartbeat-window", "2s", "--heartbeat-every", "500ms"),
    *("--attempt-timeout", "10s", "--start-budget", "1s", "--settle-margin", "1s", "--drain-grace", "20s"),
)


def when(holds: Callable[[], Any], otherwise: Callable[[], object] = lambda: "") -> Any:
    """Poll `holds` and return its value once it is true."""
    give_up = time.monotonic() + GIVE_UP_S
    while not (answer := holds()):
        assert time.monotonic() < give_up, otherwise()
        time.sleep(0.02)
    return answer


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Receiver:
    """A receiver that records letters on arrival. `hold` delays the answers to the next ones."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.may_answer = threading.Event()
        self.may_answer.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                key = self.headers["Idempotency-Key"]
                receiver.seen[key] += 1
                receiver.may_answer.wait(GIVE_UP_S)
                self._answer(200, f"took {key}")

            def do_GET(self) -> None:
                key = self.headers["Idempotency-Key"]
                self._answer(200 if receiver.seen[key] else 404, f"took {key}")

            def _answer(self, status: int, text: str) -> None:
                body = text.encode()
                with contextlib.suppress(OSError):  # the caller is gone
                    self.send_response(status)
                    self.send_header("Content-Length", f"{len(body)}")
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name http.server gives it
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self.may_answer.set()
        self._server.shutdown()
        self._server.server_close()


class Look:
    """A store opened by the test process."""

    code: ClassVar[tuple[Workflow[Any], ...]] = (flows.letters, flows.harvest)

    def __init__(self, url: str) -> None:
        self.url = url
        self._loop = asyncio.Runner()
        self._store = self._loop.run(open_store(url))
        workflows = {one.name: one for one in self.code}
        self._operations = Operations(self._store, tenant="default", actor=Actor("test"), workflows=workflows)

    def do(self, act: Callable[[Operations], Any]) -> Any:
        """Run a coroutine over the operations of the store."""
        return self._loop.run(act(self._operations))

    def alive(self) -> list[str]:
        """Return the leases that are not closed."""
        return [w.id for w in self.do(lambda ops: ops.rows.workers()) if w.status is LeaseStatus.ALIVE]

    def left(self) -> list[str]:
        """Return the workers of this store whose process still exists."""
        return [
            worker.id for worker in self.do(lambda ops: ops.rows.workers()) if is_there(int(worker.id.split("-")[1]))
        ]

    def close(self) -> None:
        self._loop.run(self._store.close())
        self._loop.close()


@contextlib.contextmanager
def looking(url: str) -> Iterator[Look]:
    look = Look(url)
    try:
        yield look
    finally:
        look.close()


class Installation(Look):
    """A store, its receiver, and the worker processes on it."""

    def __init__(self, folder: Path, receiver: Receiver, url: str = "") -> None:
        super().__init__(url or f"sqlite:{folder / 'outlast.db'}")
        self.folder = folder
        self.receiver = receiver
        self.workers: list[subprocess.Popen[bytes]] = []

    def hire(self, *options: str, module: str = "tests.e2e.flows", **variables: str) -> subprocess.Popen[bytes]:
        """Start a worker process."""
        command = ["outlast", "--store", self.url, "worker", module, *SHORT, *options]
        with (self.folder / f"worker-{len(self.workers)}.log").open("wb") as log:
            wall = f"{self.folder / 'wall'}"
            env = {**os.environ, "RECEIVER": self.receiver.url, "PYTHONPATH": f"{ROOT}", flows.WALL: wall, **variables}
            worker = forked.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, env=env)
        self.workers.append(worker)
        return worker

    def set_wall_clock(self, off_s: int) -> None:
        """Set the wall clock of all worker processes."""
        new = self.folder / "wall.new"
        new.write_text(f"{off_s}")
        new.replace(self.folder / "wall")

    def start(self, *runs: str) -> None:
        async def act(ops: Operations) -> None:
            for run in runs:
                await ops.start_run("letters", {}, run_id=run, key=run)

        self.do(act)

    def run(self, run: str) -> Run:
        row: Run = self.do(lambda ops: ops.rows.run(run))
        return row

    def history(self, run: str) -> tuple[Event, ...]:
        rows: tuple[Event, ...] = self.do(lambda ops: ops.rows.history(run))
        return rows

    def holder(self, run: str) -> subprocess.Popen[bytes] | None:
        """Return the process that holds a run, by the pid in the worker id."""
        owner = self.run(run).owner
        return next((worker for worker in self.workers if owner.startswith(f"w-{worker.pid}-")), None)

    def said(self) -> str:
        """Return the output of the workers."""
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("worker-*.log")))

    def close(self) -> None:
        for worker in self.workers:
            with contextlib.suppress(ProcessLookupError):
                worker.send_signal(signal.SIGCONT)
                worker.kill()
            worker.wait(GIVE_UP_S)
        super().close()


@contextlib.contextmanager
def installation(folder: Path, url: str = "") -> Iterator[Installation]:
    """Yield an installation, and stop its processes at the end. `url`: its store; empty: a file in the folder."""
    receiver = Receiver()
    held = Installation(folder, receiver, url)
    try:
        yield held
    finally:
        held.close()
        receiver.close()

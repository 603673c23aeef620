"""`outlast serve` in another process, with credentials. It ends with the process that started it."""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from bench.load.place import TENANT
from bench.usage import resident_tree
from outlast.service.identity.static_tokens import new_token

ROOT = Path(__file__).resolve().parents[2]
MODULE = "bench/load/works.py"
PAGES = "bench/load/page_works.py"
PATIENCE_S = 20
START_S = 120
"""Time until a service must have printed its address."""
PR_SET_PDEATHSIG = 1


class Service(NamedTuple):
    """A running service."""

    url: str
    pid: int
    approver: str  # token of an approver
    viewer: str  # token of a reader

    def resident(self) -> int:
        """Return the memory of the service and of the processes it started, in bytes."""
        return resident_tree(self.pid)


@contextmanager
def serving(store: str, log: Path, *, processes: int) -> Iterator[Service]:
    """Run the service over a store with this many HTTP processes. Its logs go to a file."""
    approver, first = new_token("ana@bench.example", tenant=TENANT, roles=["approver", "finance"], person=True)
    viewer, second = new_token("eve@bench.example", tenant=TENANT, roles=["viewer"], person=True)
    env = {name: value for name, value in os.environ.items() if not name.startswith("OUTLAST_")}
    env["OUTLAST_AUTH__TOKENS"] = f"{first}\n{second}"
    several = ["--processes", str(processes)] if processes > 1 else []
    words = ("--store", store, "-o", "ndjson", "serve", MODULE, "--port", "0", *several)
    with log.open("a") as file, _command(file, env, *words) as process:
        line = _first_line(process, log)
        yield Service(json.loads(line)["url"], process.pid, approver, viewer)


@contextmanager
def serving_here(store: str, log: Path, module: str) -> Iterator[tuple[str, int]]:
    """Run the service with a module of workflows, without credentials, for callers on this machine.

    Yields its URL and process id.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith("OUTLAST_")}
    words = ("--store", store, "--tenant", TENANT, "-o", "ndjson", "serve", module, "--port", "0")
    with log.open("a") as file, _command(file, env, *words) as process:
        line = _first_line(process, log)
        try:
            yield json.loads(line)["url"], process.pid
        except Exception:  # the cause of a failed request is in the log, which is removed with its folder
            sys.stderr.write(log.read_text()[-4_000:])
            raise


@contextmanager
def dispatching(store: str, log: Path) -> Iterator[None]:
    """Run `outlast dispatcher` over a store. It may send to this machine."""
    allowed = {"OUTLAST_WEBHOOKS__ALLOW_PRIVATE": "true", "OUTLAST_WEBHOOKS__ALLOW_HTTP": "true"}
    with log.open("a") as file, _command(file, {**os.environ, **allowed}, "--store", store, "-q", "dispatcher"):
        yield


@contextmanager
def _command(log: IO[str], env: dict[str, str], *args: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "outlast", *args]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=log,
        preexec_fn=_end_with_the_parent,
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()  # unread, because a child of the service may keep the pipe open


def _end_with_the_parent() -> None:
    """Ask Linux to terminate this process once its parent is gone, also if the parent was killed."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _first_line(process: "subprocess.Popen[str]", log: Path) -> str:
    """Return the first line of a service. Exits with the end of its log if it prints none in time."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], START_S)
    line = process.stdout.readline() if ready else ""
    if not line:
        state = f"has ended ({process.wait()})" if ready else f"printed no address in {START_S} s"
        sys.exit(f"outlast serve {state}: {log.read_text()[-2_000:]}")
    return line

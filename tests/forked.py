"""Processes of Outlast that start at once, forked from a process that has imported Outlast.

Each is a process like any other: its own pid and memory, any exit, `python -m MODULE` from first line to exit code.
Imports took most of the CPU time of a session. Tests of the start itself (`python -c`, the console script) start real
processes.
"""

import atexit
import gc
import importlib
import inspect
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ASK_MAX = 1 << 20  # bytes
STATUS = 4  # bytes of a wait status
# Without OpenTelemetry, because a process that has loaded it creates spans.
WARM = (
    "asyncpg", "fastapi", "fastapi.openapi.utils", "httpx2", "outlast.cli.root", "outlast.service.service_app",
    "outlast.testing", "pytest",
    "outlast.store.memory", "outlast.store.postgres", "outlast.store.sqlite.store", "rich.live", "rich.markup",
    "rich.progress", "rich.table", "standardwebhooks", "structlog", "uvicorn", "uvicorn.lifespan.on", "uvicorn.logging",
    "uvicorn.loops.asyncio", "uvicorn.protocols.http.auto", "uvicorn.protocols.http.h11_impl",
    "uvicorn.protocols.websockets.auto", "temporalio.envconfig", "temporalio.worker",
)  # fmt: skip


class Popen(subprocess.Popen[Any]):
    """`subprocess.Popen` for a forked process. `args` is (module, argument…)."""

    def _execute_child(self, *given: Any) -> None:
        asked = inspect.signature(subprocess.Popen._execute_child).bind(self, *given).arguments
        fds = [asked["p2cread"], asked["c2pwrite"], asked["errwrite"]]
        self._status, told = os.pipe()
        ask = {
            "args": [os.fsdecode(one) for one in asked["args"]],
            "cwd": os.fspath(asked["cwd"] or Path.cwd()),
            "env": dict(os.environ if asked["env"] is None else asked["env"]),
            "session": asked["start_new_session"],
        }
        try:
            self.pid = _forker().ask(ask, [fd if fd != -1 else n for n, fd in enumerate(fds)] + [told])
        finally:
            os.close(told)
            pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
            self._close_pipe_fds(*(asked[name] for name in pipes))
        self._child_created = True

    def _internal_poll(self, *args: Any, **more: Any) -> int | None:
        if self.returncode is None and self._waitpid_lock.acquire(False):
            try:
                pid, status = self._try_wait(os.WNOHANG)
                if pid and self.returncode is None:
                    self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._status == -1 or not select.select([self._status], [], [], 0 if wait_flags & os.WNOHANG else None)[0]:
            return 0, 0
        said = os.read(self._status, STATUS)
        os.close(self._status)
        self._status = -1
        return self.pid, int.from_bytes(
            said, "little"
        ) if said else signal.SIGKILL  # the forking process has ended, and its children with it


def run(*args: str, timeout: float | None = None, **more: Any) -> "subprocess.CompletedProcess[Any]":
    """`subprocess.run` for a forked process."""
    if more.pop("capture_output", False):
        more |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Popen(args, **more) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


class Forker:
    """The process that forks, one for each test process. It and its children end with that process."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.forked", f"{theirs.fileno()}"], cwd=ROOT, pass_fds=(theirs.fileno(),)
            )
        self._socket = ours
        self._lock = threading.Lock()
        atexit.register(self.close)

    def ask(self, ask: dict[str, Any], fds: list[int]) -> int:
        """Fork a process with these standard streams and a fourth for its status. Returns its pid."""
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(ask).encode()], fds)
            said = self._socket.recv(64)
        assert said, "the process that forks has ended"
        return int(said)

    def close(self) -> None:
        """End the forking process and its children."""
        self._socket.close()
        self._process.wait()


_one: Forker | None = None
_making = threading.Lock()


def _forker() -> Forker:
    global _one
    with _making:
        _one = _one or Forker()
    return _one


# --- the process that forks ------------------------------------------------------------------------------
def _warm() -> None:
    for name in WARM:
        importlib.import_module(name)
    for package in ("outlast.cli", "outlast.service", "outlast.outbox"):
        for found in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
            importlib.import_module(found.name)
    gc.collect()
    gc.freeze()


def _serve(ours: socket.socket) -> dict[str, Any] | None:
    """Fork on request. Returns the request in each child, and None in the parent at the end."""
    woken, wake = os.pipe()
    for fd in (woken, wake):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    tells: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([ours, woken], [], [])
        if woken in ready:
            os.read(woken, ASK_MAX)
            _reap(tells)
        if ours not in ready:
            continue
        said, fds, _, _ = socket.recv_fds(ours, ASK_MAX, 4)
        if not said:
            break
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for fd in (woken, wake, ours.detach(), fds[3], *tells.values()):
                os.close(fd)
            return _become(json.loads(said), fds[:3])
        tells[pid] = fds[3]
        for fd in fds[:3]:
            os.close(fd)
        ours.send(str(pid).encode())
    for pid in tells:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return None


def _reap(tells: dict[int, int]) -> None:
    while tells:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with suppress(BrokenPipeError):  # the parent no longer waits for it
            os.write(tells[pid], status.to_bytes(STATUS, "little"))
        os.close(tells.pop(pid))


def _become(ask: dict[str, Any], fds: list[int]) -> dict[str, Any]:
    """Do everything that the kernel and the interpreter do at a start, except the imports."""
    if ask["session"]:
        os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for n, fd in enumerate(fds):
        os.dup2(fd, n)
    for fd in fds:
        os.close(fd)
    os.chdir(ask["cwd"])
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ.clear()
    os.environ.update(ask["env"])
    path = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:] = [ask["cwd"], *path, *(entry for entry in sys.path[1:] if entry not in before)]
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - the process's own, until it ends
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdout = open(1, "w", closefd=False, buffering=1 if unbuffered or os.isatty(1) else -1)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, buffering=1, errors="backslashreplace")  # noqa: SIM115
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    return ask


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _warm()
    asked = _serve(socket.socket(fileno=int(sys.argv[1])))
    if asked is not None:
        sys.argv = asked["args"]
        runpy.run_module(asked["args"][0], run_name="__main__", alter_sys=True)

"""A process without threads that has imported the author's code: forks one child for each life it is asked for.

JSON lines in and out. The first says what code to import. `{"op": "life", …}` answers the child's pid at once, and how
it went when it has ended or stopped; `{"op": "go_on"}` lets the stopped one run to its end. A child that outlives this
process is ended by the kernel where it can (Linux).
"""

import contextlib
import ctypes
import gc
import json
import os
import signal
import sys
import tempfile
import threading
import traceback
from typing import IO, Any, Final

from outlast.flow.workflow import Workflow
from outlast.testing import life
from outlast.testing.loading import Code, function, load
from outlast.testing.warm import warm

PR_SET_PDEATHSIG: Final = 1


class Child:
    """A life under way: its process, and the memory it reports through."""

    def __init__(self, ask: dict[str, Any], workflows: list[Workflow[Any]], prepare: life.Prepare) -> None:
        self._report = _memory()
        self.pid = os.fork()
        if self.pid == 0:
            _be(ask, workflows, prepare, self._report)

    def until_it_rests(self) -> dict[str, Any]:
        """Wait until it has ended or stopped."""
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            return {"stopped": True, "died": 0, **self._said(close=False)}
        self.pid = 0
        died = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        return {"stopped": False, "died": died, **self._said(close=True)}

    def _said(self, *, close: bool) -> dict[str, Any]:
        with os.fdopen(self._report, "rb", closefd=close) as report:
            report.seek(0)
            said = report.read()
        return dict(json.loads(said)) if said else {}

    def go_on(self) -> None:
        """Let it run on."""
        os.kill(self.pid, signal.SIGCONT)

    def end(self) -> None:
        """Kill it, if it is still there."""
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


def _memory() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("report")
    handle, path = tempfile.mkstemp()
    os.unlink(path)
    return handle


def _be(ask: dict[str, Any], workflows: list[Workflow[Any]], prepare: life.Prepare, report: int) -> None:
    """The child: never returns."""
    _die_with_the_parent()
    said = os.open(ask["said"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(said, 1)
    os.dup2(said, 2)
    code = 0
    try:
        told = life.live(ask, workflows, prepare, report)
    except BaseException:  # whatever it was, the parent is told
        told, code = {"error": traceback.format_exc()}, 2
    sys.stdout.flush()
    os.ftruncate(report, 0)
    os.pwrite(report, json.dumps(told).encode(), 0)
    os._exit(code)


def _die_with_the_parent() -> None:
    parent = os.getppid()
    with contextlib.suppress(AttributeError, OSError):  # elsewhere than on Linux, an orphan ends by its alarm
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(3)


def _nothing(trace: Any, ask: dict[str, Any]) -> None:
    """The preparation that is none."""


def _ready(first: str) -> tuple[list[Workflow[Any]], life.Prepare]:
    said = json.loads(first)
    code = Code(
        tuple((name, file) for name, file in said["modules"]),
        tuple((name, version) for name, version in said["workflows"]),
        said["prepare"],
        tuple(said["path"]),
    )
    workflows = load(code)
    prepare = function(code.prepare) if code.prepare else _nothing
    warm(workflows)
    if (threads := threading.active_count()) != 1:
        raise RuntimeError(f"importing the workflow started {threads - 1} threads, which a fork does not take along")
    gc.collect()
    gc.freeze()
    return workflows, prepare


def _answer(out: IO[str], what: dict[str, Any]) -> None:
    out.write(json.dumps(what) + "\n")
    out.flush()


def main() -> None:
    """Serve the parent until it closes the pipe."""
    out = os.fdopen(os.dup(1), "w")  # what the author's code prints goes elsewhere
    os.dup2(2, 1)
    try:
        workflows, prepare = _ready(sys.stdin.readline())
    except BaseException as error:  # the parent tells it
        _answer(out, {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()})
        return
    _answer(out, {"ready": True})
    stopped: list[Child] = []
    try:
        for line in sys.stdin:
            ask = json.loads(line)
            child = stopped.pop() if ask["op"] == "go_on" else Child(ask, workflows, prepare)
            if ask["op"] == "go_on":
                child.go_on()
            else:
                _answer(out, {"pid": child.pid})
            answer = child.until_it_rests()
            if answer["stopped"]:
                stopped.append(child)
            _answer(out, answer)
    finally:
        for child in stopped:
            child.end()


if __name__ == "__main__":
    main()

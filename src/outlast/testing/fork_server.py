"""A process without threads that has imported the author's code: forks one child for each life it is asked for.

JSON lines in and out. The first says what code to import. `{"op": "life", …}` answers the child's pid at once, and how
it went when it has ended or stopped; `{"op": "go_on"}` lets the stopped one run to its end. A child that outlives this
process is ended by the kernel where it can (Linux).
"""

import asyncio
import contextlib
import ctypes
import functools
import gc
import json
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import IO, Any, Final

from outlast.engine import unserved_versions
from outlast.errors import InvalidInput
from outlast.flow.topology import digest_of, topology_of
from outlast.flow.workflow import Workflow
from outlast.testing import child_process
from outlast.testing.crash_points import CheckFailed
from outlast.testing.loading import CodeUnderTest, load, load_function


class ForkServer:
    """A process that has imported the code under test, and forks a child for each life."""

    def __init__(self, code: CodeUnderTest, env: Mapping[str, str]) -> None:
        if not hasattr(os, "fork"):
            raise InvalidInput("crash tests need os.fork", "this system has none", "run them on Linux or macOS")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "outlast.testing.fork_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **env},
        )
        self._say(code.plain())
        answer = self._hear()
        if "error" in answer:
            self.close()
            raise InvalidInput(
                "the workflow cannot be loaded in a process of its own",
                f"{answer['error']}\n{answer['trace']}",
                "its module is imported afresh there: it must not need what only this test session has set up",
            )

    def _say(self, what: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what).encode() + b"\n")
        self._process.stdin.flush()

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise CheckFailed("the process that forks has ended")
        return dict(json.loads(line))

    def run_child(self, ask: dict[str, Any], born: Callable[[int], None] = lambda pid: None) -> dict[str, Any]:
        """One life to its end, its death or its stop; `born` is told its pid."""
        self._say(ask)
        born(self._hear()["pid"])
        return self._hear()

    def go_on(self) -> dict[str, Any]:
        """The stopped life goes on to its end."""
        self._say({"op": "go_on"})
        return self._hear()

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(10)


@contextmanager
def fork_server(code: CodeUnderTest, env: Mapping[str, str] = MappingProxyType({})) -> Iterator[ForkServer]:
    """A forker that ends with the block. `env`: variables that the code finds when it is imported."""
    one = ForkServer(code, env)
    try:
        yield one
    finally:
        one.close()


CONTEXTS: Final = 8  # a life that opens more clients makes its own


def warm(workflows: Iterable[Workflow[Any]]) -> None:
    """Make ready what each life of these workflows would make anew."""
    described = functools.cache(topology_of)
    named = {id(described(workflow)): digest_of(described(workflow)) for workflow in workflows}
    vars(unserved_versions)["topology_of"] = described  # each worker asks for it when it begins
    vars(unserved_versions)["digest_of"] = lambda body: named[id(body)]
    if "httpx2" in sys.modules:
        asyncio.run(_one_request())


async def _one_request() -> None:
    """Import now what an HTTP client would import at its first call, and make its TLS contexts beforehand: loading the
    machine's certificates costs more than a whole life."""
    made = _Contexts(ssl.create_default_context)
    ssl.create_default_context = made
    httpx2 = sys.modules["httpx2"]
    for trusting in (True, False):
        async with httpx2.AsyncClient(trust_env=trusting) as http:
            try:
                await http.get("http://127.0.0.1:9/")
            except httpx2.TransportError:
                pass  # nobody is there
    made.stock()


class _Contexts:
    """Hands out contexts made beforehand, each once: no two clients share one."""

    def __init__(self, make: Callable[..., ssl.SSLContext]) -> None:
        self._make = make
        self._asked: list[dict[str, Any]] = []
        self._ready: list[tuple[dict[str, Any], ssl.SSLContext]] = []

    def __call__(self, *args: Any, **kwargs: Any) -> ssl.SSLContext:
        for n, (asked, context) in enumerate(self._ready):
            if asked == kwargs and not args:
                del self._ready[n]
                return context
        if not args and kwargs not in self._asked:
            self._asked.append(kwargs)
        return self._make(*args, **kwargs)

    def stock(self) -> None:
        """Make what was asked for so far, some times over."""
        self._ready = [(asked, self._make(**asked)) for asked in self._asked for _ in range(CONTEXTS)]


PR_SET_PDEATHSIG: Final = 1


class ForkedChild:
    """A life under way: its process, and the memory it reports through."""

    def __init__(self, ask: dict[str, Any], workflows: list[Workflow[Any]], prepare: child_process.Prepare) -> None:
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


def _be(ask: dict[str, Any], workflows: list[Workflow[Any]], prepare: child_process.Prepare, report: int) -> None:
    """The child: never returns."""
    _die_with_the_parent()
    said = os.open(ask["said"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(said, 1)
    os.dup2(said, 2)
    code = 0
    try:
        told = child_process.run_child(ask, workflows, prepare, report)
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


def _ready(first: str) -> tuple[list[Workflow[Any]], child_process.Prepare]:
    said = json.loads(first)
    code = CodeUnderTest(
        tuple((name, file) for name, file in said["modules"]),
        tuple((name, version) for name, version in said["workflows"]),
        said["prepare"],
        tuple(said["path"]),
    )
    workflows = load(code)
    prepare = load_function(code.prepare) if code.prepare else _nothing
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
    stopped: list[ForkedChild] = []
    try:
        for line in sys.stdin:
            ask = json.loads(line)
            child = stopped.pop() if ask["op"] == "go_on" else ForkedChild(ask, workflows, prepare)
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

"""A process without threads that has imported the author's code and forks a child for each process of a scenario.

Requests and answers are JSON lines. The first request says which code to import. `{"op": "run", …}` answers the
child's pid at once, and its result when it has ended or stopped. `{"op": "resume"}` lets a stopped child run to its
end. On Linux the kernel ends children that outlive this process.
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

from outlast.engine import compatibility
from outlast.errors import InvalidInput
from outlast.flow.topology import digest_of, topology_of
from outlast.flow.workflow import Workflow
from outlast.testing import child_process
from outlast.testing.crash_values import CheckFailed
from outlast.testing.loading import CodeUnderTest, load, load_function


class ForkServer:
    """The parent's end: a server process that has imported the code under test and forks a child on request."""

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
                "the workflow cannot be loaded in a new process",
                f"{answer['error']}\n{answer['trace']}",
                "a new process imports its module: it must not depend on the setup of this test session",
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

    def run_child(
        self, ask: dict[str, Any], process_started: Callable[[int], None] = lambda pid: None
    ) -> dict[str, Any]:
        """Run one child until it ends, dies or stops. `process_started` receives its pid."""
        self._say(ask)
        process_started(self._hear()["pid"])
        return self._hear()

    def resume(self) -> dict[str, Any]:
        """Let the stopped child run to its end."""
        self._say({"op": "resume"})
        return self._hear()

    def close(self) -> None:
        """End the server process and wait for it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(10)


@contextmanager
def fork_server(code: CodeUnderTest, env: Mapping[str, str] = MappingProxyType({})) -> Iterator[ForkServer]:
    """Run a fork server for this block. `env` is visible to the code when it is imported."""
    one = ForkServer(code, env)
    try:
        yield one
    finally:
        one.close()


CONTEXTS: Final = 8  # a child that opens more clients creates its own


def warm(workflows: Iterable[Workflow[Any]]) -> None:
    """Prepare everything that each child of these workflows would otherwise prepare again."""
    described = functools.cache(topology_of)
    named = {id(described(workflow)): digest_of(described(workflow)) for workflow in workflows}
    vars(compatibility)["topology_of"] = described  # every worker computes it when it starts
    vars(compatibility)["digest_of"] = lambda body: named[id(body)]
    if "httpx2" in sys.modules:
        asyncio.run(_one_request())


async def _one_request() -> None:
    """Make the imports and the TLS contexts of a first HTTP request beforehand.

    Loading the machine's certificates takes longer than a child runs.
    """
    made = _Contexts(ssl.create_default_context)
    ssl.create_default_context = made
    httpx2 = sys.modules["httpx2"]
    for trusting in (True, False):
        async with httpx2.AsyncClient(trust_env=trusting) as http:
            try:
                await http.get("http://127.0.0.1:9/")
            except httpx2.TransportError:
                pass  # nothing listens there: only the imports and contexts matter
    made.stock()


class _Contexts:
    """A factory of TLS contexts that were created beforehand. Each is used once, so no two clients share one."""

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
        """Create several contexts of each kind that was requested so far."""
        self._ready = [(asked, self._make(**asked)) for asked in self._asked for _ in range(CONTEXTS)]


PR_SET_PDEATHSIG: Final = 1


class ForkedChild:
    """A running child, and the memory through which it reports."""

    def __init__(self, ask: dict[str, Any], workflows: list[Workflow[Any]], prepare: child_process.Prepare) -> None:
        self._report = _memory()
        self.pid = os.fork()
        if self.pid == 0:
            _be(ask, workflows, prepare, self._report)

    def until_it_rests(self) -> dict[str, Any]:
        """Wait until the child has ended or stopped."""
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            return {"stopped": True, "died": 0, **self._end_report(close=False)}
        self.pid = 0
        died = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        return {"stopped": False, "died": died, **self._end_report(close=True)}

    def _end_report(self, *, close: bool) -> dict[str, Any]:
        with os.fdopen(self._report, "rb", closefd=close) as report:
            report.seek(0)
            output = report.read()
        return dict(json.loads(output)) if output else {}

    def resume(self) -> None:
        """Let a stopped child continue."""
        os.kill(self.pid, signal.SIGCONT)

    def end(self) -> None:
        """Kill the child if it is still running."""
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
    """Run the child. Never returns."""
    _die_with_the_parent()
    output = os.open(ask["output"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    code = 0
    try:
        result = child_process.run_child(ask, workflows, prepare, report)
    except BaseException:  # any error is reported to the parent
        result, code = {"error": traceback.format_exc()}, 2
    sys.stdout.flush()
    os.ftruncate(report, 0)
    os.pwrite(report, json.dumps(result).encode(), 0)
    os._exit(code)


def _die_with_the_parent() -> None:
    parent = os.getppid()
    with contextlib.suppress(AttributeError, OSError):  # only Linux has it; elsewhere the alarm ends an orphan
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(3)


def _nothing(trace: Any, ask: dict[str, Any]) -> None: ...


def _ready(first: str) -> tuple[list[Workflow[Any]], child_process.Prepare]:
    output = json.loads(first)
    code = CodeUnderTest(
        tuple((name, file) for name, file in output["modules"]),
        tuple((name, version) for name, version in output["workflows"]),
        output["prepare"],
        tuple(output["path"]),
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
    """Serve requests until the parent closes the pipe."""
    out = os.fdopen(os.dup(1), "w")  # because the author's code may print to stdout
    os.dup2(2, 1)
    try:
        workflows, prepare = _ready(sys.stdin.readline())
    except BaseException as error:  # the parent raises it
        _answer(out, {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()})
        return
    _answer(out, {"ready": True})
    stopped: list[ForkedChild] = []
    try:
        for line in sys.stdin:
            ask = json.loads(line)
            child = stopped.pop() if ask["op"] == "resume" else ForkedChild(ask, workflows, prepare)
            if ask["op"] == "resume":
                child.resume()
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

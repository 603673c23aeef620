"""A command that is stopped ends, whatever runs in it, and names the code that it leaves behind."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from outlast import Context, activity, connect, workflow
from outlast.core.durations import DRAIN_GRACE, SECOND, Liveness
from outlast.testing import App
from tests import forked

PROMISE_S, BUSY_S = 5, 4
"""The promise after the drain, and what a machine may add that has a core for each process."""
FLOWS = """
import asyncio, sys, threading, time
from outlast import *

async def stays():
    print("begun", flush=True)
    while True:
        try: await asyncio.sleep(3600)
        except BaseException: continue  # here

@activity(key="act", no_undo="x")
async def act() -> int:
    await stays()

@activity(key="loops", no_undo="x")
def loops() -> int:
    print("begun", flush=True)
    while True: time.sleep(3600)  # here

@workflow
async def waits(ctx: Context) -> int:
    print("begun", flush=True)
    await ctx.sleep("1h")

@workflow
async def talks(ctx: Context) -> int:
    print("begun", flush=True)
    while True: sys.stderr.write("x" * 65_536)

@workflow
async def node(ctx: Context) -> int:
    await stays()

@workflow
async def call(ctx: Context) -> int:
    return await ctx.do(act)

@workflow
async def threaded(ctx: Context) -> int:
    return await ctx.do(loops)

def spins():
    time.sleep(3600)  # here

@workflow
async def thread(ctx: Context) -> int:
    threading.Thread(target=spins, name="spinner").start()
    print("begun", flush=True)
    await ctx.sleep("1h")

@workflow
async def forgotten(ctx: Context) -> int:
    task = asyncio.create_task(stays(), name="rest")
    await asyncio.sleep(0.1)
    await ctx.sleep("1h")

@workflow
async def blocks(ctx: Context) -> int:
    print("begun", flush=True)
    while True: time.sleep(0.1)  # here

@workflow
async def blocks_later(ctx: Context) -> int:
    print("begun", flush=True)
    try: await asyncio.sleep(3600)
    except BaseException:
        while True: time.sleep(0.1)  # here
"""
HERE = tuple(
    f"stub.py:{n}" for n, line in enumerate(FLOWS.splitlines(), 1) if "# here" in line or "sleep(3600)" in line
)
OUTLAST = str(Path(sys.executable).with_name("outlast"))
DRAIN = ("--drain-grace", "1s")
WORKER = ("worker", "stub.py", *DRAIN)
SERVE = ("serve", "stub.py", "--port", "0", *DRAIN)
DEV = ("dev", "stub.py", "--port", "0")
BLOCKED = "thread MainThread, blocked"


def busy_s() -> float:
    """Return what a machine may add on which several processes wait for each core."""
    return BUSY_S * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


@contextmanager
def executing(folder: Path, name: str, *command: str, code: str = FLOWS) -> "Iterator[subprocess.Popen[str]]":
    """Start a run of FLOWS, and a command with `code`. Give its process once it executes the run."""
    (folder / "stub.py").write_text(FLOWS)
    env = {**os.environ, "OUTLAST_STORE": f"sqlite:{folder}/s.db", "OUTLAST_AUDIT": f"{folder}/audit"}
    forked.run("outlast", "run", f"stub.py:{name}", cwd=folder, env=env, timeout=60).check_returncode()
    (folder / "stub.py").write_text(code)
    process = forked.Popen(
        ("outlast", *command), cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        while (line := process.stdout.readline()).strip() != "begun":
            assert line, process.communicate()
        yield process
    finally:
        process.kill()
        process.communicate()


CASES = [
    *((name, kind, WORKER) for name, kind in [
        ("node", "task"), ("call", "task"), ("threaded", "thread outlast-activity"), ("thread", "thread spinner"),
        ("forgotten", "task rest"), ("blocks", BLOCKED), ("blocks_later", BLOCKED),
    ]),
    *((name, kind, SERVE) for name, kind in [("call", "task"), ("thread", "thread spinner"), ("blocks", BLOCKED)]),
    ("node", "task", DEV),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kind", "command"), CASES, ids=[f"{c[2][0]}-{c[0]}" for c in CASES])
def test_a_stopped_command_leaves_code_that_ignores_it(
    tmp_path: Path, name: str, kind: str, command: tuple[str, ...]
) -> None:
    drain_s = 1 if DRAIN[0] in command else DRAIN_GRACE / SECOND
    with executing(tmp_path, name, *command) as process:
        process.send_signal(signal.SIGTERM)
        at = time.monotonic()
        _, said = process.communicate(timeout=drain_s + 60)
        took = time.monotonic() - at
    assert process.returncode == 0 and took < drain_s + PROMISE_S + busy_s(), (took, said)
    if name == "threaded":  # a daemon thread keeps no process: only the log names it
        (line,) = [each for each in said.splitlines() if f"left behind: {kind}" in each]
    else:
        (line,) = [each for each in said.splitlines() if each.startswith("left behind:")]
    assert f"left behind: {kind}" in line and any(at in line for at in HERE), said
    if kind != BLOCKED:
        assert "Stopped" in said and f"outlast {command[0]} stub.py" in said
        assert command[0] in (tmp_path / "audit").read_text(), "the command has its audit line"


HANGS = {
    "close": """
from outlast.engine.worker import WorkerProcess
async def never(self):
    await asyncio.Event().wait()  # hangs
WorkerProcess._close = never
""",
    "exit handler": """
import atexit
def never():
    time.sleep(3600)  # hangs
atexit.register(never)
""",
    "interpreter": """
import types
class Stuck:
    def __del__(self, sleep=time.sleep): sleep(3600)
sys.modules["stuck"] = types.ModuleType("stuck")
sys.modules["stuck"].kept = Stuck()
""",
    "full pipe": "",
}
"""Code of a module in which one part of the end of a process has no end."""


@pytest.mark.parametrize("name", HANGS)
def test_a_stopped_command_ends_wherever_it_hangs(tmp_path: Path, name: str) -> None:
    """The interpreter is not ended: its modules are not freed, and no thread of a library waits for its lock."""
    code = FLOWS + HANGS[name]
    run = "talks" if name == "full pipe" else "waits"
    with executing(tmp_path, run, *(SERVE if name == "close" else WORKER), code=code) as process:
        process.send_signal(signal.SIGTERM)
        at = time.monotonic()
        assert process.wait(1 + 60) == 0  # its pipes are not read
        took = time.monotonic() - at
        _, errors = process.communicate()
    assert took < 1 + PROMISE_S + busy_s(), (took, errors)
    hangs = next((n for n, line in enumerate(code.splitlines(), 1) if "# hangs" in line), None)
    if name != "full pipe":
        assert ("left behind: " in errors) == (hangs is not None) == (f"stub.py:{hangs}" in errors), errors


@pytest.mark.parametrize("ends", ["well", "with an error"])
def test_exit_handlers_are_called_and_the_exit_code_is_kept(tmp_path: Path, ends: str) -> None:
    begins = 'import atexit\natexit.register(print, "goodbye", end="")\n'
    if ends == "well":
        with executing(tmp_path, "waits", *WORKER, code=FLOWS + begins) as process:
            process.send_signal(signal.SIGTERM)
            said, _ = process.communicate(timeout=60)
        assert process.returncode == 0 and said.endswith("goodbye")
        return
    (tmp_path / "stub.py").write_text(FLOWS + begins + HANGS["exit handler"])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = [OUTLAST, *WORKER, "--metrics-port", str(taken.getsockname()[1])]
        env = {**os.environ, "OUTLAST_STORE": f"sqlite:{tmp_path}/s.db"}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode not in (0, 70) and "in use" in done.stderr, done
    assert "left behind: thread MainThread, blocked at stub.py" in done.stderr, done


@pytest.mark.parametrize("name", ["node", "blocks"])
@pytest.mark.parametrize("command", [WORKER, SERVE], ids=["worker", "serve"])
def test_a_second_signal_ends_a_command_at_once(tmp_path: Path, name: str, command: tuple[str, ...]) -> None:
    with executing(tmp_path, name, *command[:-1], "1h") as process:
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)  # another one, because equal signals may become one
        assert process.wait(timeout=60) == 130


def test_a_command_that_fails_leaves_the_process_of_a_thread_that_ignores_it(tmp_path: Path) -> None:
    """Python waits for a thread that a module has started, also after an error."""
    begins = '\nthreading.Thread(target=spins, name="spinner").start()\n'
    (tmp_path / "stub.py").write_text(FLOWS + begins)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = [OUTLAST, *WORKER, "--metrics-port", str(taken.getsockname()[1])]
        env = {**os.environ, "OUTLAST_STORE": f"sqlite:{tmp_path}/s.db"}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode not in (0, 70) and "in use" in done.stderr, done
    assert "left behind: thread spinner at stub.py" in done.stderr


IN_A_PROGRAM = """
import sys, time
from click.testing import CliRunner
from outlast.cli import cli, serving
serving.END_WITHIN = 0.2
answer = CliRunner().invoke(cli, ["dispatcher", "--metrics-port", sys.argv[1]])
time.sleep(2)  # ten times what a command has for its end
print("goes on after", answer.exit_code)
"""


def test_a_command_that_another_program_calls_does_not_end_its_process(tmp_path: Path) -> None:
    env = {**os.environ, "OUTLAST_STORE": f"sqlite:{tmp_path}/s.db"}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = [sys.executable, "-c", IN_A_PROGRAM, str(taken.getsockname()[1])]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("goes on after ") and done.stdout.split()[-1] not in ("0", "70"), done


# --- in the process of an application -------------------------------------------------------------------------
async def stays(begun: asyncio.Event, ends: list[Any]) -> None:
    begun.set()
    while not ends:
        try:
            await asyncio.sleep(0.05 if ends else 3600)  # outlast: ignore[OL303] a node that occupies its worker
        except BaseException:
            continue


@pytest.mark.parametrize("kind", ["node", "call", "threaded", "thread", "forgotten"])
def test_a_worker_of_an_application_names_what_it_leaves_and_returns(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    ends: list[Any] = []
    left: list[asyncio.Task[Any]] = []
    running: list[asyncio.AbstractEventLoop] = []
    begun, released = asyncio.Event(), threading.Event()

    @activity(key="acts", no_undo="x")
    async def acts() -> None:
        await stays(begun, ends)

    @activity(key="loops", no_undo="x")
    def loops() -> None:
        running[0].call_soon_threadsafe(begun.set)
        released.wait()

    @workflow
    async def leaves(ctx: Context[Any]) -> None:
        if kind == "node":
            await stays(begun, ends)
        elif kind == "call":
            await ctx.do(acts)
        elif kind == "threaded":
            await ctx.do(loops)
        elif kind == "thread":
            threading.Thread(target=released.wait, name="spinner").start()
            begun.set()
        else:
            left.append(asyncio.create_task(stays(begun, ends), name="rest"))
            await begun.wait()
        if kind in ("thread", "forgotten"):
            await ctx.sleep("1h")

    async def main() -> float:
        running.append(asyncio.get_running_loop())
        async with connect("memory:") as client:
            async with client.worker([leaves], live=Liveness(drain_grace=500)):
                await client.start(leaves)
                await begun.wait()
                at = time.monotonic()
            took = time.monotonic() - at
            ends.append(1)
            released.set()
            return took

    assert asyncio.run(main()) < PROMISE_S + busy_s()
    named = [each.getMessage() for each in caplog.records if "code is left behind" in each.getMessage()]
    what = {"threaded": "thread outlast-activity", "thread": "thread spinner", "forgotten": "task rest of "}
    mine = [text for text in named if f"left behind: {what.get(kind, 'task Task-')}" in text]
    assert mine and any("test_left_behind.py:" in text for text in mine) == (kind != "thread"), caplog.text
    assert "of an application" not in caplog.text, "tasks of others are not named"


def test_a_worker_without_left_code_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Neither of the worker nor of the application."""

    @workflow
    async def ends_at_once(ctx: Context[Any]) -> int:
        return await asyncio.to_thread(int, "1")

    async def main() -> int:
        other = asyncio.create_task(asyncio.sleep(3600), name="of an application")
        async with connect("memory:") as client, client.worker([ends_at_once]):
            found: int = await (await client.start(ends_at_once)).result()
        other.cancel()
        return found

    assert asyncio.run(main()) == 1
    assert "left behind" not in caplog.text


@pytest.mark.parametrize("kind", ["node", "forgotten", "thread"])
def test_an_app_closes_over_code_that_ignores_it(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    ends: list[Any] = []
    released = threading.Event()

    @workflow
    async def stubborn(ctx: Context[Any]) -> None:
        if kind == "forgotten":
            asyncio.create_task(stays(asyncio.Event(), ends), name="rest")  # noqa: RUF006 - it is forgotten
            await asyncio.sleep(0)
        elif kind == "thread":
            threading.Thread(target=released.wait, name="spinner").start()
        while not ends:
            try:
                await ctx.sleep("1h")
            except BaseException:
                if kind != "node":
                    raise
                continue

    app = App((stubborn,))
    app.start(stubborn, {})
    loop = app._runner.get_loop()
    at = time.monotonic()
    app.close()
    assert time.monotonic() - at < PROMISE_S + busy_s()
    ends.append(1)
    released.set()
    what = {"node": "task Task-", "forgotten": "task rest", "thread": "thread spinner"}[kind]
    assert f"left behind, because it ignores that its app ends: {what}" in caplog.text, caplog.text
    assert loop.is_closed(), "otherwise a later collection warns of it"

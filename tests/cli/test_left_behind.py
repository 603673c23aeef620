"""A command that is stopped ends, whatever runs in it, and names the code that it leaves behind."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from outlast import Context, workflow
from outlast.testing import App

FLOWS = """
import asyncio, threading, time
from outlast import *

async def stays():
    print("begun", flush=True)
    while True:
        try: await asyncio.sleep(3600)
        except BaseException: continue  # here

@activity(key="act", no_undo="x")
async def act() -> int:
    await stays()

@workflow
async def node(ctx: Context) -> int:
    await stays()

@workflow
async def call(ctx: Context) -> int:
    return await ctx.do(act)

def spins():
    time.sleep(3600)  # here

@workflow
async def thread(ctx: Context) -> int:
    threading.Thread(target=spins, name="spinner").start()
    print("begun", flush=True)
    await ctx.sleep("1h")
"""
OUTLAST = str(Path(sys.executable).with_name("outlast"))


@pytest.mark.parametrize(("name", "kind"), [("node", "task"), ("call", "task"), ("thread", "thread spinner")])
def test_a_stopped_worker_leaves_code_that_ignores_it(tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / "stub.py").write_text(FLOWS)
    env = {**os.environ, "OUTLAST_STORE": f"sqlite:{tmp_path}/s.db"}
    subprocess.run([OUTLAST, "run", f"stub.py:{name}"], cwd=tmp_path, env=env, check=True, timeout=60)
    command = [OUTLAST, "worker", "stub.py", "--drain-grace", "1s"]
    worker = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    while worker.stdout.readline().strip() != "begun":
        pass
    worker.send_signal(signal.SIGTERM)
    at = time.monotonic()
    try:
        _, said = worker.communicate(timeout=60)
    finally:
        worker.kill()
    assert worker.returncode == 0 and "Stopped" in said
    (line,) = [each for each in said.splitlines() if each.startswith("left behind:")]
    assert f"left behind: {kind}" in line and "stub.py:" in line, said
    assert time.monotonic() - at < 1 + 5 + 4, "drain, the 5 s of the promise, and a busy machine"


def test_an_app_closes_over_a_node_that_ignores_its_cancellation(caplog: pytest.LogCaptureFixture) -> None:
    ends: list[Any] = []

    @workflow
    async def stubborn(ctx: Context[Any]) -> None:
        while not ends:
            try:
                await ctx.sleep("1h")
            except BaseException:
                continue

    app = App((stubborn,))
    app.start(stubborn, {})
    app.close()
    assert "left behind" in caplog.text and "test_left_behind.py" in caplog.text
    ends.append(1)
    assert asyncio.iscoroutinefunction(stubborn.fn)

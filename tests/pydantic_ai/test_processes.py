"""A worker process is killed in the middle of a tool call, and a fresh one settles the call."""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from outlast.core.approvals import Actor
from outlast.core.rows.run_rows import is_over
from outlast.runtime.operations import Operations
from outlast.testing import times_out
from tests import forked
from tests.e2e.helpers import GIVE_UP_S, ROOT, SHORT, looking, when
from tests.pydantic_ai.agents import ANSWERS, desk, desk_world

AGENTS = "tests.pydantic_ai.agents"


def worker(store: str, address: str, log: Path, stack: ExitStack) -> "subprocess.Popen[bytes]":
    command = ["outlast", "--store", store, "worker", AGENTS, *SHORT]
    env = {**os.environ, "DESK_URL": address, "PYTHONPATH": f"{ROOT}"}
    with log.open("ab") as out:
        process = forked.Popen(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, env=env)
    stack.callback(process.wait, GIVE_UP_S)
    stack.callback(process.kill)
    return process


@pytest.mark.req("GATE-7", "EFF-2", "REC-1", "FAIL-2")
def test_a_fresh_process_settles_a_refund_that_was_under_way(tmp_path: Path) -> None:
    store, log = f"sqlite:{tmp_path / 'outlast.db'}", tmp_path / "workers.log"
    with desk_world(times_out()) as world, looking(store) as look, ExitStack() as stack:
        ops = Operations(look._store, tenant="default", actor=Actor("test"), workflows={desk.name: desk})
        look.do(lambda _: ops.start_run(desk.name, {"question": "what is up?"}, run_id="r1", key="r1"))
        first = worker(store, world.url, log, stack)
        when(lambda: world.executed(route="/refunds"), log.read_text)
        first.kill()
        assert first.wait(GIVE_UP_S) == -signal.SIGKILL
        worker(store, world.url, log, stack)
        when(lambda: is_over(look.do(lambda _: ops.rows.run("r1"))), log.read_text)
        assert look.do(lambda _: ops.get("r1").result()) == {"question": "what is up?", "answer": ANSWERS[-1]}
        assert world.executed(route="/refunds") == 1 and world.executed(route="/tickets") == 2
        assert world.executed(route="/chat/completions") == len(ANSWERS)


def test_outlast_loads_nothing_of_pydantic_ai_and_names_the_missing_extra() -> None:
    program = "import sys, outlast.flow, outlast.engine.worker; print('pydantic_ai' in sys.modules)"
    assert said(program) == "False\n"
    halted = "import sys; sys.modules['pydantic_ai'] = None\n"
    program = f"{halted}try: import outlast.pydantic_ai\nexcept ImportError as e: print(e)"
    assert "pip install 'outlast[pydantic-ai]'" in said(program)


def said(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

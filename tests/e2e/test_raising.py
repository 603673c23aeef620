"""Real workers whose workflows raise: no process dies of it, and a person sees each run."""

import contextlib
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests import forked
from tests.e2e.helpers import GIVE_UP_S, ROOT, looking
from tests.e2e.raising import CELLS, EXPECTED, play

# `python -m tests.e2e.raising` plays all kinds in all places.
PLACES = ("node", "async activity", "def activity", "policy")
KINDS = ("BaseException", "SystemExit", "KeyboardInterrupt")


@pytest.mark.req("FAIL-6", "REC-2")
def test_two_workers_survive_the_exceptions_of_their_workflows(tmp_path: Path) -> None:
    cells = {name for name, (place, kind) in CELLS.items() if place in PLACES and kind in KINDS}
    played = {name: reasons for name, reasons in EXPECTED.items() if name in cells or name not in CELLS}
    found, ended = play(tmp_path, 2, played)
    assert found == played
    assert ended == [None, None], "both still serve"


def test_ctrl_c_in_the_middle_of_a_node_ends_the_program_and_fails_no_run(tmp_path: Path) -> None:
    """Send SIGINT until it ends: asyncio cancels the main task at the first one, which a blocked loop never does."""
    url = f"sqlite:{tmp_path / 'outlast.db'}"
    program = forked.Popen(("tests.e2e.blocked", url), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert program.stdout is not None
    assert program.stdout.readline() == b"it blocks\n"
    give_up = time.monotonic() + GIVE_UP_S
    while program.poll() is None:  # two signals of one number are one signal until the first is handled
        program.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.wait(1)
        assert time.monotonic() < give_up, "it does not end"
    _, said = program.communicate(timeout=GIVE_UP_S)
    assert program.returncode == -signal.SIGINT and said.decode().rstrip().endswith("KeyboardInterrupt"), said.decode()
    with looking(url) as look:
        (run,) = look.do(lambda ops: ops.rows.runs())[0]
    assert run.attention == ()

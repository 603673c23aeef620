"""`outlast demo` as a user runs it: unattended, and interrupted at the worst moments and continued."""

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.negotiation.demo.output import INDENT, folded
from examples.negotiation.demo.progress import PULSE_MS, skipped
from examples.negotiation.record import Arrived, Executed, read
from outlast.core.durations import HOUR
from outlast.core.events import EventType
from outlast.core.machine import ENDED
from outlast.core.rows.run_columns import WAITING_FOR, WaitingFor
from tests import copies
from tests.e2e.helpers import GIVE_UP_S, OUTLAST, Look, looking, when
from tests.insight.situations import RUN

FASTER = ("--speed", "100000")


class Demo:
    """One process of the demo with its output."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.said_path = folder.with_name(f"said-{len(list(folder.parent.glob('said-*')))}.txt")
        command = [f"{OUTLAST}", "demo", "--folder", f"{folder}", *arguments]
        with self.said_path.open("wb") as out:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)

    def said(self) -> str:
        return self.said_path.read_text(encoding="utf-8")

    def until(self, words: str) -> str:
        """Wait for these words and return the output."""
        when(lambda: words in self.said() or self.process.poll() is not None, self.said)
        assert words in self.said(), self.said()
        return self.said()

    def command_with(self, words: str) -> list[str]:
        """Return the command that the output suggests."""
        line = next(line for line in self.said().splitlines() if words in line)
        return shlex.split(line[line.index(f"{OUTLAST}") :])

    def interrupt(self) -> str:
        """Press Ctrl-C and return the output since then."""
        before = len(self.said())
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(GIVE_UP_S) == 130, self.said()
        assert "Traceback" not in self.said()
        return self.said()[before:]


@contextlib.contextmanager
def demo(folder: Path, *arguments: str) -> Iterator[Demo]:
    running = Demo(folder, *arguments)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.terminate()
            running.process.wait(GIVE_UP_S)


def every_invitation_was_taken_once(folder: Path) -> None:
    """Count the market's record here, independently of the demo."""
    entries = read(folder / "market.jsonl")
    invited = [e for e in entries if isinstance(e, Arrived) and e.kind == "invitations"]
    times = Counter((e.supplier, e.round) for e in invited)
    assert set(times.values()) == {1}, times
    assert {n for _, n in times} == {1, 2, 3, 4, 5}
    acted = Counter(e.n for e in entries if isinstance(e, Executed))
    assert set(acted.values()) == {1}


def time_passed_in_the_auction_alone(look: Look, run: str, folder: Path) -> None:
    """Assert that business time moved only in the auction.

    It once ran 15,000 times as fast while workers started, so that a slow machine reached the ceiling of 168 h.
    """
    row = look.do(lambda ops: ops.rows.run(run))
    history = look.do(lambda ops: ops.rows.history(run))
    entered = next(event.at for event in history if event.node == "auction")
    assert entered - row.created_at < GIVE_UP_S * 1_000, "business time did not move ahead during the start"
    assert {rate for _, _, rate in json.loads((folder / "demo.json").read_text())["clocks"]} == {1.0}
    (over,) = [event.at for event in history if event.type == EventType.TAKEN_OVER.value]
    before = max(event.at for event in history if event.at < over)
    assert over - before < GIVE_UP_S * 1_000, "business time did not move ahead during the takeover"


def crashed_in_round_3(look: Look, run: str) -> None:
    history = look.do(lambda ops: ops.rows.history(run))
    (admitted,) = [event for event in history if event.type == EventType.ADMITTED.value]
    assert '"slots":"default/0"' in admitted.body.decode()
    (over,) = [event for event in history if event.type == EventType.TAKEN_OVER.value]
    assert over.node == "auction"
    assert {e.visit for e in history if e.node == "auction"} == {over.visit}, (
        "one visit, which continued after the crash"
    )


@pytest.mark.req("APP-2", "RUN-1", "RUN-6", "REC-1", "REC-3", "EFF-1", "GATE-1", "FAIL-8")
def test_the_auction_is_killed_in_round_3_taken_over_approved_and_awarded(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    done = subprocess.run(
        [f"{OUTLAST}", "demo", "--approve", "--json", "--folder", f"{folder}", *FASTER],
        capture_output=True, text=True, timeout=5 * GIVE_UP_S, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    printed: dict[str, Any] = json.loads(done.stdout)
    assert printed["outcome"] == "AWARDED"
    assert printed["proven"] is True
    assert printed["invitations"] == {"sent": 21, "distinct": 21, "repeated": 0}
    assert printed["crashes"] == 1
    assert printed["slots_in_use"] == 0
    assert printed["effects"]["unsettled"] == printed["all_requests_repeated"] == 0
    assert printed["effects"]["answered_from_ledger"] > 0
    assert printed["takeover_seconds"] > 0
    assert printed["resume_seconds"] > 0
    assert printed["order"].startswith("PO-acme-")
    every_invitation_was_taken_once(folder)
    with looking(f"sqlite:{folder / 'outlast.db'}") as look:
        crashed_in_round_3(look, printed["run"])
        time_passed_in_the_auction_alone(look, printed["run"], folder)
        (approval,), _ = look.do(lambda ops: ops.rows.approvals())
        forty_hours_ms = 40 * 3_600_000
        assert approval.decided_at - approval.asked_at >= forty_hours_ms
        assert approval.decided_by.startswith("local:"), "decided by a command of the CLI"


def decide(command: list[str]) -> None:
    """Run a command in another folder, without the virtual environment, while no worker serves."""
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=5 * GIVE_UP_S, check=False, cwd="/", env={"PATH": os.defpath}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "approved by local:" in done.stdout and done.stderr == "", "no warning about a worker that starts later"


def ended_well(folder: Path, last: Demo) -> None:
    assert last.process.wait(GIVE_UP_S) == 0, last.said()
    printed = json.loads(last.said().splitlines()[-1])
    assert (printed["outcome"], printed["crashes"], printed["slots_in_use"]) == ("AWARDED", 1, 0)
    assert printed["invitations"]["repeated"] == printed["all_requests_repeated"] == 0
    every_invitation_was_taken_once(folder)
    with looking(f"sqlite:{folder / 'outlast.db'}") as look:
        crashed_in_round_3(look, printed["run"])
        assert look.do(lambda ops: ops.rows.run(printed["run"])).owner == ENDED
        assert look.left() == []


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A demo interrupted after the kill and during the approval, and the command that approves."""
    folder = tmp_path_factory.mktemp("demo") / "folder"
    with demo(folder, *FASTER) as first:
        first.until("killed with SIGKILL")
        last_words = first.interrupt()
        assert "Stopped. 1 run is safe in" in last_words
        assert "demo --folder" in last_words
    with demo(folder, *FASTER) as second:
        second.until("no process holds the run")
        second.interrupt()
    with looking(f"sqlite:{folder / 'outlast.db'}") as look:
        assert look.left() == []
        ((run,), _) = look.do(lambda ops: ops.rows.runs())
        assert run.owner == ""
        assert '"kind":"approval"' in run.waiting_for_text
    return folder, second.command_with("approvals approve")


def another(waiting: tuple[Path, list[str]], folder: Path) -> list[str]:
    """Copy the demo to another folder and return its command."""
    shutil.copytree(waiting[0], folder)
    copies.adopt(folder / "outlast.db")
    return [word.replace(f"{waiting[0]}", f"{folder}") for word in waiting[1]]


@pytest.mark.req("APP-2", "REC-3", "GATE-1")
def test_no_process_holds_the_run_until_a_command_in_another_folder_approves(
    waiting: tuple[Path, list[str]], tmp_path: Path
) -> None:
    command = another(waiting, tmp_path / "folder")
    with demo(tmp_path / "folder", "--json") as watching:
        watching.until("approvals approve")
        with looking(f"sqlite:{tmp_path / 'folder' / 'outlast.db'}") as look:
            when(lambda: not look.left(), look.left)  # at most a bid that came too late is still read
        decide(command)
        ended_well(tmp_path / "folder", watching)


@pytest.mark.req("APP-2", "REC-3", "GATE-1")
def test_a_run_approved_while_no_demo_runs_continues_with_the_next_demo(
    waiting: tuple[Path, list[str]], tmp_path: Path
) -> None:
    decide(another(waiting, tmp_path / "folder"))
    with demo(tmp_path / "folder", "--json") as later:
        ended_well(tmp_path / "folder", later)


@pytest.mark.req("APP-2")
def test_no_path_is_printed_of_a_folder_that_is_deleted(tmp_path: Path) -> None:
    command = [f"{OUTLAST}", "demo", "--approve", "--no-keep", "--sample", "spot"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=5 * GIVE_UP_S, check=False,
        stdin=subprocess.DEVNULL, env={**os.environ, "TMPDIR": f"{tmp_path}"},
    )  # fmt: skip
    assert done.returncode == 0 and "the run is AWARDED" in done.stdout, done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []
    assert f"{tmp_path}" not in done.stdout.partition("the run is AWARDED")[2] and "Report:" not in done.stdout


@pytest.mark.parametrize(("width", "lines"), [(500, 1), (60, 3), (10, 6)])
def test_a_command_is_broken_between_words_only(width: int, lines: int) -> None:
    words = ["/opt/venv/bin/outlast", "--store", "sqlite:/tmp/a folder/outlast.db", "approvals", "approve", "ap_1"]
    shown = folded(words, width)
    assert shlex.split(shown.replace("\\\n", "")) == words and len(shown.splitlines()) == lines
    assert width < 60 or all(INDENT + len(line.strip()) <= width for line in shown.splitlines())


def test_business_time_moves_while_a_run_at_rest_waits_for_signals_and_no_further_than_their_end() -> None:
    waits = (WaitingFor("signal", "bid/1/3", until=50 * HOUR),)
    rests = RUN._replace(owner="", waiting_for_text=WAITING_FOR.encode(waits))
    cases = (
        (rests, 10 * HOUR, 1_000, 36_000.0, 10 * HOUR),
        (rests, 45 * HOUR, 1_000, 36_000.0, 5 * HOUR),
        (rests, 51 * HOUR, 1_000, 36_000.0, 0),
        (rests, 10 * HOUR, PULSE_MS - 1, 36_000.0, 0),
        (rests._replace(owner="w-1"), 10 * HOUR, 1_000, 36_000.0, 0),
        (
            rests._replace(waiting_for_text=WAITING_FOR.encode([waits[0]._replace(kind="approval")])),
            10 * HOUR,
            1_000,
            36_000.0,
            0,
        ),
        (rests._replace(waiting_for_text=""), 10 * HOUR, 1_000, 36_000.0, 0),
    )
    for run, business, still_ms, speed, ahead in cases:
        assert skipped(run, business, still_ms, speed) == ahead, (run.waiting_for, business, still_ms)


@pytest.mark.req("APP-2")
def test_ctrl_c_before_the_start_of_the_run_says_that_nothing_can_continue(tmp_path: Path) -> None:
    with demo(tmp_path / "folder") as early:
        early.until("outlast")
        assert "Stopped before the run began" in early.interrupt()


def test_a_folder_with_another_store_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "outlast.db").touch()
    with demo(tmp_path) as refused:
        assert refused.process.wait(GIVE_UP_S) == 4
    assert "not the demo's" in refused.said()
    assert os.listdir(tmp_path) == ["outlast.db"]

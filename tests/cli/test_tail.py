"""`outlast runs tail`, `outlast explain RUN` and the progress of a run."""

import asyncio
import json
import signal
import subprocess
from collections.abc import Iterator

import pytest

from outlast.core.rows.run_rows import EVENT, Event, is_over
from outlast.runtime.stores import open_store
from tests.cli.conftest import PATIENCE_S, Terminal, waits_for


def stored(outlast: Terminal, run: str = "r1") -> list[bytes]:
    """The exact bytes of a run's events."""

    async def go() -> list[bytes]:
        store = await open_store(outlast.url)
        try:
            rows = await store.rows(EVENT, ("default", run))
            return [row.body for row in rows if isinstance(row, Event)]
        finally:
            await store.close()

    return asyncio.run(go())


@pytest.fixture
def waiting(outlast: Terminal) -> Terminal:
    """A run that waits for a signal."""
    outlast.start(order_id="wait-1")
    outlast("approvals", "approve", outlast.approval(), "--reason", "fine")
    outlast.serve("r1", waits_for("signal"))
    return outlast


# --- tail --------------------------------------------------------------------------------------------
@pytest.mark.req("RUN-7")
def test_all_visits_of_an_ended_run_are_shown(outlast: Terminal) -> None:
    outlast.start()
    approval = outlast.approval()
    outlast("approvals", "approve", approval, "--reason", "fine")
    outlast.serve("r1", is_over)
    answer = outlast("runs", "tail", "r1")
    assert answer.code == 0 and answer.err == "r1 COMPLETED; no further event will come\n"
    lines = [" ".join(line.split()[1:]) for line in answer.out.splitlines()]
    assert lines[0].startswith("1 started check#1 by local:")
    assert "check#1" in lines[1] and "claimed" in lines[1] and " by w-" in lines[1]
    assert lines[2].endswith("checkpoint review#2 saved; next is review")
    assert any(
        f"parked review#2 waits for approval {approval} «Refund 4200 cents of A-17» until 20" in x for x in lines
    )
    assert lines[-1].endswith("completed pay#3")


@pytest.mark.req("RUN-7", "OUT-3")
def test_for_programs_it_is_the_stored_bytes(waiting: Terminal) -> None:
    waiting("signal", "r1", "paid", "--data", '{"by": "Ana\\u202e"}')
    waiting.serve("r1", is_over)
    answer = waiting("runs", "tail", "r1", "-o", "ndjson")
    assert [line.encode() for line in answer.out.split("\n")[:-1]] == stored(waiting)
    rest = waiting("runs", "tail", "r1", "-o", "ndjson", "--after", "3").out
    assert [line.encode() for line in rest.split("\n")[:-1]] == stored(waiting)[3:]
    assert waiting("runs", "tail", "r1", "--after", "99").code == 0


def test_the_exit_code_is_that_of_the_outcome(outlast: Terminal) -> None:
    outlast.start(cents=-1)
    outlast.serve("r1", is_over)
    answer = outlast("runs", "tail", "r1", "-q")
    assert answer.code == 1 and answer.err == ""
    assert "r1 FAILED: nothing to refund; no further event will come" in outlast("runs", "tail", "r1").err
    assert outlast("runs", "tail", "r9").code == 3


def lines_of(process: "subprocess.Popen[str]") -> Iterator[str]:
    """Yield the printed lines as they appear."""
    assert process.stdout is not None
    return iter(process.stdout.readline, "")


@pytest.mark.req("RUN-7")
def test_it_is_live_and_ends_by_itself(waiting: Terminal) -> None:
    process = waiting.spawn("runs", "tail", "r1")
    lines = lines_of(process)
    assert any("parked" in line and "waits for signal paid until" in line for line in lines)
    waiting("signal", "r1", "paid", "--data", '{"by": "Ana"}')
    assert process.poll() is None
    waiting.worker()
    assert any("completed" in line for line in lines)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0 and "r1 COMPLETED; no further event will come" in err


def test_ctrl_c_exits_cleanly_with_the_command_to_continue(waiting: Terminal) -> None:
    process = waiting.spawn("runs", "tail", "r1", "-o", "ndjson")
    last = next(event for line in lines_of(process) if (event := json.loads(line))["type"].endswith("parked")
                and event["data"]["node"] == "pay")  # fmt: skip
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130 and "Traceback" not in err and "\\x0a" not in err
    assert f"continue with: outlast runs tail r1 --after {int(last['sequence'])}" in err


# --- progress ----------------------------------------------------------------------------------------
@pytest.mark.req("RUN-7")
def test_the_progress_of_a_run(waiting: Terminal) -> None:
    progress = waiting.see()["progress"]
    assert (progress["node"], progress["visit"], progress["checkpoints"]) == ("pay", 3, 2)
    assert (progress["effects_done"], progress["effects_intended"]) == (2, 2)
    assert progress["waits_for"] == ["signal paid"] and progress["until"] and progress["last_checkpoint_at"]
    assert "0 of 0 effects of node pay done, 2 of 2 in all · checkpoint 2 " in waiting("runs", "show", "r1").out


# --- explain -----------------------------------------------------------------------------------------
@pytest.mark.req("RUN-9")
def test_explain_answers_in_one_sentence(outlast: Terminal) -> None:
    outlast.start()
    nobody = outlast("explain", "r1")
    assert nobody.out.splitlines()[0].endswith("; no live worker serves refund@1.")
    assert "unblock      outlast worker MODULE" in nobody.out
    approval = outlast.approval()
    view = outlast("explain", "r1", "-o", "json").json
    assert view["sentence"].startswith(
        f"r1 waits for finance to decide {approval} «Refund 4200 cents of A-17», for another 9"
    )
    assert view["unblock"][0] == f"outlast approvals approve {approval} --reason …"
    outlast("approvals", "approve", approval, "--reason", "fine")
    assert f"r1 continues: {approval} was approved by local:" in outlast("explain", "r1").out
    outlast.serve("r1", is_over)
    assert outlast("explain", "r1").out.startswith("r1 completed ")
    assert outlast("explain", "r9").code == 3 and outlast("explain", "lease").code == 0
    assert "outlast explain" in outlast("explain", "--help").out


@pytest.mark.req("RUN-9")
def test_explain_names_the_holder(outlast: Terminal) -> None:
    log = outlast.folder / "calls"
    worker = outlast.worker(REFUND_SLOW="60", REFUND_LOG=str(log))
    outlast.start()
    while not log.exists():
        assert worker.poll() is None
    view = outlast("explain", "r1", "-o", "json").json
    assert "on w-" in view["sentence"] and view["facts"]["held by"].startswith("w-") and view["unblock"] == []

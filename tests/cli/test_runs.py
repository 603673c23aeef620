"""`outlast runs`: the waits of each run, and the actions of an operator."""

import json
import re
import signal
from datetime import UTC, datetime
from typing import Any

import pytest

from outlast.cli.global_options import CliSettings
from outlast.cli.run_page import event_text, rounds, way
from outlast.cli.screen import Screen
from outlast.core.rows.run_rows import Run, is_over
from outlast.models.runs import RunDetail, Visit
from outlast.store.sqlite.write_lock import WriteLock
from tests.cli.conftest import PATIENCE_S, Terminal, eventually, waits_for


def needs_a_person(row: Run) -> bool:
    return bool(row.attention)


# --- lists -----------------------------------------------------------------------------------------
def test_a_queued_run_without_a_worker_is_reported(outlast: Terminal) -> None:
    outlast.start()
    answer = outlast("runs", "ls")
    assert outlast_columns(answer.out) == ["RUN", "WORKFLOW", "STATUS", "WAITING FOR", "SINCE", "LEFT"]
    assert "r1 refund QUEUED no worker serves refund@1" in answer.row("r1")
    assert "1 run" in answer.err and "no worker serves refund@1 (1) → outlast worker MODULE" in answer.err


def outlast_columns(out: str) -> list[str]:
    return [part.strip() for part in out.splitlines()[0].split("  ") if part.strip()]


def test_a_run_that_waits_for_a_person(outlast: Terminal) -> None:
    outlast.start()
    approval = outlast.approval()
    answer = outlast("runs", "ls")
    assert f"r1 refund PENDING_APPROVAL approval {approval} by finance" in answer.row("r1")
    assert answer.row("r1").endswith("96h → attention")
    assert "1 approval → outlast approvals ls" in answer.err


@pytest.mark.req("OBS-4")
def test_the_history_as_steps(outlast: Terminal) -> None:
    outlast.start()
    assert " start started 1 " in " ".join(outlast("runs", "steps", "r1").out.split())
    approval = outlast.approval()
    none = outlast("runs", "steps", "r1", "--kind", "model_decision")
    assert (none.code, none.out) == (0, "r1 has no step of kind model_decision yet → outlast runs show r1\n")
    listed = outlast("runs", "steps", "r1")
    (row,) = [" ".join(line.split()) for line in listed.out.splitlines() if "approval_request" in line]
    assert re.search(f" approval_request pending \\d .* · by finance {approval}/request$", row), row
    assert "--step STEP" in listed.err
    (step,) = outlast("runs", "steps", "r1", "--kind", "approval_request", "-o", "json").json["steps"]
    assert (step["id"], step["status"], step["approval"]) == (f"{approval}/request", "pending", approval)
    shown = outlast("runs", "steps", "r1", "--step", step["id"])
    assert f"{approval}/request  approval_request  pending" in shown.out and '"cents":4200' in shown.out
    first = outlast("runs", "steps", "r1", "--limit", "1", "-o", "json").json
    assert len(first["steps"]) == 1 and bool(first["cursor"]) == (len(listed.out.splitlines()) > 2)
    assert outlast("runs", "steps", "r1", "--kind", "thought").code == 2
    unknown = outlast("runs", "steps", "r1", "--step", "none")
    assert unknown.code == 3 and "run r1 has no step none" in unknown.err
    assert "no run r9" in outlast("runs", "steps", "r9").err


def test_filters(outlast: Terminal) -> None:
    outlast.start(run="asks")
    outlast.start(run="fails", cents=-1)
    outlast.start(run="raises", order_id="x")
    outlast.serve("asks", waits_for("approval"))
    outlast.serve("fails", is_over)

    def found(*options: str) -> list[str]:
        return sorted(run["run"] for run in outlast("runs", "ls", "-o", "json", *options).json["runs"])

    assert found("--status", "failed") == ["fails"]
    assert found("--waiting-for", "approval", "--workflow", "refund") == ["asks", "raises"]
    assert found("--workflow", "loan") == []
    assert found("--attention") == []
    assert outlast("runs", "ls", "--status", "lost").code == 2


def test_pages(outlast: Terminal) -> None:
    for n in range(5):
        outlast.start(run=f"r{n}")
    seen: list[str] = []
    cursor = ""
    for size in (2, 2, 1):
        page = outlast("runs", "ls", "-o", "json", "--limit", "2", "--waiting-for", "worker", "--cursor", cursor).json
        assert len(page["runs"]) == size
        seen += [run["run"] for run in page["runs"]]
        cursor = page["cursor"]
    assert sorted(seen) == [f"r{n}" for n in range(5)] and cursor == ""
    first = outlast("runs", "ls", "--limit", "2")
    assert "2 runs" in first.err and "further runs → the same with --cursor " in first.err
    assert outlast("runs", "ls", "--cursor", "nonsense").code == 2


def test_one_object_or_one_a_line(outlast: Terminal) -> None:
    outlast.start(run="r1")
    outlast.start(run="r2")
    whole = outlast("runs", "ls", "-o", "json").json
    lines = [json.loads(line) for line in outlast("runs", "ls", "-o", "ndjson").out.splitlines()]
    assert lines == whole["runs"] and len(lines) == 2


def test_exact_instants(outlast: Terminal) -> None:
    outlast.start()
    created = outlast.see()["created_at"]
    assert created in outlast("runs", "ls", "--utc").out and created in outlast("--utc", "runs", "show", "r1").out


def test_nothing_is_cut_in_a_narrow_terminal(outlast: Terminal) -> None:
    name = "a-run-with-a-name-of-sixty-letters-that-no-user-would-ever-type"
    outlast.start(run=name)
    answer = outlast("runs", "ls", env={"COLUMNS": "40"})
    assert name in answer.out and "no worker serves refund@1" in answer.out


# --- one run ---------------------------------------------------------------------------------------
def test_the_page_of_a_run_that_waits(outlast: Terminal) -> None:
    outlast.start()
    approval = outlast.approval()
    page = outlast("runs", "show", "r1").out
    assert "r1  refund v1  PENDING_APPROVAL" in page
    assert "✓ check" in page and "⏸ review" in page and "of 96h" in page
    assert f"approval {approval} «Refund 4200 cents of A-17» by finance · 96h left, then REQUIRES_ATTENTION" in page
    assert f"→ outlast approvals show {approval}" in page
    assert "effects      1 executed · 0 uncertain → outlast runs effects r1" in page


def test_all_data_of_a_run_as_json(outlast: Terminal) -> None:
    outlast.start()
    approval = outlast.approval()
    view = outlast.see()
    assert (view["status"], view["shown"], view["node"]) == ("waiting", "PENDING_APPROVAL", "review")
    assert [visit["node"] for visit in view["visits"]] == ["check", "review"]
    assert view["waiting_for"][0]["kind"] == "approval" and view["waiting_for"][0]["what"].startswith(approval)
    assert view["requested_by"].startswith("local:") and view["takeovers"] == []


@pytest.mark.req("APP-2")
def test_a_cancelled_run_is_undone_and_names_the_effects_that_stand(outlast: Terminal) -> None:
    outlast.start(order_id="wait-1")
    outlast("approvals", "approve", outlast.approval(), "--reason", "fine")
    outlast.serve("r1", waits_for("signal"))
    answer = outlast("runs", "cancel", "r1", "--reason", "customer kept it", stdin="y\n")
    assert answer.code == 0 and "will be undone: issue_refund refund/wait-1" in answer.err
    assert "will remain: open_case check/wait-1: " in answer.err
    outlast.serve("r1", is_over)
    page = outlast("runs", "show", "r1").out
    assert "not undone   open_case check/wait-1: " in page and "1 undone" in page
    assert "customer kept it" in page
    (stands,) = outlast.see()["not_undone"]
    assert stands.startswith("open_case check/wait-1: ")
    rows = [line.split()[:3] for line in outlast("runs", "effects", "r1").out.splitlines()]
    assert ["issue_refund", "refund/wait-1", "undone"] in rows
    assert ["issue_refund", "undo/refund/wait-1", "executed"] in rows


def test_an_exception_is_shown_with_user_frames_and_continued(
    outlast: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFUND_FAULT", "1")
    outlast.start()
    outlast("approvals", "approve", outlast.approval(), "--reason", "fine")
    outlast.serve("r1", needs_a_person)
    assert "r1 refund REQUIRES_ATTENTION you: exception" in outlast("runs", "ls", "--attention").row("r1")
    page = outlast("runs", "show", "r1").out
    assert "RuntimeError: the printer is on fire" in page and "refunds.py" in page
    assert "engine/node_execution.py" not in page
    assert "choices: continue, fail, cancel · ignored: stays as it is" in page
    assert "→ outlast runs continue r1 --reason …" in page
    monkeypatch.delenv("REFUND_FAULT")
    answer = outlast("runs", "continue", "r1", "--reason", "the fire is out")
    assert answer.code == 0 and "r1 goes on" in answer.out
    outlast.serve("r1", is_over)
    assert outlast.see()["shown"] == "COMPLETED"


def test_continue_needs_a_run_with_that_choice(outlast: Terminal) -> None:
    outlast.start()
    answer = outlast("runs", "continue", "r1")
    assert answer.code == 4 and "needs no attention" in answer.err


def test_history(outlast: Terminal) -> None:
    outlast.start()
    outlast.approval()
    events = outlast("runs", "events", "r1", "-o", "json").json["events"]
    assert [event["sequence"] for event in events] == [f"{n:010d}" for n in range(1, len(events) + 1)]
    assert events[0]["type"] == "dev.outlast.workflow.started" and events[0]["specversion"] == "1.0"
    table = outlast("runs", "events", "r1", "--after", "1")
    assert "claimed" in table.out and "started" not in table.out


def test_the_history_for_people_has_no_python_and_no_numbers_for_instants(outlast: Terminal) -> None:
    outlast.start()
    approval = outlast.approval()
    until = outlast.see()["waiting_for"][0]["until"]
    table = outlast("runs", "events", "r1")
    assert "worker=w-" in table.row("2") and "completed=check next=review" in table.out
    parked = table.row("4")
    assert f'waiting_for=[{{"kind":"approval","what":"{approval} «Refund' in parked and f'"until":"{until}"' in parked
    assert "'" not in table.out


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"version": 2, "epoch": 1, "node": "a", "visit": 1, "reason": "", "not_undone": [], "outcome": None}, ""),
        ({"by": "local:ana", "lane": "refund@1"}, "by=local:ana lane=refund@1"),
        ({"reason": "customer kept it"}, 'reason="customer kept it"'),
        ({"data": {"since": 2019, "count": 0}}, 'data={"since":2019,"count":0}'),
        ({"waiting_for": [{"kind": "timer", "what": "night", "who": "", "since": 0, "until": 1_500}]},
         'waiting_for=[{"kind":"timer","what":"night","until":"1970-01-01T00:00:01.500Z"}]'),
        ({"detail": "x" * 300}, f"detail={'x' * 193} … → -o json"),
    ],
)  # fmt: skip
def test_event_data_in_one_line(data: dict[str, Any], text: str) -> None:
    assert event_text(data) == text


def test_no_effects_yet(outlast: Terminal) -> None:
    outlast.start()
    assert "r1 has no effect yet" in outlast("runs", "effects", "r1").out


@pytest.mark.parametrize(
    "command",
    [
        ["runs", "show", "r9"], ["runs", "effects", "r9"], ["runs", "events", "r9"], ["runs", "continue", "r9"],
        ["runs", "cancel", "r9", "--reason", "x", "--yes"], ["signal", "r9", "paid"], ["approvals", "show", "ap_9"],
        ["approvals", "approve", "ap_9", "--reason", "x"], ["approvals", "reject", "ap_9", "--reason", "x"],
        ["effects", "resolve", "r9", "k", "--did-not-happen"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_missing_object_exits_with_3(outlast: Terminal, command: list[str]) -> None:
    outlast.start()
    answer = outlast(*command)
    assert answer.code == 3 and "→" in answer.err and "Traceback" not in answer.err


@pytest.mark.req("RUN-5")
def test_another_tenant_sees_and_moves_nothing(outlast: Terminal) -> None:
    outlast.start()
    approval = outlast.approval()
    for command in (
        ["runs", "show", "r1"], ["runs", "cancel", "r1", "--reason", "x", "--yes"], ["signal", "r1", "paid"],
        ["approvals", "approve", approval, "--reason", "x"],
    ):  # fmt: skip
        assert outlast(*command, "--tenant", "other").code == 3
    assert outlast("runs", "ls", "--tenant", "other", "-o", "json").json["runs"] == []
    assert outlast.see()["shown"] == "PENDING_APPROVAL"


# --- cancel ----------------------------------------------------------------------------------------
def test_a_requested_cancel_is_shown_until_a_worker_takes_it(outlast: Terminal) -> None:
    outlast.start()
    assert outlast.see()["asked"] == [] and "cancel" not in outlast("runs", "show", "r1").out
    outlast("runs", "cancel", "r1", "--reason", "customer kept it", "--yes")
    (asked,) = outlast.see()["asked"]
    assert (asked["verb"], asked["reason"]) == ("cancel", "customer kept it") and asked["by"].startswith("local:")
    page = outlast("runs", "show", "r1").out
    assert f"cancel asked by {asked['by']} " in page and " ago: customer kept it; ends once a worker takes it" in page
    assert "r1 refund QUEUED no worker serves refund@1 · cancel asked" in outlast("runs", "ls").row("r1")
    assert outlast("runs", "ls", "-o", "json").json["runs"][0]["asked"] == [asked]
    outlast.serve("r1", is_over)
    assert outlast.see()["asked"] == [] and "cancel asked" not in outlast("runs", "ls").out


def test_a_requested_continue_is_shown_until_a_worker_takes_it(
    outlast: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFUND_FAULT", "1")
    outlast.start()
    outlast("approvals", "approve", outlast.approval(), "--reason", "fine")
    outlast.serve("r1", needs_a_person)
    assert outlast.see()["asked"] == []
    outlast("runs", "continue", "r1", "--reason", "the fire is out")
    page = outlast("runs", "show", "r1").out
    assert "continue asked by local:" in page and ": the fire is out; continues once a worker takes it" in page
    assert outlast("runs", "ls").row("r1").count("continue asked") == 1
    seen = outlast.see()["version"]
    outlast.serve("r1", lambda row: bool(row.attention) and not row.owner and row.version > seen)
    assert outlast.see()["asked"] == []  # a worker took it, and the run failed again


def test_a_running_run_names_its_worker(outlast: Terminal) -> None:
    outlast.worker(REFUND_SLOW="60")
    outlast.start()
    worker = eventually(lambda: outlast.see()["owner"])
    page = outlast("runs", "show", "r1").out
    assert f"held by      {worker} since " in page and "waiting for" not in page
    outlast("runs", "cancel", "r1", "--reason", "too late", "--yes")
    assert f": too late; {worker} stops before its next call" in outlast("runs", "show", "r1").out
    assert outlast("runs", "ls").row("r1").count("cancel asked") == 1


def test_cancel_asks(outlast: Terminal) -> None:
    outlast.start()
    assert "not cancelled" in outlast("runs", "cancel", "r1", "--reason", "x", stdin="n\n").out
    nobody = outlast("runs", "cancel", "r1", "--reason", "x", stdin="")
    assert nobody.code == 2 and "--yes" in nobody.err
    assert outlast("runs", "cancel", "r1", "--reason", " ", "--yes").code == 2
    outlast.serve("r1", waits_for("approval"))  # it had not been cancelled
    assert outlast("runs", "cancel", "r1", "--reason", "no longer", "--yes").code == 0
    outlast.serve("r1", is_over)
    assert outlast.see()["reason"].startswith("cancelled by local:")


def test_a_run_that_has_ended_takes_nothing_more(outlast: Terminal) -> None:
    outlast.start(cents=-1)
    outlast.serve("r1", is_over)
    for command in (
        ["runs", "cancel", "r1", "--reason", "x", "--yes"], ["signal", "r1", "paid"], ["runs", "continue", "r1"],
    ):  # fmt: skip
        answer = outlast(*command)
        assert answer.code == 4 and "run r1 has ended" in answer.err and "message" not in answer.err


# --- signals ---------------------------------------------------------------------------------------
def test_a_signal_arrives_once(outlast: Terminal) -> None:
    outlast.start(order_id="wait-1")
    outlast("approvals", "approve", outlast.approval(), "--reason", "fine")
    first = outlast("signal", "r1", "paid", "--data", '{"by": "Ana"}', "--id", "s1")
    again = outlast("signal", "r1", "paid", "--data", '{"by": "Bo"}', "--id", "s1")
    assert first.code == again.code == 0
    assert "paid sent to r1" in first.out and "nothing changes" in again.out
    outlast.serve("r1", is_over)
    assert outlast.see()["outcome"]["told"] == "Ana"


def test_a_signal_of_an_unexpected_name_gives_advice(outlast: Terminal) -> None:
    outlast.start(order_id="wait-1")
    outlast.serve("r1", waits_for("approval"))
    outlast("approvals", "approve", outlast.approval(), "--reason", "fine")
    assert "waits for the signal" not in outlast("signal", "r1", "early").err
    outlast.serve("r1", waits_for("signal"))
    answer = outlast("signal", "r1", "payd")
    assert answer.code == 0 and "r1 waits for the signal paid; payd is kept until the run waits for it" in answer.err
    assert "waits for the signal" not in outlast("signal", "r1", "paid").err


@pytest.mark.parametrize(
    ("data", "said"),
    [("{", "not JSON"), ("@nowhere.json", "cannot be read"), ("[1]", "not a JSON object"), ("-", "not JSON")],
)
def test_a_signal_of_bad_json(outlast: Terminal, data: str, said: str) -> None:
    outlast.start()
    answer = outlast("signal", "r1", "paid", "--data", data, stdin="nonsense")
    assert answer.code == 2 and said in answer.err


def test_a_signal_from_a_file_and_from_stdin(outlast: Terminal) -> None:
    outlast.start()
    (outlast.folder / "paid.json").write_text('{"by": "Ana"}')
    assert outlast("signal", "r1", "paid", "--data", "@paid.json").code == 0
    assert outlast("signal", "r1", "paid", "--data", "-", stdin='{"by": "Bo"}').code == 0
    assert "no worker serves refund@1" in outlast("signal", "r1", "paid").err


# --- what a terminal would act on ---------------------------------------------------------------------
def test_stored_text_does_nothing_to_a_terminal(outlast: Terminal) -> None:
    evil = "\x1b[2J\x9b31m[red]x[/red]\u202e\nr2 COMPLETED"
    outlast.start()
    outlast("approvals", "reject", outlast.approval(), "--reason", evil)
    outlast.serve("r1", is_over)
    for command in (["runs", "show", "r1"], ["runs", "events", "r1"], ["approvals", "ls", "--all"], ["runs", "ls"]):
        for form in ("table", "json", "ndjson"):
            out = outlast(*command, "-o", form).out
            assert not {"\x1b", "\x9b", "\u202e"} & set(out)
            assert "\nr2 COMPLETED" not in out
    assert "\\x1b[2J\\x9b31m[red]x[/red]\\u202e\\x0ar2 COMPLETED" in outlast("runs", "show", "r1").out
    assert outlast.see()["reason"] == evil  # programs get the text itself


def test_ctrl_c_ends_a_command_that_waits_for_its_turn_to_write(outlast: Terminal) -> None:
    outlast.start()
    turn = WriteLock(outlast.folder / "refunds.db")
    with turn:
        process = outlast.spawn("pause", "activity", "issue_refund", "--reason", "audit")
        assert process.stderr is not None and "waiting to write to" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_S)
    turn.close()
    assert process.returncode == 130 and "Stopped. Acknowledged changes are safe" in err and "Traceback" not in err


LOOP = """
from typing import Literal

from pydantic import BaseModel

from outlast import Context, Workflow


class Poll(BaseModel):
    times: int
    n: int = 0


polls = Workflow("poll", state=Poll)


@polls.node(start=True, max_visits=100)
async def poll(ctx: Context[Poll]) -> Literal["poll", "think"]:
    ctx.state.n += 1
    return "poll" if ctx.state.n < ctx.state.times else "think"


@polls.node(max_visits=100)
async def think(ctx: Context[Poll]) -> Literal["act"]:
    return "act"


@polls.node
async def act(ctx: Context[Poll]) -> Literal["think", "done"]:
    ctx.state.n -= 1
    return "think" if ctx.state.n else "done"


@polls.node
async def done(ctx: Context[Poll]) -> None:
    pass
"""


@pytest.mark.req("RUN-2")
def test_a_loop_is_shown_as_one_part(outlast: Terminal) -> None:
    """`runs show` printed each of 200 visits."""
    (outlast.folder / "loops.py").write_text(LOOP)
    outlast.module = str(outlast.folder / "loops.py")
    assert outlast("-q", "run", "poll", "times=40", "--id", "r1").code == 0
    outlast.serve("r1", is_over)
    line = outlast("runs", "show", "r1").out.splitlines()[1]
    assert re.fullmatch(r"  ✓ poll ×40 \S+ · ✓ \(think · act\) ×40 \S+ · ✓ done \S+", line), line
    assert len(outlast.see()["visits"]) == 121, "for programs it is all of them"


@pytest.mark.parametrize(
    ("nodes", "found"),
    [
        ("", []),
        ("a", [(0, 1, 1)]),
        ("aab", [(0, 1, 1), (1, 1, 1), (2, 1, 1)]),
        ("aaaaab", [(0, 1, 5), (5, 1, 1)]),
        ("xabababa", [(0, 1, 1), (1, 2, 3), (7, 1, 1)]),
        ("aabaabaab", [(0, 3, 3)]),
    ],
)
def test_rounds_of_nodes_are_found(nodes: str, found: list[tuple[int, int, int]]) -> None:
    assert list(rounds(nodes)) == found


def test_of_a_way_without_rounds_the_end_is_shown() -> None:
    at = datetime(2026, 3, 2, 9, tzinfo=UTC)
    visits = [Visit(node=f"n{n}", visit=n, entered_at=at, left_at=at) for n in range(1, 31)]
    run = RunDetail.model_construct(run="r1", visits=visits, visit=30, status="completed")
    first, *rest = way(Screen(CliSettings()), run)
    assert first == "… 10 visits before → outlast runs events r1" and len(rest) == 20 and rest[0].startswith("✓ n11 ")


@pytest.mark.req("RUN-7")
def test_the_whole_history_has_effects_and_decisions_in_order_of_time(outlast: Terminal) -> None:
    outlast.start()
    approval = outlast.approval()
    assert outlast("approvals", "approve", approval, "--reason", "fine").code == 0
    outlast.serve("r1", is_over)
    bare = outlast("runs", "events", "r1")
    assert " effect " not in bare.out and "approved" not in bare.out
    page = outlast("runs", "events", "r1", "--all").out
    order = [page.index(said) for said in (" started ", " asked ", " approved ", "effect=issue_refund", " completed ")]
    assert order == sorted(order), page
    assert f"approval={approval}" in page and "effect=issue_refund" in page and "reason=fine" in page
    entries = outlast("runs", "events", "r1", "--all", "-o", "json").json["events"]
    assert [e["time"] for e in entries] == sorted(e["time"] for e in entries)
    assert [e["n"] for e in entries if e["n"]] == [
        int(e["sequence"]) for e in outlast("runs", "events", "r1", "-o", "json").json["events"]
    ]
    late = outlast("runs", "events", "r1", "--all", "--after", "3", "-o", "json").json["events"]
    assert late == [e for e in entries if e["time"] >= late[0]["time"] and e["n"] not in (1, 2, 3)]

"""`outlast attention`, `runs extend` and another round: runs that need a person, and the answers."""

import asyncio
import json
import shlex
from datetime import timedelta

import pytest

from outlast.core import bulk_answers
from outlast.core.rows.run_rows import Run, is_over
from outlast.core.run_transition import rearmed
from outlast.runtime.stores import open_store
from tests.cli.conftest import Terminal

REASON = ("--reason", "it is mended")


def needs_a_person(row: Run) -> bool:
    return bool(row.attention)


def flagged(reason: str, row: Run) -> bool:
    return f'"reason":"{reason}"' in row.attention_text


def skip(outlast: Terminal, by: timedelta) -> None:
    """Let business time pass in the store."""

    async def go() -> None:
        store = await open_store(outlast.url)
        try:
            now = await store.now()
            mapping = store.mapping()
            ahead = now.business + int(by.total_seconds() * 1000)
            await store.set_mapping(mapping._replace(base_real=now.real, base_business=ahead), rearmed)
        finally:
            await store.close()

    asyncio.run(go())


@pytest.fixture
def raised(outlast: Terminal, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Three runs whose last node raised."""
    monkeypatch.setenv("REFUND_FAULT", "1")
    for run in ("r1", "r2", "r3"):
        outlast.start(order_id=f"o-{run}", run=run)
        outlast("approvals", "approve", outlast.approval(run), "--reason", "fine")
        outlast.serve(run, needs_a_person)
    monkeypatch.delenv("REFUND_FAULT")
    return outlast


# --- the board ---------------------------------------------------------------------------------------
def test_an_empty_board(outlast: Terminal) -> None:
    outlast.start()
    assert outlast("attention", "ls").out == "nothing needs a person → outlast runs ls\n"
    assert outlast("attention", "ls", "-o", "json").json == {"attention": [], "cursor": ""}
    assert "r1 needs no attention" in outlast("attention", "show", "r1").out
    assert outlast("attention", "show", "r9").code == 3


@pytest.mark.req("GATE-5")
def test_the_board_is_grouped_by_reason_with_commands_to_copy(raised: Terminal) -> None:
    board = raised("attention", "ls")
    assert "exception (3) · ignored: stays as it is" in board.out
    assert "RuntimeError: the printer is on fire" in board.row("r1")
    for choice in ("continue", "fail", "cancel"):
        assert f"→ outlast attention resolve --all exception {choice} --reason …" in board.out
    assert "3 runs need a person" in board.err
    views = [json.loads(line) for line in raised("attention", "ls", "-o", "ndjson").out.splitlines()]
    assert sorted(view["run"] for view in views) == ["r1", "r2", "r3"]
    assert views[0]["choices"][0]["command"].startswith("outlast attention resolve r")
    assert raised("attention", "ls", "--reason-name", "poisoned", "-o", "json").json["attention"] == []
    assert raised("attention", "ls", "--workflow", "loan", "-o", "json").json["attention"] == []


def test_one_run_in_full(raised: Terminal) -> None:
    page = raised("attention", "show", "r1").out
    assert page.startswith("r1 needs a person: node pay raised RuntimeError: the printer is on fire.")
    assert "refunds.py" in page and "engine/node_execution.py" not in page
    assert "ignored: stays as it is" in page
    assert "continue       → outlast attention resolve r1 continue --reason …" in page
    assert "outlast attention show r1" in raised("runs", "show", "r1").out


def test_the_command_of_the_board_is_the_answer(raised: Terminal) -> None:
    (view, *_) = raised("attention", "show", "r1", "-o", "json").json["attention"]
    command = next(each["command"] for each in view["choices"] if each["choice"] == "continue")
    words = shlex.split(command.replace("…", "mended"))[1:]
    answer = raised(*words)
    assert answer.code == 0 and "r1 exception: continue, says local:" in answer.out
    assert "continues with the answers of people (continue by local:" in raised("explain", "r1").out
    raised.serve("r1", is_over)
    assert raised.see()["shown"] == "COMPLETED"
    answered = [
        e for e in raised("runs", "events", "r1", "-o", "json").json["events"] if e["type"].endswith("answered")
    ]
    assert answered[0]["data"]["answers"][0]["text"] == "mended"


def test_an_item_is_assigned_and_listed_by_person(raised: Terminal) -> None:
    said = raised("attention", "assign", "r1", "ana", "--note", "she knows it").out
    assert said.startswith("r1 exception: assigned to ana by local:") and said.endswith(" ago: she knows it\n")
    listed = raised("attention", "ls").out
    assert "ASSIGNED" in listed and "ana" in listed
    assert "she knows it" in raised("attention", "show", "r1").out
    found = raised("-o", "json", "attention", "ls", "--assigned-to", "ana").json["attention"]
    assert [(each["run"], each["assigned_note"]) for each in found] == [("r1", "she knows it")]
    assert "r1" not in raised("attention", "ls", "--assigned-to", "none").out
    assert raised("attention", "ls", "--assigned-to", "me").out == "no item has --assigned-to me\n"
    assert raised("attention", "assign", "r1", "me").code == 0
    assert "r1" in raised("attention", "ls", "--assigned-to", "me").out
    assert raised("attention", "assign", "r1", "--unassign").out == "r1 exception: not assigned\n"
    assert "ASSIGNED" not in raised("attention", "ls").out


def test_fail_ends_it_as_failed_and_asks_first(raised: Terminal) -> None:
    command = ("attention", "resolve", "r1", "fail", "--reason", "no use")
    unasked = raised(*command, stdin="")
    assert unasked.code == 2 and "--yes" in unasked.err
    assert "not answered" in raised(*command, stdin="n\n").out
    assert raised(*command, stdin="y\n").code == 0
    raised.serve("r1", is_over)
    assert raised.see()["shown"] == "FAILED" and "no use" in raised.see()["reason"]


def test_wrong_answers(raised: Terminal) -> None:
    def code(*words: str) -> int:
        return raised("attention", "resolve", *words).code

    assert code("r1", "continue") == 2  # no --reason
    assert code("r1", "continue", "--reason", " ") == 2
    assert code("r1", "--reason", "x") == 2
    assert code("r1", "dance", "--reason", "x") == 2
    assert code("r1", "extend", "--reason", "x") == 4
    assert code("r1", "continue", "--by", "2h", "--reason", "x") == 2
    assert code("r1", "continue", "--workflow", "refund", "--reason", "x") == 2
    assert code("r1", "continue", "--reason-name", "poisoned", "--reason", "x") == 4
    assert code("r9", "continue", "--reason", "x") == 3
    assert code("--all", "exception", "ask_again", "--reason", "x", "--yes") == 4
    assert code("--all", "exception", "continue", "--key", "k", "--reason", "x", "--yes") == 2
    assert code("--all", "effect_uncertain", "happened", "--reason", "x", "--yes") == 4
    assert code("--all", "effect_uncertain", "did_not_happen", "--reason", "x", "--yes") == 4
    assert code("r1", "continue", "--wait", "--reason", "x") == 2
    offered = raised("attention", "resolve", "r1", "retry", "--reason", "x").err
    assert "exception does not offer retry" in offered and "it offers continue, fail, cancel" in offered


# --- many at once ------------------------------------------------------------------------------------
def test_one_answer_for_many_runs(raised: Terminal) -> None:
    command = ("attention", "resolve", "--all", "exception", "continue", "--reason", "the fire is out")
    assert "not answered" in raised(*command, stdin="n\n").out
    assert "Continue for 3 runs flagged exception?" in raised(*command, stdin="").err
    answer = raised(*command, "--yes", "-o", "json")
    assert answer.code == 0 and (answer.json["total"], answer.json["answered"], answer.json["status"]) == (
        3,
        0,
        "queued",
    )
    job = answer.json["run"]
    raised.serve(job, is_over)
    shown = raised("attention", "job", job, "--wait")
    assert shown.code == 0 and f"{job} completed · 3 of 3 runs are answered: continue, says local:" in shown.out
    for run in ("r1", "r2", "r3"):
        raised.serve(run, is_over)
        assert raised.see(run)["shown"] == "COMPLETED"
    again = raised(*command, "--yes")
    assert again.code == 0 and again.out == "no run is flagged exception\n"


def test_a_filter_selects_the_runs_of_a_job(raised: Terminal) -> None:
    def total(*words: str) -> int:
        answer = raised(
            "-o", "json", "attention", "resolve", "--all", "exception", "continue", *words, *REASON, "--yes"
        )
        return int(answer.json["total"])

    assert [total(*words) for words in (("--contains", "cold"), ("--node", "look"), ("--version", "2"))] == [0, 0, 0]
    assert total("--contains", "ON FIRE", "--node", "pay", "--version", "1", "--workflow", "refund") == 3


def test_all_runs_of_a_query_are_cancelled(raised: Terminal) -> None:
    def code(*words: str) -> int:
        return raised("runs", "cancel", *words, *REASON).code

    assert [code(), code("r1", "--all", "is:flagged"), code("r1", "--wait"), code("r1", "--confirm", "3")] == [2] * 4
    assert (
        "Cancel for 3 runs found by workflow:refund unfinished?"
        in raised("runs", "cancel", "--all", "workflow:refund", *REASON, stdin="").err
    )
    answer = raised("-o", "json", "runs", "cancel", "--all", "workflow:refund", *REASON, "--yes")
    assert answer.code == 0 and (answer.json["total"], answer.json["query"]) == (3, "workflow:refund")
    raised.serve(answer.json["run"], is_over)
    for run in ("r1", "r2", "r3"):
        raised.serve(run, is_over)
        assert raised.see(run)["shown"] == "CANCELLED"
    assert raised("runs", "cancel", "--all", "workflow:refund", *REASON).out == (
        "no run found by workflow:refund is unfinished\n"
    )


def test_a_number_that_has_changed_is_refused(raised: Terminal) -> None:
    command = ("attention", "resolve", "--all", "exception", "cancel", *REASON, "--yes")
    refused = raised(*command, "--confirm", "2")
    assert refused.code == 4 and "3 runs would get this answer, and 2 were confirmed" in refused.err
    assert raised(*command, "--confirm", "3").code == 0


def test_many_runs_are_ended_only_if_their_number_is_typed(raised: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_answers, "CONFIRM_ABOVE", 2)
    command = ("attention", "resolve", "--all", "exception", "cancel", *REASON)
    refused = raised(*command, "--yes")
    assert refused.code == 4 and "give it: confirm=3" in refused.err
    unasked = raised(*command, stdin="")
    assert unasked.code == 2 and "--yes --confirm 3" in unasked.err
    assert "not answered" in raised(*command, stdin="y\n").out
    assert raised(*command, stdin="3\n").code == 0


def test_a_job_counts_the_runs_that_have_moved_on(raised: Terminal) -> None:
    answer = raised("attention", "resolve", "--all", "exception", "continue", *REASON, "--yes")
    assert answer.code == 0 and "gives 3 runs the answer continue, says local:" in answer.out
    job = answer.out.split()[1]
    assert "0 of 3 runs are answered" in raised("attention", "job", job).out
    assert f"outlast runs cancel {job}" in raised("attention", "job", job).err
    assert raised("pause", "workflow", "outlast.bulk", *REASON).code == 0
    assert raised("attention", "resolve", "r2", "continue", *REASON).code == 0
    raised.serve("r2", is_over)
    assert raised("resume", "workflow", "outlast.bulk").code == 0
    raised.serve(job, is_over)
    shown = raised("attention", "job", job, "--wait")
    assert shown.code == 0 and "2 of 3 runs are answered" in shown.out
    assert "  1 no longer fitted when their turn came" in shown.out
    assert "now 0 runs are flagged exception" in shown.err
    assert raised("attention", "job", "r2").code == 3


def test_many_uncertain_effects_are_given_up_at_once(outlast: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFUND_DOUBT", "1")
    for run in ("r1", "r2"):
        outlast.start(order_id=f"o-{run}", run=run)
        outlast("approvals", "approve", outlast.approval(run), "--reason", "fine")
        outlast.serve(run, needs_a_person)
    page = outlast("attention", "show", "r1").out
    assert "happened       → outlast effects resolve r1 refund/o-r1 --happened ID" in page
    assert outlast("attention", "resolve", "r1", "happened", "--reason", "x").code == 4
    answer = outlast("-o", "json", "attention", "resolve", "--all", "effect_uncertain", "give_up", *REASON, "--yes")
    assert answer.code == 0 and answer.json["total"] == 2
    outlast.serve(answer.json["run"], is_over)
    for run in ("r1", "r2"):
        assert "given up, outcome unknown (stated by local:" in outlast("runs", "effects", run).row("issue_refund")


# --- what time brings --------------------------------------------------------------------------------
@pytest.mark.req("GATE-3")
def test_an_expired_approval_is_asked_again(outlast: Terminal) -> None:
    outlast.start()
    first = outlast.approval()
    skip(outlast, timedelta(hours=97))
    outlast.serve("r1", needs_a_person)
    page = outlast("attention", "show", "r1").out
    assert f"r1 needs a person: {first} «Refund 4200 cents of A-17» was not decided in time by finance" in page
    assert "ask_again      → outlast attention resolve r1 ask_again --reason …" in page
    assert "ignored: cancelled after 7 days, in " in page
    late = outlast("approvals", "approve", first, "--reason", "late")
    assert late.code == 4
    assert outlast("attention", "resolve", "r1", "ask-again", "--reason", "she is back").code == 0
    second = outlast.approval()
    assert second != first
    assert outlast("approvals", "approve", second, "--reason", "fine").code == 0
    outlast.serve("r1", is_over)
    assert outlast.see()["shown"] == "COMPLETED"


@pytest.mark.req("GATE-4")
def test_a_ceiling_that_passed_is_extended(outlast: Terminal) -> None:
    outlast.start()
    outlast.approval()
    early = outlast("runs", "extend", "r1", "--reason", "x")
    assert early.code == 4 and "not flagged total_timeout" in early.err
    skip(outlast, timedelta(hours=170))
    outlast.serve("r1", lambda row: flagged("total_timeout", row) and flagged("approval_timeout", row))
    page = outlast("attention", "show", "r1").out
    assert "total_timeout (refund_total_timeout), since" in page
    command = "outlast attention resolve r1 extend --reason-name total_timeout --by 168h --reason …"
    assert f"extend         → {command}" in page
    assert "total_timeout (refund_total_timeout)" in outlast("runs", "show", "r1").out
    both = outlast("attention", "resolve", "r1", "cancel", "--reason", "x", "--yes")
    assert both.code == 2 and "several open reasons" in both.err
    answer = outlast("runs", "extend", "r1", "--by", "48h", "--reason", "the supplier is slow")
    assert answer.code == 0 and "r1 has 48h more, says local:" in answer.out
    outlast.serve("r1", lambda row: not flagged("total_timeout", row))
    assert [each["reason"] for each in outlast.see()["attention"]] == ["approval_timeout"]
    assert outlast("attention", "resolve", "r1", "cancel", "--reason", "enough", "--yes").code == 0
    outlast.serve("r1", is_over)
    assert outlast.see()["shown"] == "CANCELLED"


def test_another_round_needs_an_offer_of_the_workflow(outlast: Terminal) -> None:
    outlast.start()
    approval = outlast.approval()
    answer = outlast("approvals", "reject", approval, "--again", "--reason", "dearer than last year")
    assert answer.code == 4 and "does not offer another round" in answer.err
    assert "--again" not in outlast("approvals", "show", approval).err
    assert outlast("approvals", "show", approval, "-o", "json").json["another_round"] is False


@pytest.mark.req("OBS-5")
def test_runs_of_one_cause_are_one_row(raised: Terminal) -> None:
    listed = raised("causes", "ls", "-o", "json").json["causes"]
    (cause,) = listed
    assert (cause["runs"], cause["reason"], sum(cause["bars"])) == (3, "exception", 3)
    runs = raised("attention", "ls", "--cause", cause["cause"], "-o", "json").json["attention"]
    assert {item["run"] for item in runs} == {"r1", "r2", "r3"}
    assert raised("attention", "ls", "--cause", "0" * 12, "-o", "json").json["attention"] == []
    assert cause["text"] in raised("causes", "ls").out
    shown = raised("causes", "show", cause["cause"]).out
    assert "of the 3 newest runs:" in shown and "Traceback" in shown and "order_id" in shown
    assert raised("causes", "ls", "--workflow", "other").out == "no run needs a person\n"
    assert raised("causes", "show", "0" * 12).code == 3

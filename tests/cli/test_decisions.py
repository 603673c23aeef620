"""`outlast approvals` and `outlast effects resolve`: decisions, the roles they need, and each only once."""

import json
from datetime import UTC, datetime

import pytest

from outlast.cli.global_options import CliSettings
from outlast.cli.run_page import uncertain_lines
from outlast.cli.screen import Screen
from outlast.core.rows.run_rows import Run, is_over
from outlast.models.effects import EffectRecord, LateEvidence
from tests.cli.conftest import MODULE, Terminal, eventually
from tests.cli.test_remote import Far, serve


def needs_a_person(row: Run) -> bool:
    return bool(row.attention)


# --- approvals ---------------------------------------------------------------------------------------
def test_the_list_names_each_call_and_its_approvers(outlast: Terminal) -> None:
    outlast.start()
    approval = outlast.approval()
    answer = outlast("approvals", "ls")
    assert f"{approval} Refund 4200 cents of A-17 r1 finance" in answer.row(approval)
    assert answer.row(approval).endswith("ago 96h")


@pytest.mark.parametrize("place", ["store", "service"])
def test_the_list_has_the_approvals_of_one_status(outlast: Terminal, place: str) -> None:
    outlast.start(run="r1")
    rejected = outlast.approval()
    outlast.start(order_id="A-18", run="r2")
    pending = outlast.approval("r2")
    assert outlast("approvals", "reject", rejected, "--reason", "dear").code == 0
    ask = Far(outlast, serve(outlast)) if place == "service" else outlast
    found = {
        status: [
            each["approval"] for each in ask("approvals", "ls", "--status", status, "-o", "json").json["approvals"]
        ]
        for status in ("pending", "rejected", "approved")
    }
    assert found == {"pending": [pending], "rejected": [rejected], "approved": []}
    shown = ask("approvals", "ls", "--status", "rejected")
    assert " STATUS " in shown.out and " rejected local:" in shown.row(rejected)
    assert ask("approvals", "ls", "--status", "approved").out == "no approval matches\n"
    assert ask("approvals", "ls", "--status", "approved", "--all").code == 2
    assert ask("approvals", "ls", "--status", "dreaming").code == 2


@pytest.mark.req("GATE-9")
def test_the_exact_call_is_shown_before_approval(outlast: Terminal) -> None:
    outlast.start()
    approval = outlast.approval()
    page = outlast("approvals", "show", approval)
    view = outlast("approvals", "show", approval, "-o", "json").json
    plan, other = view["plans"]
    assert plan["arguments"] == {"order_id": "A-17", "cents": 4200} and other["arguments"]["cents"] == 2100
    for text in (
        '"cents": 4200',
        '"order_id": "A-17"',
        "issue_refund",
        "key refund/A-17",
        plan["digest"],
        other["digest"],
    ):
        assert text in page.out
    assert "finance (local:" in page.out and "may)" in page.out
    assert "96h, then REQUIRES_ATTENTION; nothing is approved by waiting" in page.out
    assert "--alternative 1" in page.out and f"outlast approvals approve {approval}" in page.err


@pytest.mark.req("GATE-2")
def test_without_the_role_nothing_is_decided(outlast: Terminal) -> None:
    outlast.start()
    approval = outlast.approval()
    for verb in ("approve", "reject"):
        answer = outlast("--role", "sales", "--role", "lead", "approvals", verb, approval, "--reason", "x")
        assert answer.code == 6
        assert f"may not decide {approval}" in answer.err and "requires the role finance" in answer.err
    shown = outlast("approvals", "show", approval, "--role", "sales")
    assert "may not)" in shown.out and "approve" not in shown.err, "no advice for a forbidden action"
    assert "--role" not in answer.err, "a service has no such option"
    assert outlast("approvals", "show", approval, "-o", "json").json["status"] == "pending"


@pytest.mark.req("GATE-2")
def test_mine_lists_the_approvals_that_the_caller_may_decide(outlast: Terminal) -> None:
    outlast.start()
    approval = outlast.approval()
    assert approval in outlast("approvals", "ls", "--mine", "--role", "finance").out
    assert outlast("approvals", "ls", "--mine", "--role", "sales").out == "no approval matches\n"
    assert outlast("approvals", "ls", "--overdue").out == "no approval matches\n"


@pytest.mark.req("GATE-2")
def test_with_the_role_it_is_decided_and_recorded(outlast: Terminal) -> None:
    outlast.start()
    approval = outlast.approval()
    assert outlast("approvals", "approve", approval, "--reason", "fine", "--role", "finance").code == 0
    view = outlast("approvals", "show", approval, "-o", "json").json
    assert view["status"] == "approved" and view["roles"] == ["finance"] and view["reason"] == "fine"
    assert view["decided_by"].startswith("local:")
    assert "approved by local:" in outlast("approvals", "show", approval).out


@pytest.mark.req("GATE-9")
def test_it_is_decided_once(outlast: Terminal) -> None:
    outlast.start()
    approval = outlast.approval()
    first = outlast("approvals", "approve", approval, "--reason", "fine")
    assert first.code == 0 and "r1 has not continued yet" in first.out and "no worker serves refund@1" in first.err
    for verb in ("approve", "reject"):
        again = outlast("approvals", verb, approval, "--reason", "late")
        assert again.code == 4 and "approved it: fine" in again.err


def test_an_approved_alternative_is_executed(outlast: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFUND_LOG", str(outlast.folder / "calls"))
    outlast.start()
    approval = outlast.approval()
    missing = outlast("approvals", "approve", approval, "--reason", "x", "--alternative", "7")
    assert missing.code == 3 and "no alternative 7" in missing.err
    assert outlast("approvals", "approve", approval, "--reason", "half", "--alternative", "1").code == 0
    outlast.serve("r1", is_over)
    assert (outlast.folder / "calls").read_text().splitlines() == ["open A-17", "refund A-17 2100"]
    assert [p["chosen"] for p in outlast("approvals", "show", approval, "-o", "json").json["plans"]] == [False, True]
    assert "← chosen" in outlast("approvals", "show", approval).out
    assert approval in outlast("runs", "effects", "r1").row("issue_refund")


@pytest.mark.req("GATE-8")
def test_lists_show_the_call_that_was_approved_instead(outlast: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """They showed the amount that was asked for, beside the name of the person who had approved another one."""
    monkeypatch.setenv("REFUND_LOG", str(outlast.folder / "calls"))
    outlast.start()
    approval = outlast.approval()
    assert outlast("approvals", "approve", approval, "--reason", "half", "--alternative", "1").code == 0
    outlast.serve("r1", is_over)
    made = 'issue_refund {"cents":2100,"order_id":"A-17"} (alternative 1)'
    row = outlast("approvals", "ls", "--all").row(approval)
    assert "2100" in row and "alternative 1" in row and "4200" not in row
    steps = outlast("runs", "steps", "r1", "-o", "json").json["steps"]
    (answer,) = [step for step in steps if step["kind"] == "approval_response"]
    assert answer["what"] == made
    assert json.loads(answer["input"]["text"])["requested"]["arguments"]["cents"] == 4200, "both in the detail"
    events = outlast("runs", "events", "r1", "--all").out
    assert "2100" in next(line for line in events.splitlines() if " approved " in f" {line} " and "half" in line)
    shown = outlast("approvals", "show", approval).out
    assert "requested; another call was approved" in shown and "exactly this call" not in shown


def test_rejected_means_not_done(outlast: Terminal) -> None:
    outlast.start()
    approval = outlast.approval()
    assert "rejected by local:" in outlast("approvals", "reject", approval, "--reason", "too much").out
    outlast.serve("r1", is_over)
    view = outlast.see()
    assert (view["shown"], view["reason"]) == ("CANCELLED", "too much")
    assert [e["effect"] for e in outlast("runs", "effects", "r1", "-o", "json").json["effects"]] == ["open_case"]
    assert "too much" not in outlast("approvals", "ls").out and approval in outlast("approvals", "ls", "--all").out


def test_a_decision_needs_a_reason(outlast: Terminal) -> None:
    outlast.start()
    assert outlast("approvals", "approve", outlast.approval()).code == 2


def test_a_served_run_goes_on_at_once(outlast: Terminal) -> None:
    outlast.worker()
    outlast.start()
    (asked,) = eventually(lambda: outlast("approvals", "ls", "-o", "json").json["approvals"])
    answer = outlast("approvals", "approve", asked["approval"], "--reason", "fine", "-o", "json").json
    assert answer["resumed_ms"] >= 0 and answer["then"] in ("pay", "COMPLETED")
    eventually(lambda: outlast.see()["shown"] == "COMPLETED")


# --- effects in doubt ----------------------------------------------------------------------------------
@pytest.fixture
def doubtful(outlast: Terminal, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A run whose payment ended without an answer."""
    monkeypatch.setenv("REFUND_DOUBT", "1")
    outlast.start()
    outlast("approvals", "approve", outlast.approval(), "--reason", "fine")
    outlast.serve("r1", needs_a_person)
    monkeypatch.delenv("REFUND_DOUBT")
    return outlast


@pytest.mark.req("EFF-2")
def test_a_doubt_is_shown_with_its_ways_out(doubtful: Terminal) -> None:
    assert "you: effect_uncertain refund/A-17" in doubtful("runs", "ls").row("r1")
    page = doubtful("runs", "show", "r1").out
    assert "effect_uncertain refund/A-17" in page and "the bank hung up" in page
    assert "choices: happened, did_not_happen, give_up · ignored: stays as it is" in page
    assert "→ check the receiver, then: outlast effects resolve r1 refund/A-17 --happened ID" in page
    ledger = doubtful("runs", "effects", "r1")
    assert "UNCERTAIN perhaps: " in ledger.row("issue_refund") and "?" in ledger.row("issue_refund")
    assert "--happened ID" in ledger.out


def test_did_not_happen_is_offered_once_it_would_be_taken() -> None:
    at = datetime(2026, 3, 2, 14, 3, 20, tzinfo=UTC)
    effect = EffectRecord.model_construct(run="r1", key="k", settles_in_ms=0, settle_after_real=at, evidence=[])
    screen = Screen(CliSettings(utc=True))
    (line,) = uncertain_lines(screen, effect)
    assert line.endswith("outlast effects resolve r1 k --happened ID | --did-not-happen | --give-up --reason …")
    (line,) = uncertain_lines(screen, effect.model_copy(update={"takes_response": True}))
    assert "r1 k --happened ID --response JSON | --did-not-happen | " in line
    line, when = uncertain_lines(screen, effect.model_copy(update={"settles_in_ms": 90_000}))
    assert line.endswith("outlast effects resolve r1 k --happened ID | --give-up --reason …")
    moment = "2026-03-02T14:03:20.000Z on, in 1m30s"
    assert when == f"  --did-not-happen from {moment}: until then a sent call may still arrive"
    late = LateEvidence(epoch=3, at=at, status="done", code="", detail="", response={"number": "R-1"})
    first, *_ = uncertain_lines(screen, effect.model_copy(update={"evidence": [late]}))
    assert first == '  a replaced worker later got: done {"number": "R-1"} (epoch 3)'


@pytest.mark.req("EFF-7", "EFF-2")
def test_effects_are_listed_across_runs_and_shown_in_full(doubtful: Terminal) -> None:
    listed = doubtful("effects", "ls")
    (row,) = [line for line in listed.out.splitlines() if "refund/A-17" in line and "UNCERTAIN" in line]
    assert row.split()[:3] == ["r1", "issue_refund", "refund/A-17"]
    (view,) = doubtful("effects", "ls", "--uncertain", "-o", "json").json["effects"]
    assert (view["run"], view["effect"], view["status"]) == ("r1", "issue_refund", "uncertain")
    for nothing in (["--status", "undone"], ["--activity", "other"], ["--run", "r2"], ["--since", "1ms"]):
        assert doubtful("effects", "ls", *nothing, "-o", "json").json["effects"] == []
    (same,) = doubtful("effects", "ls", "--run", "r1", "--status", "uncertain", "-o", "json").json["effects"]
    assert same["digest"] == view["digest"]
    page = doubtful("effects", "show", "r1", "refund/A-17")
    whole = doubtful("effects", "show", "r1", "refund/A-17", "-o", "json").json
    assert whole["arguments"]["order_id"] == "A-17" and whole["attempts"] == 1 and whole["evidence"] == []
    assert whole["requested_by"].startswith("local:") and whole["decision"]["decided_by"].startswith("local:")
    for text in (
        whole["digest"],
        '"order_id": "A-17"',
        "1 attempt",
        "asked by",
        "approval",
        "outlast effects resolve r1",
    ):
        assert text in page.out
    missing = doubtful("effects", "show", "r1", "refund/A-99")
    assert missing.code == 3 and "no effect refund/A-99" in missing.err
    both = doubtful("effects", "ls", "--uncertain", "--status", "done")
    assert both.code == 2 and "exclude each other" in both.err


@pytest.mark.req("EFF-3")
def test_attention_names_the_time_from_which_did_not_happen_is_accepted(doubtful: Terminal) -> None:
    (view,) = doubtful("attention", "show", "r1", "-o", "json").json["attention"]
    choice = next(c for c in view["choices"] if c["choice"] == "did_not_happen")
    assert choice["from_real"] and choice["accepted_in_ms"] >= 0
    for command in (("attention", "show", "r1"), ("attention", "ls")):
        (line,) = [each for each in doubtful(*command).out.splitlines() if each.count("--did-not-happen")]
        early = choice["accepted_in_ms"] > 3_000  # else this machine was slower than the settle time
        assert not early or "(from " in line


@pytest.mark.req("EFF-2")
def test_it_happened(doubtful: Terminal) -> None:
    response = '{"number": "R-9"}'
    wrong = doubtful("effects", "resolve", "r1", "refund/A-17", "--happened", "R-9", "--response", "3")
    assert wrong.code == 2 and "not valid" in wrong.err
    answer = doubtful("effects", "resolve", "r1", "refund/A-17", "--happened", "R-9", "--response", response)
    assert answer.code == 0 and "happened, as R-9, says local:" in answer.out
    assert "executed (stated by local:" in doubtful("runs", "effects", "r1").row("issue_refund")
    page = doubtful("effects", "show", "r1", "refund/A-17").out
    assert "outlast effects resolve r1 refund/A-17 --correct --happened ID --response JSON" in page
    early = doubtful("effects", "resolve", "r1", "refund/A-17", "--give-up", "--reason", "x")
    assert early.code == 4 and "is not uncertain" in early.err and "--correct" in early.err
    doubtful.serve("r1", is_over)
    assert doubtful.see()["outcome"]["receipt"] == {"number": "R-9"}
    again = doubtful("effects", "resolve", "r1", "refund/A-17", "--happened", "R-9", "--response", response)
    assert again.code == 4 and "is not uncertain" in again.err


@pytest.mark.req("EFF-2", "EFF-3")
def test_it_did_not_happen_can_be_said_once_the_call_can_no_longer_land(doubtful: Terminal) -> None:
    command = ("effects", "resolve", "r1", "refund/A-17", "--did-not-happen")
    early = doubtful(*command)
    if early.code != 0:  # else this machine was slower than the settle time
        assert early.code == 4 and "too early" in early.err and "may still arrive for" in early.err
        assert eventually(lambda: doubtful(*command).code == 0)
    assert "will be called again (stated by local:" in doubtful("runs", "effects", "r1").row("issue_refund")
    doubtful.serve("r1", is_over)
    assert doubtful.see()["outcome"]["receipt"] == {"number": "R-A-17"}
    assert "executed, called again ×1" in doubtful("runs", "effects", "r1").row("issue_refund")


@pytest.mark.req("EFF-2")
def test_give_up_refuses_the_effect(doubtful: Terminal) -> None:
    command = ("effects", "resolve", "r1", "refund/A-17", "--give-up")
    assert doubtful(*command).code == 2
    assert doubtful(*command, "--reason", "the bank lost its books").code == 0
    assert "given up, outcome unknown (stated by local:" in doubtful("runs", "effects", "r1").row("issue_refund")
    doubtful.serve("r1", lambda row: '"reason":"exception"' in row.attention_text)  # the refund does not expect a no


def test_one_answer_at_a_time(doubtful: Terminal) -> None:
    base = ("effects", "resolve", "r1", "refund/A-17")
    assert doubtful(*base).code == 2
    assert doubtful(*base, "--give-up", "--did-not-happen", "--reason", "x").code == 2
    assert doubtful(*base, "--did-not-happen", "--response", "{}").code == 2
    assert doubtful("effects", "resolve", "r1", "refund/B", "--did-not-happen").code == 3


def test_without_the_module_the_stored_schema_checks_the_response(doubtful: Terminal) -> None:
    command = ("effects", "resolve", "r1", "refund/A-17", "--happened", "R-9")
    for wrong in ((), ("--response", "3"), ("--response", '{"numbers": "R-9"}'), ("--response", "NaN")):
        refused = doubtful(*command, *wrong, env={"OUTLAST_MODULE": ""})
        assert refused.code == 2 and "the answer of activity issue_refund is not" in refused.err, wrong
    answer = doubtful(*command, "--response", '{"number": "R-9"}', env={"OUTLAST_MODULE": ""})
    assert answer.code == 0 and answer.err.count("\n") <= 1
    assert doubtful("runs", "show", "r1", env={"OUTLAST_MODULE": MODULE}).code == 0

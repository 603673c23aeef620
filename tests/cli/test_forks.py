"""`outlast runs fork`: the checkpoints of a run, a fork as the docs show it, and errors."""

import json
import re

import pytest

from outlast.core.rows.run_rows import is_over
from tests.cli.conftest import Terminal, waits_for
from tests.docs.pages import ROOT, blocks

pytestmark = pytest.mark.req("RUN-10")
RUN = "refund-A-17"


@pytest.fixture
def ended(outlast: Terminal, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal whose store has one refund that was paid, with a record of the calls."""
    monkeypatch.setenv("REFUND_LOG", str(outlast.folder / "calls.txt"))
    outlast.start(run=RUN)
    assert outlast("approvals", "approve", outlast.approval(RUN), "--reason", "it is due").code == 0
    outlast.serve(RUN, is_over)
    return outlast


def calls(outlast: Terminal) -> list[str]:
    return (outlast.folder / "calls.txt").read_text(encoding="utf-8").splitlines()


def shown_on_the_page() -> list[str]:
    (text,) = [block.body for block in blocks(ROOT / "docs" / "forks.md") if block.language == "text"]
    return text.splitlines()


def test_the_checkpoints_are_those_of_the_page(ended: Terminal) -> None:
    listed = ended("runs", "fork", RUN)
    command, *expected = shown_on_the_page()
    assert command == f"$ outlast runs fork {RUN}"
    got, want = (
        [re.sub(r"\S+ ago", "ago", line).split() for line in each] for each in (listed.out.splitlines(), expected)
    )
    assert got == want
    assert f"outlast runs fork {RUN} --from CHECKPOINT --approvers RULE" in listed.err
    assert len(ended("runs", "fork", RUN, "-o", "json").json["points"]) == len(want) - 1


def test_a_fork_asks_a_person_and_repeats_nothing(ended: Terminal) -> None:
    before = calls(ended)
    made = ended("runs", "fork", RUN, "--from", "review", "--approvers", "lead", "--id", "again")
    assert made.code == 0, made
    assert f"again forked from {RUN} at checkpoint" in made.out and "node review" in made.out
    assert "none is made again" in made.out and "issue_refund" in made.out
    again = ended("runs", "fork", RUN, "--from", "review", "--approvers", "lead", "--id", "again")
    assert again.code == 0 and "was forked before from" in again.out
    ended.serve("again", waits_for("approval"))
    assert calls(ended) == before, "the past is not repeated, and no write is made before a person approves"
    assert RUN in ended("runs", "show", "again").out
    assert [row["run"] for row in ended("runs", "ls", "--forked-from", RUN, "-o", "json").json["runs"]] == ["again"]


def test_a_dry_run_says_what_the_fork_would_do_and_starts_nothing(ended: Terminal) -> None:
    before, terms = calls(ended), ("runs", "fork", RUN, "--from", "check", "--effects", "recorded", "--dry-run")
    lacks = ended(*terms)
    assert lacks.code == 0 and "a fork needs approvers" in lacks.out, lacks
    changed = ended(*terms, "--approvers", "lead", "--state", "-", stdin='{"order_id": "A-17", "cents": 100}')
    assert "answered from the recording, not made" in changed.out and "cents" in changed.out and "100" in changed.out
    assert "prevents it" not in changed.out
    assert ended(*terms, "-o", "json").json["calls"]
    assert ended("runs", "ls", "--forked-from", RUN, "-o", "json").json["runs"] == [] and calls(ended) == before


def test_a_state_is_replaced_and_checked(ended: Terminal) -> None:
    changed = {"order_id": "A-17", "cents": 100}
    made = ended(
        "runs", "fork", RUN, "--from", "review", "--approvers", "lead", "--state", "-", stdin=json.dumps(changed)
    )
    assert made.code == 0 and "cents" in made.out, made
    for wrong in ("{", "[]", '{"cents": "many"}'):
        refused = ended("runs", "fork", RUN, "--from", "review", "--approvers", "lead", "--state", "-", stdin=wrong)
        assert refused.code == 2, (wrong, refused)
        assert refused.err and "Traceback" not in refused.err


def test_what_cannot_be_forked_is_refused_with_a_reason(ended: Terminal) -> None:
    nobody = ended("runs", "fork", RUN, "--from", "review")
    assert nobody.code == 2 and "--approvers" in nobody.err
    both = ended("runs", "fork", RUN, "--from", "review", "--effects", "live", "--approvers", "lead")
    assert both.code == 2 and "the policy decides" in both.err
    nowhere = ended("runs", "fork", RUN, "--from", "packing", "--approvers", "lead")
    assert nowhere.code == 3 and "review" in nowhere.err
    assert ended("runs", "fork", "r9").code == 3
    ended.start(run="r2")
    ended.approval("r2")
    goes_on = ended("runs", "fork", "r2")
    assert goes_on.code == 0 and "--both-go-on REASON" in goes_on.out + goes_on.err
    refused = ended("runs", "fork", "r2", "--from", "1", "--approvers", "lead")
    assert refused.code != 0 and "--both-go-on" in refused.err
    why = "the lead asked for both"
    preview = ended("runs", "fork", "r2", "--from", "1", "--approvers", "lead", "--both-go-on", why, "--dry-run")
    assert "r2 has not ended and goes on, too" in preview.out and "prevents it" not in preview.out
    started = ended("runs", "fork", "r2", "--from", "1", "--approvers", "lead", "--both-go-on", why, "--id", "r3")
    assert started.code == 0 and f"r2 had not ended and goes on, too: {why}" in started.out
    assert "r3 by" in ended("explain", "r2").out and why in ended("explain", "r3").out

"""`outlast status`, `outlast runs timeline`, and approvals by deadline and by approver."""

import pytest

from tests.cli.conftest import Terminal, waits_for


def test_nothing_needs_a_person(outlast: Terminal) -> None:
    outlast.start(run="r0")
    outlast.serve("r0", waits_for("approval"))
    outlast("approvals", "reject", outlast.approval("r0"), "--reason", "too dear")
    outlast.serve("r0", lambda row: bool(row.ended_at))
    assert outlast("status").out == "nothing needs a person → outlast runs ls\n"


@pytest.mark.req("OBS-4", "OBS-5")
def test_the_status_and_the_timeline_of_a_run(outlast: Terminal) -> None:
    outlast.start(run="r1")
    outlast.serve("r1", waits_for("approval"))
    shown = outlast("status")
    assert shown.code == 0 and "approvals    1 pending, 1 yours, 0 overdue, next deadline in" in shown.out
    assert "no worker serves" in shown.out, "the worker of the test has stopped"
    found = outlast("status", "-o", "json").json
    assert (found["approvals_pending"], found["approvals_mine"], found["count_max"]) == (1, 1, 1_000)
    approval = outlast.approval("r1")
    assert approval in outlast("approvals", "ls", "--sort", "deadline", "--mine").out
    assert outlast("approvals", "ls", "--sort", "age").code == 2
    assert outlast("approvals", "ls", "--decided-by", "me").out == "no approval matches\n"

    page = outlast("runs", "timeline", "r1")
    assert page.code == 0 and "approval" in page.out and "open" in page.out and "next: in" in page.out
    bars = outlast("runs", "timeline", "r1", "-o", "json").json["bars"]
    assert {bar["kind"] for bar in bars} >= {"visit", "wait"}
    none = outlast(
        "runs", "timeline", "r1", "--from", "2001-01-01T00:00:00Z", "--to", "2001-01-02T00:00:00Z", "-o", "json"
    )
    assert none.json["bars"] == []
    assert outlast("runs", "timeline", "r1", "--from", "noon").code == 2
    assert outlast("runs", "timeline", "r9").code == 3

    outlast("approvals", "reject", approval, "--reason", "too dear")
    assert approval in outlast("approvals", "ls", "--decided-by", "me").out

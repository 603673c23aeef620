"""`outlast runs compare`: where two runs part, what is equal, and errors of both ids."""

import re

import pytest

from tests.cli.conftest import Terminal, waits_for

pytestmark = pytest.mark.req("RUN-10")


def test_two_runs_side_by_side(outlast: Terminal) -> None:
    for run in ("r1", "r2"):
        outlast.start(run=run)
        outlast.serve(run, waits_for("approval"))
    same = outlast("runs", "compare", "r1", "r1")  # two runs may differ in time on a busy machine
    assert same.code == 0
    assert "They are equal in all that is compared." in same.out and "neither run has ended" in same.out

    outlast("approvals", "reject", outlast.approval("r2"), "--reason", "too dear")
    outlast.serve("r2", lambda row: bool(row.ended_at))
    shown = outlast("runs", "compare", "r1", "r2")
    assert shown.code == 0 and re.search(r"They part at difference \d: approval of issue_refund, ", shown.out), (
        shown.out
    )
    assert "rejected · by" in shown.out and "too dear" in shown.out
    assert "differences;" in shown.err
    found = outlast("runs", "compare", "r1", "r2", "-o", "json").json
    assert found["first"]["differs"] == ["decision"] and found["total"] == len(found["differences"])
    first = outlast("runs", "compare", "r1", "r2", "--limit", "1")
    assert "further differences → the same with --cursor 1" in first.err
    assert outlast("runs", "compare", "r1", "r2", "--cursor", "1", "-o", "json").json["differences"][0]["n"] == 2
    for unknown in (("r1", "r9"), ("r9", "r1")):
        refused = outlast("runs", "compare", *unknown)
        assert refused.code == 3 and "r9" in refused.err
    assert outlast("runs", "compare", "r1").code == 2

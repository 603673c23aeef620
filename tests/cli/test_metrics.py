"""`outlast metrics`: throughput, durations and decisions of a store."""

import pytest

from tests.cli.conftest import Terminal, waits_for

pytestmark = pytest.mark.req("OBS-5")


def test_a_run_and_its_approval_are_measured(outlast: Terminal) -> None:
    outlast.start(run="r1")
    assert outlast("metrics", "durations").out == "no run ended in this time\n"
    outlast.serve("r1", waits_for("approval"))
    (group,) = outlast("metrics", "decisions", "-o", "json").json["groups"]
    assert (group["workflow"], group["decided"]["count"], group["open"]["count"]) == ("refund", 0, 1)
    (pending,) = outlast("approvals", "ls", "-o", "json").json["approvals"]
    assert outlast("approvals", "reject", pending["approval"], "--reason", "no").code == 0
    outlast.serve("r1", lambda run: run.ended_at > 0)
    found = outlast("metrics", "durations", "--workflow", "refund", "--version", "1", "-o", "json").json
    assert (found["runs"], found["ended"], found["sampled"]) == (1, 1, 1)
    assert found["people"]["p95_ms"] > 0
    page = outlast("metrics", "durations", "--since", "1h").out
    assert "1 of 1 runs that ended" in page and "wait for the first step" in page
    decided = outlast("metrics", "decisions").out
    assert "refund" in decided and "OLDEST" in decided
    bars = outlast("metrics", "throughput", "--bars", "2", "-o", "json").json["bars"]
    assert [sum(each[name] for name in ("completed", "failed", "cancelled")) for each in bars] == [0, 1]
    assert "CANCELLED" in outlast("metrics", "throughput").out
    assert outlast("metrics", "durations", "--workflow", "other").out == "no run ended in this time\n"
    assert outlast("metrics", "decisions", "--version", "1").code == 2

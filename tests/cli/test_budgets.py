"""`outlast budgets` and `outlast runs raise`."""

import pytest

from outlast.core.machine import Reason
from outlast.core.rows.run_rows import Run
from tests.cli.conftest import Terminal, waits_for

pytestmark = pytest.mark.req("RUN-10")


def lacks_budget(run: Run) -> bool:
    return any(each.reason is Reason.BUDGET_EXHAUSTED for each in run.attention)


def test_a_daily_budget_stops_a_run_and_a_raise_lets_it_go_on(
    outlast: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFUND_TOKENS", "1500")
    outlast.start(run="r1")
    assert "no daily budget → outlast budgets set --tokens 1M" in outlast("budgets", "ls").out
    answer = outlast("budgets", "set", "--tokens", "1.5k", "--money", "9", "--reason", "the plan")
    assert answer.code == 0 and "used today: 0 of 1,500 tokens, 0 of 9 money" in answer.out
    outlast.serve("r1", waits_for("approval"))
    assert "used         1,500 tokens, 0.25 money, 1 reported calls" in outlast("runs", "show", "r1").out
    outlast.start(order_id="B-2", run="r2")
    outlast.serve("r2", lacks_budget)
    page = outlast("explain", "r2").out
    assert "tenant default has used 1,500 of 1,500 tokens of " in page and "it continues on " in page
    assert "unblock      outlast runs raise r2 --tokens … --reason …" in page
    assert "1,500 of 1,500 tokens, 0.25 of 9 money" in outlast("budgets", "ls").out
    daily = outlast("budgets", "ls", "-o", "json").json["budgets"][0]
    assert (daily["runs"], daily["shares"][0]["percent"]) == (1, 100.0)
    listed = outlast("budgets", "ls").out
    assert "100.0 %" in listed and " in " in listed.partition("100.0 %")[2]
    assert "no unfinished run has a budget" in outlast("budgets", "runs").out
    refused = outlast("attention", "resolve", "r2", "raise", "--reason", "more")
    assert refused.code == 4 and "→ outlast runs raise r2 --tokens … --reason …" in refused.err
    raised = outlast("runs", "raise", "r2", "--tokens", "2k", "--reason", "worth it")
    assert raised.code == 0 and "r2 may use 2,000 tokens more" in raised.out
    outlast.serve("r2", waits_for("approval"))
    assert outlast("budgets", "remove").code == 0
    assert "no daily budget" in outlast("budgets", "ls").out


def test_bad_amounts_are_refused(outlast: Terminal) -> None:
    outlast.start()
    assert outlast("runs", "raise", "r1", "--tokens", "50x", "--reason", "x").code == 2
    assert outlast("runs", "raise", "r1", "--tokens", "1.5", "--reason", "x").code == 2
    assert outlast("runs", "raise", "r1", "--money", "much", "--reason", "x").code == 2
    assert outlast("runs", "raise", "r1", "--reason", "x").code == 2
    assert outlast("runs", "raise", "r1", "--tokens", "1k").code == 2
    assert outlast("runs", "raise", "r9", "--tokens", "1k", "--reason", "x").code == 3
    assert outlast("budgets", "set").code == 2
    assert outlast("budgets", "set", "--money", "-1").code == 2

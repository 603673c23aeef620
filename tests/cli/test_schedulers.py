"""Runs of other schedulers on the command line: started, listed, explained and moved."""

import json

import pytest

from tests.cli.conftest import MODULE, Terminal

START = ("run", "refund", "order_id=A-17", "cents=4200", "--id", "g1", "--scheduler", "temporal")


@pytest.mark.req("RT-4")
def test_a_run_names_its_scheduler_and_moves(outlast: Terminal) -> None:
    """No worker serves it anywhere, so each page says which one is missing."""
    started = outlast(*START)
    assert started.code == 0 and "outlast worker" in started.err and "--runtime temporal" in started.err
    assert (
        "SCHEDULER" in outlast("runs", "ls").out and "no worker serves temporal:refund@1" in outlast("runs", "ls").err
    )
    assert "scheduler" in outlast("runs", "show", "g1").out
    explained = outlast("explain", "g1")
    assert "no live worker serves temporal:refund@1" in explained.out and "--runtime temporal" in explained.out
    assert "temporal:refund@1" in outlast("versions", "ls").out or "temporal" in outlast("versions", "ls").out
    assert "1 of them scheduled by temporal" in outlast("check", MODULE).out
    assert "no worker executes its runs: outlast worker MODULE --runtime temporal" in outlast("doctor").out

    refused = outlast("runs", "move", "g1", "--to", "langgraph")
    assert refused.code == 3 and "no live worker serves langgraph:refund@1" in refused.err
    moved = outlast("runs", "move", "g1", "--to", "outlast", "--force", "--reason", "the cluster is gone")
    assert moved.code == 0 and "outlast schedules g1 from now on" in moved.out
    assert outlast("runs", "move", "g1", "--to", "outlast").code == 4
    assert "SCHEDULER" not in outlast("runs", "ls").out
    facts = json.loads(outlast("explain", "g1", "-o", "json").out)["facts"]
    assert facts["scheduler"] == "outlast; a slice that temporal still asks for is refused"


def test_the_environment_names_the_scheduler_of_new_runs(outlast: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_SCHEDULER", "langgraph")
    outlast(*START[:-2])
    assert json.loads(outlast("runs", "show", "g1", "-o", "json").out)["scheduler"] == "langgraph"
    monkeypatch.setenv("OUTLAST_SCHEDULER", "cron")
    answer = outlast("runs", "ls")
    assert answer.code == 2 and "OUTLAST_SCHEDULER" in answer.err


def test_an_unknown_scheduler_is_a_usage_error(outlast: Terminal) -> None:
    answer = outlast("run", "refund", "order_id=A", "cents=1", "--scheduler", "cron")
    assert answer.code == 2 and "'outlast', 'temporal', 'langgraph'" in answer.err

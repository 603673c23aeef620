"""A short round on each store; `scripts/chaos` runs long ones."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.chaos.fleet import SWIFT
from tests.chaos.in_flight import TARGET_MS, Flight, Holders, fly, too_few_descriptors, too_late
from tests.chaos.judge import Rows, spread, taken_over
from tests.chaos.report import of_flight, summary
from tests.chaos.round import Plan, play

IDS = ("REC-1", "REC-3", "REC-4", "REC-5", "RUN-3", "EFF-1", "EFF-2", "FAIL-3", "FAIL-6", "FAIL-12")


SHORT = {
    "postgres": Plan("postgres", seed=5, seconds=4, only=("kill", "cut_after", "crash_server"), live=SWIFT),
    "sqlite": Plan("sqlite", seed=5, seconds=6, only=("kill", "freeze")),
}  # the fast faults


@pytest.mark.req(*IDS)
@pytest.mark.parametrize("store", SHORT)
def test_no_acknowledgement_is_lost_and_no_effect_is_repeated(tmp_path: Path, store: str) -> None:
    """Workers are killed and frozen. On PostgreSQL, connections are cut after COMMIT and the server crashes."""
    report, wrong = play(SHORT[store]._replace(workers=2, rate=2, keep=tmp_path))
    assert wrong == [], summary(report)
    assert sum(report["nemeses"].values()) >= 2 and report["runs"] >= 5, summary(report)


@pytest.mark.req("REC-4")
@pytest.mark.parametrize("holders", ["one", "half"])
def test_runs_of_killed_workers_are_executed_elsewhere(tmp_path: Path, holders: Holders) -> None:
    """Forty runs in calls. `scripts/chaos --in-flight 10000 --holders both --store both` has REC-4's number of them."""
    workers, killed = (2, 1) if holders == "one" else (4, 2)
    flight = Flight("sqlite", 40, workers, killed, window_s=6, keep=tmp_path, holders=holders)
    report, wrong = fly(flight)
    assert wrong == [], of_flight(report)
    assert report["executed"]["runs"] == report["held"] == sum(report["shared"]) >= 20, of_flight(report)


def test_a_run_that_is_executed_too_late_is_told() -> None:
    """One run of ten thousand is late, in its execution or in its claim: the last one counts, and not only the p99."""
    intime = spread([TARGET_MS] * 10_000)
    late = spread([TARGET_MS] * 9_999 + [TARGET_MS + 1])
    assert too_late({"takeover": intime, "executed": intime}) == []
    assert len(too_late({"takeover": intime, "executed": late})) == 1
    assert len(too_late({"takeover": spread([TARGET_MS + 1]), "executed": spread([])})) == 2


def test_a_flight_with_more_calls_than_open_files_is_refused() -> None:
    """Once the receiver had no descriptor left for 8 calls of 10,000, and the report counted their runs as lost."""
    assert too_few_descriptors(10_000, 20_000) == ""
    assert "raise it" in too_few_descriptors(20_000, 20_000)


def test_a_run_that_was_queued_counts_when_it_is_claimed() -> None:
    """A survivor without a free place queues a run of a dead worker. Its takeover lasts until another one claims it."""
    lost = [_event("requeued", 12, {"from": "w-7-a"}), _event("claimed", 20, {}), _event("claimed", 90, {})]
    taken = [_event("taken_over", 14, {"from": "w-7-a"}), _event("taken_over", 70, {"from": "w-8-a"})]
    before = [_event("taken_over", 4, {"from": "w-7-a"}), _event("claimed", 30, {})]
    rows = Rows({}, [], {"lost": lost, "taken": taken, "before": before}, {}, set(), [], [])
    assert taken_over(rows, {7: 10}) == {"lost": 10, "taken": 4}


def _event(kind: str, at: int, data: dict[str, Any]) -> Any:
    return SimpleNamespace(type=f"dev.outlast.run.{kind}", at=at, body=json.dumps({"data": data}))

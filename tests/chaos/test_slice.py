"""A short round on each store; `scripts/chaos` runs long ones."""

from pathlib import Path

import pytest

from tests.chaos.fleet import SWIFT
from tests.chaos.report import summary
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

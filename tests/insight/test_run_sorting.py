"""Lists in another order: values, ties, runs without a value, and pages."""

from typing import get_args

import pytest

from outlast.core.machine import RunStatus
from outlast.core.run_filters import RunOrder
from outlast.core.usage import Amounts
from outlast.insight.run_sorting import Place, page_in_order
from tests.conformance.subject import run_row

USED = {"cheap": Amounts(10, 5, 1), "dear": Amounts(1, 900, 1), "unpriced": Amounts(10, 0, 1, unpriced=1)}
RUNS = [
    run_row()._replace(run=run, created_at=created, ended_at=ended, status=status)
    for run, created, ended, status in (
        ("dear", 100, 150, RunStatus.COMPLETED),
        ("cheap", 200, 900, RunStatus.FAILED),
        ("unpriced", 300, 0, RunStatus.WAITING),
        ("tie-a", 400, 450, RunStatus.COMPLETED),
        ("tie-b", 500, 550, RunStatus.COMPLETED),
    )
]


def ordered(sort: str, limit: int = 10, at: int = 1_000) -> list[str]:
    """Return the ids of all pages."""
    found: list[str] = []
    after: Place | None = None
    while True:
        page, after = page_in_order(RUNS, sort, USED, at, after, limit)
        found += [run.run for run in page]
        if after is None:
            return found


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("started-asc", ["dear", "cheap", "unpriced", "tie-a", "tie-b"]),
        ("ended", ["cheap", "tie-b", "tie-a", "dear", "unpriced"]),
        ("ended-asc", ["dear", "tie-a", "tie-b", "cheap", "unpriced"]),
        ("took", ["unpriced", "cheap", "tie-b", "tie-a", "dear"]),
        ("took-asc", ["tie-b", "tie-a", "dear", "unpriced", "cheap"]),
        ("cost", ["dear", "cheap", "tie-b", "tie-a", "unpriced"]),
        ("cost-asc", ["cheap", "dear", "tie-b", "tie-a", "unpriced"]),
    ],
)
def test_the_order_of_runs(sort: str, expected: list[str]) -> None:
    assert ordered(sort) == expected


def test_the_duration_of_a_run_ends_when_it_begins_to_need_a_person() -> None:
    short, long = RUNS[2]._replace(run="short", flagged_at=310), RUNS[2]._replace(run="long", flagged_at=320)
    page, _ = page_in_order([short, long, RUNS[2]], "took", {}, 1_000, None, 3)
    assert [run.run for run in page] == ["unpriced", "long", "short"]


@pytest.mark.parametrize("sort", get_args(RunOrder))
@pytest.mark.parametrize("limit", [1, 2, 3])
def test_pages_have_each_run_once(sort: str, limit: int) -> None:
    assert ordered(sort, limit) == ordered(sort)

"""Durations and instants of more than 100 years are refused where they are written; stored ones are shown."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from pydantic import BaseModel

from outlast.core.durations import FAR, Liveness, check_near, milliseconds, ms_of, timedelta_of
from outlast.core.events import iso, utc
from outlast.core.machine import Reason, RunStatus
from outlast.core.row_checks import listed
from outlast.core.rows.effect_rows import APPROVAL
from outlast.core.rows.run_rows import RUN
from outlast.errors import DefinitionError, InvalidInput
from outlast.flow.workflow_options import Objective, StartKey
from outlast.models import exact_instant
from outlast.store.sql import listed_rows
from tests.conformance.subject import approval_row, run_row

HOSTILE = [2**63 - 1, -(2**63), 10**17, 253_402_300_800_000, -1, 0]


@pytest.mark.parametrize("given", ["9999999d", "99999999999d", "36526d", timedelta.max, timedelta(days=36_526)])
def test_a_duration_of_more_than_100_years_is_refused(given: timedelta | str) -> None:
    with pytest.raises(InvalidInput, match="leave the timeout out for a wait without end"):
        timedelta_of("within", given)
    if isinstance(given, str):
        with pytest.raises(ValueError, match="100 years"):
            milliseconds(given)
    assert ms_of("within", "36525d") == FAR


def test_an_instant_of_more_than_100_years_ahead_and_a_setting_are_refused() -> None:
    with pytest.raises(InvalidInput, match="the limit is 100 years"):
        check_near("wait until", datetime.max.replace(tzinfo=UTC), FAR + 1)
    with pytest.raises(ValueError, match="100 years"):
        Liveness(runs_kept=FAR + 1).checked()


@pytest.mark.parametrize("at", HOSTILE)
def test_every_stored_number_is_an_instant_of_the_calendar(at: int) -> None:
    assert exact_instant(at) == utc(at)
    assert datetime.fromisoformat(iso(at)) == utc(at) and utc(at).astimezone()


@pytest.mark.parametrize(
    "changes",
    [{"status": "?"}, {"version": 0}, {"ended_at": 5}, {"attention_text": "{"}, {"waiting_for_text": "[[1]]"},
     {"attention_text": '[{"reason":"exception","since":9e99,"detail":5}]'}],
)  # fmt: skip
def test_a_run_that_cannot_be_read_is_listed_and_says_so(changes: dict[str, object]) -> None:
    """One such row made the list of all runs fail."""
    fine, wrong = run_row("fine"), run_row("wrong")._replace(**changes)  # type: ignore[arg-type]
    rows = listed_rows(RUN, [tuple(wrong), tuple(fine)])
    assert rows[1] == fine and rows[0].run == "wrong" and rows[0].status in list(RunStatus)
    (entry,) = rows[0].attention
    assert entry.reason is Reason.CONTRADICTION and "outlast fsck" in entry.detail


def test_an_approval_that_cannot_be_read_is_listed() -> None:
    wrong = approval_row()._replace(plans_text="{", who="")
    assert listed(APPROVAL, wrong).plans[0].activity == listed(APPROVAL, wrong).who == "unreadable"


class Given(BaseModel):
    text: str


def raises(given: Given) -> str:
    raise ValueError(f"bad {given.text}")


AUTHORS: list[Callable[..., StartKey | Objective]] = [
    lambda fn, model: StartKey(fn, model, "flow", "flows.py:1"),
    lambda fn, model: Objective(fn, model, "flow", "flows.py:1"),
]


@pytest.mark.parametrize("of_author", AUTHORS, ids=["key", "objective"])
def test_a_long_error_of_an_authors_key_or_objective_is_cut_before_it_is_logged(
    of_author: Callable[..., StartKey | Objective],
) -> None:
    """`ValueError(f"bad {value}")` with 1 MB blocked the service for 5 s."""
    given = Given(text="x" * 1_000_000)
    with pytest.raises(DefinitionError) as refused:
        of_author(raises, Given).of(given)
    assert len(str(refused.value)) < 3_000
    assert refused.value.__cause__ is None and refused.value.__suppress_context__, "its traceback repeats the text"


@pytest.mark.parametrize("value", [lambda given: [given.text], lambda given: given.text.encode()])
@pytest.mark.parametrize("of_author", AUTHORS, ids=["key", "objective"])
def test_a_long_value_of_an_authors_key_or_objective_is_cut(
    of_author: Callable[..., StartKey | Objective], value: Callable[[Any], object]
) -> None:
    with pytest.raises(DefinitionError, match="returned") as refused:
        of_author(value, Given).of(Given(text="x" * 1_000_000))
    assert len(str(refused.value)) < 3_000


def test_a_long_key_that_differs_each_time_is_cut() -> None:
    n = count()
    with pytest.raises(DefinitionError, match="for one input") as refused:
        AUTHORS[0](lambda given: f"{given.text}{next(n)}", Given).of(Given(text="x" * 1_000_000))
    assert len(str(refused.value)) < 6_000

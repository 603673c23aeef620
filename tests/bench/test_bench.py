"""Shows that every measurement still runs and names the figures it promises; how fast is not a test's business."""

from importlib import import_module

import pytest

from bench import table
from bench.__main__ import NAMES
from bench.figures import Goal, Size, percentile


@pytest.mark.parametrize("name", NAMES)
def test_a_measurement_of_the_smallest_size_gives_every_figure_it_names(name: str) -> None:
    measured = import_module(f"bench.measures.{name}")
    assert set(measured.measure(Size.TINY)) == {goal.name for goal in measured.GOALS}


def test_a_verdict_says_of_gate_and_aim_whether_they_are_met() -> None:
    rate = Goal("rate", "/s", gate=10, aim=20, least=True)
    assert [rate.verdict(value) for value in (9, 10, 20)] == [
        "gate missed, aim missed", "gate met, aim missed", "gate met, aim met",
    ]  # fmt: skip
    assert Goal("ms", "ms", gate=5).verdict(5) == "gate met"
    assert Goal("shown", "").verdict(1) == ""


def test_a_table_shows_least_median_and_most() -> None:
    (line,) = table.rows("steps", [Goal("rate", "/s", digits=1)], [{"rate": 3.0}, {"rate": 1.0}, {"rate": 2.0}])
    assert line[:5] == ("steps ×3", "rate", "1.0", "2.0", "3.0")


def test_a_percentile_is_a_value_that_was_measured() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([1.0], 0.99) == 1.0

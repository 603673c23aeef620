"""Percentiles, histograms and shares of time on values."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from outlast.core.distributions import BOUNDS, distribution, histogram, joined_spans, percentile, time_within

DURATIONS = st.lists(st.integers(-5, 10**10), max_size=60)
SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12)


@given(DURATIONS.filter(bool), st.integers(1, 100))
def test_a_percentile_is_the_least_value_that_so_many_do_not_exceed(values: list[int], per_cent: int) -> None:
    ordered = sorted(values)
    found = percentile(ordered, per_cent)
    assert sum(value <= found for value in values) * 100 >= per_cent * len(values)
    assert sum(value < found for value in values) * 100 < per_cent * len(values)


def test_percentiles_of_few_values() -> None:
    found = distribution([30, 10, 20, -4])
    assert (found.count, found.p50, found.p95, found.longest) == (4, 10, 30, 30)
    none = distribution([])
    assert (none.count, none.p50, none.p95, none.longest, none.histogram) == (0, 0, 0, 0, ())


@given(DURATIONS)
def test_each_duration_is_in_one_part_of_the_histogram(values: list[int]) -> None:
    parts = histogram(sorted(max(0, value) for value in values))
    for part in parts:
        high = part.high or 10**18
        assert part.count == sum(part.low <= max(0, value) < high for value in values)
    assert sum(part.count for part in parts) == len(values)
    assert all(one.high == next_.low for one, next_ in pairwise(parts))
    assert not parts or (parts[0].count and parts[-1].count)
    assert list(BOUNDS) == sorted(set(BOUNDS))


@given(SPANS, st.integers(0, 60), st.integers(0, 60))
def test_a_time_in_several_spans_counts_once(spans: list[tuple[int, int]], begin: int, end: int) -> None:
    joined = joined_spans(spans)
    instants = {at for first, last in spans for at in range(first, last)}
    assert time_within(joined, begin, end) == len(instants & {*range(begin, end)})
    assert all(one[1] < other[0] for one, other in pairwise(joined))

"""Distributions of measured durations: percentiles, histograms, and lengths of spans of time. Pure functions."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from outlast.core.durations import DAY, HOUR, MINUTE, SECOND

BOUNDS: Final = (
    0, 1, 2, 5, 10, 20, 50, 100, 200, 500, SECOND, 2 * SECOND, 5 * SECOND, 10 * SECOND, 30 * SECOND,
    MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY,
    7 * DAY, 30 * DAY,
)  # fmt: skip
"""Least durations of the parts of a histogram in ms. They grow about twofold, because durations differ by factors."""

Span = tuple[int, int]
"""Beginning and end of a time in ms."""


@dataclass(frozen=True, slots=True)
class DurationPart:
    """Number of durations from `low` up to, but without, `high` (ms). `high` 0: without an end."""

    low: int
    high: int
    count: int


@dataclass(frozen=True, slots=True)
class Distribution:
    """Number of durations, and in ms the median, the 95th percentile and the longest one; 0 without any."""

    count: int
    p50: int
    p95: int
    longest: int
    histogram: tuple[DurationPart, ...]


def percentile(ordered: Sequence[int], per_cent: int) -> int:
    """Return the least of the values, in rising order, that so many per cent do not exceed; 0 without values."""
    if not ordered:
        return 0
    return ordered[max(0, -(-len(ordered) * per_cent // 100) - 1)]


def histogram(ordered: Sequence[int]) -> tuple[DurationPart, ...]:
    """Count durations, in rising order, in the parts of BOUNDS, from the first to the last part that has some."""
    begins = [0, *(bisect_left(ordered, bound) for bound in BOUNDS[1:]), len(ordered)]
    parts = [DurationPart(low, high, begins[n + 1] - begins[n]) for n, (low, high) in enumerate(_PARTS)]
    used = [n for n, part in enumerate(parts) if part.count]
    return tuple(parts[used[0] : used[-1] + 1]) if used else ()


_PARTS: Final = tuple(zip(BOUNDS, (*BOUNDS[1:], 0), strict=True))


def distribution(values: Iterable[int]) -> Distribution:
    """Return the distribution of durations in ms. A negative one, of two clocks, counts as 0."""
    ordered = sorted(values)
    if ordered and ordered[0] < 0:
        ordered = [max(0, value) for value in ordered]
    longest = ordered[-1] if ordered else 0
    return Distribution(len(ordered), percentile(ordered, 50), percentile(ordered, 95), longest, histogram(ordered))


def joined_spans(spans: Iterable[Span]) -> list[Span]:
    """Return spans without overlaps, in order: those that overlap or touch as one."""
    found: list[Span] = []
    for begin, end in sorted(spans):
        if end <= begin:
            continue
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((begin, end))
    return found


def time_within(spans: Sequence[Span], begin: int, end: int) -> int:
    """Return how much of the time from `begin` to `end` lies in spans that do not overlap."""
    return sum(max(0, min(last, end) - max(first, begin)) for first, last in spans)

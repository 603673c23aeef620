"""How a run spent its time: with people, with other waits, and with calls. Pure functions on its events and calls."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from outlast.core.distributions import Span, joined_spans, time_within
from outlast.insight.run_history import RunHistory
from outlast.insight.run_timeline import waits_of
from outlast.store.measured_rows import MeasuredCall

PEOPLE: Final = frozenset({"approval", "attention"})
"""Kinds of waits that a person ends."""


class TimeSpent(NamedTuple):
    """Parts of a time in ms. Calls may be open during waits of other calls, so the parts are no sum."""

    total: int
    people: int
    waits: int
    calls: int


class VisitTime(NamedTuple):
    """How one visit to a node was spent."""

    node: str
    spent: TimeSpent


class RunTime(NamedTuple):
    """How a run was spent, and each of its visits."""

    spent: TimeSpent
    visits: tuple[VisitTime, ...]


def run_time(history: RunHistory, calls: Sequence[MeasuredCall], business: Callable[[int], int]) -> RunTime:
    """Return how an ended run spent its time. `business` converts real instants. Raises Corrupt.

    A wait for one of several counts for people if a person may end it. A call counts while a worker held the run.
    """
    run = history.run
    people: list[Span] = []
    waits: list[Span] = []
    for span in history.waited:
        kinds = {wait.kind for wait in waits_of(run, span)}
        (people if kinds & PEOPLE else waits).append((span.begin, span.end or run.ended_at))
    held = joined_spans((span.begin, span.end or run.ended_at) for span in history.held)
    open_calls = joined_spans((business(call.first_at), call.settled_at or run.ended_at) for call in calls)
    parts = joined_spans(people), joined_spans(waits), _common(open_calls, held)

    def spent(begin: int, end: int) -> TimeSpent:
        return TimeSpent(max(0, end - begin), *(time_within(part, begin, end) for part in parts))

    visits = [VisitTime(each.node, spent(each.entered, each.left or run.ended_at)) for each in history.visits]
    return RunTime(spent(run.created_at, run.ended_at), tuple(visits))


def _common(one: Sequence[Span], other: Sequence[Span]) -> list[Span]:
    """Return the time that lies in both lists of spans, each in order and without overlaps."""
    found: list[Span] = []
    m = n = 0
    while m < len(one) and n < len(other):
        begin, end = max(one[m][0], other[n][0]), min(one[m][1], other[n][1])
        if begin < end:
            found.append((begin, end))
        if one[m][1] < other[n][1]:
            m += 1
        else:
            n += 1
    return found

"""Whose due runs a take is offered where more are due than it takes: each tenant's in turn, the oldest of each first.

A look for due work is one statement: the oldest of a lane, as many as are taken. Only where these fill the page, so
where runs wait, it is asked who has any but the tenants that were seen. No index leads from a tenant to what it has
due, so to ask is to pass over what is due of the others; a mark remembers how far that was done, and the next take goes
on there.
"""

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from outlast.core.rows import Run

HeldCounts = Mapping[str, int]
"""How many runs of each tenant a taker holds already."""
NONE_HELD: Final[HeldCounts] = MappingProxyType({})
PAGES: Final = 5  # of a lane in one take beyond the first, each of tenants that the ones before did not show
SLACK: Final = 1_000  # ms: so long after the time that it wrote as due_at a commit may land
TRUSTED: Final = 10_000  # ms a mark is believed: what came to a lane late, or from another one, is found after it
MARKS_MAX: Final = 8


class DueQuery(NamedTuple):
    """The oldest due runs of a lane, at most so many, due since an instant (real); not of these tenants."""

    lane: str
    most: int
    since: int = 0
    but: frozenset[str] = frozenset()


class Mark(NamedTuple):
    """As it was found at an instant: nobody but these tenants has a run in the lane that was due before `since`."""

    but: frozenset[str]
    since: int
    found_at: int


class DueQueries:
    """What a take asks of a store, one thing after the other: while there is an `ask`, `hear` takes what was found for
    it; then `found` has the runs to choose from."""

    def __init__(self, asks: Generator[DueQuery, Sequence[Run], None], found: list[Run]) -> None:
        self.found = found
        self.ask = next(asks, None)
        self._asks = asks

    def hear(self, page: Sequence[Run]) -> None:
        """The answer to `ask`."""
        try:
            self.ask = self._asks.send(page)
        except StopIteration:
            self.ask = None


class FairQueue:
    """What a taker remembers of the lanes in which runs wait."""

    def __init__(self) -> None:
        self._marks: dict[str, list[Mark]] = {}

    def looks(self, lanes: Sequence[str], most: int, real: int, held: HeldCounts = NONE_HELD) -> DueQueries:
        """Look for `most` runs, and as many of each tenant that has to be passed over to find others."""
        found: list[Run] = []
        return DueQueries(self._asks(lanes, most, real, held, found), found)

    def _asks(
        self, lanes: Sequence[str], most: int, real: int, held: HeldCounts, found: list[Run]
    ) -> Generator[DueQuery, Sequence[Run], None]:
        for lane in lanes:
            page = yield DueQuery(lane, most)
            found += page
            if len(page) >= most:
                yield from self._others(lane, most, real, held, found)

    def _others(
        self, lane: str, most: int, real: int, held: HeldCounts, found: list[Run]
    ) -> Generator[DueQuery, Sequence[Run], None]:
        """Adds to `found`: a lane's runs of tenants that are not in it; at last of those who hold nothing either, so
        that no number of tenants whose runs wait keeps one from its first."""
        but: frozenset[str] = frozenset()
        page: Sequence[Run] = found
        for n in range(PAGES):
            but |= {run.tenant for run in page if run.lane == lane}
            if n == PAGES - 1:
                but |= held.keys()
            ask = self._ask(lane, most, real, but)
            page = yield ask
            self._learn(ask, page, real)
            found += page
            if len(page) < most:
                return

    def _ask(self, lane: str, most: int, real: int, but: frozenset[str]) -> DueQuery:
        mark = self._mark(lane, but, real)
        return DueQuery(lane, most, mark.since if mark else 0, but)

    def _mark(self, lane: str, but: frozenset[str], real: int) -> Mark | None:
        """The one that spares most: what holds of all but some tenants holds of all but these and others."""
        known = [m for m in self._marks.get(lane, ()) if m.but <= but and 0 <= real - m.found_at < TRUSTED]
        return max(known, key=lambda mark: mark.since, default=None)

    def _learn(self, ask: DueQuery, page: Sequence[Run], real: int) -> None:
        used = self._mark(ask.lane, ask.but, real)
        first = page[0].due_at or 0 if page else real
        new = Mark(ask.but, max(ask.since, min(first, real - SLACK)), used.found_at if used else real)
        others = [m for m in self._marks.get(ask.lane, ()) if m is not used and m.but != new.but]
        kept = [used] if used and used.but != new.but else []
        self._marks[ask.lane] = [*others, *kept, new][-MARKS_MAX:]


def chosen(runs: Iterable[Run], n: int, held: HeldCounts = NONE_HELD) -> list[Run]:
    """At most `n` of these due runs, oldest due first. Where there are more, they are those of a round in which each
    is of the tenant that holds the fewest by then, and of several the one that has been due for longest."""
    ordered = sorted(runs, key=_age)
    if len(ordered) <= n:
        return ordered
    holds = Counter(held)
    turns: list[tuple[int, int]] = []
    for place, run in enumerate(ordered):
        turns.append((holds[run.tenant], place))
        holds[run.tenant] += 1
    return [ordered[place] for _, place in sorted(turns)[:n]]


def _age(run: Run) -> tuple[int, str, str]:
    return (run.due_at or 0, run.tenant, run.run)

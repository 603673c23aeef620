"""Fair order of due runs: tenants take turns, the oldest run of each first.

Usually one query per lane suffices: the oldest due runs, as many as are taken. If they fill the page, further queries
exclude the tenants seen so far. No index leads from a tenant to its due runs, so such a query passes over the due runs
of the excluded tenants. A mark remembers how far it got, and the next take continues there.
"""

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from outlast.core.rows import Run

HeldCounts = Mapping[str, int]
"""Number of runs that a taker already holds, by tenant."""
NONE_HELD: Final[HeldCounts] = MappingProxyType({})
PAGES: Final = 5  # further queries per lane and take
SLACK: Final = 1_000  # ms by which a commit may land after the time that it wrote as due_at
TRUSTED: Final = 10_000  # ms for which a mark is used; runs that came late or from another lane are found after it
MARKS_MAX: Final = 8


class DueQuery(NamedTuple):
    """Query for the oldest due runs of a lane, at most `most`, due since `since`, without some tenants."""

    lane: str
    most: int
    since: int = 0
    but: frozenset[str] = frozenset()


class Mark(NamedTuple):
    """Result of a query: without the tenants in `but`, the lane has no run that was due before `since`."""

    but: frozenset[str]
    since: int
    found_at: int


class DueQueries:
    """The queries of one take, one after another.

    While `ask` is set, pass its result to `hear`. Then `found` has the runs to choose from.
    """

    def __init__(self, asks: Generator[DueQuery, Sequence[Run], None], found: list[Run]) -> None:
        self.found = found
        self.ask = next(asks, None)
        self._asks = asks

    def hear(self, page: Sequence[Run]) -> None:
        """Pass the rows found for `ask` and prepare the next query."""
        try:
            self.ask = self._asks.send(page)
        except StopIteration:
            self.ask = None


class FairQueue:
    """Marks of one taker, by lane."""

    def __init__(self) -> None:
        self._marks: dict[str, list[Mark]] = {}

    def looks(self, lanes: Sequence[str], most: int, real: int, held: HeldCounts = NONE_HELD) -> DueQueries:
        """Prepare queries for `most` runs, and for runs of other tenants if the first page is full."""
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
        """Query a lane for tenants that are not in `found` yet.

        The last query also excludes tenants of whom runs are held. So a tenant without a held run is found, however
        many other tenants wait.
        """
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
        """Return the usable mark that saves most.

        A mark with fewer excluded tenants holds for any larger set.
        """
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
    """Return at most `n` due runs, oldest due first.

    If there are more, choose one run at a time: of the tenant with the fewest held and chosen runs, and among those the
    run that has been due for longest.
    """
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

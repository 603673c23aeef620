"""Fair order of due runs: tenants take turns, the oldest run of each first.

Usually one query per lane suffices: the oldest due runs, as many as are taken. If they fill the page, further queries
exclude the tenants seen so far. No index leads from a tenant to its due runs, so such a query passes over the due runs
of the excluded tenants. A mark remembers how far it got, and the next take continues there.
"""

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from outlast.core.rows.run_rows import Run

HeldCounts = Mapping[str, int]
"""Number of runs that a taker already holds, by tenant."""
NONE_HELD: Final[HeldCounts] = MappingProxyType({})
PAGES: Final = 5  # further queries per lane and take
SLACK: Final = 1_000  # ms by which a commit may land after the time that it wrote as due_at
TRUSTED: Final = 10_000  # ms for which a mark is used; runs that came late or from another lane are found after it
MARKS_MAX: Final = 8


class DueQuery(NamedTuple):
    """Query for the oldest due runs of a lane, at most `limit`, due since `since`, without some tenants."""

    lane: str
    limit: int
    since: int = 0
    without: frozenset[str] = frozenset()


class Mark(NamedTuple):
    """Result of a query: without the tenants in `without`, the lane has no run that was due before `since`."""

    without: frozenset[str]
    since: int
    found_at: int


class DueQueries:
    """The queries of one take, one after another.

    While `query` is set, pass its result to `answer`. Then `found` has the runs to choose from.
    """

    def __init__(self, queries: Generator[DueQuery, Sequence[Run], None], found: list[Run]) -> None:
        self.found = found
        self.query = next(queries, None)
        self._queries = queries

    def answer(self, page: Sequence[Run]) -> None:
        """Pass the rows found for `query` and prepare the next query."""
        try:
            self.query = self._queries.send(page)
        except StopIteration:
            self.query = None


class FairQueue:
    """Marks of one taker, by lane."""

    def __init__(self) -> None:
        self._marks: dict[str, list[Mark]] = {}

    def queries(self, lanes: Sequence[str], limit: int, real: int, held: HeldCounts = NONE_HELD) -> DueQueries:
        """Prepare queries for `limit` runs, and for runs of other tenants if the first page is full."""
        found: list[Run] = []
        return DueQueries(self._queries(lanes, limit, real, held, found), found)

    def _queries(
        self, lanes: Sequence[str], limit: int, real: int, held: HeldCounts, found: list[Run]
    ) -> Generator[DueQuery, Sequence[Run], None]:
        for lane in lanes:
            page = yield DueQuery(lane, limit)
            found += page
            if len(page) >= limit:
                yield from self._others(lane, limit, real, held, found)

    def _others(
        self, lane: str, limit: int, real: int, held: HeldCounts, found: list[Run]
    ) -> Generator[DueQuery, Sequence[Run], None]:
        """Query a lane for tenants that are not in `found` yet.

        The last query also excludes tenants of whom runs are held. So a tenant without a held run is found, however
        many other tenants wait.
        """
        without: frozenset[str] = frozenset()
        page: Sequence[Run] = found
        for n in range(PAGES):
            without |= {run.tenant for run in page if run.lane == lane}
            if n == PAGES - 1:
                without |= held.keys()
            query = self._query(lane, limit, real, without)
            page = yield query
            self._learn(query, page, real)
            found += page
            if len(page) < limit:
                return

    def _query(self, lane: str, limit: int, real: int, without: frozenset[str]) -> DueQuery:
        mark = self._mark(lane, without, real)
        return DueQuery(lane, limit, mark.since if mark else 0, without)

    def _mark(self, lane: str, without: frozenset[str], real: int) -> Mark | None:
        """Return the usable mark that saves most work.

        A mark with fewer excluded tenants holds for any larger set.
        """
        known = [m for m in self._marks.get(lane, ()) if m.without <= without and 0 <= real - m.found_at < TRUSTED]
        return max(known, key=lambda mark: mark.since, default=None)

    def _learn(self, query: DueQuery, page: Sequence[Run], real: int) -> None:
        used = self._mark(query.lane, query.without, real)
        first = page[0].due_at or 0 if page else real
        new = Mark(query.without, max(query.since, min(first, real - SLACK)), used.found_at if used else real)
        others = [m for m in self._marks.get(query.lane, ()) if m is not used and m.without != new.without]
        kept = [used] if used and used.without != new.without else []
        self._marks[query.lane] = [*others, *kept, new][-MARKS_MAX:]


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

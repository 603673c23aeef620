"""Runs by the time of their end, and by the times at which they began to need a person: counts and lists.

A count and the list of the same time have the same conditions, so a list has as many runs as its bar says. A run that
began to need a person several times in this time is counted once, and listed at the last one of these times.

A count reads one entry of an index for each end, start or flagging, the newest bar first. After `most` of them it
begins no further bar, and of one bar it reads at most as many. Then it is a lower bound and says so (decision 0291).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Final, NamedTuple, TypeVar

from typing_extensions import override

from outlast.core.lanes import GUESTS
from outlast.core.machine import RunStatus
from outlast.core.row_checks import listed
from outlast.core.rows.row_kind import Key
from outlast.core.rows.run_rows import FLAGGING, RUN, Flagging, Run
from outlast.core.run_filters import Interval
from outlast.store.queries import PAGE_MAX, Page, Query, Select, cursor_at, place_after
from outlast.store.rows_in_memory import RowsInMemory
from outlast.store.sql import MARK, SQL, Values, listed_rows

OUTCOMES: Final = (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED)
R = TypeVar("R", Run, Flagging)
Counts = tuple[int, ...]
"""Number of runs in each bar, the earliest first."""
RUNS_COUNTED_MAX: Final = 2_000_000
FLAGGINGS_COUNTED_MAX: Final = 200_000
"""Flaggings that a count reads: one costs several times as much as an end, because a run is counted once."""


@dataclass(frozen=True, slots=True)
class BarSpan:
    """Equal parts of time: the first instant in business time, the length of a part in ms, and their number."""

    since: int
    width: int
    bars: int

    @property
    def until(self) -> int:
        """Return the instant after the last part."""
        return self.since + self.width * self.bars

    def counts(self, instants: Sequence[int]) -> Counts:
        """Count instants by the part in which they are."""
        found = [0] * self.bars
        for at in instants:
            if self.since <= at < self.until:
                found[(at - self.since) // self.width] += 1
        return tuple(found)


@dataclass(frozen=True, slots=True)
class OfRuns:
    """Runs to count: of a workflow, a version of it, a cause; '' for any."""

    workflow: str = ""
    lane: str = ""
    """Workflow and version, whatever engine schedules the run."""
    cause: str = ""
    """Text that the column `causes` has, of `open_rows.marks`."""

    def keep(self, run: Run | Flagging) -> bool:
        """Return True if the run, or a flagging of it, is counted."""
        return (
            self.workflow in ("", run.workflow)
            and (not self.lane or f":{self.lane} " in f":{run.lane} ")
            and self.cause in run.causes
        )

    def condition(self) -> tuple[str, tuple[str, ...]]:
        """Return the same as SQL, with its parameters."""
        text, values = "", list[str]()
        if self.workflow:
            text, values = f"{text} AND workflow = {MARK}", [*values, self.workflow]
        if self.lane:
            lanes = [self.lane, *(f"{guest}:{self.lane}" for guest in GUESTS)]
            text = f"{text} AND lane IN ({', '.join(MARK for _ in lanes)})"
            values += lanes
        if self.cause:
            text, values = f"{text} AND replace(causes, {MARK}, '') <> causes", [*values, self.cause]
        return text, tuple(values)


EVERY: Final = OfRuns()


Causes = tuple[str, ...]
"""Values of the column `causes` of a flagging, one of which it has. () = any."""
ANY: Final[Causes] = ()


class CountedBars(NamedTuple):
    """Runs by time: the number in each bar, for each of the counted outcomes or sets of causes."""

    counts: tuple[Counts, ...]
    all: bool = True
    """False if the newest were counted only: a number is a lower bound, and that of an earlier bar may be 0."""


_READ: Final = 2**32
"""Unit of the entries that a sum has read. What is below it, is the number of runs that it has counted."""


def _select(
    span: BarSpan, source: str, counted: str, column: str, where: str, values: Sequence[str], of: OfRuns, most: int
) -> Select:
    """Return the statement that counts rows in each part of time, each by one search of an index.

    `counted` is the column whose different values are counted, or '' for the rows. A record is a part, counted from 1,
    and the sum of the entries that were read and of the runs that were counted in it and in later parts.
    """
    more, further = of.condition()
    number = f"CAST({MARK} AS BIGINT)"
    found = f"count(DISTINCT {counted})" if counted else "count(*)"
    text = (
        f"WITH RECURSIVE bars(n, total) AS (SELECT {number}, CAST(0 AS BIGINT) UNION ALL SELECT n - 1, total + "
        f"(SELECT count(*) * {_READ} + {found} FROM (SELECT {counted or 1} FROM {source} WHERE {where} "
        f"AND {column} >= {number} + (n - 1) * {number} AND {column} < {number} + n * {number}{more} "
        f"LIMIT {most}) found) FROM bars WHERE n > 0 AND total < {most * _READ}) SELECT n, total FROM bars"
    )
    return Select(text, (span.bars, *values, *(span.since, span.width) * 2, *further))


def _counted(found: Sequence[Sequence[Values]], span: BarSpan, most: int) -> CountedBars:
    """Return what statements of `_select` have counted."""
    counts, is_all = list[Counts](), True
    for records in found:
        totals = sorted(int(total) for _, total in records)
        of_bars = [(later - earlier) % _READ for earlier, later in pairwise(totals)]
        counts.append((0,) * (span.bars - len(of_bars)) + tuple(reversed(of_bars)))
        is_all = is_all and totals[-1] < most * _READ
    return CountedBars(tuple(counts), is_all)


def _cut(found: Sequence[tuple[Counts, Counts]], most: int) -> CountedBars:
    """Return counts of rows in memory as far as statements of `_select` count.

    `found`: for each statement the entries of each bar, and how many of them count.
    """
    counts, is_all = list[Counts](), True
    for read, counted in found:
        left, kept = most, list[int]()
        for entries, n in zip(reversed(read), reversed(counted), strict=True):
            kept.append(min(n, most) if left > 0 else 0)
            left -= min(entries, most) if left > 0 else 0
        counts.append(tuple(reversed(kept)))
        is_all = is_all and left > 0
    return CountedBars(tuple(counts), is_all)


def _rows_max(limit: int) -> int:
    return min(limit, PAGE_MAX)


def _page_of(found: Sequence[R], place: Callable[[R], Key], limit: int) -> Page[R]:
    """Return the first page of ordered rows, with a cursor if there are more."""
    page = tuple(found[: _rows_max(limit)])
    return Page(page, cursor_at(place(page[-1])) if len(found) > len(page) else "")


# --- starts ------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class StartBars(Query[CountedBars]):
    """A tenant's runs by the time of their start."""

    tenant: str
    span: BarSpan
    of: OfRuns = EVERY
    most: int = RUNS_COUNTED_MAX
    long: ClassVar[bool] = True

    @override
    def statements(self) -> Sequence[Select]:
        where = f"tenant = {MARK}"
        return (_select(self.span, "run", "", "created_at", where, (self.tenant,), self.of, self.most),)

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> CountedBars:
        return _counted(found, self.span, self.most)

    @override
    def find(self, rows: RowsInMemory) -> CountedBars:
        runs = [run for run in rows.under(RUN, (self.tenant,)) if self.of.keep(run)]
        counts = self.span.counts([run.created_at for run in runs])
        return _cut([(counts, counts)], self.most)


# --- ends --------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class EndBars(Query[CountedBars]):
    """A tenant's ended runs by the time of their end and by their outcome."""

    tenant: str
    span: BarSpan
    of: OfRuns = EVERY
    most: int = RUNS_COUNTED_MAX
    """Entries that are read for each outcome."""
    long: ClassVar[bool] = True

    @override
    def statements(self) -> Sequence[Select]:
        where = f"tenant = {MARK} AND status = {MARK} AND ended_at <> 0"
        return [
            _select(self.span, "run", "", "ended_at", where, (self.tenant, each.value), self.of, self.most)
            for each in _with_causes(OUTCOMES, self.of)
        ]

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> CountedBars:
        counted = _counted(found, self.span, self.most)
        counts = dict(zip(_with_causes(OUTCOMES, self.of), counted.counts, strict=True))
        return counted._replace(counts=tuple(counts.get(each, (0,) * self.span.bars) for each in OUTCOMES))

    @override
    def find(self, rows: RowsInMemory) -> CountedBars:
        runs = [run for run in rows.over(self.tenant, self.span.since) if self.of.keep(run)]
        ends = [[run.ended_at for run in runs if run.status is each] for each in OUTCOMES]
        counts = map(self.span.counts, ends)
        return _cut([(each, each) for each in counts], self.most)


def _with_causes(outcomes: Sequence[RunStatus], of: OfRuns) -> list[RunStatus]:
    """Return the outcomes of which runs can be counted. Of the ended runs, only failed ones have a cause."""
    return [each for each in outcomes if not of.cause or each is RunStatus.FAILED]


def end_place(run: Run) -> Key:
    """Return the position of a run in `RunsByEnd`."""
    return (run.ended_at, run.run)


@dataclass(frozen=True, slots=True)
class RunsByEnd(Query[Page[Run]]):
    """One page of a tenant's runs that ended in an interval with one of these statuses, the newest end first."""

    tenant: str
    interval: Interval
    of: OfRuns = EVERY
    statuses: tuple[RunStatus, ...] = OUTCOMES
    cursor: str = ""
    limit: int = 50

    @override
    def statements(self) -> Sequence[Select]:
        more, further = self.of.condition()
        after = place_after(RUN, self.cursor)
        # Not both conditions, because SQLite may then search by the wider one.
        below = f"(ended_at, run) < ({MARK}, {MARK})" if after else f"ended_at < {MARK}"
        text = (
            f"SELECT {SQL[RUN.name].columns} FROM run WHERE tenant = {MARK} AND status = {MARK} AND ended_at <> 0 "
            f"AND ended_at >= {MARK} AND {below}{more} ORDER BY ended_at DESC, run DESC LIMIT {MARK}"
        )
        begin = (self.interval.low, *(after or (self.interval.high,)), *further, _rows_max(self.limit) + 1)
        return [Select(text, (self.tenant, each.value, *begin)) for each in _with_causes(self.statuses, self.of)]

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> Page[Run]:
        return self._page([run for values in found for run in listed_rows(RUN, values)])

    @override
    def find(self, rows: RowsInMemory) -> Page[Run]:
        after = place_after(RUN, self.cursor)
        found = [
            listed(RUN, run)
            for run in rows.over(self.tenant, self.interval.low)
            if self.interval.has(run.ended_at)
            and run.status in self.statuses
            and self.of.keep(run)
            and (after is None or end_place(run) < after)
        ]
        return self._page(found)

    def _page(self, found: Iterable[Run]) -> Page[Run]:
        return _page_of(sorted(found, key=end_place, reverse=True), end_place, self.limit)


# --- flaggings ---------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class FlaggedBars(Query[CountedBars]):
    """A tenant's runs that began to need a person in each part of time, answered or not, for each set of causes."""

    tenant: str
    span: BarSpan
    causes: tuple[Causes, ...] = (ANY,)
    of: OfRuns = EVERY
    most: int = FLAGGINGS_COUNTED_MAX
    """Entries that are read for each set of causes."""
    long: ClassVar[bool] = True

    @override
    def statements(self) -> Sequence[Select]:
        return [self._of(each) for each in self.causes]

    def _of(self, causes: Causes) -> Select:
        where = f"tenant = {MARK}" + (f" AND causes IN ({', '.join(MARK for _ in causes)})" if causes else "")
        return _select(self.span, "flagging", "run", "at", where, (self.tenant, *causes), self.of, self.most)

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> CountedBars:
        return _counted(found, self.span, self.most)

    @override
    def find(self, rows: RowsInMemory) -> CountedBars:
        span = self.span
        there = [row for row in rows.under(FLAGGING, (self.tenant,)) if span.since <= row.at < span.until]
        there = [row for row in there if self.of.keep(row)]
        return _cut([self._counted(there, each) for each in self.causes], self.most)

    def _counted(self, rows: Iterable[Flagging], causes: Causes) -> tuple[Counts, Counts]:
        span = self.span
        of_causes = [row for row in rows if not causes or row.causes in causes]
        once = {((row.at - span.since) // span.width, row.run) for row in of_causes}
        return span.counts([row.at for row in of_causes]), span.counts([span.since + n * span.width for n, _ in once])


def flagging_place(row: Flagging) -> Key:
    """Return the position of a flagging in `LastFlaggings`."""
    return (row.at, row.run)


@dataclass(frozen=True, slots=True)
class LastFlaggings(Query[Page[Flagging]]):
    """One page of the last flagging in an interval of each run of a tenant, newest first."""

    tenant: str
    interval: Interval
    of: OfRuns = EVERY
    cursor: str = ""
    limit: int = 50

    @override
    def statements(self) -> Sequence[Select]:
        more, further = self.of.condition()
        after = place_after(RUN, self.cursor)
        # Not both conditions, because SQLite may then search by the wider one. Because of the sums it finds the later
        # flaggings of a run by their run.
        below = f"(at, run) < ({MARK}, {MARK})" if after else f"at < {MARK}"
        text = (
            f"SELECT {SQL[FLAGGING.name].columns} FROM flagging f WHERE tenant = {MARK} AND at >= {MARK} "
            f"AND {below}{more} AND NOT EXISTS (SELECT 1 FROM flagging WHERE tenant = f.tenant AND run = f.run "
            f"AND seq > f.seq AND at + 0 >= {MARK} AND at + 0 < {MARK}{more}) ORDER BY at DESC, run DESC LIMIT {MARK}"
        )
        low, high = self.interval
        values = (self.tenant, low, *(after or (high,)), *further, low, high, *further, _rows_max(self.limit) + 1)
        return (Select(text, values),)

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> Page[Flagging]:
        return self._page(listed_rows(FLAGGING, found[0]))

    @override
    def find(self, rows: RowsInMemory) -> Page[Flagging]:
        after = place_after(RUN, self.cursor)
        there = [row for row in rows.under(FLAGGING, (self.tenant,)) if self.interval.has(row.at) and self.of.keep(row)]
        last: dict[str, Flagging] = {}
        for row in sorted(there, key=lambda row: row.seq):
            last[row.run] = row
        found = [row for row in last.values() if after is None or flagging_place(row) < after]
        return self._page(sorted(found, key=flagging_place, reverse=True))

    def _page(self, found: Sequence[Flagging]) -> Page[Flagging]:
        return _page_of(found, flagging_place, self.limit)


class FlaggingTimes(NamedTuple):
    """First and last flagging with one value of the column `causes`, and the lane of the first."""

    causes: str
    since: int
    last: int
    lane: str


_OF_CAUSES: Final = f"FROM flagging f WHERE f.tenant = {MARK} AND f.causes = texts.causes"
# Each step finds the next value by the index `flagging_cause`. Parameter, five times: tenant.
_TIMES: Final = (
    f"WITH RECURSIVE texts(causes) AS (SELECT min(causes) FROM flagging WHERE tenant = {MARK} UNION ALL SELECT "
    f"(SELECT min(f.causes) FROM flagging f WHERE f.tenant = {MARK} AND f.causes > texts.causes) "
    "FROM texts WHERE texts.causes IS NOT NULL) "
    f"SELECT causes, (SELECT min(f.at) {_OF_CAUSES}), (SELECT max(f.at) {_OF_CAUSES}), "
    f"(SELECT f.lane {_OF_CAUSES} ORDER BY f.at, f.run LIMIT 1) FROM texts WHERE causes IS NOT NULL"
)


@dataclass(frozen=True, slots=True)
class TimesOfCauses(Query[tuple[FlaggingTimes, ...]]):
    """The first and the last flagging of a tenant with each value of the column `causes`."""

    tenant: str

    @override
    def statements(self) -> Sequence[Select]:
        return (Select(_TIMES, (self.tenant,) * 5),)

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> tuple[FlaggingTimes, ...]:
        return tuple(
            FlaggingTimes(str(causes), int(since), int(last), str(lane)) for causes, since, last, lane in found[0]
        )

    @override
    def find(self, rows: RowsInMemory) -> tuple[FlaggingTimes, ...]:
        found: dict[str, FlaggingTimes] = {}
        for row in sorted(rows.under(FLAGGING, (self.tenant,)), key=flagging_place):
            first = found.setdefault(row.causes, FlaggingTimes(row.causes, row.at, row.at, row.lane))
            found[row.causes] = first._replace(last=row.at)
        return tuple([found[causes] for causes in sorted(found)])


@dataclass(frozen=True, slots=True)
class FirstFlagged(Query[tuple[Run, ...]]):
    """The flagged run whose attention began first, for each of these values of the column `causes` that has runs."""

    tenant: str
    causes: tuple[str, ...]

    @override
    def statements(self) -> Sequence[Select]:
        text = (
            f"SELECT {SQL[RUN.name].columns} FROM run WHERE tenant = {MARK} AND causes = {MARK} AND flagged_at <> 0 "
            "ORDER BY flagged_at LIMIT 1"
        )
        return [Select(text, (self.tenant, each)) for each in self.causes]

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> tuple[Run, ...]:
        return tuple(run for values in found for run in listed_rows(RUN, values))

    @override
    def find(self, rows: RowsInMemory) -> tuple[Run, ...]:
        first: dict[str, Run] = {}
        for run in sorted(rows.open(RUN, self.tenant), key=lambda run: (run.flagged_at, run.run)):
            first.setdefault(run.causes, run)
        return tuple(listed(RUN, first[each]) for each in self.causes if each in first)

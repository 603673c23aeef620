"""Counts of runs by time, from indexes alone: ends of runs, and runs that still need a person."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from typing_extensions import override

from outlast.core.machine import RunStatus
from outlast.core.row_checks import listed
from outlast.core.rows.run_rows import RUN, Run
from outlast.store.queries import Query, Select
from outlast.store.rows_in_memory import RowsInMemory
from outlast.store.sql import MARK, SQL, Values, listed_rows

OUTCOMES: Final = (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED)
Counts = tuple[int, ...]
"""Number of runs in each bar, the earliest first."""


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
    """Text that the column `causes` has."""

    def keep(self, run: Run) -> bool:
        """Return True if the run is counted."""
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
            text += f" AND replace(':' || lane || ' ', {MARK}, '') <> ':' || lane || ' '"
            values.append(f":{self.lane} ")
        if self.cause:
            text, values = f"{text} AND replace(causes, {MARK}, '') <> causes", [*values, self.cause]
        return text, tuple(values)


EVERY: Final = OfRuns()


def _select(span: BarSpan, column: str, where: str, values: Sequence[str], of: OfRuns) -> Select:
    """Return the statement that counts runs in each part of time, each by one search of an index."""
    more, further = of.condition()
    number = f"CAST({MARK} AS BIGINT)"
    text = (
        f"WITH RECURSIVE bars(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM bars WHERE n + 1 < {number}) "
        f"SELECT n, (SELECT count(*) FROM run WHERE {where} AND {column} <> 0 AND {column} >= {number} + n * {number} "
        f"AND {column} < {number} + (n + 1) * {number}{more}) FROM bars ORDER BY n"
    )
    return Select(text, (span.bars, *values, *(span.since, span.width) * 2, *further))


def _counts(found: Sequence[Values]) -> Counts:
    return tuple(int(n) for _, n in found)


class CountedEnds(NamedTuple):
    """Ended runs by the time of their end: for each of OUTCOMES the number in each bar."""

    by_outcome: tuple[Counts, ...]
    all: bool = True
    """False if only the newest ends were read."""


@dataclass(frozen=True, slots=True)
class EndBars(Query[CountedEnds]):
    """A tenant's ended runs by the time of their end and by their outcome."""

    tenant: str
    span: BarSpan
    of: OfRuns = EVERY

    @override
    def statements(self) -> Sequence[Select]:
        where = f"tenant = {MARK} AND status = {MARK}"
        return [_select(self.span, "ended_at", where, (self.tenant, each.value), self.of) for each in OUTCOMES]

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> CountedEnds:
        return CountedEnds(tuple(map(_counts, found)))

    @override
    def find(self, rows: RowsInMemory) -> CountedEnds:
        runs = [run for run in rows.over(self.tenant, self.span.since) if self.of.keep(run)]
        ends = [[run.ended_at for run in runs if run.status is each] for each in OUTCOMES]
        return CountedEnds(tuple(map(self.span.counts, ends)))


@dataclass(frozen=True, slots=True)
class FlaggedBars(Query[tuple[Counts, ...]]):
    """A tenant's flagged runs by the beginning of their attention, for each of these values of the column `causes`."""

    tenant: str
    causes: tuple[str, ...]
    span: BarSpan
    of: OfRuns = EVERY

    @override
    def statements(self) -> Sequence[Select]:
        where = f"tenant = {MARK} AND causes = {MARK}"
        return [_select(self.span, "flagged_at", where, (self.tenant, each), self.of) for each in self.causes]

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> tuple[Counts, ...]:
        return tuple(map(_counts, found))

    @override
    def find(self, rows: RowsInMemory) -> tuple[Counts, ...]:
        runs = [run for run in rows.open(RUN, self.tenant) if self.of.keep(run)]
        return tuple(self.span.counts([run.flagged_at for run in runs if run.causes == each]) for each in self.causes)


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

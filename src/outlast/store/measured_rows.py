"""Reads of the instants from which durations are measured: of ended runs, their events and calls, and of approvals.

Each row has a few columns only, because a page reads thousands of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from typing_extensions import override

from outlast.core.events import TAKEN, TYPES
from outlast.core.machine import ApprovalStatus
from outlast.core.row_checks import DECIDED
from outlast.core.rows.effect_rows import APPROVAL, EFFECT, Approval
from outlast.core.rows.run_rows import EVENT, RUN, Event
from outlast.store.bars import EVERY, OUTCOMES, OfRuns
from outlast.store.queries import Query, Select
from outlast.store.rows_in_memory import RowsInMemory
from outlast.store.sql import MARK, Values

FIRST_EVENTS: Final = (2, 3)
"""Numbers of the events of which one is the first claim: a run that waited for a slot was queued before."""
_CLAIMS: Final = ", ".join(f"'{each.removeprefix(TYPES)}'" for each in sorted(TAKEN))


class MeasuredRun(NamedTuple):
    """Ended run: when it was created and, at the earliest, claimed, in business time.

    `claimed_at` 0: no worker claimed it, or its first events are gone. `seq`: the number of its events.
    """

    run: str
    workflow: str
    created_at: int
    ended_at: int
    seq: int
    claimed_at: int


class LastEnds(NamedTuple):
    """Durations of the runs that ended last, in any order, the last of these runs, and whether further ones match."""

    took: tuple[int, ...]
    last: tuple[MeasuredRun, ...]
    more: bool


class MeasuredApproval(NamedTuple):
    """Instants of an approval in business time. `decided_at` 0: it is pending."""

    workflow: str
    rule: str
    asked_at: int
    decided_at: int


class Measured(NamedTuple):
    """Approvals, and whether further ones match."""

    rows: tuple[MeasuredApproval, ...]
    more: bool


@dataclass(frozen=True, slots=True)
class MeasuredRuns(Query[LastEnds]):
    """A tenant's runs that ended from `since` until before `until`: the durations of `most`, and the last `last`.

    They are two statements, because the columns of the second one, and the first events, cost thrice the durations.
    """

    long: ClassVar[bool] = True

    tenant: str
    since: int
    until: int
    of: OfRuns = EVERY
    most: int = 10_000
    last: int = 2_000

    @override
    def statements(self) -> Sequence[Select]:
        took = self._ends("ended_at - created_at AS took, ended_at")
        ends = self._ends("tenant, run, workflow, created_at, ended_at, seq")
        claimed = (
            "SELECT e.at FROM event e WHERE e.tenant = ends.tenant AND e.run = ends.run AND "
            f"e.seq >= {FIRST_EVENTS[0]} AND e.seq <= {FIRST_EVENTS[-1]} AND e.kind IN ({_CLAIMS}) "
            "ORDER BY e.seq LIMIT 1"
        )
        named = f"WITH ends AS ({ends}) SELECT run, workflow, created_at, ended_at, seq, ({claimed}) FROM ends"
        _, further = self.of.condition()
        values = [(self.tenant, outcome.value, self.since, self.until, *further) for outcome in OUTCOMES]
        of_ends = tuple(value for part in values for value in part)
        return Select(took, (*of_ends, self.most + 1)), Select(named, (*of_ends, self.last))

    def _ends(self, columns: str) -> str:
        """Return the text that finds the last ends: one search of the index per outcome, which the database merges."""
        more, _ = self.of.condition()
        one = (
            f"SELECT {columns} FROM run WHERE tenant = {MARK} AND status = {MARK} "
            f"AND ended_at <> 0 AND ended_at >= {MARK} AND ended_at < {MARK}{more}"
        )
        return f"{' UNION ALL '.join(one for _ in OUTCOMES)} ORDER BY ended_at DESC LIMIT {MARK}"

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> LastEnds:
        took, runs = found
        last = (MeasuredRun(str(run), str(flow), *map(_whole, rest)) for run, flow, *rest in runs)
        return self._answer([_whole(each[0]) for each in took], last)

    @override
    def find(self, rows: RowsInMemory) -> LastEnds:
        took: list[int] = []
        last: list[MeasuredRun] = []
        for run in rows.over(self.tenant, self.since):
            if run.ended_at >= self.until or run.status not in OUTCOMES or not self.of.keep(run):
                continue
            took.append(run.ended_at - run.created_at)
            if len(last) < self.last:
                first = [rows.get(EVENT, (run.tenant, run.run, seq)) for seq in FIRST_EVENTS]
                claimed = next((event.at for event in first if event is not None and event.type in TAKEN), 0)
                last.append(MeasuredRun(run.run, run.workflow, run.created_at, run.ended_at, run.seq, claimed))
            if len(took) > self.most:
                break
        return self._answer(took, last)

    def _answer(self, took: Sequence[int], last: Iterable[MeasuredRun]) -> LastEnds:
        ordered = sorted(last, key=lambda each: (-each.ended_at, each.run))
        return LastEnds(tuple(took[: self.most]), tuple(ordered[: self.last]), len(took) > self.most)


class MeasuredCall(NamedTuple):
    """Instants of a call: the first intent in real time, and its end in business time; 0: it has none."""

    first_at: int
    settled_at: int


class RunCourse(NamedTuple):
    """Events of a run, oldest first, with those columns that its waits and visits are derived from, and its calls."""

    run: str
    events: tuple[Event, ...]
    calls: tuple[MeasuredCall, ...]


@dataclass(frozen=True, slots=True)
class RunCourses(Query[tuple[RunCourse, ...]]):
    """Events and calls of these runs, in the order of `runs`, without states, arguments and answers."""

    long: ClassVar[bool] = True

    tenant: str
    runs: tuple[str, ...]

    @override
    def statements(self) -> Sequence[Select]:
        where = f"tenant = {MARK} AND run IN ({', '.join(MARK for _ in self.runs)})"
        events = f"SELECT run, seq, kind, at, node, visit, details FROM event WHERE {where}"
        calls = f"SELECT run, first_at, settled_at FROM effect WHERE {where}"
        return [Select(each, (self.tenant, *self.runs)) for each in (events, calls)]

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> tuple[RunCourse, ...]:
        events: dict[str, list[Event]] = {run: [] for run in self.runs}
        calls: dict[str, list[MeasuredCall]] = {run: [] for run in self.runs}
        for run, seq, kind, at, node, visit, details in found[0]:
            data = details if isinstance(details, bytes) else b""
            row = self._event(str(run), _whole(seq), str(kind), _whole(at), str(node), _whole(visit), data)
            events[row.run].append(row)
        for run, first_at, settled_at in found[1]:
            calls[str(run)].append(MeasuredCall(_whole(first_at), _whole(settled_at)))
        return self._courses(events, calls)

    @override
    def find(self, rows: RowsInMemory) -> tuple[RunCourse, ...]:
        events, calls = dict[str, list[Event]](), dict[str, list[MeasuredCall]]()
        for run in self.runs:
            found = rows.under(EVENT, (self.tenant, run))
            events[run] = [self._event(run, e.seq, e.kind, e.at, e.node, e.visit, e.details) for e in found]
            effects = rows.under(EFFECT, (self.tenant, run))
            calls[run] = [MeasuredCall(effect.first_at, effect.settled_at) for effect in effects]
        return self._courses(events, calls)

    def _event(self, run: str, seq: int, kind: str, at: int, node: str, visit: int, details: bytes) -> Event:
        return Event(self.tenant, run, seq, kind, at, node, visit, 0, 0, "", "", "", details, "", None)

    def _courses(
        self, events: Mapping[str, Sequence[Event]], calls: Mapping[str, Sequence[MeasuredCall]]
    ) -> tuple[RunCourse, ...]:
        return tuple(
            RunCourse(run, tuple(sorted(events[run], key=lambda each: each.seq)), tuple(sorted(calls[run])))
            for run in self.runs
        )


@dataclass(frozen=True, slots=True)
class MeasuredApprovals(Query[Measured]):
    """A tenant's approvals, at most `most`.

    Those that a person has decided and that were requested from `since` until before `until`, newest first. `pending`:
    in their place those that wait, whenever they were requested, the earliest deadline first.
    """

    long: ClassVar[bool] = True

    tenant: str
    since: int
    until: int
    of: OfRuns = EVERY
    most: int = 10_000
    pending: bool = False

    @override
    def statements(self) -> Sequence[Select]:
        more, further = self.of.condition()
        times: tuple[int, ...] = (self.since, self.until)
        if self.pending:
            times = ()
            where = f"a.status = '{ApprovalStatus.PENDING}'{more} ORDER BY a.within_until, a.run, a.id"
        else:
            decided = ", ".join(f"'{each}'" for each in sorted(DECIDED))
            where = (
                f"a.asked_at >= {MARK} AND a.asked_at < {MARK} AND a.status IN ({decided}){more} "
                "ORDER BY a.asked_at DESC, a.run DESC, a.id DESC"
            )
        text = (
            "SELECT r.workflow, a.who, a.asked_at, a.decided_at FROM approval a CROSS JOIN run r "
            f"WHERE a.tenant = {MARK} AND r.tenant = a.tenant AND r.run = a.run AND {where} LIMIT {MARK}"
        )
        return (Select(text, (self.tenant, *times, *further, self.most + 1)),)

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> Measured:
        rows = [
            MeasuredApproval(str(flow), str(rule), _whole(asked), _whole(decided))
            for flow, rule, asked, decided in found[0]
        ]
        return Measured(tuple(rows[: self.most]), len(rows) > self.most)

    @override
    def find(self, rows: RowsInMemory) -> Measured:
        if self.pending:
            kept = [row for row in rows.under(APPROVAL, (self.tenant,)) if row.status is ApprovalStatus.PENDING]
            kept.sort(key=lambda row: (row.within_until, row.run, row.id))
        else:
            kept = [row for row in rows.under(APPROVAL, (self.tenant,)) if self._is_decided(row)]
            kept.sort(key=lambda row: (row.asked_at, row.run, row.id), reverse=True)
        found = []
        for row in kept:
            run = rows.get(RUN, (row.tenant, row.run))
            if run is not None and self.of.keep(run):
                found.append(MeasuredApproval(run.workflow, row.who, row.asked_at, row.decided_at))
        return Measured(tuple(found[: self.most]), len(found) > self.most)

    def _is_decided(self, row: Approval) -> bool:
        return row.status in DECIDED and self.since <= row.asked_at < self.until


def _whole(value: object) -> int:
    """Return a stored number, 0 if the column holds another type."""
    return value if type(value) is int else 0

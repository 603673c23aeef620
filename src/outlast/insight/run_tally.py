"""Totals of a list of runs by status, and the instants at which its runs started and stopped.

They are counted from the newest matching runs, at most as many as the store counts at once. If there are older ones and
indexes serve the filters of the list (`is_counted`), ends and flagged runs are counted there, exactly on SQLite and
PostgreSQL. Other numbers are lower bounds then, and the answer says so.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from outlast.core.durations import DAY, HOUR, MINUTE, SECOND
from outlast.core.lanes import workflow_in
from outlast.core.machine import TERMINAL, RunStatus
from outlast.core.rows.limit_rows import PAUSE, Pause
from outlast.core.rows.run_rows import Run
from outlast.core.rows.store_rows import STORE, TOPOLOGY, Topology
from outlast.core.run_filters import Interval
from outlast.insight.cause_reads import BARS, FLAGGED, counted_bars, ended_runs, flagged_runs
from outlast.insight.tenant_rows import TenantRows, stopped_at
from outlast.models import exact_instant
from outlast.operations.cause_operations import GetBars
from outlast.operations.run_operations import ListRuns
from outlast.store.bars import OUTCOMES

RUNNING: Final = "started"
ALL: Final = "all"
DEPLOY: Final = "deploy"
PAUSED: Final = "pause"
APPROVAL: Final = "approval"
"""Kind of the wait for an approval, and the number of runs that have it."""
_WIDTHS: Final = (
    SECOND, 10 * SECOND, 30 * SECOND, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR,
    2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 28 * DAY,
)  # fmt: skip
"""Widths of a bar. Beyond the last one, older runs have no bar."""


class TallyBar(NamedTuple):
    """Runs of one interval by outcome: a status of an end, `flagged`, or `started`."""

    at: Interval
    counts: dict[str, int]

    @property
    def total(self) -> int:
        """Return the number of runs of the bar."""
        return sum(self.counts.values())


class TimeMark(NamedTuple):
    """A deploy or a pause at its instant. `name`: what was deployed or paused; `by`, `reason`: of a pause."""

    at: int
    kind: str
    name: str
    by: str = ""
    reason: str = ""


class RunTally(NamedTuple):
    """Totals of a list by status without its filter by status, and bars of the list."""

    by_status: dict[str, int]
    flagged: int
    at_least: frozenset[str]
    """Numbers that are lower bounds, as older runs match and were not counted: statuses, FLAGGED, ALL, APPROVAL."""
    bars: Sequence[TallyBar]
    whole_bars: bool
    """False: runs before the first bar are not drawn."""
    exact_bars: bool
    """False: older runs that match may be missing in the bars."""
    by_kind: bool = False
    """True: a bar has the runs that ended, and those that began to need a person, answered or not. One may be both."""
    marks: Sequence[TimeMark] = ()
    """Deploys and pauses in the time of the bars, the earliest first."""
    approvals: int = 0
    """Runs that were read and wait for an approval, without the filter by status."""

    @property
    def total(self) -> int:
        """Return the number of runs that were counted, by status, or as ended and flagged ones if these are more."""
        ended = sum(self.by_status.get(each, 0) for each in TERMINAL)
        return max(sum(self.by_status.values()), ended + self.flagged)


async def tally_of(rows: TenantRows, of: ListRuns, *, starts: bool = False) -> RunTally:
    """Count the runs of a list. `starts`: the bars are of starts instead of ends and calls for a person."""
    every = replace(of, status="", cursor="", sort="")
    found, complete = await rows.matching(every, rows.store.count_max)
    kept = [run for run in found if of.status in ("", run.status)]
    instants = [_event(run, starts=starts) for run in kept]
    now = (await rows.store.now()).business
    bars, whole = bars_of([each for each in instants if each[0]], now)
    by_kind = bool(bars) and not starts and is_counted(of)
    if by_kind:
        whole = min(run.created_at for run in kept) >= bars[0].at.low
    (by_status, flagged, at_least), (counted, exact), marks = await asyncio.gather(
        _totals(rows, every, found, complete=complete),
        _counted(rows, of if by_kind else None, bars, complete=complete),
        _marks(rows, {run.workflow for run in kept}, bars),
    )
    approvals = sum(any(wait.kind == APPROVAL for wait in run.waiting_for) for run in found)
    if not complete:
        at_least |= {APPROVAL}
    return RunTally(by_status, flagged, at_least, counted, whole and complete, exact, by_kind, marks, approvals)


def is_counted(of: ListRuns) -> bool:
    """Return True if indexes serve every filter of a list, so that ends and flagged runs are counted there."""
    plain = ListRuns(limit=of.limit, workflow=of.workflow, version=of.version, cause=of.cause, status=of.status)
    of_ends = of.status == "" or (of.status in TERMINAL and not of.attention)
    return (
        of_ends and (bool(of.workflow) or not of.version) and replace(of, attention=False, cursor="", sort="") == plain
    )


async def _totals(
    rows: TenantRows, of: ListRuns, found: Sequence[Run], *, complete: bool
) -> tuple[dict[str, int], int, frozenset[str]]:
    """Return the number of runs by status and of flagged ones, and which of them are lower bounds."""
    by_status = dict(Counter(run.status.value for run in found))
    flagged = sum(bool(run.attention_text) for run in found)
    if complete:
        return by_status, flagged, frozenset()
    at_least = {ALL, FLAGGED, *RunStatus}
    if not is_counted(of) or rows.store.skew:
        return by_status, flagged, frozenset(at_least)
    (flagged, more_flagged), (ended, more_ended) = await asyncio.gather(
        flagged_runs(rows, _request(of)), _no_ended() if of.attention else ended_runs(rows, _request(of))
    )
    by_status |= {name: n for name, n in ended.items() if n}
    at_least -= set() if more_ended else TERMINAL
    at_least -= set() if more_flagged else {FLAGGED, *([ALL] if of.attention else [])}
    return by_status, flagged, frozenset(at_least)


async def _no_ended() -> tuple[dict[str, int], bool]:
    """Count no ended run: those that were read are a lower bound."""
    return {}, True


def _request(of: ListRuns) -> GetBars:
    outcome = of.status or (FLAGGED if of.attention else "")
    return GetBars(workflow=of.workflow, version=of.version or None, outcome=outcome, cause=of.cause)


async def _counted(
    rows: TenantRows, of: ListRuns | None, bars: Sequence[TallyBar], *, complete: bool
) -> tuple[Sequence[TallyBar], bool]:
    """Return bars of the same times, counted in indexes, and whether they have every run.

    `of` is None if no index serves the list; the bars are then as they are.
    """
    if of is None:
        return bars, complete
    first, last = bars[0].at, bars[-1].at
    since, until = exact_instant(first.low), exact_instant(last.high)
    found = await counted_bars(rows, replace(_request(of), since=since, until=until, bars=len(bars)))
    names = (*(each.value for each in OUTCOMES), FLAGGED)
    counts = [{name: n for name in names if (n := getattr(bar, name))} for bar in found.bars]
    return [TallyBar(bar.at, each) for bar, each in zip(bars, counts, strict=True)], not found.at_least


async def _marks(rows: TenantRows, workflows: set[str], bars: Sequence[TallyBar]) -> list[TimeMark]:
    """Return the deploys of workflows, and the pauses that concern their tenant, in the time of the bars.

    A pause has one row, so the last one under its name is known, also once it has ended.
    """
    if not bars:
        return []
    topologies = await rows.store.rows(TOPOLOGY, (STORE,), listed=True)
    pauses = await rows.store.rows(PAUSE, (rows.tenant,), listed=True)
    return marks_in(Interval(bars[0].at.low, bars[-1].at.high), workflows, topologies, pauses)


def marks_in(
    time: Interval, workflows: set[str], topologies: Sequence[Topology], pauses: Sequence[Pause]
) -> list[TimeMark]:
    """Return the deploys of workflows, and the pauses that are in force or were the last under their name."""
    found = [TimeMark(row.at, DEPLOY, row.lane) for row in topologies if workflow_in(row.lane) in workflows]
    for row in pauses:
        kind, _, name = row.key.partition("/")
        if kind != "workflow" or name in workflows:
            found.append(TimeMark(row.since, PAUSED, f"{kind} {name}".strip(), row.by if row.up else "", row.reason))
    return sorted(each for each in found if time.has(each.at))


def bars_of(events: Sequence[tuple[int, str]], now: int) -> tuple[list[TallyBar], bool]:
    """Return bars of equal width up to now, and whether they have every event.

    A bar begins at a multiple of its width.
    """
    if not events:
        return [], True
    first = min(at for at, _ in events)
    width = next((w for w in _WIDTHS if now // w - first // w < BARS), _WIDTHS[-1])
    last = max(now, *(at for at, _ in events)) // width
    begin = max(last - BARS + 1, 0)
    bars = [TallyBar(Interval(n * width, (n + 1) * width), {}) for n in range(begin, last + 1)]
    whole = True
    for at, outcome in events:
        place = at // width - begin
        if place < 0:
            whole = False
            continue
        counts = bars[place].counts
        counts[outcome] = counts.get(outcome, 0) + 1
    return bars, whole


def _event(run: Run, *, starts: bool) -> tuple[int, str]:
    """Return instant and outcome of a run in the bars; 0 if it has none."""
    outcome = run.status.value if run.status in TERMINAL else FLAGGED if run.attention_text else RUNNING
    return (run.created_at if starts else stopped_at(run)), outcome

"""Distributions of the durations of runs, of their nodes and of decisions, from the newest rows of a tenant."""

from collections.abc import Iterable, Sequence
from typing import Final

from outlast.core.distributions import distribution
from outlast.core.rows.run_rows import RUN
from outlast.errors import Corrupt
from outlast.insight.counted_time import counted_runs, counted_time
from outlast.insight.run_course import RunTime, TimeSpent, run_time
from outlast.insight.run_history import RunHistory
from outlast.insight.tenant_rows import TenantRows
from outlast.models import exact_instant
from outlast.models.measurements import (
    DecisionGroup,
    DecisionTimes,
    HistogramPart,
    MeasuredTime,
    NodeDurations,
    RunDurations,
)
from outlast.operations.metric_operations import GetDecisionTimes, GetRunDurations
from outlast.store.bars import BarSpan, EndBars
from outlast.store.measured_rows import MeasuredApprovals, MeasuredRun, MeasuredRuns, RunCourses

ROWS_PER_COUNT: Final = 10
"""Rows that are measured for each row that the store counts at once: 10,000 at most, on DynamoDB 1,000."""
CLAIMED_PER_COUNT: Final = 2
"""The same for the wait before the first step: 2,000, on DynamoDB 200."""
SAMPLE_MAX: Final = 200
SAMPLE_PER_COUNT: Final = 2
"""On DynamoDB, where each event is an item, this many runs of two rows that it counts: 50."""
EVENTS_OF_RUN_MAX: Final = 1_000
EVENTS_MAX: Final = 10_000
NODES_MAX: Final = 100
GROUPS_MAX: Final = 100


async def run_durations(of: TenantRows, request: GetRunDurations) -> RunDurations:
    """Return durations of the runs that ended last in a time, and of the nodes of a sample. Raises InvalidInput."""
    time = counted_time(request.since, request.until, await of.store.now())
    kept = counted_runs(request.workflow, request.version)
    most = ROWS_PER_COUNT * of.store.count_max
    last = CLAIMED_PER_COUNT * of.store.count_max
    took, runs, more = await of.store.query(MeasuredRuns(of.tenant, time.low, time.high, kept, most, last))
    lags = of.store.skew > 0
    ended, at_least = len(took), more and lags
    if more and not lags:  # an index that lags has the end of each run in its row, so counting would read all of them
        found = await of.store.query(EndBars(of.tenant, BarSpan(time.low, time.high - time.low, 1), kept))
        ended, at_least = sum(counts[0] for counts in found.counts), not found.all
    sampled = await _sampled(of, runs)
    spent = [each.spent for _, each in sampled]
    return RunDurations(
        runs=len(took),
        ended=ended,
        at_least=at_least,
        about=lags,
        since=exact_instant(time.low),
        until=exact_instant(time.high),
        duration=measured_time(took),
        first_step=measured_time(run.claimed_at - run.created_at for run in runs if run.claimed_at),
        sampled=len(sampled),
        people=measured_time(each.people for each in spent),
        waits=measured_time(each.waits for each in spent),
        calls=measured_time(each.calls for each in spent),
        nodes=_nodes(sampled),
    )


async def _sampled(of: TenantRows, runs: Sequence[MeasuredRun]) -> list[tuple[str, RunTime]]:
    """Return the workflow and the time of the first runs, without those that have too many events or are spoilt."""
    chosen: list[MeasuredRun] = []
    left, most = EVENTS_MAX, min(SAMPLE_MAX, of.store.count_max // SAMPLE_PER_COUNT)
    for run in runs:
        if run.seq > EVENTS_OF_RUN_MAX:
            continue
        left -= run.seq
        if len(chosen) == most or left < 0:
            break
        chosen.append(run)
    if not chosen:
        return []
    rows = await of.store.load_many(RUN, [(of.tenant, each.run) for each in chosen], listed=True)
    courses = await of.store.query(RunCourses(of.tenant, tuple(each.run for each in chosen)))
    business = of.store.mapping().business
    found: list[tuple[str, RunTime]] = []
    for row, course in zip(rows, courses, strict=True):
        if row is None or not course.events:
            continue  # it was purged between two reads
        try:
            found.append((row.workflow, run_time(RunHistory(row, course.events), course.calls, business)))
        except (Corrupt, TypeError):  # TypeError: the data of an event has other members
            continue
    return found


def _nodes(sampled: Sequence[tuple[str, RunTime]]) -> list[NodeDurations]:
    visits: dict[tuple[str, str], list[TimeSpent]] = {}
    for workflow, run in sampled:
        for visit in run.visits:
            visits.setdefault((workflow, visit.node), []).append(visit.spent)
    found = [
        NodeDurations(
            workflow=workflow,
            node=node,
            visit=measured_time(each.total for each in spent),
            people=measured_time(each.people for each in spent),
            waits=measured_time(each.waits for each in spent),
            calls=measured_time(each.calls for each in spent),
        )
        for (workflow, node), spent in visits.items()
    ]
    found.sort(key=lambda each: (-(each.visit.p95_ms or 0), each.workflow, each.node))
    return found[:NODES_MAX]


async def decision_times(of: TenantRows, request: GetDecisionTimes) -> DecisionTimes:
    """Return how long approvals waited for their decisions, and how old the pending ones are. Raises InvalidInput."""
    now = await of.store.now()
    time = counted_time(request.since, request.until, now)
    kept = counted_runs(request.workflow, request.version)
    most = ROWS_PER_COUNT * of.store.count_max
    read = [
        await of.store.query(MeasuredApprovals(of.tenant, time.low, time.high, kept, most, pending))
        for pending in (False, True)
    ]
    groups: dict[tuple[str, str], tuple[list[int], list[int]]] = {}
    for at, (rows, _) in enumerate(read):
        for row in rows:
            took = (row.decided_at or now.business) - row.asked_at
            groups.setdefault((row.workflow, row.rule), ([], []))[at].append(took)
    largest = sorted(groups.items(), key=lambda each: (-sum(map(len, each[1])), each[0]))
    return DecisionTimes(
        at_least=read[0].more,
        open_at_least=read[1].more,
        about=of.store.skew > 0,
        since=exact_instant(time.low),
        until=exact_instant(time.high),
        decided=measured_time(took for decided, _ in groups.values() for took in decided),
        open=measured_time(age for _, ages in groups.values() for age in ages),
        groups=[
            DecisionGroup(workflow=workflow, rule=rule, decided=measured_time(decided), open=measured_time(ages))
            for (workflow, rule), (decided, ages) in largest[:GROUPS_MAX]
        ],
    )


def measured_time(durations: Iterable[int]) -> MeasuredTime:
    """Return the distribution of durations in ms."""
    found = distribution(durations)
    p50, p95, longest = (found.p50, found.p95, found.longest) if found.count else (None, None, None)
    return MeasuredTime(
        count=found.count,
        p50_ms=p50,
        p95_ms=p95,
        longest_ms=longest,
        histogram=[
            HistogramPart(from_ms=each.low, to_ms=each.high or None, count=each.count) for each in found.histogram
        ],
    )

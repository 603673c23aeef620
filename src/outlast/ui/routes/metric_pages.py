"""Pages of metrics: runs by time, durations of runs and nodes, time to decision, and slots of workers in use."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Literal, NamedTuple

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from outlast.core.durations import DAY, HOUR, MINUTE
from outlast.core.limits import NAME_CHARS_MAX
from outlast.core.run_filters import Interval, interval_text
from outlast.errors import InvalidInput
from outlast.insight.cause_reads import FLAGGED
from outlast.insight.counted_time import check_version
from outlast.insight.run_tally import RUNNING, TallyBar
from outlast.models import exact_instant, milliseconds
from outlast.models.causes import Bar, Bars
from outlast.models.measurements import DecisionTimes, MeasuredTime, RunDurations
from outlast.operations.run_operations import ListRuns
from outlast.operations.run_query import query_terms, query_text
from outlast.runtime.operations import Operations
from outlast.service.service_state import Ops, State
from outlast.ui.bars_drawing import OUTCOMES, draw_bars
from outlast.ui.histogram_drawing import axis_of, histogram_path
from outlast.ui.page_route import PageRoute
from outlast.ui.rendering import render

router = APIRouter(prefix="/ui/metrics", route_class=PageRoute)
NODES: Final = 25
"""Nodes or groups of one page. Each has a histogram with its words."""
Time = Literal["1h", "24h", "7d", "30d"]
WIDTHS: Final[dict[str, tuple[int, int]]] = {
    "1h": (2 * MINUTE, 30), "24h": (30 * MINUTE, 48), "7d": (4 * HOUR, 42), "30d": (DAY, 30),
}  # fmt: skip
"""Width of a bar in ms, and the number of bars, by time."""
_MS: Final = timedelta(milliseconds=1)
WorkflowName = Annotated[str, Query(max_length=NAME_CHARS_MAX)]
VersionText = Annotated[str, Query(pattern=r"^\d{0,9}$")]
PageNumber = Annotated[int, Query(ge=0, le=1_000)]


class MetricFilters(NamedTuple):
    """Filters of a page. `refused`: why they cannot be used; the page then shows all workflows."""

    workflow: str
    version: int | None
    time: Time
    refused: InvalidInput | None

    @property
    def span(self) -> timedelta:
        """Return the length of the time."""
        width, bars = WIDTHS[self.time]
        return width * bars * _MS


def chosen(workflow: str, version: str, time: Time) -> MetricFilters:
    """Return the filters of a page. A version needs a workflow."""
    number = int(version) if version else None
    try:
        check_version(workflow, number)
    except InvalidInput as refused:
        return MetricFilters("", None, time, refused)
    return MetricFilters(workflow, number, time, None)


@router.get("", operation_id="ui:get_bars")
async def show_throughput(
    ops: Ops, state: State, request: Request, workflow: WorkflowName = "", version: VersionText = "", time: Time = "24h"
) -> Response:
    """Show the runs that ended or called a person in each part of a time, by outcome."""
    of = chosen(workflow, version, time)
    width, count = WIDTHS[time]
    until = ((await ops.store.now()).business // width + 1) * width
    found = await ops.bars(
        workflow=of.workflow,
        version=of.version,
        since=exact_instant(max(0, until - width * count)),
        until=exact_instant(until),
        bars=count,
    )
    drawing = draw_bars([TallyBar(_interval(each, found), _counts(each)) for each in found.bars], by_kind=True)
    whole = _time_of(found)
    totals = [(each, sum(getattr(bar, each) for bar in found.bars), _of_outcome(of, whole, each)) for each in _SHOWN]
    return await _page(
        request,
        state,
        of,
        "metrics_throughput.html",
        tab="throughput",
        found=found,
        drawing=drawing,
        queries={each: _listed(of, each.interval, each.field) for each in drawing.links} if drawing else {},
        totals=totals,
        names=_SHOWN,
        rows=[each for each in reversed(found.bars) if any(_counts(each).values())],
        hours=of.span / timedelta(hours=1),
    )


_SHOWN: Final = tuple(name for name in reversed(OUTCOMES) if name in Bar.model_fields and name != RUNNING)


def _counts(bar: Bar) -> dict[str, int]:
    return {name: count for name in _SHOWN if (count := getattr(bar, name))}


def _interval(bar: Bar, of: Bars) -> Interval:
    at = milliseconds(bar.at)
    return Interval(at, at + of.bar_ms)


def _of_outcome(of: MetricFilters, interval: str, outcome: str) -> str:
    """Return the query that lists the runs of one outcome."""
    return _listed(of, interval, FLAGGED) if outcome == FLAGGED else _listed(of, interval, "ended", outcome)


def _listed(of: MetricFilters, interval: str, field: str, status: str = "", sort: str = "") -> str:
    """Return the query that lists the runs of a bar. `field`: the filter by time."""
    more: dict[str, Any] = {field: interval, "sort": sort}
    wanted = ListRuns(workflow=of.workflow, version=of.version or 0, status=status, **more)
    return query_text(query_terms(wanted))


@router.get("/durations", operation_id="ui:get_run_durations")
async def show_durations(
    ops: Ops,
    state: State,
    request: Request,
    workflow: WorkflowName = "",
    version: VersionText = "",
    time: Time = "24h",
    page: PageNumber = 0,
) -> Response:
    """Show how long runs took, how long they waited for their first step, and the same of each node."""
    of = chosen(workflow, version, time)
    until = await _until(ops)
    found = await ops.run_durations(workflow=of.workflow, version=of.version, since=until - of.span, until=until)
    nodes = found.nodes[page * NODES : (page + 1) * NODES]
    return await _page(
        request,
        state,
        of,
        "metrics_durations.html",
        tab="durations",
        found=found,
        measured=_rows_of(found),
        slowest=_listed(of, _time_of(found), "ended", sort="took"),
        nodes=nodes,
        node_axis=axis_of(each.visit.histogram for each in nodes),
        page=page,
        **_drawn([found.duration, found.first_step, found.people, found.waits, found.calls]),
    )


def _time_of(found: Bars | RunDurations) -> str:
    """Return the time of a measurement as a filter of a list of runs has it."""
    return interval_text(Interval(milliseconds(found.since), milliseconds(found.until)))


def _rows_of(found: RunDurations) -> Sequence[tuple[str, str, MeasuredTime]]:
    """Return the name, the meaning and the distribution of each row about runs."""
    return (
        ("Duration", "from the start to the end, waits included", found.duration),
        ("Wait for the first step", "until a worker took the run", found.first_step),
        ("With people", "waits for approvals and answers", found.people),
        ("Other waits", "timers, signals, children, workers, slots", found.waits),
        ("Calls", "at least one call of an activity was open", found.calls),
    )


@router.get("/decisions", operation_id="ui:get_decision_times")
async def show_decisions(
    ops: Ops,
    state: State,
    request: Request,
    workflow: WorkflowName = "",
    version: VersionText = "",
    time: Time = "24h",
    page: PageNumber = 0,
) -> Response:
    """Show how long approvals waited for a decision, and how old the pending ones are."""
    of = chosen(workflow, version, time)
    until = await _until(ops)
    found: DecisionTimes = await ops.decision_times(
        workflow=of.workflow, version=of.version, since=until - of.span, until=until
    )
    groups = found.groups[page * NODES : (page + 1) * NODES]
    return await _page(
        request,
        state,
        of,
        "metrics_decisions.html",
        tab="decisions",
        found=found,
        groups=groups,
        page=page,
        **_drawn([found.decided, found.open, *(each.decided for each in groups)]),
    )


@router.get("/workers", operation_id="ui:list_workers")
async def show_occupancy(ops: Ops, state: State, request: Request) -> Response:
    """Show how many slots of each live worker are in use now."""
    alive = [each for each in await ops.workers() if each.serving]
    alive.sort(key=lambda each: (-each.holds, each.name, each.worker))
    return await _page(
        request,
        state,
        chosen("", "", "24h"),
        "metrics_workers.html",
        tab="workers",
        workers=alive,
        holds=sum(each.holds for each in alive),
        slots=sum(each.concurrency or 0 for each in alive),
    )


async def _until(ops: Operations) -> datetime:
    return exact_instant((await ops.store.now()).business + 1)


def _drawn(measured: Sequence[MeasuredTime]) -> dict[str, Any]:
    """Return the axis that histograms of a page share, and the function that draws one."""
    return {"axis": axis_of(each.histogram for each in measured), "path_of": histogram_path}


async def _page(
    request: Request, state: State, of: MetricFilters, template: str, *, tab: str, **values: Any
) -> Response:
    known = sorted({*state.by_name, of.workflow} - {""})
    return await render(
        request,
        template,
        title="Metrics",
        live="",
        tab=tab,
        of=of,
        times=WIDTHS,
        workflows=known,
        status_code=422 if of.refused is not None else 200,
        **values,
    )

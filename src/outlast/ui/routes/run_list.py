"""List of runs: filters, rows that keep their place while new runs are announced, and actions on several runs."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar, get_args

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from outlast.core.limits import QUERY_CHARS_MAX
from outlast.core.machine import TERMINAL, Choice, Reason, RunStatus
from outlast.core.rows.run_columns import WaitingKind
from outlast.core.run_filters import RunOrder
from outlast.core.saved_views import view_named
from outlast.errors import InvalidInput, NotFound, OutlastError
from outlast.insight.cause_reads import FLAGGED
from outlast.insight.labels import cost_text
from outlast.insight.run_sorting import ASCENDING
from outlast.insight.run_tally import ALL, APPROVAL, RunTally
from outlast.models import exact_instant
from outlast.models.attention import why_not
from outlast.models.runs import RunList, RunListItem, RunSummary
from outlast.operations.field_types import Name
from outlast.operations.run_operations import ListRuns
from outlast.operations.run_query import filters_of, merged, parse_query, query_terms, query_text
from outlast.runtime.operations import Operations
from outlast.service.problems import status_of
from outlast.service.service_state import Ops, Pages, State
from outlast.ui.bars_drawing import BarLink, BarsDrawing, draw_bars
from outlast.ui.page_route import Form, PageRoute, form_of
from outlast.ui.rendering import render, stamp
from outlast.ui.routes.bulk_pages import ShownFilter, address, offered
from outlast.ui.routes.run_actions import MORE_TIME
from outlast.ui.routes.saved_view_forms import ViewName, shown_views
from outlast.ui.run_words import kind_of, line_of, name_of
from outlast.ui.shown_text import cut_to

T = TypeVar("T")
router = APIRouter(prefix="/ui", route_class=PageRoute)
ROWS: Final = 50
ANNOUNCED: Final = 100
"""New runs that are counted. Beyond them, the rows stay as they are."""
MANY: Final = 100
"""Runs of one action on several."""
AT_ONCE: Final = 25
WORKFLOWS_OFFERED: Final = 12
TEXT_BYTES: Final = 170
"""Bytes of the name and the line of a run in the list, so that a row has at most 600."""
NAME_BYTES: Final = 90
UNTIL_BYTES: Final = 55
PAGE: Final = "page"
"""Value of `ticked` that chooses all rows of the page."""
OFFERED: Final = 2
"""Choices of a reason that are offered for all runs of a query."""
_MS: Final = timedelta(milliseconds=1)
SINCE: Final = ("1h", "24h", "7d", "30d")
Since = Literal["", "1h", "24h", "7d", "30d"]


class RunRow(NamedTuple):
    """A run in the list: its state, name for people, why it stopped or what it waits for, its times and its cost."""

    run: RunListItem
    kind: str
    name: str
    line: str
    until: datetime | None
    took_ms: int | None
    cost: str


def run_row(run: RunListItem, now: datetime) -> RunRow:
    """Return a run as the list shows it."""
    until = min((wait.until for wait in run.waiting_for if wait.until), default=None)
    stopped = run.ended_at or min((each.since for each in run.attention if each.since), default=now)
    took = None if run.created_at is None else stopped - run.created_at
    took_ms = None if took is None else took // _MS
    name = cut_to(name_of(run), NAME_BYTES)
    room = TEXT_BYTES - len(name.encode()) - (UNTIL_BYTES if until else 0)
    return RunRow(run, kind_of(run), name, cut_to(line_of(run), room), until, took_ms, cost_text(run))


class Total(NamedTuple):
    """Number of runs with a status, the query that lists them, and whether it is the present one."""

    name: str
    runs: int
    query: str
    chosen: bool
    at_least: bool


class SortLink(NamedTuple):
    """Head of a column by which the list can be sorted: its present order, and the query with the next one."""

    title: str
    order: Literal["", "ascending", "descending"]
    query: str


class Chip(NamedTuple):
    """One term of the present query, and the query without it."""

    text: str
    without: str


async def filters_in_address(
    status: RunStatus | Literal[""] = "",
    workflow: Annotated[str, Query(max_length=100)] = "",
    waiting_for: WaitingKind | Literal[""] = "",
    attention: Literal["", "yes"] = "",
    since: Since = "",
    forked_from: Name | Literal[""] = "",
    parent: Name | Literal[""] = "",
    below: Annotated[Name | Literal[""], Query(alias="root")] = "",
    no_children: Literal["", "yes"] = "",
) -> dict[str, Any]:
    """Return the filters of an address beside its query. They are terms of the query, too."""
    return {
        "status": status,
        "workflow": workflow,
        "waiting_for": waiting_for,
        "attention": bool(attention),
        "since": since,
        "forked_from": forked_from,
        "parent": parent,
        "root": below,
        "no_children": bool(no_children),
    }


Filters = Annotated[dict[str, Any], Depends(filters_in_address)]


@router.get("/runs", operation_id="ui:list_runs")
async def list_runs(
    ops: Ops,
    state: State,
    pages: Pages,
    request: Request,
    filters: Filters,
    q: Annotated[str, Query(max_length=QUERY_CHARS_MAX)] = "",
    top: Name | Literal[""] = "",
    ticked: Annotated[str, Query(pattern="^(page|[1-9][0-9]?)?$")] = "",
    bars: Literal["", "starts"] = "",
    view: ViewName = "",
    save_as: ViewName = "",
) -> Response:
    """Show the runs that a query finds, newest first. `q`: words and terms; the other filters are terms of it, too.

    `top`: first row before a refresh; newer runs are behind it. `ticked`: chosen rows. `bars`: "starts" or ends.
    `view`: name of a saved view, whose terms come first. `save_as`: name that the form for a view begins with.
    """
    error = None
    views = await ops.views()
    if view:
        q = f"{view_named(views, view).query} {q}".strip()
    try:
        of = merged(parse_query(q), **filters)
        top = "" if of.sort else top
        found, tally = await _page_of(ops, of, pages.after, ROWS + (ANNOUNCED if top else 0), starts=bool(bars))
    except InvalidInput as refused:
        if pages.after:
            raise
        error, of, found, tally = refused, ListRuns(), RunList(runs=[], next_cursor="", sorted_among=None), None
    new = next((i for i, each in enumerate(found.runs) if each.run == top), 0 if not top else -1)
    if new < 0 and request.query_params.get("region"):
        return Response(status_code=204)  # too many new ones, or the first row no longer matches: nothing moves
    now = exact_instant((await state.store.now()).business)
    rows = [run_row(each, now) for each in found.runs[max(0, new) :][:ROWS]]
    chosen = rows[: ROWS if ticked == PAGE else int(ticked or 0)]
    sealed = await pages.sealed(found) if not top else None
    text = q if error is not None else query_text(query_terms(of))
    version = stamp(new, [(each.run.run, each.run.version, each.run.shown, each.run.served) for each in rows], tally)
    return await render(
        request,
        "runs.html",
        title="Runs",
        live="runs",
        versions={"runs": version},
        rows=rows,
        new=max(0, new),
        next_cursor=sealed.next_cursor if sealed else "",
        top=top or (rows[0].run.run if rows and not of.sort else ""),
        text=text,
        views=shown_views(views, text),
        save_as=save_as,
        bars=bars,
        **_above_rows(of, tally, "started" if bars else "stopped", chosen),
        **_terms_of(of, found, sorted({*state.by_name, of.workflow} - {""})),
        ticked=len(chosen),
        error=error,
        paged=bool(pages.after),
        status_code=422 if error is not None else 200,
    )


async def _page_of(
    ops: Operations, of: ListRuns, after: str, limit: int, *, starts: bool
) -> tuple[RunList, RunTally | None]:
    """Return a page of runs and, if it is the first one, the totals and bars of the list."""
    rows = ops.runs(**filters_of(of), cursor=after, limit=limit)
    if after:
        return await rows, None
    return await asyncio.gather(rows, ops.run_tally(of, starts=starts))


def _unfinished(of: ListRuns, tally: RunTally) -> str:
    """Return how many runs of a list have not ended: those that a job would cancel."""
    wanted = [each for each in RunStatus if each not in TERMINAL and of.status in ("", each.value)]
    runs = sum(tally.by_status.get(each.value, 0) for each in wanted)
    runs = max(runs, tally.flagged if of.attention else 0)
    more = ALL in tally.at_least if of.attention else not tally.at_least.isdisjoint(wanted)
    return f"{runs:,}{' or more' if more else ''}"


def _answers_for(of: ListRuns, rows: Sequence[RunRow], unfinished: str) -> list[tuple[str, str]]:
    """Return what one job can do with all runs of a query, each with the address of its page.

    It can cancel them, or answer those with one of the reasons that are on the page. Without a query, there is none, so
    that no one cancels all runs of a tenant by mistake.
    """
    text = query_text(query_terms(replace(of, sort="")))
    if not text:
        return []
    found = [(f"cancel all {unfinished}", address(ShownFilter(None, Choice.CANCEL, query=text)))]
    reasons = {item.reason for each in rows for item in each.run.attention}
    for reason in (each for each in Reason if each in reasons):
        flagged = f"all flagged {reason.value.replace('_', ' ')}"
        for choice in offered(reason)[:OFFERED]:
            there = address(ShownFilter(reason, choice, query=text))
            found.append((f"{choice.value.replace('_', ' ')} {flagged}", there))
    return found


def _terms_of(of: ListRuns, found: RunList, workflows: Sequence[str]) -> dict[str, Any]:
    """Return the terms of a query as chips, the terms that may be added, and the order of the list."""
    terms = query_terms(of)
    return {
        "chips": [Chip(each.text, query_text([t for t in terms if t != each])) for each in terms],
        "offers": _offers(of, workflows),
        "filtered": bool(query_terms(replace(of, sort=""))),
        "sorts": _sorts(of),
        "sorted_among": found.sorted_among,
    }


def _sorts(of: ListRuns) -> dict[str, SortLink]:
    """Return the heads of columns by which a list can be sorted. A link leads to the next order of its column.

    The list begins with the greatest value, then with the least, then with the newest start again.
    """
    named = {"started": ("Started", ["", "started-asc"])}
    named |= {name: (name.capitalize(), [name, f"{name}{ASCENDING}", ""]) for name in ("took", "cost")}
    found = {}
    for name, (title, cycle) in named.items():
        is_now = of.sort in cycle and (bool(of.sort) or name == "started")
        following = cycle[(cycle.index(of.sort) + 1) % len(cycle)] if is_now else cycle[0]
        order: Literal["", "ascending", "descending"] = ""
        if is_now:
            order = "ascending" if of.sort.endswith(ASCENDING) else "descending"
        found[name] = SortLink(title, order, query_text(query_terms(replace(of, sort=following))))
    return found


def _above_rows(of: ListRuns, tally: RunTally | None, field: str, chosen: Sequence[RunRow]) -> dict[str, Any]:
    """Return the totals and the bars of a page, both with the queries of their links.

    `chosen`: rows that are ticked, for which a job for all that match is offered, too.
    """
    drawing = draw_bars(tally.bars, tally.marks, field=field, by_kind=tally.by_kind) if tally is not None else None
    totals = _totals(of, tally) if tally is not None else []
    return {
        "tally": tally,
        "totals": totals,
        "many": _answers_for(of, chosen, _unfinished(of, tally)) if chosen and tally is not None else (),
        "chosen": next((each for each in totals if each.chosen), None),
        "drawing": drawing,
        "bar_queries": _bar_queries(of, drawing) if drawing is not None else {},
    }


def _bar_queries(of: ListRuns, drawing: BarsDrawing) -> dict[BarLink, str]:
    """Return the query that lists the runs of each bar, by its interval.

    Whether a run needs a person now says nothing about a list of those that began to.
    """

    def query(link: BarLink) -> str:
        given: dict[str, Any] = {link.field: link.interval}
        attention = of.attention and link.field != "flagged"
        return query_text(query_terms(replace(of, attention=attention, **given)))

    return {link: query(link) for link in drawing.links}


def _totals(of: ListRuns, tally: RunTally) -> list[Total]:
    """Return the totals that have runs, each with the query that lists them."""
    every = replace(of, status="")
    found = [Total(ALL, tally.total, query_text(query_terms(every)), not of.status, ALL in tally.at_least)]
    for each in RunStatus:
        if count := tally.by_status.get(each.value, 0):
            query = query_text(query_terms(replace(every, status=each.value)))
            found.append(Total(each.value, count, query, of.status == each.value, each in tally.at_least))
    if tally.flagged and not of.attention:
        query = query_text(query_terms(replace(every, attention=True)))
        found.append(Total("need a person", tally.flagged, query, chosen=False, at_least=FLAGGED in tally.at_least))
    if tally.approvals and not of.waiting_for:
        query = query_text(query_terms(replace(every, waiting_for=APPROVAL)))
        more = APPROVAL in tally.at_least
        found.append(Total("wait for an approval", tally.approvals, query, chosen=False, at_least=more))
    return found


class Offer(NamedTuple):
    """Values of a term that are not in the query yet, each with the query that adds it."""

    title: str
    values: Sequence[tuple[str, str]]


def _offers(of: ListRuns, workflows: Sequence[str]) -> list[Offer]:
    """Return terms that may be added to the query."""

    def adding(field: str, values: Sequence[str]) -> list[tuple[str, str]]:
        given: list[dict[str, Any]] = [{field: each} for each in values]
        return [(each, query_text(query_terms(replace(of, **new)))) for each, new in zip(values, given, strict=True)]

    return [
        Offer("Status", adding("status", [*RunStatus])),
        Offer("Waits for", adding("waiting_for", get_args(WaitingKind))),
        *([Offer("Workflow", adding("workflow", workflows))] if 0 < len(workflows) <= WORKFLOWS_OFFERED else []),
        Offer("Started within", adding("since", SINCE)),
        Offer("Sort by", adding("sort", get_args(RunOrder))),
    ]


# --- several runs ----------------------------------------------------------------------------------
class Chosen(NamedTuple):
    """A chosen run before the action: effects that are undone and that remain, or why it is not possible."""

    id: str
    run: RunSummary | None
    kind: str
    undone: Sequence[str]
    remain: Sequence[str]
    refused: str


class Outcome(NamedTuple):
    """Outcome of the action for one run; `refused` is '' if the request is recorded."""

    run: str
    refused: str


def version_of(run: str) -> str:
    """Return the name of the field with the version of a run that the preview showed."""
    return f"version {run}"


# A cancel has no version, like that of one run.
@router.post("/many/cancel", operation_id="ui:cancel_run")
async def cancel_many(ops: Ops, request: Request) -> Response:
    """Cancel the chosen runs, after a page that lists them."""
    return await many(ops, request, Choice.CANCEL, lambda run, form: ops.cancel(run, reason=form.text("reason")))


@router.post("/many/continue", operation_id="ui:continue_run")
async def continue_many(ops: Ops, request: Request) -> Response:
    """Continue the chosen runs, after a page that lists them."""
    return await many(
        ops,
        request,
        Choice.CONTINUE,
        lambda run, form: ops.continue_run(run, reason=form.text("reason"), version=form.version(version_of(run))),
    )


@router.post("/many/extend", operation_id="ui:extend_run")
async def extend_many(ops: Ops, request: Request) -> Response:
    """Extend the ceiling of the chosen runs, after a page that lists them."""
    return await many(
        ops,
        request,
        Choice.EXTEND,
        lambda run, form: ops.extend(
            run, by=form.text("by") or MORE_TIME, reason=form.text("reason"), version=form.version(version_of(run))
        ),
    )


@router.post("/many/move", operation_id="ui:move_run")
async def move_many(ops: Ops, request: Request) -> Response:
    """Move the chosen runs of one workflow to another version, after a page that lists them.

    The page of workers names a lane instead of runs: the first hundred unfinished runs on it are chosen.
    """
    form = form_of(request)
    workflow, lane = form.text("workflow"), form.text("lane")
    runs = await ops.unfinished(workflow, lane, limit=MANY) if lane else None
    return await many(
        ops,
        request,
        Choice.MOVE,
        lambda run, form: ops.move_run(
            run,
            workflow,
            form.number("to"),
            node=form.text("node"),
            reason=form.text("reason"),
            version=form.version(version_of(run)),
        ),
        runs,
    )


async def many(
    ops: Operations,
    request: Request,
    do: Choice,
    one: Callable[[str, Form], Awaitable[object]],
    found: Sequence[str] | None = None,
) -> Response:
    """Show the chosen runs and the consequences; once that page is confirmed, act on each and show each outcome.

    `found`: the runs, if the form does not name them.
    """
    form = form_of(request)
    runs = list(dict.fromkeys(form.all("run") if found is None else found))
    if not 0 < len(runs) <= MANY:
        why = f"{len(runs)} are chosen, at most {MANY} are changed at once" if runs else "none is chosen"
        raise InvalidInput(f"choose 1 to {MANY} runs", why, "go back to the list and mark the runs")
    error = None
    if form.text("confirmed"):
        if do is Choice.MOVE and not form.number("to"):
            error = InvalidInput("a version is required", "the runs continue in it", "choose a version below")
        elif form.text("reason"):
            outcomes = await _each(runs, lambda run: _outcome(run, form, one))
            return await _many_page(request, do, form, outcomes=outcomes)
        else:
            error = InvalidInput("a reason is required", "it is part of the history of each run", "write it below")
    chosen = await _each(runs, lambda run: _chosen(ops, run, do))
    more: dict[str, Any] = await _move_facts(ops, chosen) if do is Choice.MOVE else {}
    return await _many_page(request, do, form, chosen=chosen, error=error, **more)


async def _move_facts(ops: Operations, chosen: Sequence[Chosen]) -> dict[str, Any]:
    """Return the workflow of the chosen runs and its served versions. Raises InvalidInput if they are of several."""
    names = sorted({each.run.workflow for each in chosen if each.run is not None})
    if len(names) > 1:
        raise InvalidInput(
            "choose runs of one workflow",
            f"these are of {', '.join(names)}, each with its versions",
            "filter the list by a workflow",
        )
    served = {each.version for each in await ops.versions() if each.workflow in names and each.served_by}
    return {"workflow": "".join(names), "served": sorted(served, reverse=True)}


async def _many_page(
    request: Request,
    do: Choice,
    form: Form,
    *,
    chosen: Sequence[Chosen] = (),
    outcomes: Sequence[Outcome] = (),
    error: OutlastError | None = None,
    **more: Any,
) -> Response:
    title = f"{do.value.capitalize()} several runs"
    recorded = sum(not each.refused for each in outcomes)
    done = f"{recorded} of {len(outcomes)} are asked to {do.value}." if outcomes else ""
    return await render(
        request,
        "runs_many.html",
        title=title,
        feedback=done,
        do=do.value,
        chosen=chosen,
        outcomes=outcomes,
        given=form,
        error=error,
        more_time=MORE_TIME,
        version_of=version_of,
        status_code=status_of(error) if error is not None else 200,
        **more,
    )


async def _each(runs: Sequence[str], do: Callable[[str], Awaitable[T]]) -> list[T]:
    found: list[T] = []
    for at in range(0, len(runs), AT_ONCE):
        found += await asyncio.gather(*(do(run) for run in runs[at : at + AT_ONCE]))
    return found


async def _outcome(run: str, form: Form, one: Callable[[str, Form], Awaitable[object]]) -> Outcome:
    try:
        await one(run, form)
    except OutlastError as error:
        return Outcome(run, why_not(error))
    return Outcome(run, "")


async def _chosen(ops: Operations, run: str, do: Choice) -> Chosen:
    try:
        found = await ops.run_summary(run)
    except NotFound as error:
        return Chosen(run, None, "", (), (), why_not(error))
    if found.status in TERMINAL:
        return Chosen(run, found, kind_of(found), (), (), "it has ended")
    if do is Choice.MOVE:
        return Chosen(run, found, kind_of(found), (), (), await ops.unmovable(run))
    if do is not Choice.CANCEL:
        refused = "" if found.attention else "it needs no person"
        return Chosen(run, found, kind_of(found), (), (), refused)
    return Chosen(run, found, kind_of(found), await ops.to_undo(run), await ops.not_undone(run), "")

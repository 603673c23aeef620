"""Pages of one run: its wait and the way to end it, its ledger, results, events, input and people."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from outlast.core.events import EventType, iso
from outlast.core.machine import TERMINAL
from outlast.core.rows.run_rows import Run
from outlast.core.start_details import BY_PLACE
from outlast.errors import NotFound
from outlast.insight.run_history import RunHistory
from outlast.models import milliseconds
from outlast.models.approvals import ApprovalDetail
from outlast.models.runs import RunSummary
from outlast.models.timeline import Timeline
from outlast.operations.field_types import Word
from outlast.runtime.operations import Operations
from outlast.service.identity import is_permitted
from outlast.service.request_parts import At, RunId
from outlast.service.routes.history_routes import checkpoints_of
from outlast.service.service_state import Ops, ServiceState, State, root_of
from outlast.ui.graph_layout import drawn
from outlast.ui.page_route import PageRoute
from outlast.ui.people import people_of
from outlast.ui.rendering import document, render, stamp
from outlast.ui.run_words import ShownWait, child_kind, effect_kind, event_data, folded, kind_of, waits_shown
from outlast.ui.timeline_drawing import LEFT, drawn_timeline
from outlast.upkeep.export import export

router = APIRouter(prefix="/ui/runs/{run}", route_class=PageRoute)
DECIDABLE_MAX: Final = 3
"""Approvals that the page of a run shows whole."""
ROWS: Final = 50
"""Rows of a tab's page."""
After = Annotated[int, Query(ge=0, le=2**31)]
Begin = Annotated[At, Query(alias="from")]
Finish = Annotated[At, Query(alias="to")]
Number = Annotated[int, Path(ge=1, le=2**31)]


async def tab(
    request: Request,
    run: str,
    name: str,
    *,
    summary: RunSummary,
    versions: Sequence[object] = (),
    **values: Any,
) -> Response:
    """Return one tab of a run's page. `versions`: of the rows that it shows.

    `summary`: the run, read before the rows of the tab: a page of an ended run does not refresh itself.
    """
    found = summary
    live = "" if found.status in TERMINAL else f"run:{run}"
    shown = {"tab": stamp(found.version, found.shown, *versions)}
    return await render(
        request,
        f"run_{name}.html",
        title=run,
        live=live,
        versions=shown,
        run=found,
        tab=name,
        kind=kind_of(found),
        **values,
    )


@router.get("", operation_id="ui:get_run")
async def show_run(ops: Ops, state: State, request: Request, run: RunId) -> Response:
    """Show the wait of the run, its place in the graph, and the forms that end the wait."""
    return await overview(ops, state, request, run)


async def overview(
    ops: Operations, state: ServiceState, request: Request, run: str, *, status_code: int = 200, **form: Any
) -> Response:
    """Return the first tab. `form`: the form that was refused, with its input and its errors."""
    row, found, explained, items = await ops.overview(run)
    over = found.status in TERMINAL
    topology = await topology_for(ops, state, found.workflow, found.lane)
    graph = drawn(topology, found.visits, current="" if over else found.node) if topology is not None else None
    tree = await ops.tree(run) if found.children else None
    waits = [each for each in waits_shown(found) if tree is None or each.wait.kind != "child"]
    decidable = await _decidable(ops, request, row, waits)
    shown = stamp(
        found.version,
        found.shown,
        found.served,
        found.due,
        found.effects,
        found.results,
        found.asked,
        tree,
        [each.version for each in decidable.values()],
        [(each.assigned_to, each.assigned_at, each.assigned_note) for each in items],
    )
    return await render(
        request,
        "run_overview.html",
        title=run,
        live="" if over else f"run:{run}",
        versions={"tab": shown},
        status_code=status_code,
        graph=graph,
        run=found,
        tab="overview",
        kind=kind_of(found),
        explained=explained,
        waits=waits,
        tree=tree,
        child_kind=child_kind,
        decidable=decidable,
        items=items,
        refused=form,
        over=over,
    )


async def _decidable(
    ops: Operations, request: Request, run: Run, waits: Sequence[ShownWait]
) -> dict[str, ApprovalDetail]:
    """Return the approvals that the caller may decide on the page of the run: those of one call that fits it, by id."""
    ids = [each.approval for each in waits if each.approval][:DECIDABLE_MAX]
    if not is_permitted(request.state.principal, "decide_approval"):
        return {}
    found = [await ops.approval_in(each, run) for each in ids]
    return {
        each.approval: each
        for each in found
        if not each.you_may_not and len(each.plans) == 1 and folded(each.plans[0].arguments).text
    }


async def topology_for(ops: Operations, state: ServiceState, workflow: str, lane: str) -> Mapping[str, Any] | None:
    """Return the graph of a version: as its workers recorded it, else of the code loaded here, else None."""
    recorded = await ops.topology(workflow, lane)
    if recorded is not None:
        return recorded
    code = next((each for each in state.workflows if (each.name, each.lane) == (workflow, lane)), None)
    return state.topology_of(code) if code is not None else None


@router.get("/timeline", operation_id="ui:get_timeline")
async def show_timeline(
    ops: Ops, request: Request, run: RunId, begin: Begin = None, end: Finish = None, after: After = 0
) -> Response:
    """Show visits, attempts and waits over time, with idle time cut out."""
    summary, line = await ops.run_summary(run), await ops.timeline(run, begin=begin, end=end)
    return await tab(
        request,
        run,
        "timeline",
        summary=summary,
        versions=[(bar.id, bar.outcome) for bar in line.bars],
        line=line,
        drawing=drawn_timeline(line),
        zooms=zooms_of(line),
        left=LEFT,
        rows=line.bars[after : after + ROWS],
        count=len(line.bars),
        after=after,
        size=ROWS,
        took=lambda bar: (bar.ended - bar.began) // timedelta(milliseconds=1),
    )


def zooms_of(line: Timeline) -> list[tuple[str, dict[str, str]]]:
    """Return the spans that a timeline offers, as texts with the query of their address."""
    middle, latest = line.from_ + (line.to - line.from_) / 2, line.to - (line.to - line.from_) / 10
    spans = (
        ("Whole run", None, None), ("First half", line.from_, middle), ("Second half", middle, line.to),
        ("Last tenth", latest, line.to),
    )  # fmt: skip
    return [
        (text, {"from": iso(milliseconds(a)) if a else "", "to": iso(milliseconds(b)) if b else "", "after": ""})
        for text, a, b in spans
    ]


@router.get("/effects", operation_id="ui:list_effects")
async def list_effects(ops: Ops, request: Request, run: RunId, after: After = 0) -> Response:
    """Show the ledger of the run, in the order of the intents."""
    summary, effects = await ops.run_summary(run), await ops.effects(run)
    rows = list(enumerate(effects, 1))[after : after + ROWS]
    return await tab(
        request,
        run,
        "effects",
        summary=summary,
        versions=[(e.id, e.version) for _, e in rows],
        rows=rows,
        count=len(effects),
        after=after,
        size=ROWS,
        effect_kind=effect_kind,
    )


@router.get("/results", operation_id="ui:list_results")
async def list_results(ops: Ops, request: Request, run: RunId, after: After = 0) -> Response:
    """Show the results of the run, in the order of first emission."""
    summary, found = await ops.run_summary(run), await ops.results(run, after=after, limit=ROWS)
    rows = [(each, folded(each.data)) for each in found.results]
    return await tab(
        request,
        run,
        "results",
        summary=summary,
        versions=[(r.key, r.at) for r in found.results],
        rows=rows,
        count=found.count,
        after=after,
        size=ROWS,
    )


@router.get("/results/{number}", operation_id="ui:list_results")
async def get_result(ops: Ops, run: RunId, number: Number) -> Response:
    """Return one result whole, as JSON."""
    found = await ops.results(run, after=number - 1, limit=1)
    return document(found.results[0].data if found.results else None)


@router.get("/events", operation_id="ui:list_events")
async def list_events(
    ops: Ops, request: Request, run: RunId, after: After = 0, of_type: Annotated[Word, Query(alias="type")] = ""
) -> Response:
    """Show the events of the run, oldest first, of one type or all."""
    summary, found = await ops.run_summary(run), await ops.events(run, after=after, limit=ROWS, of_type=of_type)
    return await tab(
        request,
        run,
        "events",
        summary=summary,
        versions=[found.last],
        rows=found.events,
        after=after,
        size=ROWS,
        types=list(EventType),
        of_type=of_type,
        more=bool(found.next_cursor),
        last=found.last,
        event_data=event_data,
        instant_of=lambda event: datetime.fromisoformat(event.time),
    )


@router.get("/events/{number}", operation_id="ui:list_events")
async def get_event(ops: Ops, run: RunId, number: Number) -> Response:
    """Return one event whole, as JSON."""
    found = await ops.events(run, after=number - 1, limit=1)
    return document(found.events[0].model_dump(mode="json") if found.events else None)


@router.get("/visits/{number}", operation_id="ui:list_events")
async def get_visit(ops: Ops, request: Request, run: RunId, number: Number) -> Response:
    """Lead to the event that began a visit: of the run, or of the ancestor that a fork has it from."""
    row = await ops.run_row(run)
    while row.forked_from and number < (await ops.history(row.run, limit=1))[0].visit:
        row = await ops.run_row(row.forked_from)
    visits = RunHistory(row, await ops.history(row.run)).visits
    each = next((each for each in visits if each.visit == number), None)
    if each is None:
        raise NotFound(f"run {run} has no visit {number}", "", "look at its timeline")
    address = f"{root_of(request)}/ui/runs/{row.run}/events?after={each.event - 1}#event-{each.event}"
    return RedirectResponse(address, 303)


@router.get("/data", operation_id="ui:get_input")
async def show_data(ops: Ops, request: Request, run: RunId) -> Response:
    """Show input and outcome of the run; values over 8 KB are fetched on demand."""
    summary = await ops.run_summary(run)
    end = await ops.run_end(run, within_s=0) if summary.status in TERMINAL else None
    return await tab(
        request,
        run,
        "data",
        summary=summary,
        given=folded(await ops.run_input(run)),
        details=[(each.title, getattr(summary, name)) for name, each in BY_PLACE["page"].items()],
        end=end,
        outcome=folded(end.outcome) if end is not None and end.outcome is not None else None,
    )


@router.get("/input", operation_id="ui:get_input")
async def get_input(ops: Ops, run: RunId) -> Response:
    """Return the input whole, as JSON."""
    return document(await ops.run_input(run))


@router.get("/state", operation_id="ui:get_state")
async def get_state(ops: Ops, run: RunId) -> Response:
    """Return the state at the last checkpoint, as JSON. Values like secrets are redacted."""
    return document((await ops.run_state(run)).state)


@router.get("/outcome", operation_id="ui:get_run")
async def get_outcome(ops: Ops, run: RunId) -> Response:
    """Return the outcome whole, as JSON."""
    summary = await ops.run_summary(run)
    end = await ops.run_end(run, within_s=0) if summary.status in TERMINAL else None
    return document(end.outcome if end is not None else None)


@router.get("/checkpoints", operation_id="ui:list_checkpoints")
async def list_checkpoints(ops: Ops, request: Request, run: RunId, after: After = 0) -> Response:
    """Show the completed nodes, oldest first."""
    summary, found = await ops.run_summary(run), checkpoints_of(await ops.history(run))
    return await tab(
        request,
        run,
        "checkpoints",
        summary=summary,
        versions=[len(found)],
        rows=found[after : after + ROWS],
        count=len(found),
        after=after,
        size=ROWS,
        forkable=is_permitted(request.state.principal, "preview_fork"),
    )


@router.get("/people", operation_id="ui:list_events")
async def list_people(ops: Ops, request: Request, run: RunId, after: After = 0) -> Response:
    """Show the acts of people: starts, decisions, answers, and requests that no worker has acted on."""
    acts = await ops.acts(run)
    found = people_of(*acts)
    return await tab(
        request,
        run,
        "people",
        summary=acts.run,
        versions=[len(found)],
        rows=found[after : after + ROWS],
        count=len(found),
        after=after,
        size=ROWS,
    )


@router.get("/export", operation_id="ui:export_run")
async def export_run(ops: Ops, run: RunId) -> Response:
    """Return all data of the run as one file, as `outlast export` writes it. Values like secrets are redacted."""
    found = document(await export(ops, run))
    found.headers["Content-Disposition"] = f'attachment; filename="{run}.json"'
    return found

"""Pages of one run: its wait and the way to end it, its ledger, results, events, input and people."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, Final, Literal, NamedTuple

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from outlast.core.events import EventType, iso
from outlast.core.machine import TERMINAL
from outlast.core.start_details import BY_PLACE
from outlast.errors import NotFound
from outlast.insight.run_history import RunHistory
from outlast.insight.run_timeline import measured_ms
from outlast.insight.shown_rows import showing
from outlast.insight.step_names import proposal_text
from outlast.insight.value_changes import changed_places, shown_change
from outlast.models import milliseconds
from outlast.models.runs import RunExplanation
from outlast.models.steps import Step
from outlast.models.timeline import Timeline, TimelineBar
from outlast.operations.field_types import Word
from outlast.runtime.operations import Operations
from outlast.service.identity import is_permitted
from outlast.service.request_parts import At, RunId
from outlast.service.routes.history_routes import checkpoints_of
from outlast.service.service_state import Ops, ServiceState, State, root_of
from outlast.ui.graph_drawing import Near, Opened, drawn
from outlast.ui.page_route import PageRoute
from outlast.ui.people import people_of
from outlast.ui.rendering import document, render, stamp
from outlast.ui.run_header import RunHeader, header_from, header_of
from outlast.ui.run_words import child_kind, effect_kind, event_data, folded, kind_of, stopped_words
from outlast.ui.story_rows import (
    PROPOSALS_MAX,
    STORY_WORDS,
    StoryRow,
    elapsed,
    fitting,
    kind_of_step,
    shown_text,
    took_ms,
)
from outlast.ui.timeline_drawing import LEFT, DrawnTimeline, drawn_timeline
from outlast.upkeep.export import export

router = APIRouter(prefix="/ui/runs/{run}", route_class=PageRoute)
STEPS: Final = 200
"""Steps of a document."""
ROWS: Final = 50
"""Rows of a tab's page."""
CHANGES: Final = 20
"""Changed places of a state that its page shows."""
MESSAGES: Final = 8
"""Messages before a turn of a model that its page shows."""
After = Annotated[int, Query(ge=0, le=2**31)]
Begin = Annotated[At, Query(alias="from")]
Finish = Annotated[At, Query(alias="to")]
Number = Annotated[int, Path(ge=1, le=2**31)]


async def tab(
    request: Request, name: str, *, head: RunHeader, versions: Sequence[object] = (), **values: Any
) -> Response:
    """Return one tab of a run's page. `versions`: of the rows that it shows.

    `head`: the run, read before the rows of the tab: a page of an ended run does not refresh itself.
    """
    run = head.run
    return await render(
        request,
        f"run_{name}.html",
        title=run.run,
        live=head.live,
        versions={"tab": stamp(run.version, run.shown, *versions), "head": head.version},
        tab=name,
        **head.shown(),
        **values,
    )


@router.get("/head", operation_id="ui:get_run")
async def show_head(ops: Ops, request: Request, run: RunId, plain: Literal["", "yes"] = "") -> Response:
    """Show the header of each page alone, which refreshes itself. `plain`: without its action."""
    return await tab(request, "head", head=await header_of(ops, request, run), plain=plain)


@router.get("", operation_id="ui:get_run")
async def show_run(
    ops: Ops,
    request: Request,
    run: RunId,
    after: After = 0,
    before: After = 0,
    failed: Literal["", "yes"] = "",
    text: Annotated[str, Query(alias="q", max_length=200)] = "",
) -> Response:
    """Show the state of the run, the forms that end its wait, and its story: every step in the order of time."""
    return await story(ops, request, run, StoryQuery(after, before, bool(failed), text.strip()))


async def overview(
    ops: Operations, state: ServiceState, request: Request, run: str, *, status_code: int = 200, **form: Any
) -> Response:
    """Return the first tab. `form`: the form that was refused, with its input and its errors."""
    return await story(ops, request, run, StoryQuery(), status_code=status_code, refused=form)


class StoryQuery(NamedTuple):
    """Filter and place of a page of the story. `before`: its last entry comes before this one of the filtered ones."""

    after: int = 0
    before: int = 0
    failed: bool = False
    text: str = ""


async def story(
    ops: Operations,
    request: Request,
    run: str,
    query: StoryQuery,
    *,
    status_code: int = 200,
    refused: Mapping[str, Any] | None = None,
) -> Response:
    """Return the state of a run, the forms that end its wait, and a page of its steps."""
    found = await ops.story(run, failed=query.failed, text=query.text)
    head = await header_from(ops, request, found.row, found.detail, found.explained, found.attention)
    detail, entries = found.detail, found.entries
    with showing(run):  # an entry reads its rows when its words are made
        rows = fitting(entries[: query.before], backwards=True) if query.before else fitting(entries[query.after :])
    after = max(0, query.before - len(rows)) if query.before else query.after
    shown = stamp(
        head.version,
        [(each.step.id, each.step.status, each.step.ended) for each in rows],
        len(entries),
        [each.version for each in head.decidable.values()],
    )
    return await render(
        request,
        "run_story.html",
        title=detail.objective or run,
        live=head.live,
        versions={"tab": shown, "head": head.version},
        status_code=status_code,
        tab="story",
        refused=refused or {},
        rows=rows,
        after=after,
        count=len(entries),
        total=found.total,
        query=query,
        story_words=STORY_WORDS,
        proposal_text=proposal_text,
        said_above=said_above(found.explained, query),
        most_calls=PROPOSALS_MAX,
        **head.shown(),
    )


def said_above(explained: RunExplanation, query: StoryQuery) -> Callable[[StoryRow], bool]:
    """Return the test whether the header has the message of an entry, so that the story need not repeat it.

    A story with a filter repeats it, because one reads the entries that match without the rest.
    """
    whole = not query.failed and not query.text
    return lambda row: whole and bool(row.first) and row.first in explained.sentence


@router.get("/overview", operation_id="ui:get_run")
async def show_overview(
    ops: Ops, state: State, request: Request, run: RunId, opened: Opened = "", near: Near = ""
) -> Response:
    """Show the run in its graph, its maps and children, and its facts."""
    head = await header_of(ops, request, run)
    found = head.run
    topology = await topology_for(ops, state, found.workflow, found.lane)
    graph = None
    if topology is not None:
        current = "" if head.over else found.node
        graph = drawn(
            topology,
            found.visits,
            current=current,
            last=found.node,
            why=stopped_words(found),
            kind=kind_of(found),
            opened=opened,
            near=near,
        )
    tree = await ops.tree(run) if found.children else None
    return await tab(
        request,
        "overview",
        head=head,
        versions=(found.effects, found.results, found.asked, tree),
        graph=graph,
        tree=tree,
        child_kind=child_kind,
    )


StepId = Annotated[str, Query(max_length=700)]


async def one_step(ops: Operations, run: str, step: str) -> Step:
    """Return a step with its whole texts. Raises NotFound."""
    if not step:
        raise NotFound("the address names no step", "", "open the run")
    (found,) = (await ops.steps(run, step=step)).steps
    return found


@router.get("/steps", operation_id="ui:list_steps")
async def show_step(ops: Ops, request: Request, run: RunId, step: StepId = "") -> Response:
    """Show one step with its whole texts: a page, and the card beside the story and the timeline."""
    head = await header_of(ops, request, run)
    found = await one_step(ops, run, step)
    at, start = found.began or found.ended, head.run.created_at
    turn = None
    if found.kind == "model_decision":
        prompt = found.prompt if is_permitted(request.state.principal, "get_prompt") else ""
        turn = await ops.turn(run, step, prompt=prompt, limit=MESSAGES)
    return await tab(
        request,
        "step",
        head=head,
        versions=[(found.id, found.status)],
        step=found,
        turn=turn,
        step_kind=kind_of_step(found),
        given=shown_text(found.input.text),
        said=shown_text(found.said.text),
        answer=shown_text(found.output.text),
        story_words=STORY_WORDS,
        proposal_text=proposal_text,
        since_start=elapsed(max(0, milliseconds(at) - milliseconds(start))) if at and start else "",
        took_ms=took_ms(found),
    )


@router.get("/step", operation_id="ui:list_steps")
async def get_step(ops: Ops, run: RunId, step: StepId = "") -> Response:
    """Return one step whole, as JSON. Values like secrets are redacted."""
    return document((await one_step(ops, run, step)).model_dump(mode="json"))


@router.get("/steps.json", operation_id="ui:list_steps")
async def get_steps(ops: Ops, run: RunId, cursor: Annotated[str, Query(max_length=2_000)] = "") -> Response:
    """Return steps as JSON, as `/v1` does: inputs and answers are redacted and cut, `next_cursor` leads on."""
    return document((await ops.steps(run, cursor=cursor, limit=STEPS)).model_dump(mode="json"))


async def topology_for(ops: Operations, state: ServiceState, workflow: str, lane: str) -> Mapping[str, Any] | None:
    """Return the graph of a version: as its workers recorded it, else of the code loaded here, else None."""
    recorded = await ops.topology(workflow, lane)
    if recorded is not None:
        return recorded
    code = next((each for each in state.workflows if (each.name, each.lane) == (workflow, lane)), None)
    return state.topology_of(code) if code is not None else None


@router.get("/timeline", operation_id="ui:get_timeline")
async def show_timeline(
    ops: Ops,
    request: Request,
    run: RunId,
    begin: Begin = None,
    end: Finish = None,
    after: After = 0,
    lane: Annotated[str, Query(max_length=200)] = "",
    sort: Literal["", "took"] = "",
) -> Response:
    """Show visits, calls and waits over time, with idle time cut out. `lane`: its bars have a row each."""
    head, line = await header_of(ops, request, run), await ops.timeline(run, begin=begin, end=end)
    bars = [bar for bar in line.bars if lane in ("", bar.node)]
    if sort:
        bars.sort(key=slowness)
    rows = bars[after : after + ROWS]
    drawing = drawn_timeline(line, lane, rows)
    return await tab(
        request,
        "timeline",
        head=head,
        versions=[(bar.id, bar.outcome) for bar in line.bars],
        line=line,
        drawing=drawing,
        opened=lane,
        sort=sort,
        elapsed=elapsed,
        since=lambda at: milliseconds(at) - milliseconds(line.began),
        zooms=zooms_of(line, drawing),
        left=LEFT,
        rows=rows,
        count=len(bars),
        after=after,
        size=ROWS,
        took=measured_ms,
    )


def slowness(bar: TimelineBar) -> tuple[int, int]:
    """Return the place of a bar among the slowest: one that lasts first, one whose time is not recorded last."""
    ms = measured_ms(bar)
    return (0, milliseconds(bar.began)) if bar.ended is None else (2, 0) if ms is None else (1, -ms)


def zooms_of(line: Timeline, drawing: DrawnTimeline) -> list[tuple[str, dict[str, str]]]:
    """Return the spans that a timeline offers, by the time that it draws, with the query of their addresses."""
    first, second = drawing.middle
    spans = (
        ("Whole run", None, None), ("First half", line.from_, first), ("Second half", second, line.to),
        ("Last tenth", drawing.latest, line.to),
    )  # fmt: skip
    return [
        (text, {"from": iso(milliseconds(a)) if a else "", "to": iso(milliseconds(b)) if b else "", "after": ""})
        for text, a, b in spans
    ]


@router.get("/effects", operation_id="ui:list_effects")
async def list_effects(ops: Ops, request: Request, run: RunId, after: After = 0) -> Response:
    """Show the ledger of the run, in the order of the intents."""
    head, effects = await header_of(ops, request, run), await ops.effects(run)
    rows = list(enumerate(effects, 1))[after : after + ROWS]
    return await tab(
        request,
        "effects",
        head=head,
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
    head, found = await header_of(ops, request, run), await ops.results(run, after=after, limit=ROWS)
    rows = [(each, folded(each.data)) for each in found.results]
    return await tab(
        request,
        "results",
        head=head,
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
    head, found = await header_of(ops, request, run), await ops.events(run, after=after, limit=ROWS, of_type=of_type)
    return await tab(
        request,
        "events",
        head=head,
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
    head = await header_of(ops, request, run)
    end = await ops.run_end(run, within_s=0) if head.over else None
    return await tab(
        request,
        "data",
        head=head,
        given=folded(await ops.run_input(run)),
        details=[(each.title, getattr(head.run, name)) for name, each in BY_PLACE["page"].items()],
        end=end,
        outcome=folded(end.outcome) if end is not None and end.outcome is not None else None,
    )


@router.get("/input", operation_id="ui:get_input")
async def get_input(ops: Ops, run: RunId) -> Response:
    """Return the input whole, as JSON."""
    return document(await ops.run_input(run))


@router.get("/state", operation_id="ui:get_state")
async def show_state(ops: Ops, request: Request, run: RunId, checkpoint: After = 0) -> Response:
    """Show what a checkpoint changed in the state, by default the last one, and the state: a page, and a card."""
    head, found = await header_of(ops, request, run), await ops.run_state(run, checkpoint=checkpoint)
    written = [event.seq for event in await ops.history(run) if event.snapshot is not None and event.seq < found.seq]
    before = await ops.run_state(run, checkpoint=written[-1]) if written else None
    changed = [] if before is None else [*islice(changed_places(before.state, found.state), CHANGES + 1)]
    return await tab(
        request,
        "state",
        head=head,
        versions=[found.seq],
        found=found,
        state=folded(found.state),
        checkpoint=checkpoint,
        before=before,
        changes=[shown_change(each) for each in changed[:CHANGES]],
        more_changes=len(changed) > CHANGES,
    )


@router.get("/state.json", operation_id="ui:get_state")
async def get_state(ops: Ops, run: RunId, checkpoint: After = 0) -> Response:
    """Return the state at a checkpoint, by default the last one, as JSON. Values like secrets are redacted."""
    return document((await ops.run_state(run, checkpoint=checkpoint)).state)


@router.get("/outcome", operation_id="ui:get_run")
async def get_outcome(ops: Ops, run: RunId) -> Response:
    """Return the outcome whole, as JSON."""
    summary = await ops.run_summary(run)
    end = await ops.run_end(run, within_s=0) if summary.status in TERMINAL else None
    return document(end.outcome if end is not None else None)


@router.get("/checkpoints", operation_id="ui:list_checkpoints")
async def list_checkpoints(ops: Ops, request: Request, run: RunId, after: After = 0) -> Response:
    """Show the completed nodes, oldest first."""
    head, found = await header_of(ops, request, run), checkpoints_of(await ops.history(run))
    return await tab(
        request,
        "checkpoints",
        head=head,
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
    head = await header_from(ops, request, *acts.overview)
    found = people_of(head.run, acts.messages, acts.approvals)
    return await tab(
        request,
        "people",
        head=head,
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

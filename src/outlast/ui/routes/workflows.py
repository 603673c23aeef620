"""Pages of workflows: graph, versions with their runs and workers, and the form that starts a run."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from outlast.clocks import new_id
from outlast.core.run_filters import Interval, interval_text
from outlast.core.start_details import BY_PLACE, StartOptions, stated
from outlast.errors import Conflict, InvalidInput, OutlastError
from outlast.insight.cause_reads import FLAGGED
from outlast.models import milliseconds
from outlast.models.causes import Bars
from outlast.models.service import VersionStatus, WorkflowDetail
from outlast.operations.run_operations import ListRuns, StartRun
from outlast.operations.run_query import query_terms, query_text
from outlast.runtime.operations import Operations
from outlast.service.problems import status_of
from outlast.service.request_parts import PathName
from outlast.service.routes.run_routes import workflow_detail, workflow_list
from outlast.service.service_state import Ops, State
from outlast.store.bars import OUTCOMES
from outlast.ui.forms import SchemaForm, sent_form, shown_form
from outlast.ui.graph_drawing import Drawing, Near, Opened, drawn
from outlast.ui.page_route import PageRoute, form_of, see_other
from outlast.ui.rendering import document, render, stamp
from outlast.ui.run_words import folded

router = APIRouter(prefix="/ui/workflows", route_class=PageRoute)
FIELDS = "input"
ASKED: Final = BY_PLACE["form"]
"""Facts about a new run for which the form asks."""
COUNTED: Final = 4
"""Versions whose runs of the last day are counted, the newest ones."""


class DayCount(NamedTuple):
    """Runs of a version that ended in the last 24 hours with an outcome, or began to need a person."""

    name: str
    runs: int
    query: str


class VersionRow(NamedTuple):
    """Version of a workflow with the runs of its last day; `day` None if they were not counted."""

    status: VersionStatus
    day: Sequence[DayCount] | None
    at_least: bool


@router.get("", operation_id="ui:list_workflows")
async def show_workflows(ops: Ops, state: State, request: Request) -> Response:
    """Show the workflows that can be started here, and every version with unfinished runs."""
    found, versions = (await workflow_list(state, ops)).workflows, await ops.versions()
    known = {each.workflow for each in found}
    others = sorted({each.workflow for each in versions} - known)
    shown = stamp(found, [(each.lane, each.runs, each.flagged, each.served_by) for each in versions])
    return await render(
        request,
        "workflows.html",
        title="Workflows",
        live="runs",
        versions={"workflows": shown},
        found=found,
        others=others,
        runs_of=lambda name: sum(each.runs for each in versions if each.workflow == name),
    )


@router.get("/{name}", operation_id="ui:get_workflow")
async def show_workflow(
    ops: Ops, state: State, request: Request, name: PathName, opened: Opened = "", near: Near = ""
) -> Response:
    """Show one workflow with its graph, its versions, the schema of its input and the form to start a run."""
    found = await workflow_detail(state, ops, name)
    form = shown_form(found.input_schema, name=FIELDS)
    graph = drawn(found.topology, opened=opened, near=near)
    return await _page(ops, request, found, form, StartOptions(key=new_id("start_")), graph=graph)


@router.get("/{name}/schema", operation_id="ui:get_workflow")
async def get_schema(ops: Ops, state: State, name: PathName) -> Response:
    """Return the JSON Schema of the input whole."""
    return document((await workflow_detail(state, ops, name)).input_schema)


@router.post("/{name}", operation_id="ui:start_run")
async def start_run(ops: Ops, state: State, request: Request, name: PathName) -> Response:
    """Start a run with the input of the form, once for its idempotency key, and lead to it."""
    found, sent = await workflow_detail(state, ops, name), form_of(request)
    form, details = sent_form(found.input_schema, sent, name=FIELDS), {name: sent.text(name) for name in ASKED}
    kept = StartOptions(sent.text("run_id"), sent.text("key"), details=stated(details))
    if form.rows_changed:
        return await _page(ops, request, found, form, kept)
    if form.problems:
        return await _page(ops, request, found, form, kept, status_code=422)
    try:
        asked = StartRun(name, form.value, run_id=kept.run_id, key=kept.key, details=kept.details)
        started = await ops.perform(asked)
    except InvalidInput as error:
        form = form.with_problems(error.problems, under=FIELDS)
        return await _page(ops, request, found, form, kept, status_code=status_of(error), error=error)
    except Conflict as error:
        return await _page(ops, request, found, form, kept, status_code=status_of(error), error=error)
    done = f"Started run {started.run}." if started.created else f"Run {started.run} was started before with this key."
    return see_other(request, f"/ui/runs/{started.run}", done)


async def _versions(ops: Operations, workflow: str) -> list[VersionRow]:
    """Return the versions of a workflow, the newest first, with the runs of the last day of some of them."""
    found = [each for each in await ops.versions() if each.workflow == workflow]
    found.sort(key=lambda each: (-each.version, each.lane))
    counted = list(dict.fromkeys(each.version for each in found))[:COUNTED]
    bars = await asyncio.gather(*[ops.bars(workflow=workflow, version=each, bars=1) for each in counted])
    days = {version: _day(workflow, version, each) for version, each in zip(counted, bars, strict=True)}
    at_least = {version: each.at_least or each.about for version, each in zip(counted, bars, strict=True)}
    return [VersionRow(each, days.get(each.version), at_least.get(each.version, False)) for each in found]


def _day(workflow: str, version: int, found: Bars) -> list[DayCount]:
    """Return the numbers of a version, each with the query that lists the same runs."""
    (bar,) = found.bars
    time = interval_text(Interval(milliseconds(found.since), milliseconds(found.until)))
    counts = []
    for name in (*(each.value for each in OUTCOMES), FLAGGED):
        of = ListRuns(workflow=workflow, version=version)
        of = replace(of, flagged=time) if name == FLAGGED else replace(of, status=name, ended=time)
        counts.append(DayCount(name, getattr(bar, name), query_text(query_terms(of))))
    return counts


async def _page(
    ops: Operations,
    request: Request,
    found: WorkflowDetail,
    form: SchemaForm,
    kept: StartOptions,
    *,
    status_code: int = 200,
    error: OutlastError | None = None,
    graph: Drawing | None = None,
) -> Response:
    name = found.workflow
    versions = await _versions(ops, name)
    stops = [each for each in (await ops.summary()).pauses if each.paused in (f"workflow {name}", "tenant")]
    shown = stamp([(each.status.lane, each.status.runs, each.status.served_by, each.day) for each in versions], stops)
    return await render(
        request,
        "workflow.html",
        title=name,
        live="runs",
        versions={"versions": shown},
        status_code=status_code,
        found=found,
        workflow_versions=versions,
        stops=stops,
        form=form,
        error=error,
        graph=graph or drawn(found.topology),
        schema=folded(found.input_schema),
        kept=kept,
        details=[(name, each, getattr(kept.details, name)) for name, each in ASKED.items()],
    )

"""Pages of workflows: graph, versions with their runs and workers, and the form that starts a run."""

from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from outlast.clocks import new_id
from outlast.core.start_details import BY_PLACE, StartOptions, stated
from outlast.errors import Conflict, InvalidInput, OutlastError
from outlast.models.service import WorkflowDetail
from outlast.operations.run_operations import StartRun
from outlast.runtime.operations import Operations
from outlast.service.problems import status_of
from outlast.service.request_parts import PathName
from outlast.service.routes.run_routes import workflow_detail, workflow_list
from outlast.service.service_state import Ops, State
from outlast.ui.forms import SchemaForm, sent_form, shown_form
from outlast.ui.graph_drawing import Drawing, Near, Opened, drawn
from outlast.ui.page_route import PageRoute, form_of, see_other
from outlast.ui.rendering import document, render, stamp
from outlast.ui.run_words import folded

router = APIRouter(prefix="/ui/workflows", route_class=PageRoute)
FIELDS = "input"
ASKED: Final = BY_PLACE["form"]
"""Facts about a new run for which the form asks."""


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
    versions = [each for each in await ops.versions() if each.workflow == name]
    stops = [each for each in (await ops.summary()).pauses if each.paused in (f"workflow {name}", "tenant")]
    shown = stamp([(each.lane, each.runs, each.flagged, each.served_by) for each in versions], stops)
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

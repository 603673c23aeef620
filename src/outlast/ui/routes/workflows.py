"""Pages of workflows: graph, versions with their runs and workers, and the form that starts a run."""

from collections.abc import Mapping

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from outlast.clocks import new_id
from outlast.errors import Conflict, InvalidInput, OutlastError
from outlast.models.service import WorkflowDetail
from outlast.runtime.operations import Operations
from outlast.service.problems import status_of
from outlast.service.request_parts import PathName
from outlast.service.routes.run_routes import workflow_detail, workflow_list
from outlast.service.service_state import Ops, State
from outlast.ui.forms import SchemaForm, sent_form, shown_form
from outlast.ui.graph_layout import drawn
from outlast.ui.page_route import PageRoute, form_of, see_other
from outlast.ui.rendering import document, render, stamp
from outlast.ui.run_words import folded

router = APIRouter(prefix="/ui/workflows", route_class=PageRoute)
FIELDS = "input"


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
async def show_workflow(ops: Ops, state: State, request: Request, name: PathName) -> Response:
    """Show one workflow with its graph, its versions, the schema of its input and the form to start a run."""
    found = await workflow_detail(state, ops, name)
    form = shown_form(found.input_schema, name=FIELDS)
    return await _page(ops, request, found, form, {"key": new_id("start_"), "run_id": "", "correlation_id": ""})


@router.get("/{name}/schema", operation_id="ui:get_workflow")
async def get_schema(ops: Ops, state: State, name: PathName) -> Response:
    """Return the JSON Schema of the input whole."""
    return document((await workflow_detail(state, ops, name)).input_schema)


@router.post("/{name}", operation_id="ui:start_run")
async def start_run(ops: Ops, state: State, request: Request, name: PathName) -> Response:
    """Start a run with the input of the form, once for its idempotency key, and lead to it."""
    found, sent = await workflow_detail(state, ops, name), form_of(request)
    form, given = sent_form(found.input_schema, sent, name=FIELDS), sent.text("key")
    kept = {"key": given, "run_id": sent.text("run_id"), "correlation_id": sent.text("correlation_id")}
    if form.rows_changed:
        return await _page(ops, request, found, form, kept)
    if form.problems:
        return await _page(ops, request, found, form, kept, status_code=422)
    try:
        started = await ops.start_run(
            name, form.value, key=given, run_id=kept["run_id"], correlation_id=kept["correlation_id"]
        )
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
    kept: Mapping[str, str],
    *,
    status_code: int = 200,
    error: OutlastError | None = None,
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
        graph=drawn(found.topology),
        schema=folded(found.input_schema),
        **kept,
    )

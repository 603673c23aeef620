"""Routes for workflows and runs: start, list, show, cancel, continue, extend, move, signal."""

from dataclasses import replace
from typing import Any

from starlette.requests import Request

from outlast.errors import NotFound
from outlast.flow.workflow import Workflow
from outlast.models.runs import RunStarted, SignalRecorded
from outlast.models.service import WorkflowDetail, WorkflowList, WorkflowSummary
from outlast.operations.run_operations import (
    GET_WORKFLOW,
    LIST_WORKFLOWS,
    SIGNAL_RUN,
    START_RUN,
    GetWorkflow,
    ListWorkflows,
    SignalRun,
    StartRun,
)
from outlast.runtime.operations import Operations
from outlast.service.conditional import etag
from outlast.service.declared_routes import DeclaredRouter, ServedCall
from outlast.service.service_state import ServiceState, root_of
from outlast.telemetry.traces import parent_of

router = DeclaredRouter()


@router.answers(
    START_RUN,
    responses={200: {"model": RunStarted, "description": "It was started before."}},
)
async def start_run(call: ServedCall[StartRun]) -> RunStarted:
    """Start a run, durably. The same `key` always gives the same run. By default, it is the Idempotency-Key.

    With `key` "", or without either, the key that the workflow derives from the input applies, if it declares one.
    """
    asked, response = call.asked, call.response
    details = asked.details
    if not details.trace_id:
        details = details._replace(trace_id=_traceparent(call.http))
    key = call.key if asked.key is None else asked.key
    started = await call.ops.perform(replace(asked, key=key, details=details))
    response.headers["Location"] = f"{root_of(call.http)}/v1/runs/{started.run}"
    response.headers["ETag"] = etag(started.version)
    if not started.created:
        response.status_code = 200
        response.headers["Idempotent-Replayed"] = "true"
    return started


def _traceparent(request: Request) -> str:
    """Return the header `traceparent` (W3C), or '' if it is invalid, because the standard requires ignoring it."""
    header = request.headers.get("traceparent", "")
    return header if parent_of(header) is not None else ""


@router.answers(SIGNAL_RUN)
async def signal_run(call: ServedCall[SignalRun]) -> SignalRecorded:
    """Send a signal to the run. A signal with an id or an Idempotency-Key is delivered once."""
    named = replace(call.asked, signal_id=call.asked.signal_id or call.key)
    recorded: SignalRecorded = await replace(call, asked=named).whole()
    return recorded


@router.answers(LIST_WORKFLOWS)
async def list_workflows(call: ServedCall[ListWorkflows]) -> WorkflowList:
    """List the newest version of each workflow that is loaded here."""
    return await workflow_list(call.state, call.ops)


async def workflow_list(state: ServiceState, ops: Operations) -> WorkflowList:
    """Return the newest loaded version of each workflow."""
    serving = await ops.serving()
    return WorkflowList(workflows=[_summary(state, each, serving) for _, each in sorted(state.by_name.items())])


@router.answers(GET_WORKFLOW)
async def get_workflow(call: ServedCall[GetWorkflow]) -> WorkflowDetail:
    """Return its graph, its versions, and the JSON Schema of its input."""
    return await workflow_detail(call.state, call.ops, call.asked.name)


async def workflow_detail(state: ServiceState, ops: Operations, name: str) -> WorkflowDetail:
    """Return the newest loaded version of a workflow. Raises NotFound."""
    found = state.by_name.get(name)
    if found is None:
        known = ", ".join(sorted(state.by_name)) or "none"
        raise NotFound(f"no workflow {name}", f"loaded here: {known}", "use one of these names")
    return WorkflowDetail(
        **vars(_summary(state, found, await ops.serving())),
        input_schema=found.input_schema(),
        topology=state.topology_of(found),
        start=found.start.name,
    )


def _summary(state: ServiceState, workflow: Workflow[Any], serving: frozenset[str]) -> WorkflowSummary:
    return WorkflowSummary(
        workflow=workflow.name,
        version=workflow.version,
        lane=workflow.lane,
        served=workflow.lane in serving,
        versions=sorted({each.version for each in state.workflows if each.name == workflow.name}),
    )

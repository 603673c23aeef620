"""Routes for workflows and runs: start, list, show, cancel, continue, extend, move, signal."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from outlast.core.machine import RunStatus
from outlast.core.rows.run_columns import WaitingKind
from outlast.errors import NotFound
from outlast.flow.workflow import Workflow
from outlast.models.runs import (
    RequestRecorded,
    RunDetail,
    RunExplanation,
    RunInput,
    RunList,
    RunStarted,
    SignalRecorded,
    Unmovable,
)
from outlast.models.service import WorkflowDetail, WorkflowList, WorkflowSummary
from outlast.runtime.operations import Operations
from outlast.service.conditional import OnRun, etag
from outlast.service.request_parts import (
    CancelRunBody,
    ContinueRunBody,
    ExtendRunBody,
    IdempotencyKey,
    MoveRunBody,
    MoveToScheduler,
    PathName,
    RaiseBudgetBody,
    RunId,
    SendSignal,
    SignalId,
    Since,
    StartRunBody,
)
from outlast.service.secured_route import SecuredRoute
from outlast.service.service_state import Ops, Pages, ServiceState, State, root_of
from outlast.telemetry.traces import parent_of

router = APIRouter(prefix="/v1", tags=["runs"], route_class=SecuredRoute)


@router.post(
    "/workflows/{name}/runs", operation_id="start_run", response_model=RunStarted, status_code=201,
    summary="Start a run", responses={200: {"model": RunStarted, "description": "It was started before."}},
)  # fmt: skip
async def start_run(
    ops: Ops, name: PathName, ask: StartRunBody, request: Request, response: Response, key: IdempotencyKey = None
) -> RunStarted:
    """Start a run, durably. The same `key` always gives the same run. By default, it is the Idempotency-Key.

    With `key` "", or without either, the key that the workflow derives from the input applies, if it declares one.
    """
    started = await ops.start_run(
        name,
        ask.input,
        run_id=ask.id or "",
        key=(key if ask.key is None else ask.key) or "",
        correlation_id=ask.correlation_id,
        trace_id=ask.trace_id or _traceparent(request),
        scheduler=ask.scheduler or "",
    )
    response.headers["Location"] = f"{root_of(request)}/v1/runs/{started.run}"
    response.headers["ETag"] = etag(started.version)
    if not started.created:
        response.status_code = 200
        response.headers["Idempotent-Replayed"] = "true"
    return started


def _traceparent(request: Request) -> str:
    """Return the header `traceparent` (W3C), or '' if it is invalid, because the standard requires ignoring it."""
    header = request.headers.get("traceparent", "")
    return header if parent_of(header) is not None else ""


@router.get("/runs", operation_id="list_runs", response_model=RunList, summary="List runs")
async def list_runs(
    ops: Ops,
    pages: Pages,
    status: Annotated[RunStatus | None, Query(description="Only this status of the engine.")] = None,
    workflow: Annotated[str, Query(max_length=100, description="Only runs of this workflow.")] = "",
    attention: Annotated[bool, Query(description="Only runs that require attention.")] = False,
    waiting_for: Annotated[WaitingKind | None, Query(description="Only runs that wait for this.")] = None,
    q: Annotated[str, Query(max_length=100, description="Text in the run's id, correlation id or objective.")] = "",
    since: Since = None,
) -> RunList:
    """List runs, newest first.

    With `attention`, `waiting_for` or `q`, a page may have fewer than `limit` items and a next page.
    """
    found = await ops.runs(
        status=status.value if status else "",
        workflow=workflow,
        attention=attention,
        waiting_for=waiting_for or "",
        q=q,
        since=since,
        cursor=pages.after,
        limit=pages.limit,
    )
    return await pages.sealed(found)


@router.get("/runs/{run}", operation_id="get_run", response_model=RunDetail, summary="Show a run")
async def get_run(ops: Ops, run: RunId, response: Response) -> RunDetail:
    """Return the run with its state, its waits, its visits and its effects, counted from rows."""
    found = await ops.run(run)
    response.headers["ETag"] = etag(found.version)
    return found


@router.get("/runs/{run}/input", operation_id="get_input", response_model=RunInput, summary="Show the input of a run")
async def get_input(ops: Ops, run: RunId) -> RunInput:
    """Return the input of the run, as its workflow parsed it."""
    return RunInput(run=run, input=await ops.run_input(run))


@router.get("/runs/{run}/unmovable", operation_id="get_unmovable", response_model=Unmovable, summary="Can a run move?")
async def get_unmovable(ops: Ops, run: RunId) -> Unmovable:
    """Return why the run cannot move to another version of its workflow now. `why` is empty if it can."""
    return Unmovable(run=run, why=await ops.unmovable(run))


@router.get("/runs/{run}/explain", operation_id="explain_run", response_model=RunExplanation, summary="Explain a run")
async def explain_run(ops: Ops, run: RunId) -> RunExplanation:
    """Explain the state of the run in one sentence with its facts, as `outlast explain` does."""
    return await ops.explain(run)


@router.post("/runs/{run}/cancel", operation_id="cancel_run", response_model=RequestRecorded, summary="Cancel a run")
async def cancel_run(on: OnRun, ask: CancelRunBody) -> RequestRecorded:
    """Cancel a run. Its approvals can no longer be decided. It ends once a worker has settled its open effects."""
    return await on.apply(lambda seen: on.ops.cancel(on.run, reason=ask.reason, version=seen))


@router.post(
    "/runs/{run}/continue",
    operation_id="continue_run",
    response_model=RequestRecorded,
    summary="Continue a run",
)
async def continue_run(on: OnRun, ask: ContinueRunBody) -> RequestRecorded:
    """Answer its attention with `continue`. The run continues in the same visit."""
    return await on.apply(lambda seen: on.ops.continue_run(on.run, reason=ask.reason, version=seen))


@router.post("/runs/{run}/extend", operation_id="extend_run", response_model=RequestRecorded, summary="Extend a run")
async def extend_run(on: OnRun, ask: ExtendRunBody) -> RequestRecorded:
    """Extend the time limit of a run that exceeded it."""
    return await on.apply(lambda seen: on.ops.extend(on.run, by=ask.by, reason=ask.reason, version=seen))


@router.post("/runs/{run}/raise", operation_id="raise_budget", response_model=RequestRecorded, summary="Raise a budget")
async def raise_budget(on: OnRun, ask: RaiseBudgetBody) -> RequestRecorded:
    """Add amounts to the budget of the run. It goes on without repeating a call that was paid."""
    more: dict[str, Any] = ask.model_dump(exclude={"reason"})
    return await on.apply(lambda seen: on.ops.raise_budget(on.run, **more, reason=ask.reason, version=seen))


@router.post("/runs/{run}/move", operation_id="move_run", response_model=RequestRecorded, summary="Move to a version")
async def move_run(on: OnRun, ask: MoveRunBody) -> RequestRecorded:
    """Move a run to another version, because no worker serves its own or its node no longer exists."""
    return await on.apply(
        lambda seen: on.ops.move_run(on.run, ask.workflow, ask.version, node=ask.node, reason=ask.reason, version=seen)
    )


@router.post(
    "/runs/{run}/scheduler", operation_id="move_run_to_scheduler", response_model=RequestRecorded,
    summary="Move to a scheduler",
)  # fmt: skip
async def move_run_to_scheduler(on: OnRun, ask: MoveToScheduler) -> RequestRecorded:
    """Let another engine schedule the run. A worker must not execute it now. State, waits and effects stay."""
    return await on.apply(
        lambda seen: on.ops.move_to(on.run, ask.scheduler, reason=ask.reason, force=ask.force, version=seen)
    )


@router.post(
    "/runs/{run}/signals/{name}", operation_id="signal_run", response_model=SignalRecorded, status_code=202,
    summary="Signal a run",
)  # fmt: skip
async def signal_run(on: OnRun, name: PathName, ask: SendSignal) -> SignalRecorded:
    """Send a signal to the run. A signal with an id or an Idempotency-Key is delivered once."""
    signal_id: SignalId = ask.signal_id or on.key
    async with on.unchanged() as seen:
        new = await on.ops.signal(on.run, name, ask.payload, signal_id=signal_id, version=seen)
    return SignalRecorded(run=on.run, name=name, new=new)


workflows = APIRouter(prefix="/v1", tags=["workflows"], route_class=SecuredRoute)


@workflows.get(
    "/workflows",
    operation_id="list_workflows",
    response_model=WorkflowList,
    summary="List workflows",
)
async def list_workflows(state: State, ops: Ops) -> WorkflowList:
    """List the newest version of each workflow that is loaded here."""
    serving = await ops.serving()
    return WorkflowList(workflows=[_summary(state, each, serving) for _, each in sorted(state.by_name.items())])


@workflows.get(
    "/workflows/{name}",
    operation_id="get_workflow",
    response_model=WorkflowDetail,
    summary="Show a workflow",
)
async def get_workflow(state: State, ops: Ops, name: PathName) -> WorkflowDetail:
    """Return its graph, its versions, and the JSON Schema of its input."""
    return await workflow_detail(state, ops, name)


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

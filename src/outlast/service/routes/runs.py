"""Routes for workflows and runs: start, list, show, cancel, continue, extend, move, signal."""

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from outlast.core.machine import RunStatus
from outlast.core.run_columns import WaitingKind
from outlast.errors import NotFound
from outlast.flow.topology import topology_of
from outlast.flow.workflow import Workflow
from outlast.runtime.explain import explain
from outlast.runtime.run_detail import listed_runs, run_detail_view, run_views
from outlast.runtime.versions import request_version
from outlast.service import admin_responses, responses
from outlast.service.conditional import On, etag
from outlast.service.requests import (
    CancelRun,
    ContinueRun,
    ExtendRun,
    IdempotencyKey,
    MoveRun,
    PathName,
    RunId,
    SendSignal,
    SignalId,
    Since,
    StartRun,
)
from outlast.service.secured_route import SecuredRoute
from outlast.service.service_state import In, Ops, Pages, ServiceState, root_of
from outlast.telemetry.traces import parent_of

router = APIRouter(prefix="/v1", tags=["runs"], route_class=SecuredRoute)


@router.post(
    "/workflows/{name}/runs", operation_id="start_run", response_model=responses.RunStarted, status_code=201,
    summary="Start a run",
)  # fmt: skip
async def start_run(
    ops: Ops, name: PathName, ask: StartRun, request: Request, response: Response, key: IdempotencyKey = None
) -> dict[str, Any]:
    """Durable before this answers. The Idempotency-Key is the run's key too: the same key is for ever the same run."""
    started = await ops.start(
        name,
        ask.input,
        run_id=ask.id or "",
        idempotency_key=key or "",
        correlation_id=ask.correlation_id,
        trace_id=ask.trace_id or _traceparent(request),
    )
    row = await ops.run(started.run)
    response.headers["Location"] = f"{root_of(request)}/v1/runs/{started.run}"
    response.headers["ETag"] = etag(row.version)
    if not started.created:
        response.status_code = 200
        response.headers["Idempotent-Replayed"] = "true"
    (view,) = await run_views(ops, [row], await ops.serving())
    return {**view, "created": started.created}


def _traceparent(request: Request) -> str:
    """The caller's place in its trace (W3C); what is none counts for nothing, as the standard asks."""
    said = request.headers.get("traceparent", "")
    return said if parent_of(said) is not None else ""


@router.get("/runs", operation_id="list_runs", response_model=responses.RunList, summary="List runs")
async def list_runs(
    ops: Ops,
    pages: Pages,
    status: Annotated[RunStatus | None, Query(description="The engine's status.")] = None,
    workflow: Annotated[str, Query(max_length=100, description="Only runs of this workflow.")] = "",
    attention: Annotated[bool, Query(description="Only those that a person must look at.")] = False,
    waiting_for: Annotated[WaitingKind | None, Query(description="Only those that wait for this.")] = None,
    q: Annotated[str, Query(max_length=100, description="In the run's id or correlation id.")] = "",
    since: Since = None,
) -> dict[str, Any]:
    """Newest first. With `attention`, `waiting_for` or `q` a page may hold fewer than `limit` and still have a next."""
    rows, further = await ops.runs(
        status=status.value if status else "",
        workflow=workflow,
        attention=attention,
        waiting_for=waiting_for or "",
        q=q,
        since=since,
        cursor=pages.place,
        limit=pages.limit,
    )
    return await pages.page("runs", await listed_runs(ops, rows, await ops.serving()), further)


@router.get("/runs/{run}", operation_id="get_run", response_model=responses.RunDetail, summary="Look at a run")
async def get_run(ops: Ops, run: RunId, response: Response) -> dict[str, Any]:
    """Where it stands, what it waits for, the way it has gone; counts are counts of rows."""
    view, seen = await run_detail_view(ops, run)
    response.headers["ETag"] = etag(seen.run.version)
    return {**view, "explained": explain(seen).sentence}


@router.get(
    "/runs/{run}/input", operation_id="get_input", response_model=responses.RunInput, summary="What it began with"
)
async def get_input(ops: Ops, run: RunId) -> dict[str, Any]:
    """What the run was started with, as its workflow took it."""
    return {"run": run, "input": await ops.input(run)}


@router.get(
    "/runs/{run}/explain", operation_id="explain_run", response_model=responses.RunExplanation, summary="Explain a run"
)
async def explain_run(ops: Ops, run: RunId) -> dict[str, Any]:
    """Where it stands and why, in one sentence with its facts: what `outlast explain` says."""
    return (await ops.explain(run)).view()


@router.post(
    "/runs/{run}/cancel", operation_id="cancel_run", response_model=responses.RequestRecorded, summary="Cancel a run"
)
async def cancel_run(on: On, ask: CancelRun) -> dict[str, Any]:
    """From here on no approval of it can be decided. It ends once a worker has settled what is open."""
    return await on.ask(lambda seen: on.ops.cancel(on.run, reason=ask.reason, version=seen))


@router.post(
    "/runs/{run}/continue",
    operation_id="continue_run",
    response_model=responses.RequestRecorded,
    summary="Continue a run",
)
async def continue_run(on: On, ask: ContinueRun) -> dict[str, Any]:
    """Answer its attention with «continue»: it goes on in the same visit."""
    return await on.ask(lambda seen: on.ops.go_on(on.run, reason=ask.reason, version=seen))


@router.post(
    "/runs/{run}/extend", operation_id="extend_run", response_model=responses.RequestRecorded, summary="Extend a run"
)
async def extend_run(on: On, ask: ExtendRun) -> dict[str, Any]:
    """Give a run that has passed its ceiling more time."""
    return await on.ask(lambda seen: on.ops.extend(on.run, by=ask.by, reason=ask.reason, version=seen))


@router.post(
    "/runs/{run}/move", operation_id="move_run", response_model=responses.RequestRecorded, summary="Move to a version"
)
async def move_run(on: On, ask: MoveRun) -> dict[str, Any]:
    """Let a run that no worker serves, or whose node is gone, go on in another version; its worker moves it."""
    return await on.ask(
        lambda seen: request_version(
            on.ops, on.run, ask.workflow, ask.version, node=ask.node, reason=ask.reason, seen=seen
        )
    )


@router.post(
    "/runs/{run}/signals/{name}", operation_id="signal_run", response_model=responses.SignalRecorded, status_code=202,
    summary="Signal a run",
)  # fmt: skip
async def signal_run(on: On, name: PathName, ask: SendSignal) -> dict[str, Any]:
    """Leave a signal in its mailbox; one with an id (or an Idempotency-Key) arrives once."""
    signal_id: SignalId = ask.signal_id or on.key
    async with on.unmoved() as seen:
        new = await on.ops.signal(on.run, name, ask.payload, signal_id=signal_id, version=seen)
    return {"run": on.run, "name": name, "new": new}


workflows = APIRouter(prefix="/v1", tags=["workflows"], route_class=SecuredRoute)


@workflows.get(
    "/workflows",
    operation_id="list_workflows",
    response_model=admin_responses.WorkflowList,
    summary="What can be started here",
)
async def list_workflows(state: In, ops: Ops) -> dict[str, Any]:
    """The newest version of each workflow that is loaded here."""
    serving = await ops.serving()
    return {"workflows": [_view(state, each, serving) for _, each in sorted(state.by_name.items())]}


@workflows.get(
    "/workflows/{name}",
    operation_id="get_workflow",
    response_model=admin_responses.WorkflowDetail,
    summary="Look at a workflow",
)
async def get_workflow(state: In, ops: Ops, name: PathName) -> dict[str, Any]:
    """Its graph, its versions, and the JSON Schema of its input."""
    found = state.by_name.get(name)
    if found is None:
        known = ", ".join(sorted(state.by_name)) or "none"
        raise NotFound(f"no workflow {name}", f"loaded here: {known}", "name one of them")
    return {
        **_view(state, found, await ops.serving()),
        "input_schema": found.input_schema(),
        "topology": topology_of(found),
        "start": found.start.name,
    }


def _view(state: ServiceState, workflow: Workflow[Any], serving: frozenset[str]) -> dict[str, Any]:
    return {
        "workflow": workflow.name,
        "version": workflow.version,
        "lane": workflow.lane,
        "served": workflow.lane in serving,
        "versions": sorted({each.version for each in state.workflows if each.name == workflow.name}),
    }

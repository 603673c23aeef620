"""Approvals over HTTP: what waits for whom, exactly what would be approved, and the decision itself."""

from collections.abc import Callable
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from outlast.core.machine import ApprovalStatus
from outlast.core.rows import Approval, Run, is_over
from outlast.errors import Conflict, OutlastError
from outlast.flow.approval_rule import Rule
from outlast.runtime import approvals
from outlast.runtime.operations import Operations
from outlast.runtime.run_detail import run_views
from outlast.service import responses
from outlast.service.conditional import IfMatch, etag, named, seen, stale
from outlast.service.problems import ProblemResponse
from outlast.service.requests import ApprovalId, DecideApproval, IdempotencyKey, ReassignApproval
from outlast.service.secured_route import SecuredRoute
from outlast.service.service_state import In, Ops, Pages, ServiceState

router = APIRouter(prefix="/v1", tags=["approvals"], route_class=SecuredRoute)
DECISION: Final = DecideApproval.model_json_schema()
"""Of any decision: drawn once, since drawing it costs more than the decision."""


@router.get(
    "/approvals", operation_id="list_approvals", response_model=responses.ApprovalList, summary="List approvals"
)
async def list_approvals(
    ops: Ops,
    pages: Pages,
    status: Annotated[ApprovalStatus | None, Query(description="All of them where it is left out.")] = None,
    mine: Annotated[bool, Query(description="Only those that wait for a decision that the caller may make.")] = False,
    role: Annotated[str, Query(max_length=100, description="Only those whose rule names this role.")] = "",
    overdue: Annotated[bool, Query(description="Only those that nobody decided in time.")] = False,
    run: Annotated[str, Query(max_length=100, description="Only those of this run.")] = "",
) -> dict[str, Any]:
    """Newest first. With a filter a page may hold fewer than `limit` and still have a next one."""
    rows, further = await approvals.approvals(
        ops,
        status=status,
        mine=mine,
        role=role,
        overdue=overdue,
        run=run,
        cursor=pages.place,
        limit=pages.limit,
    )
    return await pages.page("approvals", [approvals.listed_approval(ops, row) for row in rows], further)


@router.get(
    "/approvals/{approval}", operation_id="get_approval", response_model=responses.ApprovalDetail, summary="Look at one"
)
async def get_approval(state: In, ops: Ops, approval: ApprovalId, response: Response) -> dict[str, Any]:
    """The exact calls, who may decide, what has changed since it was asked, and the schema of the decision."""
    row = await ops.approval(approval)
    response.headers["ETag"] = etag(row.version)
    return await whole(state, ops, row)


@router.post(
    "/approvals/{approval}/decision",
    operation_id="decide_approval",
    response_model=responses.DecisionRecorded,
    summary="Decide",
)
async def decide_approval(
    state: In,
    ops: Ops,
    approval: ApprovalId,
    ask: DecideApproval,
    response: Response,
    if_match: IfMatch = None,
    key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Once, of exactly what was shown: `If-Match` names it. The run is due when this answers.

    403: role, or who requested decides not · 409: decided (the answer says by whom), or `expired` · 410: the run has
    ended · 412: it has changed since it was shown · 428: `If-Match` is missing.
    """
    version = seen(if_match, what=f"approval {approval}")

    async def decide() -> Approval:
        if ask.decision == "approve":
            return await ops.approve(
                approval, reason=ask.reason, alternative=ask.alternative, changes=ask.changes, version=version
            )
        return await ops.reject(approval, reason=ask.reason, again=ask.decision == "again", version=version)

    row = await _or_now(state, ops, approval, decide)
    return await _decided(state, ops, row, response)


@router.post(
    "/approvals/{approval}/claim",
    operation_id="claim_approval",
    response_model=responses.ApprovalDetail,
    summary="Claim",
)
async def claim_approval(
    state: In, ops: Ops, approval: ApprovalId, response: Response, if_match: IfMatch = None, key: IdempotencyKey = None
) -> dict[str, Any]:
    """Say «I look at it». It binds nobody."""
    version = named(if_match, what=f"approval {approval}")
    row = await _or_now(state, ops, approval, lambda: ops.claim_approval(approval, version=version))
    response.headers["ETag"] = etag(row.version)
    return await whole(state, ops, row)


@router.post(
    "/approvals/{approval}/reassign", operation_id="reassign_approval", response_model=responses.ApprovalDetail,
    summary="Let others decide",
)  # fmt: skip
async def reassign_approval(
    state: In, ops: Ops, approval: ApprovalId, ask: ReassignApproval, response: Response, if_match: IfMatch = None,
    key: IdempotencyKey = None,
) -> dict[str, Any]:  # fmt: skip
    """For whoever may decide, and for the role admin."""
    version, to = named(if_match, what=f"approval {approval}"), Rule.parse(ask.to)
    row = await _or_now(state, ops, approval, lambda: ops.reassign(approval, to, reason=ask.reason, version=version))
    response.headers["ETag"] = etag(row.version)
    return await whole(state, ops, row)


async def whole(state: ServiceState, ops: Operations, row: Approval, run: Run | None = None) -> dict[str, Any]:
    """An approval with all that a person needs, and what a decision about it has to look like."""
    run = run or await ops.run(row.run)
    return {
        **await approvals.approval_detail_view(ops, row, run),
        "schema": approvals.decision_schema(state.code_of(run), row, DECISION),
    }


async def _decided(state: ServiceState, ops: Operations, row: Approval, response: Response) -> dict[str, Any]:
    response.headers["ETag"] = etag(row.version)
    run, serving = await ops.run(row.run), await state.serving(ops)
    (view,) = await run_views(ops, [run], serving)
    return {"approval": await whole(state, ops, row, run), "run": view, "served": run.lane in serving}


async def _or_now(state: ServiceState, ops: Operations, approval: str, act: Callable[[], Any]) -> Approval:
    """What `act` answers; a refusal comes with the approval as it stands now, so that the loser sees who won."""
    try:
        row: Approval = await act()
        return row
    except Conflict as error:
        now = await ops.approval(approval)
        refused: OutlastError = error
        if error.refusal == "moved":
            refused = stale(f"approval {approval}", now.version)
        elif error.refusal == ApprovalStatus.WITHDRAWN and is_over(await ops.run(now.run)):
            refused = Conflict(error.what, f"its run {now.run} has ended", error.fix, refusal="ended")
        raise await _with_state(state, ops, now, refused) from None


async def _with_state(state: ServiceState, ops: Operations, row: Approval, error: OutlastError) -> ProblemResponse:
    return ProblemResponse(error, more={"current": await whole(state, ops, row)}, headers={"ETag": etag(row.version)})

"""Routes for approvals: list, show, decide, claim, reassign."""

from collections.abc import Callable
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from outlast.core.machine import ApprovalStatus
from outlast.core.rows import Approval, Run, is_over
from outlast.errors import Conflict, OutlastError
from outlast.flow.approval_rule import Rule
from outlast.models.approvals import ApprovalDetail, ApprovalList, DecisionRecorded
from outlast.runtime import approvals
from outlast.runtime.operations import Operations
from outlast.runtime.row_models import run_summary
from outlast.service.conditional import IfMatch, etag, expected_version, required_version, stale_version
from outlast.service.problems import ProblemError
from outlast.service.requests import ApprovalId, DecideApproval, IdempotencyKey, ReassignApproval
from outlast.service.secured_route import SecuredRoute
from outlast.service.service_state import Ops, Pages, ServiceState, State

router = APIRouter(prefix="/v1", tags=["approvals"], route_class=SecuredRoute)
DECISION: Final = DecideApproval.model_json_schema()
"""JSON Schema of any decision. Generated once, because that costs more than a decision."""


@router.get("/approvals", operation_id="list_approvals", response_model=ApprovalList, summary="List approvals")
async def list_approvals(
    ops: Ops,
    pages: Pages,
    status: Annotated[ApprovalStatus | None, Query(description="Only this status.")] = None,
    mine: Annotated[bool, Query(description="Only approvals that the caller may decide now.")] = False,
    role: Annotated[str, Query(max_length=100, description="Only approvals whose rule names this role.")] = "",
    overdue: Annotated[bool, Query(description="Only approvals past their deadline.")] = False,
    run: Annotated[str, Query(max_length=100, description="Only approvals of this run.")] = "",
) -> dict[str, Any]:
    """List approvals, newest first. With a filter, a page may have fewer than `limit` items and a next page."""
    rows, further = await approvals.approvals(
        ops,
        status=status,
        mine=mine,
        role=role,
        overdue=overdue,
        run=run,
        cursor=pages.after,
        limit=pages.limit,
    )
    return await pages.page("approvals", [approvals.listed_approval(ops, row) for row in rows], further)


@router.get(
    "/approvals/{approval}",
    operation_id="get_approval",
    response_model=ApprovalDetail,
    summary="Show an approval",
)
async def get_approval(state: State, ops: Ops, approval: ApprovalId, response: Response) -> dict[str, Any]:
    """Return the exact calls, the approvers, the changes since the request, and the schema of the decision."""
    row = await ops.rows.approval(approval)
    response.headers["ETag"] = etag(row.version)
    return await approval_detail(state, ops, row)


@router.post(
    "/approvals/{approval}/decision",
    operation_id="decide_approval",
    response_model=DecisionRecorded,
    summary="Decide an approval",
)
async def decide_approval(
    state: State,
    ops: Ops,
    approval: ApprovalId,
    ask: DecideApproval,
    response: Response,
    if_match: IfMatch = None,
    key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Decide the version that was shown, which `If-Match` names. The run is due when this returns.

    403: the role is missing, or the caller requested it. 409: it is decided (`detail` says by whom) or `expired`.
    410: the run has ended. 412: it has changed since it was shown. 428: `If-Match` is missing.
    """
    version = required_version(if_match, what=f"approval {approval}")

    async def decide() -> Approval:
        if ask.decision == "approve":
            return await ops.approve(
                approval, reason=ask.reason, alternative=ask.alternative, changes=ask.changes, version=version
            )
        return await ops.reject(approval, reason=ask.reason, again=ask.decision == "again", version=version)

    row = await _with_current(state, ops, approval, decide)
    return await _decided(state, ops, row, response)


@router.post(
    "/approvals/{approval}/claim",
    operation_id="claim_approval",
    response_model=ApprovalDetail,
    summary="Claim an approval",
)
async def claim_approval(
    state: State,
    ops: Ops,
    approval: ApprovalId,
    response: Response,
    if_match: IfMatch = None,
    key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Tell other approvers that the caller is reviewing it. They may still decide."""
    version = expected_version(if_match, what=f"approval {approval}")
    row = await _with_current(state, ops, approval, lambda: ops.claim_approval(approval, version=version))
    response.headers["ETag"] = etag(row.version)
    return await approval_detail(state, ops, row)


@router.post(
    "/approvals/{approval}/reassign", operation_id="reassign_approval", response_model=ApprovalDetail,
    summary="Reassign an approval",
)  # fmt: skip
async def reassign_approval(
    state: State, ops: Ops, approval: ApprovalId, ask: ReassignApproval, response: Response, if_match: IfMatch = None,
    key: IdempotencyKey = None,
) -> dict[str, Any]:  # fmt: skip
    """Let other roles decide. Requires the right to decide, or the role admin."""
    version, to = expected_version(if_match, what=f"approval {approval}"), Rule.parse(ask.to)
    row = await _with_current(
        state, ops, approval, lambda: ops.reassign(approval, to, reason=ask.reason, version=version)
    )
    response.headers["ETag"] = etag(row.version)
    return await approval_detail(state, ops, row)


async def approval_detail(
    state: ServiceState, ops: Operations, row: Approval, run: Run | None = None
) -> dict[str, Any]:
    """Return the approval with the information for a decision and the schema of the decision."""
    run = run or await ops.rows.run(row.run)
    return {
        **await approvals.approval_detail_view(ops, row, run),
        "schema": approvals.decision_schema(state.code_of(run), row, DECISION),
    }


async def _decided(state: ServiceState, ops: Operations, row: Approval, response: Response) -> dict[str, Any]:
    response.headers["ETag"] = etag(row.version)
    run, serving = await ops.rows.run(row.run), await state.serving(ops)
    results = (await ops.rows.counts_of_results([run]))[run.run]
    view = run_summary(run, serving, results)
    return {"approval": await approval_detail(state, ops, row, run), "run": view, "served": run.lane in serving}


async def _with_current(state: ServiceState, ops: Operations, approval: str, act: Callable[[], Any]) -> Approval:
    """Return the result of `act`. Add the current approval to a conflict, which shows the other decision."""
    try:
        row: Approval = await act()
        return row
    except Conflict as error:
        now = await ops.rows.approval(approval)
        refused: OutlastError = error
        if error.refusal == "moved":
            refused = stale_version(f"approval {approval}", now.version)
        elif error.refusal == ApprovalStatus.WITHDRAWN and is_over(await ops.rows.run(now.run)):
            refused = Conflict(error.what, f"its run {now.run} has ended", error.fix, refusal="ended")
        raise await _problem_with(state, ops, now, refused) from None


async def _problem_with(state: ServiceState, ops: Operations, row: Approval, error: OutlastError) -> ProblemError:
    return ProblemError(
        error, more={"current": await approval_detail(state, ops, row)}, headers={"ETag": etag(row.version)}
    )

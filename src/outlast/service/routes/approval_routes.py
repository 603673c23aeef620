"""Routes for approvals: list, show, decide, claim, reassign."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query
from starlette.responses import Response

from outlast.core.machine import ApprovalStatus
from outlast.core.rows.run_rows import is_over
from outlast.errors import Conflict, OutlastError
from outlast.models.approvals import (
    ApprovalDetail,
    ApprovalList,
    ApprovalSort,
    ApprovalSummary,
    DecideApprovalBody,
    DecisionRecorded,
)
from outlast.runtime.operations import Operations
from outlast.service.conditional import IfMatch, conflict_with, etag, expected_version, required_version, stale
from outlast.service.request_parts import ApprovalId, IdempotencyKey, ReassignApprovalBody
from outlast.service.secured_route import SecuredRoute
from outlast.service.service_state import Ops, Pages, State

router = APIRouter(prefix="/v1", tags=["approvals"], route_class=SecuredRoute)


@router.get("/approvals", operation_id="list_approvals", response_model=ApprovalList, summary="List approvals")
async def list_approvals(
    ops: Ops,
    pages: Pages,
    status: Annotated[ApprovalStatus | None, Query(description="Only this status.")] = None,
    mine: Annotated[bool, Query(description="Only approvals that the caller may decide now.")] = False,
    role: Annotated[str, Query(max_length=100, description="Only approvals whose rule names this role.")] = "",
    person: Annotated[str, Query(max_length=200, description="Only approvals whose rule names this person.")] = "",
    overdue: Annotated[bool, Query(description="Only approvals past their deadline.")] = False,
    decided_by: Annotated[
        str, Query(max_length=200, description="Only approvals that this person has decided; `me`: the caller.")
    ] = "",
    run: Annotated[str, Query(max_length=100, description="Only approvals of this run.")] = "",
    sort: Annotated[
        ApprovalSort, Query(description="`deadline`: pending approvals only, the earliest deadline first.")
    ] = "newest",
) -> ApprovalList:
    """List approvals, newest first or by deadline.

    With a filter, a page may have fewer than `limit` items and a next page.
    """
    return await pages.sealed(
        await ops.approvals(
            status=status or "",
            mine=mine,
            role=role,
            person=person,
            overdue=overdue,
            decided_by=decided_by,
            run=run,
            sort=sort,
            cursor=pages.after,
            limit=pages.limit,
        )
    )


@router.get(
    "/approvals/{approval}",
    operation_id="get_approval",
    response_model=ApprovalDetail,
    summary="Show an approval",
)
async def get_approval(ops: Ops, approval: ApprovalId, response: Response) -> ApprovalDetail:
    """Return the exact calls, the approvers, the changes since the request, and the schema of the decision."""
    return _tagged(response, await ops.approval(approval))


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
    ask: DecideApprovalBody,
    response: Response,
    if_match: IfMatch = None,
    key: IdempotencyKey = None,
) -> DecisionRecorded:
    """Decide the version that was shown, which `If-Match` names. The run is due when this returns.

    403: the role is missing, or the caller requested it. 409: it is decided (`detail` says by whom) or `expired`.
    410: the run has ended. 412: it has changed since it was shown. 428: `If-Match` is missing.
    """
    version = required_version(if_match, what=f"approval {approval}")
    decided = _tagged(
        response,
        await decide(
            ops, approval, ask.decision, reason=ask.reason, alternative=ask.alternative, changes=ask.changes,
            version=version,
        ),
    )  # fmt: skip
    run = await ops.summary_where(decided.run, await state.serving(ops))
    return DecisionRecorded(approval=decided, run=run, served=run.served)


@router.post(
    "/approvals/{approval}/claim",
    operation_id="claim_approval",
    response_model=ApprovalSummary,
    summary="Claim an approval",
)
async def claim_approval(
    ops: Ops,
    approval: ApprovalId,
    response: Response,
    if_match: IfMatch = None,
    key: IdempotencyKey = None,
) -> ApprovalSummary:
    """Tell other approvers that the caller is reviewing it. They may still decide."""
    version = expected_version(if_match, what=f"approval {approval}")
    return _tagged(response, await with_current(ops, approval, lambda: ops.claim_approval(approval, version=version)))


@router.post(
    "/approvals/{approval}/reassign", operation_id="reassign_approval", response_model=ApprovalSummary,
    summary="Reassign an approval",
)  # fmt: skip
async def reassign_approval(
    ops: Ops, approval: ApprovalId, ask: ReassignApprovalBody, response: Response, if_match: IfMatch = None,
    key: IdempotencyKey = None,
) -> ApprovalSummary:  # fmt: skip
    """Let other roles or persons decide. Requires the right to decide, or the role admin."""
    version = expected_version(if_match, what=f"approval {approval}")
    act = lambda: ops.reassign(approval, ask.to, reason=ask.reason, version=version)  # noqa: E731
    return _tagged(response, await with_current(ops, approval, act))


async def decide(
    ops: Operations, approval: str, decision: str, *, reason: str, alternative: int = 0,
    changes: Mapping[str, Any] | None = None, version: int,
) -> ApprovalSummary:  # fmt: skip
    """Approve, reject, or reject for another round (`again`).

    Raises ProblemError with the current approval if another decision or change was earlier.
    """

    async def act() -> ApprovalSummary:
        if decision == "approve":
            return await ops.approve(approval, reason=reason, alternative=alternative, changes=changes, version=version)
        return await ops.reject(approval, reason=reason, again=decision == "again", version=version)

    return await with_current(ops, approval, act)


A = TypeVar("A", bound=ApprovalSummary)


def _tagged(response: Response, found: A) -> A:
    response.headers["ETag"] = etag(found.version)
    return found


async def with_current(
    ops: Operations, approval: str, act: Callable[[], Awaitable[ApprovalSummary]]
) -> ApprovalSummary:
    """Return the result of `act`. Add the current approval to a conflict, which shows the other decision."""
    try:
        return await act()
    except Conflict as error:
        now = await ops.approval(approval)
        if error.refusal == "moved":
            raise stale(f"approval {approval}", now) from None
        refused: OutlastError = error
        if error.refusal == ApprovalStatus.WITHDRAWN and is_over(await ops.run_row(now.run)):
            refused = Conflict(error.what, f"its run {now.run} has ended", error.fix, refusal="ended")
        raise conflict_with(refused, now) from None

"""Routes for approvals: list, show, decide, claim, reassign."""

from collections.abc import Mapping
from typing import Any

from outlast.models.approvals import ApprovalSummary, DecisionRecorded
from outlast.operations.approval_operations import (
    CLAIM_APPROVAL,
    DECIDE_APPROVAL,
    GET_APPROVAL,
    LIST_APPROVALS,
    REASSIGN_APPROVAL,
    DecideApproval,
)
from outlast.runtime.operations import Operations
from outlast.service.conditional import etag, on_approval
from outlast.service.declared_routes import DeclaredRouter, ServedCall

router = DeclaredRouter("approvals")
router.serve(
    LIST_APPROVALS,
    "List approvals",
    "List approvals, newest first or by deadline.\n"
    "\n"
    "With a filter, a page may have fewer than `limit` items and a next page.",
)
router.serve(
    GET_APPROVAL,
    "Show an approval",
    "Return the exact calls, the approvers, the changes since the request, and the schema of the decision.",
)


@router.answers(DECIDE_APPROVAL, "Decide an approval")
async def decide_approval(call: ServedCall[DecideApproval]) -> DecisionRecorded:
    """Decide the version that was shown, which `If-Match` names. The run is due when this returns.

    403: the role is missing, or the caller requested it. 409: it is decided (`detail` says by whom) or `expired`.
    410: the run has ended. 412: it has changed since it was shown. 428: `If-Match` is missing.
    """
    asked, ops = call.asked, call.ops
    decided = await decide(
        ops,
        asked.approval,
        asked.decision,
        reason=asked.reason,
        alternative=asked.alternative,
        changes=asked.changes,
        version=asked.version,
    )
    call.response.headers["ETag"] = etag(decided.version)
    run = await ops.summary_where(decided.run, await call.state.serving(ops))
    return DecisionRecorded(approval=decided, run=run, served=run.served)


router.serve(
    CLAIM_APPROVAL, "Claim an approval", "Tell other approvers that the caller is reviewing it. They may still decide."
)
router.serve(
    REASSIGN_APPROVAL,
    "Reassign an approval",
    "Let other roles or persons decide. Requires the right to decide, or the role admin.",
)


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

    return await on_approval(ops, approval, act)

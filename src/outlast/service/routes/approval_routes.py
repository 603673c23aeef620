"""Routes for approvals: list, show, decide, claim, reassign."""

from collections.abc import Mapping
from typing import Any

from outlast.models.approvals import ApprovalSummary, DecisionRecorded
from outlast.operations.approval_operations import (
    DECIDE_APPROVAL,
    DecideApproval,
)
from outlast.runtime.operations import Operations
from outlast.service.conditional import etag, on_approval
from outlast.service.declared_routes import DeclaredRouter, ServedCall

router = DeclaredRouter()


@router.answers(DECIDE_APPROVAL)
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


async def decide(
    ops: Operations,
    approval: str,
    decision: str,
    *,
    reason: str,
    alternative: int = 0,
    changes: Mapping[str, Any] | None = None,
    version: int,
) -> ApprovalSummary:
    """Approve, reject, or reject for another round (`again`).

    Raises ProblemError with the current approval if another decision or change was earlier.
    """

    async def act() -> ApprovalSummary:
        if decision == "approve":
            return await ops.approve(approval, reason=reason, alternative=alternative, changes=changes, version=version)
        return await ops.reject(approval, reason=reason, again=decision == "again", version=version)

    return await on_approval(ops, approval, act)

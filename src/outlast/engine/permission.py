"""May this write be done now? Policy first, then the approval that covers exactly this call (S-20, GATE-6)."""

import json
from datetime import UTC, datetime
from typing import Any, NamedTuple

from outlast.core.budget import APPROVAL_VALID_FOR, SECOND
from outlast.core.machine import ApprovalStatus, Reason
from outlast.core.overlay import Attention
from outlast.core.rows import Approval, Effect
from outlast.engine.approvals import Question, request
from outlast.engine.walk import Walk
from outlast.flow.activity import Activity, BoundCall
from outlast.flow.outcomes import ActivityFailed, Refusal
from outlast.flow.plan import Plan
from outlast.flow.policy import Allow, Deny, NeedsApproval, PolicyRequest, Verdict


class Permission(NamedTuple):
    """Who allowed it; the approval to consume, if one is needed; and until when (real) the call may be sent."""

    by: str
    approval: Approval | None = None
    latest_real: int | None = None


async def permission(
    walk: Walk, activity: Activity[Any, Any], call: BoundCall, previous: Effect | None
) -> Permission | None:
    """The permission to intend this call; None when the walk has parked or closed instead.

    Raises ActivityFailed where policy asked a person and the answer was no.
    """
    verdict = _ask_policy(walk, activity, call)
    if isinstance(verdict, Deny):
        _deny(walk, f"{activity.name} {call.key}: denied by {verdict.rule}: {verdict.detail}")
        return None
    by = f"policy: {verdict.rule}"
    mapping = walk.ledger.store.mapping()
    if previous is not None and previous.approval and walk.ledger.now.business < previous.covered_until:
        return Permission(by, None, mapping.real(previous.covered_until))
    if not isinstance(verdict, NeedsApproval) and not was_put_to_person(walk, activity.name):
        return Permission(by)
    plan: Plan[Any] = Plan(activity.name, call.key, call.args_bytes, call.digest)
    if (approval := usable_approval(walk, plan)) is not None:
        return Permission(
            f"{approval.id} approved by {approval.decided_by}", approval, mapping.real(approval.valid_until)
        )
    if isinstance(verdict, NeedsApproval):
        return await _ask_person(walk, verdict, plan)
    _deny(
        walk,
        f"{activity.name} {call.key}: a plan of this activity was put to a person in this run, "
        "so only exactly what was approved may run, once",
    )
    return None


def was_put_to_person(walk: Walk, activity: str) -> bool:
    """Was a plan of this activity put to a person in this run?"""
    approvals = walk.ledger.approvals
    return bool(approvals) and any(
        plan["activity"] == activity for a in approvals.values() for plan in json.loads(a.plans)
    )


def usable_approval(walk: Walk, plan: Plan[Any]) -> Approval | None:
    """An approval of exactly this plan that stands, is unused, and has not lapsed."""
    run, now = walk.ledger.run, walk.ledger.now.business
    if not walk.ledger.approvals:
        return None
    digest = plan.approval_digest(run.tenant, run.run)
    for a in walk.ledger.approvals.values():
        if a.status is ApprovalStatus.APPROVED and a.chosen == digest and not a.consumed_by and now < a.valid_until:
            return a
    return None


async def _ask_person(walk: Walk, verdict: NeedsApproval, plan: Plan[Any]) -> Permission | None:
    question = Question(
        name=f"policy/{plan.key}",
        plans=(plan,),
        summary=verdict.summary or f"{plan.activity} {plan.key}",
        who=str(verdict.by),
        within_ms=int(verdict.within.total_seconds() * SECOND),
        valid_ms=APPROVAL_VALID_FOR,
        risk="",
    )
    approval = await request(walk, question)
    if approval is None:
        return None
    if approval.status is not ApprovalStatus.APPROVED:
        raise ActivityFailed(Refusal("approval_rejected", f"{approval.decided_by}: {approval.reason}"))
    return Permission(
        f"{approval.id} approved by {approval.decided_by}",
        approval,
        walk.ledger.store.mapping().real(approval.valid_until),
    )


def _deny(walk: Walk, detail: str) -> None:
    ledger = walk.ledger
    walk.call_person(Attention(Reason.POLICY_DENIED, ledger.now.business, detail, seen=ledger.mail_read))


def _ask_policy(walk: Walk, activity: Activity[Any, Any], call: BoundCall) -> Verdict:
    policy = walk.workflow.policy
    if policy is None:
        return Allow()
    run = walk.ledger.run
    return policy(
        PolicyRequest(
            activity=activity.name,
            key=call.key,
            arguments=json.loads(call.args_bytes),
            tenant=run.tenant,
            workflow=run.workflow,
            version=walk.workflow.version,
            run_id=run.run,
            node=run.node,
            visit=run.visit,
            requested_by=run.requested_by,
            moment=datetime.fromtimestamp(walk.ledger.now.business / SECOND, UTC),
        )
    )

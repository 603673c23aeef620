"""Checks of what people were asked and answered, and of what was done with their answers."""

import json
from typing import Any

from outlast.core.codec import digest
from outlast.core.machine import ApprovalStatus, EffectStatus
from outlast.core.people import is_exact
from outlast.core.rows import APPROVAL, EFFECT, Approval, is_over
from outlast.runtime.fsck.finding import Broken, OneRun, broken
from outlast.runtime.fsck.of_effects import named

DECIDED = frozenset({ApprovalStatus.APPROVED, ApprovalStatus.REJECTED, ApprovalStatus.AGAIN})


def approval_decided(one: OneRun) -> Broken:
    """An approval is decided by somebody, before it expires, and by nobody who may not (I26, I28)."""
    for approval in one.rows.approvals:
        if wrong := _wrong_decision(approval):
            yield broken(APPROVAL, approval, wrong)


def _wrong_decision(a: Approval) -> str:
    if a.status in DECIDED and not (a.decided_by and a.decided_at):
        return f"it is {a.status}, and nobody decided it"
    if a.status in (ApprovalStatus.PENDING, ApprovalStatus.EXPIRED) and (a.decided_by or a.decided_at):
        return f"it is {a.status}, and {a.decided_by or 'somebody'} decided it"
    if a.decided_at and a.decided_at >= a.within_until:
        return f"decided at {a.decided_at}; it expired at {a.within_until}"
    if a.decided_at and a.decided_at < a.asked_at:
        return f"decided at {a.decided_at}, before it was asked for at {a.asked_at}"
    if a.status is ApprovalStatus.APPROVED and not a.chosen:
        return "it is approved, and no plan was chosen"
    if a.status is ApprovalStatus.APPROVED and a.not_requester and a.decided_by == a.requested_by:
        return f"{a.decided_by} asked for the run and approved it"
    if a.status is ApprovalStatus.APPROVED and a.quorum > 1:
        voters = {vote["by"] for vote in _list(a.votes)} | {a.decided_by}
        if len(voters) < a.quorum:
            return f"{len(voters)} people approved it; it takes {a.quorum}"
    return ""


def _list(text: str) -> list[dict[str, Any]]:
    try:
        found = json.loads(text) if text else []
    except ValueError:
        return []
    return found if isinstance(found, list) else []


def approval_plans(one: OneRun) -> Broken:
    """What is put to people is exact: each plan's digest is that of its call in this run (I27)."""
    run = one.run
    for approval in one.rows.approvals:
        plans = _list(approval.plans)
        if not plans:
            yield broken(APPROVAL, approval, "it offers no plan that can be read")
        elif one.chain and (wrong := next((p for p in plans if not is_exact(run.tenant, run.run, p)), None)):
            yield broken(APPROVAL, approval, f"the plan {wrong.get('key')} does not give its digest")
        elif approval.chosen and not approval.editable and approval.chosen not in {p.get("digest") for p in plans}:
            yield broken(APPROVAL, approval, "the plan chosen is none that it offers")


def approval_consumed(one: OneRun) -> Broken:
    """An approval is consumed by one effect, which names it, and which is exactly what was approved (I7, I27)."""
    effects = {named(effect): effect for effect in one.effects}
    approvals = {approval.id: approval for approval in one.rows.approvals}
    for approval in one.rows.approvals:
        if not approval.consumed_by:
            continue
        effect = effects.get(approval.consumed_by)
        if approval.status is not ApprovalStatus.APPROVED:
            yield broken(APPROVAL, approval, f"it is {approval.status}, and {approval.consumed_by} consumed it")
        elif effect is None:
            yield broken(APPROVAL, approval, f"{approval.consumed_by} consumed it, which the ledger does not know")
        elif digest(effect.tenant, one.run.run, effect.activity, effect.key, effect.args) != approval.chosen:
            yield broken(APPROVAL, approval, f"{approval.consumed_by} consumed it, and is not what was approved")
    for effect in one.effects:
        if effect.approval and (
            effect.approval not in approvals or approvals[effect.approval].consumed_by != named(effect)
        ):
            yield broken(EFFECT, effect, f"it names the approval {effect.approval}, which it did not consume")


def approval_in_time(one: OneRun) -> Broken:
    """An effect is covered by its approval no longer than the approval holds (S-20)."""
    approvals = {approval.id: approval for approval in one.rows.approvals}
    for effect in one.effects:
        approval = approvals.get(effect.approval)
        if approval and effect.covered_until > approval.valid_until and effect.status is not EffectStatus.REFUSED:
            yield broken(EFFECT, effect, f"covered until {effect.covered_until}, beyond {approval.valid_until}")


def approval_at_end(one: OneRun) -> Broken:
    """When a run ends, nobody is left to be asked, and nothing is left to be consumed (S-20)."""
    if not is_over(one.run):
        return
    for a in one.rows.approvals:
        if a.status is ApprovalStatus.PENDING or (a.status is ApprovalStatus.APPROVED and not a.consumed_by):
            yield broken(APPROVAL, a, f"it is {a.status} and unused, and its run has ended {one.run.status}")

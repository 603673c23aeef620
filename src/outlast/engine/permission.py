"""Permission for a call: the policy, then the approval of exactly this call (S-20, GATE-6)."""

from datetime import timedelta
from typing import Any, Final, NamedTuple

from outlast.core.approvals import altered_plan, approvers_were_entitled, covers, satisfies, votes_of
from outlast.core.approver_rule import Rule
from outlast.core.durations import APPROVAL_VALID_FOR, SECOND
from outlast.core.effect_steps import Purpose
from outlast.core.effect_verbs import goes_on
from outlast.core.forks import AskedBelow
from outlast.core.keys import plain_key
from outlast.core.limits import TEXT_CHARS_MAX
from outlast.core.machine import ApprovalStatus, Reason
from outlast.core.rows.effect_rows import Approval, Effect
from outlast.core.rows.run_columns import Attention
from outlast.engine.approval_waits import Question, request_approval
from outlast.engine.node_execution import NodeExecution, Unresolved
from outlast.engine.policy_gate import (
    ask,
    demand_of,
    log_denial,
    occasion_of,
    record_denial,
    record_refusal,
    recorded_refusal,
    verdict_text,
)
from outlast.errors import Misplaced
from outlast.flow.activity import Activity, BoundCall
from outlast.flow.calls import Plan
from outlast.flow.options import Callee
from outlast.flow.outcomes import Refused
from outlast.flow.policy import Allow, Deny, NeedsApproval, Occasion, Verdict


class Permission(NamedTuple):
    """The permission of a call: who gave it, the approval that it consumes, and until when (real) it may be sent.

    `mapping`: version of the clock mapping that gave that instant.
    """

    by: str
    approval: Approval | None = None
    latest_real: int | None = None
    mapping: int | None = None


UNASKED: Final = Permission(f"policy: {Allow().rule}")
"""Permission of a call in a run without a policy and without approvals."""
BY_THE_ENGINE: Final = Permission("outlast: the run ends")
"""Permission of an undo: the policy allowed the effect that is undone (S-19)."""


def covered(execution: NodeExecution, by: str, until: int, approval: Approval | None = None) -> Permission:
    """Return a permission that ends with the approval, at this business time."""
    mapping = execution.session.store.mapping()
    return Permission(by, approval, mapping.real(until), mapping.version)


async def permitted(
    execution: NodeExecution, purpose: Purpose, callee: Callee, call: BoundCall, effect: Effect | None
) -> Permission:
    """Return who allows an attempt. `effect` is the row of the key, if there is one.

    Raises Unresolved if the execution has parked or closed, Misplaced in a node of the decision plane, Refused as
    `permission`.
    """
    if purpose is Purpose.UNDO:
        return BY_THE_ENGINE
    if purpose is Purpose.SETTLE:  # as the first attempt, without asking the policy again
        assert effect is not None
        by, until = effect.allowed_by, effect.covered_until
        return covered(execution, by, until) if until else Permission(by)
    assert isinstance(callee, Activity)
    previous = goes_on(effect, execution.session.held.run)
    if previous is None:
        _check_plane(execution, callee, call)
    allowed = await permission(execution, callee, call, previous)
    if allowed is None:
        raise Unresolved
    return allowed


def _check_plane(execution: NodeExecution, activity: Activity[Any, Any], call: BoundCall) -> None:
    """Refuse a new write in a node of the decision plane, which loading its workflow did not find. Raises Misplaced."""
    node = execution.workflow.nodes[execution.session.held.run.node]
    if node.plane != "decision":
        return
    why = f"{node.title} is in the decision plane, which makes no writes"
    log_denial(execution, _plan_of(activity, call), Deny("decision-plane", why), "commit")
    raise Misplaced(
        f"{activity.name} {call.key} was refused", why, 'call it in a node with plane="execution"; nothing was sent'
    )


def _plan_of(activity: Activity[Any, Any], call: BoundCall) -> Plan[Any]:
    """Return the call as policies and approvers see it, also if a lineage shares it."""
    return Plan(activity.name, plain_key(call.key), call.args_bytes, call.digest)


async def permission(
    execution: NodeExecution, activity: Activity[Any, Any], call: BoundCall, previous: Effect | None
) -> Permission | None:
    """Return the permission to intend a call, or None if the execution has parked or closed.

    The policy is asked once, with the approval that would be consumed. Raises Refused if the policy required an
    approval and the approver rejected it, and for a denial of a proposed call that was not sent yet.
    """
    plan = _plan_of(activity, call)
    raises = call.proposed and previous is None
    if raises and (before := recorded_refusal(execution, plan)) is not None:
        raise _refused(before)
    found = _decide(execution, activity, plan, previous, asks=raises)
    if isinstance(found, Permission):
        return found
    if isinstance(found, _MustAsk):
        return await _ask_person(execution, found.question, found.verdict)
    if found.verdict is not None:
        if raises:
            raise _refused(await record_refusal(execution, plan, found.verdict, found.occasion))
        record_denial(execution, plan, found.verdict, found.occasion)
    _deny(execution, found.detail)
    return None


def permitted_still(
    execution: NodeExecution,
    purpose: Purpose,
    callee: Callee,
    call: BoundCall,
    effect: Effect | None,
    given: Permission,
) -> Permission | None:
    """Return the permission as it is now, None if it no longer holds. Asks no person and records nothing.

    The policy of a call is asked again. Those of an undo, and of an effect that is settled, are as they were.
    """
    if purpose is not Purpose.DO:
        return given
    assert isinstance(callee, Activity)
    previous = goes_on(effect, execution.session.held.run)
    found = _decide(execution, callee, _plan_of(callee, call), previous, asks=False)
    return found if isinstance(found, Permission) else None


class _Denied(NamedTuple):
    """The call may not be made, and why. `verdict`: the policy's denial, if it is one."""

    detail: str
    verdict: Deny | None = None
    occasion: Occasion = "commit"


class _MustAsk(NamedTuple):
    """A person decides about the call first."""

    question: Question
    verdict: Verdict


def _decide(
    execution: NodeExecution, activity: Activity[Any, Any], plan: Plan[Any], previous: Effect | None, *, asks: bool
) -> Permission | _Denied | _MustAsk:
    """Decide whether a call may be made. `asks`: a call like one that needed approval needs it, too."""
    covering = _covering(execution, previous)
    usable = usable_approvals(execution, plan) if covering is None else []
    if altered := [a.id for a in usable if altered_plan(a)]:
        return _Denied(f"{', '.join(altered)}: the stored plan does not match the approved digest")
    entitled = [a for a in usable if approvers_were_entitled(a)]
    if usable and not entitled:
        by = ", ".join(vote.by for vote in votes_of(usable[0]))
        return _Denied(f"{usable[0].id} was approved by {by}, who may not decide by the recorded roles")
    usable = entitled
    about = covering or (usable[0] if usable else None)
    occasion: Occasion = "consume" if usable else occasion_of(execution)
    verdict = ask(execution, plan, occasion, approval=about)
    if isinstance(verdict, Deny):
        why = f"{plan.activity} {plan.key}: denied by {verdict.rule}: {verdict.detail}"
        return _Denied(why, verdict, occasion)
    by = verdict_text(execution, verdict)
    if previous is not None and covering is not None:  # consumed by the first attempt
        return covered(execution, _approved(covering, by), previous.covered_until)
    asked = None if activity.starts_run else execution.session.held.asks  # below a fork the child's writes ask (0252)
    if asked is not None and not usable and isinstance(verdict, Allow):
        verdict = _by_person(asked, plan)
    if not isinstance(verdict, NeedsApproval) and not was_requested(execution, plan.activity):
        return Permission(by)
    if (approval := next((a for a in usable if _enough(a, verdict)), None)) is not None:
        return _by_approval(execution, approval, by)
    if isinstance(verdict, NeedsApproval):
        return _MustAsk(_question(verdict, plan), verdict)
    if asks:
        return _MustAsk(_question_like(_first_requested(execution, plan.activity), plan), verdict)
    return _Denied(
        f"{plan.activity} {plan.key}: approval of a plan of this activity was requested in this run, "
        "so only an approved plan may run, once"
    )


def _by_person(asked: AskedBelow, plan: Plan[Any]) -> NeedsApproval:
    """Return the verdict on a write of a fork, or below one, that neither policy nor node gives to a person (S-28)."""
    return NeedsApproval("fork", Rule.parse(asked.approvers), f"{plan.activity} {plan.key}")


def was_requested(execution: NodeExecution, activity: str) -> bool:
    """Return True if approval of a plan of this activity was requested in this run."""
    approvals = execution.session.held.approvals
    return bool(approvals) and any(plan.activity == activity for a in approvals.values() for plan in a.plans)


def usable_approvals(execution: NodeExecution, plan: Plan[Any]) -> list[Approval]:
    """Return unused approvals of exactly this plan that are still valid."""
    if not execution.session.held.approvals:
        return []
    run, now = execution.session.held.run, execution.session.clock.now.business
    digest = plan.approval_digest(run.tenant, run.run)
    return [a for a in execution.session.held.approvals.values() if covers(a, digest, now)]


def _covering(execution: NodeExecution, previous: Effect | None) -> Approval | None:
    """Return the approval that an earlier attempt of this effect consumed, while it is valid."""
    if previous is None or not previous.approval or execution.session.clock.now.business >= previous.covered_until:
        return None
    return execution.session.held.approvals[previous.approval]


def _enough(approval: Approval, verdict: Verdict) -> bool:
    return not isinstance(verdict, NeedsApproval) or satisfies(approval, demand_of(verdict))


def _by_approval(execution: NodeExecution, approval: Approval, policy: str) -> Permission:
    return covered(execution, _approved(approval, policy), approval.valid_until, approval)


def _approved(approval: Approval, policy: str) -> str:
    """Return who allowed a call: the approvers, and what the policy said."""
    names = ", ".join(vote.by for vote in votes_of(approval))
    return f"{approval.id} approved by {names}; {policy}"


def _question(verdict: NeedsApproval, plan: Plan[Any]) -> Question:
    within = verdict.within
    return Question(
        name=f"policy/{plan.key}",
        plans=(plan,),
        summary=verdict.summary or f"{plan.activity} {plan.key}",
        who=str(verdict.by),
        within=int(within.total_seconds() * SECOND) if isinstance(within, timedelta) else within,
        valid_for=APPROVAL_VALID_FOR,
        risk="",
        quorum=verdict.quorum,
        not_requester=verdict.not_requester,
    )


def _first_requested(execution: NodeExecution, activity: str) -> Approval:
    """Return the first approval requested for a plan of an activity: each re-run finds the same one."""
    found = [a for a in execution.session.held.approvals.values() if any(plan.activity == activity for plan in a.plans)]
    return min(found, key=lambda a: (a.asked_at, a.id))


def _question_like(earlier: Approval, plan: Plan[Any]) -> Question:
    """Return the question about a plan that the approvers of an earlier one decide, by the same rules."""
    terms = earlier.calendar
    return Question(
        name=f"policy/{plan.key}",
        plans=(plan,),
        summary=f"{plan.activity} {plan.arguments.decode()}"[:TEXT_CHARS_MAX],
        who=earlier.who,
        within=terms.within or earlier.within_until - earlier.asked_at,
        valid_for=terms.valid or earlier.valid_ms,
        risk=earlier.risk,
        quorum=earlier.quorum,
        not_requester=bool(earlier.not_requester),
    )


async def _ask_person(execution: NodeExecution, question: Question, verdict: Verdict) -> Permission | None:
    approval = await request_approval(execution, question)
    if approval is None:
        return None
    if approval.status is not ApprovalStatus.APPROVED:
        raise Refused("approval_rejected", f"{approval.decided_by}: {approval.reason}")
    if not _enough(approval, verdict):  # it was reassigned to approvers outside the policy's rule
        (plan,) = question.plans
        _deny(execution, f"{plan.activity} {plan.key}: {approval.id} was not approved as {verdict.rule} requires")
        return None
    return _by_approval(execution, approval, verdict_text(execution, verdict))


def _refused(verdict: Deny) -> Refused:
    return Refused(Reason.POLICY_DENIED.value, f"{verdict.rule}: {verdict.detail}" if verdict.detail else verdict.rule)


def _deny(execution: NodeExecution, detail: str) -> None:
    session = execution.session
    execution.call_person(
        Attention(Reason.POLICY_DENIED, session.clock.now.business, detail, seen=session.held.inbox_read)
    )

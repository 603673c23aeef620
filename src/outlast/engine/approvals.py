"""Approvals: requested by a run, decided by approvers, expired by the store's clock (S-20, GATE-2, GATE-9).

A run requests an approval once for each name and visit; the row holds the answer. Each decision is a compare-and-set of
the row with its expiry as a condition. A refused decision names the rule (`refusal`), and nothing is written.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from outlast.core import approvals
from outlast.core.approval_columns import EDITABLE, PLANS, OfferedCall, PlanChange
from outlast.core.approvals import altered_plan
from outlast.core.codec import canonical, digest
from outlast.core.commit import Commit, Fence, Put
from outlast.core.conclude import Parked
from outlast.core.limits import PLANS_PER_APPROVAL_MAX, QUORUM_MAX, TEXT_CHARS_MAX
from outlast.core.machine import ApprovalStatus, Choice, Reason
from outlast.core.mailbox import REOPENED
from outlast.core.rows import Approval, Run
from outlast.core.run_columns import Attention, Timer, WaitingFor
from outlast.engine.commands import RACES_MAX, busy, check_reason, find_approval, over
from outlast.engine.node_execution import NodeExecution
from outlast.engine.policy import judge, satisfies
from outlast.errors import Conflict, Ended, Forbidden, InvalidInput, LimitExceeded, NotStorable, OutlastError, Stale
from outlast.flow.calls import Plan
from outlast.flow.policy import Deny, NeedsApproval, Verdict
from outlast.flow.workflow import Workflow
from outlast.store.port import Store


class Question(NamedTuple):
    """Request to approvers: the plans (first the requested one), who may decide, and for how long (ms)."""

    name: str
    plans: tuple[Plan[Any], ...]
    summary: str
    who: str
    within_ms: int
    valid_ms: int
    risk: str
    again: bool = False
    quorum: int = 1
    not_requester: bool = False
    editable: tuple[str, ...] = ()


def check_question(question: Question) -> None:
    """Raise LimitExceeded or InvalidInput if a request is not allowed."""
    if len(question.summary) > TEXT_CHARS_MAX:
        raise LimitExceeded("the summary of an approval is too long", f"at most {TEXT_CHARS_MAX} characters")
    if not 1 <= question.quorum <= QUORUM_MAX:
        raise InvalidInput(
            f"approval {question.name} has quorum {question.quorum}",
            f"it takes from 1 to {QUORUM_MAX} different people",
            "quorum=2",
        )
    if len(question.plans) > PLANS_PER_APPROVAL_MAX:
        raise LimitExceeded(
            f"approval {question.name} offers {len(question.plans)} plans",
            f"at most {PLANS_PER_APPROVAL_MAX}, including the requested one",
            "offer fewer alternatives",
        )
    known = set(json.loads(question.plans[0].arguments))
    if unknown := [name for name in question.editable if name not in known]:
        raise InvalidInput(
            f"approval {question.name} allows edits of {', '.join(unknown)}",
            f"{question.plans[0].activity} has {', '.join(sorted(known)) or 'no parameters'}",
            "name parameters of the activity",
        )


def changes_of(approval: Approval) -> dict[str, Any]:
    """Return the arguments that the decision changed, with their new values."""
    change = next((plan.change for plan in approval.plans if plan.digest == approval.chosen), None)
    return change.values() if change is not None else {}


async def request_approval(execution: NodeExecution, question: Question) -> Approval | None:
    """Return the decided approval, or None if the execution waits for a decision.

    An unused approval whose stored plans do not match their digests is withdrawn and requested again.
    """
    session = execution.session
    asked = [a for a in session.approvals.values() if a.visit == session.run.visit and a.wait == question.name]
    latest = max(asked, key=lambda a: (a.asked_at, a.status is not ApprovalStatus.WITHDRAWN, a.id), default=None)
    if latest is not None and not _same(latest, question, execution):
        await _withdraw(execution, latest)
        latest = None
    if latest is not None and _lapsed(execution, latest):
        latest = None
    if latest is None or latest.status is ApprovalStatus.WITHDRAWN or _asked_again(execution, latest):
        latest = await _ask(execution, question, len(asked))
    return await _current_answer(execution, latest)


def _asked_again(execution: NodeExecution, approval: Approval) -> bool:
    """Return True if an operator answered, after it expired, to request it again."""
    if approval.status is not ApprovalStatus.EXPIRED:
        return False
    since = [n for n in execution.session.messages if n.kind == "answer" and n.name == Reason.APPROVAL_TIMEOUT]
    return any(n.at >= approval.within_until and n.answer.choice is Choice.ASK_AGAIN for n in since)


async def _current_answer(execution: NodeExecution, approval: Approval) -> Approval | None:
    session = execution.session
    if approval.status in (ApprovalStatus.APPROVED, ApprovalStatus.REJECTED, ApprovalStatus.AGAIN):
        return approval
    if approval.status is ApprovalStatus.PENDING and session.now.business >= approval.within_until:
        commit = approvals.expire(approval, session.now, fence=_fence(execution))
        await session.land(commit)
        approval = session.approvals[approval.id]
    if approval.status is ApprovalStatus.EXPIRED:
        detail = f"{approval.id} «{approval.summary}» was not decided in time by {approval.who}"
        execution.call_person(
            Attention(
                Reason.APPROVAL_TIMEOUT,
                approval.within_until,
                detail,
                trigger=Reason.APPROVAL_TIMEOUT.value,
                seen=session.inbox_read,
            )
        )
        return None
    waiting = WaitingFor(
        "approval",
        f"{approval.id} «{approval.summary}»",
        who=approval.who,
        since=approval.asked_at,
        until=approval.within_until,
        then="REQUIRES_ATTENTION",
    )
    execution.park(Parked("park", waiting, Timer(approval.id, approval.within_until)))
    return None


async def _ask(execution: NodeExecution, question: Question, before: int) -> Approval:
    session, run = execution.session, execution.session.run
    now = await session.store.now()
    plans = [offered_call(plan, run) for plan in question.plans]
    within_until = now.business + question.within_ms
    if last := execution.visit_deadline():
        # requested after the deadline, it expires at once
        within_until = max(min(within_until, last), now.business + 1)
    row = Approval(
        tenant=run.tenant,
        run=run.run,
        id="ap_" + digest(run.tenant, run.run, run.visit, question.name, before)[:10],
        version=1,
        status=ApprovalStatus.PENDING,
        visit=run.visit,
        wait=question.name,
        plans_text=PLANS.encode(plans),
        summary=question.summary,
        risk=question.risk,
        again=int(question.again),
        quorum=question.quorum,
        not_requester=int(question.not_requester),
        editable_text=EDITABLE.encode(question.editable),
        who=question.who,
        requested_by=run.requested_by,
        asked_at=now.business,
        within_until=within_until,
        valid_ms=question.valid_ms,
        decided_at=0,
        decided_by="",
        claims_text="",
        reason="",
        chosen="",
        valid_until=0,
        consumed_by="",
    )
    await session.land(approvals.ask(row, fence=_fence(execution)))
    return row


def offered_call(plan: Plan[Any], run: Run) -> OfferedCall:
    """Return a plan as an approval of this run stores it."""
    digest = plan.approval_digest(run.tenant, run.run)
    return OfferedCall(plan.activity, plan.key, digest, plan.arguments.decode())


async def _withdraw(execution: NodeExecution, approval: Approval) -> None:
    put = approvals.withdraw(approval, execution.session.now)
    if put is not None:
        await execution.session.land(
            Commit((put,), _fence(execution), label=f"{approval.run} withdraw {approval.wait}")
        )


def _same(approval: Approval, question: Question, execution: NodeExecution) -> bool:
    run = execution.session.run
    if not approval.consumed_by and altered_plan(approval):
        return False
    digests = [plan.approval_digest(run.tenant, run.run) for plan in question.plans]
    if [plan.digest for plan in approval.plans if plan.change is None] != digests:
        return False
    rules = (approval.quorum, bool(approval.not_requester), approval.editable)
    wanted = (question.quorum, question.not_requester, question.editable)
    # differs if the author has changed the rules
    return approval.status is not ApprovalStatus.PENDING or rules == wanted


def chosen_plan(execution: NodeExecution, question: Question, approval: Approval) -> Plan[Any]:
    """Return the plan that may run: one of those offered, or the one that an approver changed.

    Raises Conflict if the plan differs from the approved one in more than was editable.
    """
    run = execution.session.run
    for plan in question.plans:
        if plan.approval_digest(run.tenant, run.run) == approval.chosen:
            return plan
    (offered,) = [plan for plan in approval.plans if plan.digest == approval.chosen]
    assert offered.change is not None, "the other offered calls are those of the question"
    activity = execution.workflow.activity(offered.activity)
    try:
        args, kwargs = activity.load_args(offered.arguments_text.encode())
        plan = activity.plan(*args, **kwargs)
    except OutlastError as error:
        raise _not_as_approved(approval, f"{error.what}: {error.why}") from error
    base = json.loads(question.plans[offered.change.of].arguments)
    differs = {name for name, value in json.loads(plan.arguments).items() if base.get(name) != value}
    if plan.approval_digest(run.tenant, run.run) != approval.chosen or not differs <= set(question.editable):
        raise _not_as_approved(approval, f"it differs in {', '.join(sorted(differs)) or 'its key'}")
    return plan


def _not_as_approved(approval: Approval, why: str) -> Conflict:
    return Conflict(
        f"the plan approved by {approval.id} can no longer be made as it was approved",
        why,
        "repair the activity and continue the run, or cancel it",
        refusal="drift",
    )


def _lapsed(execution: NodeExecution, approval: Approval) -> bool:
    """Return True if the approval's time is over and its call has not been made or was reopened."""
    if approval.status is not ApprovalStatus.APPROVED or execution.session.now.business < approval.valid_until:
        return False
    if not approval.consumed_by:
        return True
    visit, _, key = approval.consumed_by.partition(":")
    effect = execution.session.effects.get((int(visit), key))
    return effect is not None and effect.settled_at > 0 and effect.code == REOPENED


def _fence(execution: NodeExecution) -> Fence:
    run = execution.session.run
    return Fence(run.tenant, run.run, run.epoch, run.visit, execution.session.inbox_read)


DecisionVerb = Literal["approve", "reject", "again"]


class ChosenPlan(NamedTuple):
    """Digest of an approved plan, and the plan itself if an approver changed it."""

    digest: str
    changed: OfferedCall | None = None
    verdict: Verdict | None = None  # verdict of the policy on a changed plan


async def decide_approval(
    store: Store,
    approval: Approval,
    *,
    verb: DecisionVerb,
    chosen: str,
    by: str,
    claims: Sequence[str],
    reason: str,
    changed: OfferedCall | None = None,
    verdict: Verdict | None = None,
    version: int = 0,
) -> Approval:
    """Decide or vote once.

    Raises Conflict or Forbidden, each with its `refusal`.

    The caller checks the right to decide `approval`. If that row has changed since in its approvers or its plans, the
    decision is refused as `moved`. `version`: the row that the approver saw; any change since is refused.
    """
    check_reason(reason)
    row = approval
    if version and version != row.version:
        raise _moved(row) if row.status is ApprovalStatus.PENDING else _decided(row)
    for _ in range(RACES_MAX):
        _check(row, verb, chosen, by, changed)
        commit = approvals.decide(
            row, verb=verb, chosen=chosen, by=by, claims=claims, reason=reason, now=await store.now(), changed=changed
        )
        _check_policy(commit, verdict)
        if (left := await _landed(store, row, commit)) is None:
            return next(put.row for put in commit.writes if isinstance(put, Put) and isinstance(put.row, Approval))
        if version:
            raise _moved(left)
        if left.who != row.who:
            raise Conflict(
                f"approval {row.id} was reassigned while you decided",
                f"{left.who} decides now",
                f"look again: outlast approvals show {row.id}",
                refusal="moved",
            )
        row = left
    raise busy(row.run)


async def acknowledge(store: Store, approval: Approval, *, by: str, version: int = 0) -> Approval:
    """Record that an approver looks at it. Raises Conflict if it is decided, or not at the `version` seen."""
    return await _update(store, approval, lambda row: approvals.acknowledge(row, by=by), version)


async def reassign(store: Store, approval: Approval, *, who: str, by: str, reason: str, version: int = 0) -> Approval:
    """Let other approvers decide, and record why. Raises Conflict, and InvalidInput without a reason."""
    if not reason.strip():
        raise InvalidInput("a reassignment needs a reason", "the approvers will read it", "say why")
    check_reason(reason)
    return await _update(store, approval, lambda row: approvals.reassign(row, who=who, by=by, reason=reason), version)


async def _update(store: Store, approval: Approval, make: Any, version: int) -> Approval:
    row = approval
    if version not in (0, row.version):
        raise _moved(row)
    for _ in range(RACES_MAX):
        if row.status is not ApprovalStatus.PENDING:
            raise _decided(row)
        if (left := await _landed(store, row, make(row))) is None:
            return await find_approval(store, row.tenant, row.id)
        if version:
            raise _moved(left)
        if left.who != row.who:
            raise Conflict(f"approval {row.id} was reassigned", f"to {left.who}", refusal="moved")
        row = left
    raise busy(row.run)


async def _landed(store: Store, row: Approval, commit: Commit) -> Approval | None:
    """Commit; None if it landed, else the pending row as it is now. Raises Conflict if it is not pending."""
    try:
        await store.commit(commit)
    except Ended:
        raise over(row.run) from None
    except Stale as stale:
        left = await find_approval(store, row.tenant, row.id)
        if stale.reason == ApprovalStatus.EXPIRED:
            raise _expired(row) from None
        if left.status is not ApprovalStatus.PENDING:
            raise _decided(left) from None
        return left
    return None


def _check(row: Approval, verb: DecisionVerb, chosen: str, by: str, changed: OfferedCall | None) -> None:
    """Raise Conflict or Forbidden as far as the row tells; the store judges version and time."""
    if row.not_requester and by == row.requested_by:
        raise Forbidden(
            f"{by} may not decide {row.id}",
            f"{by} requested the run, and the requester may not decide here",
            "another person with the role has to decide",
            refusal="requester",
        )
    if row.status is not ApprovalStatus.PENDING:
        raise _decided(row)
    if verb == "again" and not row.again:
        raise Conflict(
            f"approval {row.id} does not offer another round",
            "the workflow allows no further round here",
            f"approve or reject it: outlast approvals show {row.id}",
            refusal="no_further_round",
        )
    votes = approvals.votes_of(row)
    if any(vote.by == by for vote in votes):
        raise Conflict(
            f"{by} has voted on {row.id} already",
            f"it takes {row.quorum} different people; {len(votes)} approved so far",
            "another approver has to decide",
            refusal="voted",
        )
    if verb != "approve":
        return
    _check_intact(row)
    if all(plan.digest != chosen for plan in row.plans) and changed is None:
        raise Conflict(
            f"approval {row.id} does not offer this plan",
            "only a plan that was requested can be approved",
            f"see what it offers: outlast approvals show {row.id}",
            refusal="not_offered",
        )
    if votes and votes[0].chosen != chosen:
        offered = [plan.digest for plan in row.plans]
        raise Conflict(
            f"the votes on {row.id} are for another plan",
            f"{', '.join(vote.by for vote in votes)} approved alternative {offered.index(votes[0].chosen)}, and "
            "all votes have to be for the same plan",
            f"approve that one (--alternative {offered.index(votes[0].chosen)}), or reject it",
            refusal="other_vote",
        )


def _check_intact(row: Approval) -> None:
    """Raise Conflict if a stored plan does not match its digest: approvers read the plan and approve the digest."""
    if key := approvals.altered_plan(row):
        raise Conflict(
            f"approval {row.id} cannot be approved: the plan it shows is not the requested one",
            f"activity, key and arguments stored for {key} do not give the digest stored beside them",
            f"reject it, or start a new run; look for other altered rows: outlast fsck --chain (run {row.run})",
            refusal="altered",
        )


def _check_policy(commit: Commit, verdict: Verdict | None) -> None:
    """Raise Conflict if the policy would not accept this decision on a changed plan."""
    put = commit.writes[0]
    assert isinstance(put, Put) and isinstance(put.row, Approval)
    if isinstance(verdict, Deny):
        raise Conflict(
            f"policy denies the changed plan of {put.row.id}",
            f"{verdict.rule}: {verdict.detail}",
            "approve other values, the plan as it was offered, or reject it",
            refusal=Reason.POLICY_DENIED.value,
        )
    decided = put.row.status is ApprovalStatus.APPROVED
    if decided and isinstance(verdict, NeedsApproval) and not satisfies(put.row, verdict):
        raise Conflict(
            f"policy requires more for the changed plan than {put.row.id} does",
            f"{verdict.rule}: {verdict.quorum} of {verdict.by}",
            "approve other values, the plan as it was offered, or reject it",
            refusal="policy_asks",
        )


def _expired(approval: Approval) -> Conflict:
    return Conflict(
        f"approval {approval.id} has expired",
        "the time to decide is over by the store's clock; nothing was approved or rejected",
        f"see what the run waits for now: outlast runs show {approval.run}",
        refusal=ApprovalStatus.EXPIRED.value,
    )


def _moved(approval: Approval) -> Conflict:
    return Conflict(
        f"approval {approval.id} has changed since you saw it",
        f"it is at version {approval.version} now",
        f"look again: outlast approvals show {approval.id}",
        refusal="moved",
    )


def _decided(approval: Approval) -> Conflict:
    if approval.status is ApprovalStatus.EXPIRED:
        return _expired(approval)
    if approval.decided_by:
        why = f"{approval.decided_by} {approval.status} it: {approval.reason or 'no reason given'}"
    else:
        why = f"it is {approval.status}"
    withdrawn = approval.status is ApprovalStatus.WITHDRAWN
    return Conflict(
        f"approval {approval.id} cannot be decided any more",
        why,
        f"outlast runs show {approval.run}",
        refusal=approval.status.value if withdrawn else "decided",
    )


# --- decisions that change a plan -----------------------------------------------------------
async def changed_plan(
    store: Store,
    workflow: Workflow[Any],
    run: Run,
    approval: Approval,
    index: int,
    changes: Mapping[str, Any],
    *,
    by: str,
) -> ChosenPlan:
    """Return the plan with these changes, checked by the activity's types and the policy (GATE-9).

    Raises Conflict (`not_editable`, `unchanged`, `drift`) and InvalidInput.
    """
    _check_intact(approval)
    plan, editable = approval.plans[index], approval.editable
    if refused := [name for name in changes if name not in editable]:
        raise Conflict(
            f"approval {approval.id} does not allow a change of {', '.join(refused)}",
            f"it allows a change of {', '.join(editable) or 'nothing'}",
            "approve what is offered, or reject it",
            refusal="not_editable",
        )
    if plan.change is not None:
        raise Conflict(
            f"alternative {index} of {approval.id} is itself a changed plan",
            "a change is made to one of the plans that were offered",
            f"change alternative {plan.change.of}, or approve it as it is",
            refusal="not_offered",
        )
    made = _remade(workflow, plan, {}, approval)
    if made.approval_digest(run.tenant, run.run) != plan.digest:
        raise Conflict(
            f"{plan.activity} has changed since {approval.id} was requested",
            "the same arguments make another call with the code that is loaded here",
            "load the code of the run's version",
            refusal="drift",
        )
    made = _remade(workflow, plan, changes, approval)
    digest = made.approval_digest(run.tenant, run.run)
    if digest == plan.digest:
        raise Conflict(
            f"the changes to {approval.id} change nothing", "the values are the offered ones", "leave --set out",
            refusal="unchanged",
        )  # fmt: skip
    now = await store.now()
    arguments = json.loads(made.arguments)
    values = json.dumps({name: arguments[name] for name in changes}, ensure_ascii=False)
    offered = offered_call(made, run)._replace(change=PlanChange(index, by, now.business, values))
    return ChosenPlan(digest, offered, judge(workflow, run, made, "decision", now, proposed_by=by))


def _remade(workflow: Workflow[Any], plan: OfferedCall, changes: Mapping[str, Any], approval: Approval) -> Plan[Any]:
    activity = workflow.activity(plan.activity)
    try:
        data = canonical({**plan.arguments(), **changes})
        args, kwargs = activity.load_args(data)
        made: Plan[Any] = activity.plan(*args, **kwargs)
    except (NotStorable, LimitExceeded) as error:
        raise _does_not_fit(approval, error) from error
    return made


def _does_not_fit(approval: Approval, error: OutlastError) -> InvalidInput:
    return InvalidInput(
        f"the changes to {approval.id} do not fit", f"{error.what}: {error.why}", "give values of the declared types"
    )

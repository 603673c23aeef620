"""Approvals of a run: requested, awaited, expired by the store's clock; changed plans made again (S-20, GATE-9).

A run requests an approval once for each name and visit; the row holds the answer. `core/approvals.py` decides what a
person may answer, `commands.py` records it.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from outlast.core import approvals, divergence
from outlast.core.approvals import NOT_COUNTED, ChangedCall, Remake, altered_plan
from outlast.core.argument_checks import Arguments
from outlast.core.business_days import BusinessDays, Due
from outlast.core.codec import canonical, digest
from outlast.core.commit import Commit, Fence, Instant
from outlast.core.conclude import Parked
from outlast.core.divergence import DECIDED
from outlast.core.durations import DAY
from outlast.core.limits import (
    PLANS_BYTES_MAX,
    PLANS_PER_APPROVAL_MAX,
    QUORUM_MAX,
    TEXT_CHARS_MAX,
    VISITS_MAX,
)
from outlast.core.machine import ApprovalStatus, Choice, Reason
from outlast.core.mailbox import REOPENED
from outlast.core.rows.approval_columns import CALENDAR, EDITABLE, PLANS, ApprovalCalendar, OfferedCall
from outlast.core.rows.columns import stored_text
from outlast.core.rows.effect_rows import Approval
from outlast.core.rows.run_columns import Attention, Timer, WaitingFor
from outlast.core.rows.run_rows import Run
from outlast.core.shown_arguments import ShownArgument
from outlast.core.terms import Deadline, Length, deadline_of
from outlast.engine.compatibility import activity_of
from outlast.engine.former_digests import as_offered, rewritten_values
from outlast.engine.node_execution import NodeExecution
from outlast.engine.policy_gate import ASKED_AGAIN_WITHIN, demand_of, judge
from outlast.errors import Conflict, InvalidInput, LimitExceeded, NotStorable, OutlastError
from outlast.flow.calls import Plan
from outlast.flow.policy import Deny, NeedsApproval
from outlast.flow.workflow import Workflow


class Question(NamedTuple):
    """Request to approvers: the plans (first the requested one), who may decide, and for how long."""

    name: str
    plans: tuple[Plan[Any], ...]
    summary: str
    who: str
    within: Length
    valid_for: Length
    risk: str
    again: bool | int = False
    quorum: int = 1
    not_requester: bool = False
    editable: tuple[str, ...] = ()


def check_arguments(
    of: str,
    *,
    summary: str,
    alternatives: Sequence[Plan[Any]],
    again: bool | int,
    risk: str,
    not_requester: bool,
    quorum: int,
    editable: Sequence[str],
) -> None:
    """Raise InvalidInput for an argument of `ctx.approval` of another type."""
    check = Arguments(of, of_call=True)
    check.is_text("summary", summary, 'summary="Refund 42 euros"')
    check.members("alternatives", alternatives, Plan, "alternatives=[refund.plan(order, half)]")
    if not isinstance(again, bool):
        check.number("again", again, 0, VISITS_MAX)
    check.one_of("risk", risk, ("", "low", "medium", "high"))
    check.flag("not_requester", not_requester)
    check.number("quorum", quorum, 1, QUORUM_MAX)
    check.names("editable", editable, 'name parameters of the activity: editable=("cents",)')


def check_question(question: Question) -> None:
    """Raise LimitExceeded or InvalidInput if a request is not allowed."""
    if len(question.summary) > TEXT_CHARS_MAX:
        raise LimitExceeded("the summary of an approval is too long", f"at most {TEXT_CHARS_MAX} characters")
    for option, length in (("within", question.within), ("valid_for", question.valid_for)):
        if not isinstance(length, BusinessDays) and length <= 0:
            what = f"{option} of approval {question.name} is {length} ms"
            raise InvalidInput(what, "a duration must be above zero", f'{option}="24h"')
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


def known_name(execution: NodeExecution, plan: Plan[Any], name: str, formerly: str) -> str:
    """Return the name under which the visit has asked for a plan: the former one, if only that one has."""
    session, run = execution.session, execution.session.held.run
    asked = _in_stored_form(execution, (plan,))[0].approval_digest(run.tenant, run.run)
    mine = [each for each in session.held.approvals.values() if each.visit == session.held.run.visit]
    if any(each.wait == name for each in mine):
        return name
    return formerly if any(each.wait == formerly and each.plans[0].digest == asked for each in mine) else name


async def request_approval(execution: NodeExecution, question: Question) -> Approval | None:
    """Return the decided approval, or None if the execution waits for a decision or a person."""
    approval = await current_request(execution, question)
    if approval is None or approval.status in DECIDED:
        return approval
    if approval.status is ApprovalStatus.EXPIRED:
        execution.call_person(timed_out(execution, approval))
    else:
        execution.park(parked(approval))
    return None


async def current_request(execution: NodeExecution, question: Question) -> Approval | None:
    """Return the approval of this name: decided, pending in time, or expired. None if a person is called about it.

    An unused approval whose stored plans do not match their digests is withdrawn and requested again. So is a pending
    one if the plan is another one now; the next time, or once it is decided, an operator is asked instead.
    """
    question = question._replace(plans=_in_stored_form(execution, question.plans))
    asked, latest = _asked(execution, question)
    if latest is not None and not _same(latest, question, execution):
        if (diverged := _replaces(execution, question, asked, latest)) is not None:
            execution.call_person(diverged)
            return None
        await _withdraw(execution, latest)
        latest = None
    if latest is not None and _lapsed(execution, latest):
        latest = None
    if latest is None or latest.status is ApprovalStatus.WITHDRAWN or _asked_again(execution, latest):
        latest = await _ask(execution, question, len(asked))
    return await _unless_late(execution, latest)


def answered_before(execution: NodeExecution, question: Question) -> Approval | None:
    """Return the approval if it is decided and still about the same calls; None if `request_approval` must look."""
    question = question._replace(plans=_in_stored_form(execution, question.plans))
    _, latest = _asked(execution, question)
    if latest is None or latest.status not in DECIDED:
        return None
    return latest if _same(latest, question, execution) and not _lapsed(execution, latest) else None


def is_new(execution: NodeExecution, question: Question) -> bool:
    """Return True if the visit has no request of this name."""
    return not _asked(execution, question)[0]


def _asked(execution: NodeExecution, question: Question) -> tuple[list[Approval], Approval | None]:
    """Return the requests of this name in the visit, and the latest of them."""
    session = execution.session
    asked = [
        a for a in session.held.approvals.values() if a.visit == session.held.run.visit and a.wait == question.name
    ]
    latest = max(asked, key=lambda a: (a.asked_at, a.status is not ApprovalStatus.WITHDRAWN, a.id), default=None)
    return asked, latest


def _replaces(
    execution: NodeExecution, question: Question, asked: list[Approval], latest: Approval
) -> Attention | None:
    """Return the reason to ask an operator about a plan that differs in each execution; None without one."""
    session, plan = execution.session, question.plans[0]
    run, name = session.held.run, f"?approval?{question.name}"
    digests = [each.approval_digest(run.tenant, run.run) for each in question.plans]
    if not divergence.is_other_plan(latest, digests) or not divergence.is_replaced_again(asked, latest):
        return None
    if divergence.accepts(run, session.held.messages, name, digests[0]):
        return None
    detail = divergence.plans_differ(run.node, latest, plan.key, plan.arguments.decode())
    entry = Attention(Reason.NODE_DIVERGED, session.clock.now.business, detail, seen=session.held.inbox_read)
    return entry._replace(missing=(name,), digest=digests[0])


def _asked_again(execution: NodeExecution, approval: Approval) -> bool:
    """Return True if an operator answered, after it expired, to request it again."""
    if approval.status is not ApprovalStatus.EXPIRED:
        return False
    since = [n for n in execution.session.held.messages if n.kind == "answer" and n.name == Reason.APPROVAL_TIMEOUT]
    return any(n.at >= approval.within_until and n.answer.choice is Choice.ASK_AGAIN for n in since)


async def _unless_late(execution: NodeExecution, approval: Approval) -> Approval:
    """Return the approval, which expires if it was not decided in time."""
    session = execution.session
    if approval.status is ApprovalStatus.PENDING and session.clock.now.business >= approval.within_until:
        commit = approvals.expire(approval, session.clock.now, fence=_fence(execution))
        await session.chain.land(commit)
        return session.held.approvals[approval.id]
    return approval


def timed_out(execution: NodeExecution, approval: Approval) -> Attention:
    """Return the reason to call an operator about an approval that was not decided in time."""
    return Attention(
        Reason.APPROVAL_TIMEOUT,
        approval.within_until,
        f"{approval.id} «{approval.summary}» was not decided in time by {approval.who}",
        trigger=Reason.APPROVAL_TIMEOUT.value,
        seen=execution.session.held.inbox_read,
    )


def parked(approval: Approval) -> Parked:
    """Return what operators see of a pending approval, and its timer."""
    waiting = WaitingFor(
        "approval",
        f"{approval.id} «{approval.summary}»",
        who=approval.who,
        since=approval.asked_at,
        until=approval.within_until,
        then="REQUIRES_ATTENTION",
    )
    return Parked("park", waiting, Timer(approval.id, approval.within_until))


def _origin(execution: NodeExecution) -> str:
    """Return the beginning of a summary, so that approvers do not take a request of a fork for one of its ancestor."""
    fork, asks = execution.session.held.fork, execution.session.held.asks
    if fork is not None:
        return f"fork of {fork.terms.of}: "
    return "" if asks is None else f"below a fork of {asks.of}: "


async def _ask(execution: NodeExecution, question: Question, before: int) -> Approval:
    session, run = execution.session, execution.session.held.run
    now = await session.store.now()
    plans = [offered_call(plan, run, _shown(execution, plan)) for plan in question.plans]
    ends, last = _deadline(question, "within", question.within, now.business), execution.visit_deadline()
    if 0 < last.ms < ends.ms:
        ends = last
    within_until = max(ends.ms, now.business + 1)  # requested after the deadline, it expires at once
    _deadline(question, "valid_for", question.valid_for, within_until)
    row = Approval(
        tenant=run.tenant,
        run=run.run,
        id="ap_" + digest(run.tenant, run.run, run.visit, question.name, before)[:10],
        version=1,
        status=ApprovalStatus.PENDING,
        visit=run.visit,
        wait=question.name,
        plans_text=_fitting(question, PLANS.encode(plans)),
        summary=stored_text(f"{_origin(execution)}{question.summary}", TEXT_CHARS_MAX),
        risk=question.risk,
        again=NOT_COUNTED if question.again is True else int(question.again),
        quorum=question.quorum,
        not_requester=int(question.not_requester),
        editable_text=EDITABLE.encode(question.editable),
        who=question.who,
        requested_by=run.requested_by,
        asked_at=now.business,
        within_until=within_until,
        valid_ms=question.valid_for if isinstance(question.valid_for, int) else 0,
        decided_at=0,
        decided_by="",
        claims_text="",
        reason="",
        chosen="",
        valid_until=0,
        consumed_by="",
        calendar_text=_calendar_text(question, ends.due, now.business, within_until),
    )
    if execution.observed:
        execution.record_observed()
    await session.chain.land(approvals.ask(row, fence=_fence(execution)))
    return row


def _shown(execution: NodeExecution, plan: Plan[Any]) -> tuple[ShownArgument, ...]:
    activity = activity_of(execution.workflow, plan.activity)
    return activity.shown if activity is not None else ()


def _deadline(question: Question, option: str, length: Length, begins: int) -> Deadline:
    given = length if isinstance(length, BusinessDays) else f"{length // DAY}d"
    return deadline_of(f"{option} of approval {question.name}", length, begins, given)


def _calendar_text(question: Question, due: Due | None, asked_at: int, within_until: int) -> str:
    """Return the column `calendar`: the terms with the holidays for which the row is asked later.

    `valid_for` begins at the decision. `within` begins again if the approvers are asked about a plan that replaces this
    one; then the holidays of a year are known.
    """
    valid, within = question.valid_for, question.within
    if due is None and isinstance(valid, int) and isinstance(within, int):
        return ""
    text = CALENDAR.encode(
        ApprovalCalendar(
            due,
            within.fixed(asked_at, asked_at + ASKED_AGAIN_WITHIN) if isinstance(within, BusinessDays) else None,
            valid.fixed(asked_at, within_until) if isinstance(valid, BusinessDays) else None,
        )
    )
    if (size := len(text)) > PLANS_BYTES_MAX:
        raise LimitExceeded(
            f"the calendar of approval {question.name} has {size:,} bytes",
            f"an approval has room for {PLANS_BYTES_MAX:,}; each holiday of its period is stored",
            "use a shorter within=",
        )
    return text


def _fitting(question: Question, plans_text: str) -> str:
    """Return the text of the offered plans. Raises LimitExceeded if they exceed one row together."""
    if (size := len(plans_text.encode())) <= PLANS_BYTES_MAX:
        return plans_text
    raise LimitExceeded(
        f"approval {question.name} offers plans of {size:,} bytes together",
        f"one approval has room for {PLANS_BYTES_MAX:,} bytes; it offers {len(question.plans)}",
        "offer fewer alternatives, or store large arguments elsewhere and pass a reference",
    )


def offered_call(plan: Plan[Any], run: Run, shown: tuple[ShownArgument, ...] = ()) -> OfferedCall:
    """Return a plan as an approval of this run stores it. `shown`: the main arguments of its activity."""
    digest = plan.approval_digest(run.tenant, run.run)
    return OfferedCall(plan.activity, plan.key, digest, plan.arguments.decode(), shown=shown)


async def _withdraw(execution: NodeExecution, approval: Approval) -> None:
    put = approvals.withdraw(approval, execution.session.clock.now)
    if put is not None:
        await execution.session.chain.land(
            Commit((put,), _fence(execution), label=f"{approval.run} withdraw {approval.wait}")
        )


def _in_stored_form(execution: NodeExecution, plans: tuple[Plan[Any], ...]) -> tuple[Plan[Any], ...]:
    """Return plans in the form in which an approval of the run has stored the same calls."""
    session = execution.session
    if not session.held.approvals:
        return plans
    found = {plan.activity: activity_of(execution.workflow, plan.activity) for plan in plans}
    return tuple(
        as_offered(activity, plan, session.held.run, session.held.approvals.values())
        if (activity := found[plan.activity]) is not None
        else plan
        for plan in plans
    )


def _same(approval: Approval, question: Question, execution: NodeExecution) -> bool:
    run = execution.session.held.run
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
    run = execution.session.held.run
    plans = _in_stored_form(execution, question.plans)
    for plan in plans:
        if plan.approval_digest(run.tenant, run.run) == approval.chosen:
            return plan
    (offered,) = [plan for plan in approval.plans if plan.digest == approval.chosen]
    assert offered.change is not None, "the other offered calls are those of the question"
    activity = execution.workflow.activity(offered.activity)
    try:
        args, kwargs = activity.load_args(offered.arguments_text.encode())
        plan = as_offered(activity, activity.plan(*args, **kwargs), run, (approval,))
    except OutlastError as error:
        raise _not_as_approved(approval, f"{error.what}: {error.why}") from error
    base = rewritten_values(activity, plans[offered.change.of].arguments)
    differs = {name for name, value in rewritten_values(activity, plan.arguments).items() if base.get(name) != value}
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
    if approval.status is not ApprovalStatus.APPROVED or execution.session.clock.now.business < approval.valid_until:
        return False
    if not approval.consumed_by:
        return True
    visit, _, key = approval.consumed_by.partition(":")
    effect = execution.session.held.effects.get((int(visit), key))
    return effect is not None and effect.settled_at > 0 and effect.code == REOPENED


def _fence(execution: NodeExecution) -> Fence:
    run = execution.session.held.run
    return Fence(run.tenant, run.run, run.epoch, run.visit, execution.session.held.inbox_read)


# --- changed plans ----------------------------------------------------------------------------
def remake_with(workflow: Workflow[Any] | None, run: Run, by: str, now: Instant) -> Remake:
    """Return the function that makes an offered call again with the code of the run, and asks its policy.

    `workflow`: the code; None if it is not loaded. The function raises InvalidInput.
    """

    def remake(offered: OfferedCall, changes: Mapping[str, Any]) -> ChangedCall:
        if workflow is None:
            raise InvalidInput(
                f"the code of {run.lane} is not loaded here",
                "changed arguments are checked with the activity's types and the workflow's policy",
                "load the module: outlast approvals approve … --module flows.py",
            )
        plan = _remade(workflow, offered, changes)
        call = offered_call(plan, run, offered.shown)
        if not changes:
            return ChangedCall(call)
        verdict = judge(workflow, run, plan, "decision", now, proposed_by=by)
        if isinstance(verdict, Deny):
            return ChangedCall(call, denied=f"{verdict.rule}: {verdict.detail}")
        return ChangedCall(call, demand=demand_of(verdict) if isinstance(verdict, NeedsApproval) else None)

    return remake


def _remade(workflow: Workflow[Any], offered: OfferedCall, changes: Mapping[str, Any]) -> Plan[Any]:
    activity = workflow.activity(offered.activity)
    try:
        data = canonical({**offered.arguments(), **changes})
        args, kwargs = activity.load_args(data)
        made: Plan[Any] = activity.plan(*args, **kwargs)
    except (NotStorable, LimitExceeded) as error:
        raise InvalidInput(
            f"the changes to {offered.key} do not fit",
            f"{error.what}: {error.why}",
            "give values of the declared types",
        ) from error
    return made

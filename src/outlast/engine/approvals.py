"""Requests to people: asked once per name and visit, answered by the row, expired by the store's clock (S-20)."""

import json
from typing import Any, NamedTuple

from outlast.core import people as moves
from outlast.core.codec import digest
from outlast.core.commit import Commit, Fence
from outlast.core.limits import PLANS_PER_APPROVAL_MAX, QUORUM_MAX, TEXT_CHARS_MAX
from outlast.core.machine import ApprovalStatus, Choice, Reason
from outlast.core.overlay import Armed, Attention, WaitingFor
from outlast.core.people import CHANGED_BY, REOPENED, altered_plan
from outlast.core.rows import Approval
from outlast.engine.node_execution import NodeExecution
from outlast.engine.node_result import Parked
from outlast.errors import Conflict, InvalidInput, LimitExceeded, OutlastError
from outlast.flow.plan import Plan


class Question(NamedTuple):
    """What is put to a person: the plans (the first is the one asked for), who may decide, and for how long (ms)."""

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
    """What can be asked. Raises LimitExceeded, InvalidInput."""
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
            f"at most {PLANS_PER_APPROVAL_MAX}, the one asked for included",
            "nobody reads more: offer fewer alternatives",
        )
    known = set(json.loads(question.plans[0].arguments))
    if unknown := [name for name in question.editable if name not in known]:
        raise InvalidInput(
            f"approval {question.name} lets people edit {', '.join(unknown)}",
            f"{question.plans[0].activity} has {', '.join(sorted(known)) or 'no parameters'}",
            "name parameters of the activity",
        )


def changes_of(approval: Approval) -> dict[str, Any]:
    """The arguments that the decision changed, with their new values."""
    chosen = [plan for plan in json.loads(approval.plans) if plan["digest"] == approval.chosen]
    changes: dict[str, Any] = chosen[0].get("changes", {}) if chosen else {}
    return changes


async def request(walk: NodeExecution, question: Question) -> Approval | None:
    """The decided approval (approved and usable or used, or rejected); None once the walk waits for a person.

    One that is not used yet and whose stored plans do not match their digests is withdrawn and asked anew.
    """
    ledger = walk.ledger
    asked = [a for a in ledger.approvals.values() if a.visit == ledger.run.visit and a.wait == question.name]
    latest = max(asked, key=lambda a: (a.asked_at, a.status is not ApprovalStatus.WITHDRAWN, a.id), default=None)
    if latest is not None and not _same(latest, question, walk):
        await _withdraw(walk, latest)
        latest = None
    if latest is not None and _lapsed(walk, latest):
        latest = None
    if latest is None or latest.status is ApprovalStatus.WITHDRAWN or _asked_again(walk, latest):
        latest = await _ask(walk, question, len(asked))
    return await _answer(walk, latest)


def _asked_again(walk: NodeExecution, approval: Approval) -> bool:
    """Did a person, since it expired, want it asked anew? The message says so to every later walk, until one has asked."""
    if approval.status is not ApprovalStatus.EXPIRED:
        return False
    since = [n for n in walk.ledger.messages if n.kind == "answer" and n.name == Reason.APPROVAL_TIMEOUT]
    return any(n.at >= approval.within_until and json.loads(n.payload)["choice"] == Choice.ASK_AGAIN for n in since)


async def _answer(walk: NodeExecution, approval: Approval) -> Approval | None:
    ledger = walk.ledger
    if approval.status in (ApprovalStatus.APPROVED, ApprovalStatus.REJECTED, ApprovalStatus.AGAIN):
        return approval
    if approval.status is ApprovalStatus.PENDING and ledger.now.business >= approval.within_until:
        commit = moves.expire(approval, ledger.now, fence=_fence(walk))
        await ledger.land(commit)
        approval = ledger.approvals[approval.id]
    if approval.status is ApprovalStatus.EXPIRED:
        detail = f"{approval.id} «{approval.summary}» was not decided in time by {approval.who}"
        walk.call_person(
            Attention(
                Reason.APPROVAL_TIMEOUT,
                approval.within_until,
                detail,
                trigger=Reason.APPROVAL_TIMEOUT.value,
                seen=ledger.inbox_read,
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
    walk.park(Parked("park", waiting, Armed(approval.id, approval.within_until)))
    return None


async def _ask(walk: NodeExecution, question: Question, before: int) -> Approval:
    ledger, run = walk.ledger, walk.ledger.run
    now = await ledger.store.now()
    plans = [
        {
            "activity": plan.activity,
            "key": plan.key,
            "digest": plan.approval_digest(run.tenant, run.run),
            "arguments": plan.arguments.decode(),
        }
        for plan in question.plans
    ]
    within_until = now.business + question.within_ms
    if last := walk.last_instant():
        within_until = max(min(within_until, last), now.business + 1)  # asked too late, it is over at once
    row = Approval(
        tenant=run.tenant,
        run=run.run,
        id="ap_" + digest(run.tenant, run.run, run.visit, question.name, before)[:10],
        version=1,
        status=ApprovalStatus.PENDING,
        visit=run.visit,
        wait=question.name,
        plans=json.dumps(plans, ensure_ascii=False),
        summary=question.summary,
        risk=question.risk,
        again=int(question.again),
        quorum=question.quorum,
        not_requester=int(question.not_requester),
        editable=json.dumps(question.editable) if question.editable else "",
        who=question.who,
        requested_by=run.requested_by,
        asked_at=now.business,
        within_until=within_until,
        valid_ms=question.valid_ms,
        decided_at=0,
        decided_by="",
        claims="",
        reason="",
        chosen="",
        valid_until=0,
        consumed_by="",
    )
    await ledger.land(moves.ask(row, fence=_fence(walk)))
    return row


async def _withdraw(walk: NodeExecution, approval: Approval) -> None:
    put = moves.withdraw(approval, walk.ledger.now)
    if put is not None:
        await walk.ledger.land(Commit((put,), _fence(walk), label=f"{approval.run} withdraw {approval.wait}"))


def _same(approval: Approval, question: Question, walk: NodeExecution) -> bool:
    run = walk.ledger.run
    if not approval.consumed_by and altered_plan(approval):
        return False
    digests = [plan.approval_digest(run.tenant, run.run) for plan in question.plans]
    if [plan["digest"] for plan in json.loads(approval.plans) if CHANGED_BY not in plan] != digests:
        return False
    rules = (approval.quorum, bool(approval.not_requester), approval.editable)
    wanted = (question.quorum, question.not_requester, json.dumps(question.editable) if question.editable else "")
    return approval.status is not ApprovalStatus.PENDING or rules == wanted  # the author's rules have changed


def chosen_plan(walk: NodeExecution, question: Question, approval: Approval) -> Plan[Any]:
    """The plan that may run: one of those offered, or the one that a person changed, made anew from its arguments.

    Raises Conflict where what stands there is not what was approved, or differs in more than may be changed.
    """
    run = walk.ledger.run
    for plan in question.plans:
        if plan.approval_digest(run.tenant, run.run) == approval.chosen:
            return plan
    (entry,) = [plan for plan in json.loads(approval.plans) if plan["digest"] == approval.chosen]
    activity = walk.workflow.activity(entry["activity"])
    try:
        args, kwargs = activity.load_args(entry["arguments"].encode())
        plan = activity.plan(*args, **kwargs)
    except OutlastError as error:
        raise _not_as_approved(approval, f"{error.what}: {error.why}") from error
    base = json.loads(question.plans[entry["of"]].arguments)
    differs = {name for name, value in json.loads(plan.arguments).items() if base.get(name) != value}
    if plan.approval_digest(run.tenant, run.run) != approval.chosen or not differs <= set(question.editable):
        raise _not_as_approved(approval, f"it differs in {', '.join(sorted(differs)) or 'its key'}")
    return plan


def _not_as_approved(approval: Approval, why: str) -> Conflict:
    return Conflict(
        f"what {approval.id} approved can no longer be made as it was approved",
        why,
        "mend the activity and continue the run, or cancel it",
        refusal="drift",
    )


def _lapsed(walk: NodeExecution, approval: Approval) -> bool:
    """Is its time over, and what it allowed still to be done: never begun, or re-opened by a person?"""
    if approval.status is not ApprovalStatus.APPROVED or walk.ledger.now.business < approval.valid_until:
        return False
    if not approval.consumed_by:
        return True
    visit, _, key = approval.consumed_by.partition(":")
    effect = walk.ledger.effects.get((int(visit), key))
    return effect is not None and effect.settled_at > 0 and bool(effect.error) and REOPENED in effect.error


def _fence(walk: NodeExecution) -> Fence:
    run = walk.ledger.run
    return Fence(run.tenant, run.run, run.epoch, run.visit, walk.ledger.inbox_read)

"""Requests to people: asked once per name and visit, answered by the row, expired by the store's clock (S-20)."""

import json
from typing import Any, NamedTuple

from outlast.core import people as moves
from outlast.core.codec import digest
from outlast.core.commit import Commit, Fence
from outlast.core.machine import ApprovalStatus, Reason
from outlast.core.overlay import Armed, Attention, WaitingFor
from outlast.core.people import REOPENED
from outlast.core.rows import Approval
from outlast.engine.verdict import Parked
from outlast.engine.walk import Walk
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


async def request(walk: Walk, question: Question) -> Approval | None:
    """The decided approval (approved and usable or used, or rejected); None once the walk waits for a person."""
    ledger = walk.ledger
    asked = [a for a in ledger.approvals.values() if a.visit == ledger.run.visit and a.wait == question.name]
    latest = max(asked, key=lambda a: (a.asked_at, a.id), default=None)
    if latest is not None and not _same(latest, question, walk):
        await _withdraw(walk, latest)
        latest = None
    if latest is not None and _lapsed(walk, latest):
        latest = None
    if latest is None or latest.status is ApprovalStatus.WITHDRAWN:
        latest = await _ask(walk, question, len(asked))
    return await _answer(walk, latest)


async def _answer(walk: Walk, approval: Approval) -> Approval | None:
    ledger = walk.ledger
    if approval.status in (ApprovalStatus.APPROVED, ApprovalStatus.REJECTED):
        return approval
    if approval.status is ApprovalStatus.PENDING and ledger.now.business >= approval.within_until:
        commit = moves.expire(approval, ledger.now, fence=_fence(walk))
        await ledger.land(commit)
        approval = ledger.approvals[approval.id]
    if approval.status is ApprovalStatus.EXPIRED:
        detail = f"{approval.id} «{approval.summary}» was not decided in time by {approval.who}"
        walk.call_person(Attention(Reason.APPROVAL_TIMEOUT, approval.within_until, detail, seen=ledger.mail_read))
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


async def _ask(walk: Walk, question: Question, before: int) -> Approval:
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
        who=question.who,
        requested_by=run.requested_by,
        asked_at=now.business,
        within_until=now.business + question.within_ms,
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


async def _withdraw(walk: Walk, approval: Approval) -> None:
    put = moves.withdraw(approval, walk.ledger.now)
    if put is not None:
        await walk.ledger.land(Commit((put,), _fence(walk), label=f"{approval.run} withdraw {approval.wait}"))


def _same(approval: Approval, question: Question, walk: Walk) -> bool:
    run = walk.ledger.run
    digests = [plan.approval_digest(run.tenant, run.run) for plan in question.plans]
    return [plan["digest"] for plan in json.loads(approval.plans)] == digests


def _lapsed(walk: Walk, approval: Approval) -> bool:
    """Is its time over, and what it allowed still to be done: never begun, or re-opened by a person?"""
    if approval.status is not ApprovalStatus.APPROVED or walk.ledger.now.business < approval.valid_until:
        return False
    if not approval.consumed_by:
        return True
    visit, _, key = approval.consumed_by.partition(":")
    effect = walk.ledger.effects.get((int(visit), key))
    return effect is not None and effect.settled_at > 0 and bool(effect.error) and REOPENED in effect.error


def _fence(walk: Walk) -> Fence:
    run = walk.ledger.run
    return Fence(run.tenant, run.run, run.epoch, run.visit, walk.ledger.mail_read)

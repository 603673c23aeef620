"""The moves of people and programs outside the holder: messages, approvals, decisions; pure functions to one commit."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from outlast.core.codec import digest
from outlast.core.commit import AppendMessage, Commit, Fence, Instant, Put, When
from outlast.core.machine import (
    CHOICES,
    ApprovalStatus,
    Choice,
    EffectStatus,
    Reason,
    approval_target,
    effect_target,
)
from outlast.core.rows import APPROVAL, EFFECT, TOKEN, Approval, Effect, Message, Run, Token, check_effect
from outlast.errors import NotStorable

NO_BYTES = b"{}"
CHANGED_BY = "changed_by"
"""Marks, among the plans of an approval, the one that a person made by changing arguments of another."""


def _note(
    tenant: str, run: str, kind: str, name: str, actor: str, payload: bytes = NO_BYTES, signal_id: str = ""
) -> AppendMessage:
    return AppendMessage(Message(tenant, run, 0, kind, name, payload, signal_id, actor, 0))


def append_message(
    *,
    tenant: str,
    run: str,
    kind: str,
    name: str,
    actor: str,
    now: Instant,
    payload: bytes = NO_BYTES,
    signal_id: str = "",
) -> Commit:
    """Leave a message. One with a `signal_id` lands once: a second one is refused as Stale ("version")."""
    message = _note(tenant, run, kind, name, actor, payload, signal_id)
    if not signal_id:
        return Commit((message,), label=f"{run} post {name}")
    once = Put(TOKEN, Token(tenant, run, f"signal/{signal_id}", "", name, now.business), 0)
    return Commit((message, once), label=f"{run} post {name}")


def ask(approval: Approval, *, fence: Fence) -> Commit:
    """Put a plan to a person. `approval` is the row as it should be; fenced by the holder's claim and mail (S-20)."""
    assert fence.inbox_seq is not None, "a cancel posted meanwhile refuses this"
    assert approval.status is approval_target("ask", None) and approval.version == 1
    assert approval.within_until > approval.asked_at
    return Commit((Put(APPROVAL, approval, 0),), fence, label=f"{approval.run} ask {approval.wait}")


def decide(
    approval: Approval,
    *,
    verb: Literal["approve", "reject", "again"],
    chosen: str,
    by: str,
    claims: Sequence[str],
    reason: str,
    now: Instant,
    changed: Mapping[str, Any] | None = None,
) -> Commit:
    """Answer an approval, once, before it expires by the store's clock; and wake its run (S-1, S-20).

    Where it takes several people, an approval short of the quorum is a vote: it leaves the request pending and wakes
    nobody. All votes are for the same plan, each by another person; one rejection rejects. `changed`: the chosen plan
    where it is none of those offered; it is kept beside them.
    """
    assert not (approval.not_requester and by == approval.requested_by), "the requester decides nothing"
    votes = votes_of(approval)
    assert all(vote["by"] != by and (verb != "approve" or vote["chosen"] == chosen) for vote in votes)
    if verb == "approve" and approval.quorum > 1:
        votes.append(
            {
                "by": by,
                "claims": sorted(claims),
                "chosen": chosen,
                "reason": reason,
                "at": now.business,
                "who": approval.who,
            }
        )
    row = approval._replace(
        version=approval.version + 1,
        votes=json.dumps(votes, ensure_ascii=False) if votes else "",
        plans=_with(approval.plans, changed) if changed else approval.plans,
    )
    in_time = (When(approval.within_until, False, "business", ApprovalStatus.EXPIRED),)
    if verb == "approve" and len(votes) < approval.quorum and approval.quorum > 1:
        row = row._replace(status=approval_target("vote", approval.status))
        return Commit(
            (Put(APPROVAL, row, approval.version),), whens=in_time, label=f"{approval.run} vote {approval.wait}"
        )
    status = approval_target(verb, approval.status)
    approve = status is ApprovalStatus.APPROVED
    row = row._replace(
        status=status,
        decided_at=now.business,
        decided_by=by,
        claims=json.dumps(sorted(claims)),
        reason=reason,
        chosen=chosen if approve else "",
        valid_until=now.business + approval.valid_ms if approve else 0,
    )
    return Commit(
        (Put(APPROVAL, row, approval.version), _note(approval.tenant, approval.run, "decision", approval.id, by)),
        whens=in_time,
        label=f"{approval.run} decide {approval.wait}",
    )


def votes_of(approval: Approval) -> list[dict[str, Any]]:
    """Each approval given, in order: {by, claims, chosen, reason, at, who}; where one person decides, that one's.

    `who`: the rule that said who may decide when it was given; a later reassignment takes no vote back.
    """
    if approval.votes:
        votes: list[dict[str, Any]] = json.loads(approval.votes)
        return votes
    if not approval.chosen:
        return []
    return [
        {
            "by": approval.decided_by,
            "claims": json.loads(approval.claims),
            "chosen": approval.chosen,
            "reason": approval.reason,
            "at": approval.decided_at,
            "who": approval.who,
        }
    ]


def _with(plans: str, changed: Mapping[str, Any]) -> str:
    """The plans offered, and the one that a person has changed."""
    known = json.loads(plans)
    if any(plan["digest"] == changed["digest"] for plan in known):
        return plans
    return json.dumps([*known, dict(changed)], ensure_ascii=False)


def altered_plan(approval: Approval) -> str:
    """Return the key of the first stored plan whose digest is not that of its call in this run; '' if all match."""
    plans = json.loads(approval.plans)
    return next((str(plan.get("key")) for plan in plans if not is_exact(approval.tenant, approval.run, plan)), "")


def is_exact(tenant: str, run: str, plan: Mapping[str, Any]) -> bool:
    """Return True if the digest stored with a plan is that of its activity, key and arguments in this run."""
    try:
        arguments = str(plan["arguments"]).encode()
        return bool(plan["digest"] == digest(tenant, run, plan["activity"], plan["key"], arguments))
    except (KeyError, NotStorable):
        return False


def acknowledge(approval: Approval, *, by: str) -> Commit:
    """Somebody says "I look at it". It binds nobody, and wakes nothing."""
    row = approval._replace(
        version=approval.version + 1, status=approval_target("acknowledge", approval.status), claimed_by=by
    )
    return Commit(
        (Put(APPROVAL, row, approval.version),),
        whens=(When(approval.within_until, False, "business", ApprovalStatus.EXPIRED),),
        label=f"{approval.run} acknowledge {approval.wait}",
    )


def reassign(approval: Approval, *, who: str, by: str, reason: str) -> Commit:
    """Other people decide from now on; votes given stand. The message keeps old, new, by whom and why (GATE-8)."""
    row = approval._replace(
        version=approval.version + 1, status=approval_target("reassign", approval.status), who=who, claimed_by=""
    )
    payload = json.dumps({"approval": approval.id, "from": approval.who, "to": who, "reason": reason}).encode()
    return Commit(
        (
            Put(APPROVAL, row, approval.version),
            _note(approval.tenant, approval.run, "reassign", approval.id, by, payload),
        ),
        whens=(When(approval.within_until, False, "business", ApprovalStatus.EXPIRED),),
        label=f"{approval.run} reassign {approval.wait}",
    )


def expire(approval: Approval, now: Instant, *, fence: Fence) -> Commit:
    """Nobody answered in time, by the store's clock. Nothing is approved, nothing is rejected."""
    row = approval._replace(version=approval.version + 1, status=approval_target("expire", approval.status))
    return Commit(
        (Put(APPROVAL, row, approval.version),),
        fence,
        whens=(When(approval.within_until, True, "business", "early"),),
        label=f"{approval.run} expire {approval.wait}",
    )


def withdraw(approval: Approval, now: Instant) -> Put | None:
    """A pending, or approved and unused, approval that can no longer be consumed; None when there is nothing to do."""
    open_ = approval.status is ApprovalStatus.PENDING
    unused = approval.status is ApprovalStatus.APPROVED and not approval.consumed_by
    if not (open_ or unused):
        return None
    row = approval._replace(version=approval.version + 1, status=approval_target("withdraw", approval.status))
    return Put(APPROVAL, row, approval.version)


def cancel(run: Run, approvals: Sequence[Approval], *, actor: str, reason: str, now: Instant) -> Commit:
    """Ask the holder to end the run; its open approvals are withdrawn in the same commit (S-20).

    `ask` names the mail, so no approval is asked for after this; one asked for since `approvals` were read is
    for the caller to withdraw before it tells anybody that the cancel was accepted.
    """
    withdrawn = tuple(put for a in approvals if (put := withdraw(a, now)) is not None)
    message = _note(run.tenant, run.run, "cancel", "cancel", actor, json.dumps({"reason": reason}).encode())
    return Commit((message, *withdrawn), label=f"{run.run} post cancel")


def resolve_effect(
    effect: Effect,
    verb: str,
    *,
    by: str,
    reason: str,
    now: Instant,
    response: bytes | None = None,
    external_id: str = "",
) -> Commit:
    """A person's answer on an uncertain effect, once: `happened`, `did_not_happen` or `give_up`; wakes the run.

    "Did not happen" re-opens it for another attempt, and is accepted only once a call in flight can no longer
    land, by the store's clock (S-17, EFF-3). Raises Corrupt for `happened` without the response that happened.
    """
    status = effect_target(verb, effect.status)
    code = {"did_not_happen": REOPENED, "give_up": GIVEN_UP}.get(verb, "")
    row = effect._replace(
        version=effect.version + 1,
        status=status,
        response=response if status is EffectStatus.DONE else None,
        external_id=external_id,
        error=json.dumps({"code": code, "detail": reason}) if code else "",
        settled_at=now.business,
        settled_by=by,
    )
    check_effect(row)
    quiet = (When(effect.settle_after, True, "real", "settle"),) if verb == "did_not_happen" else ()
    payload = json.dumps({"verb": verb, "key": effect.key, "visit": effect.visit, "reason": reason}).encode()
    run = effect.by_run or effect.run
    return Commit(
        (Put(EFFECT, row, effect.version), _note(effect.tenant, run, "resolve", effect.key, by, payload)),
        whens=quiet,
        label=f"{run} {verb} {effect.key}",
    )


def settled_elsewhere(effect: Effect, run: str) -> Commit:
    """Tell a run that waits for another run's shared effect that it may look again: it is settled (S-18)."""
    return Commit((_note(effect.tenant, run, "resolve", effect.key, effect.by_run),), label=f"{run} post {effect.key}")


GIVEN_UP = "given_up"
"""The code of a refused effect that a person gave up."""
REOPENED = "did_not_happen"
"""The code of a refused effect that a person re-opened: the next walk intends it anew."""


def go_on(run: Run, refused: Sequence[Effect], *, actor: str, reason: str, now: Instant) -> Commit:
    """The operator's `continue` of a run in attention; effects refused after their last attempt are re-opened."""
    payload = json.dumps({"reason": reason}).encode()
    message = _note(run.tenant, run.run, Choice.CONTINUE.value, Choice.CONTINUE.value, actor, payload)
    return Commit((message, *_reopened(refused, REOPENED, reason)), label=f"{run.run} post continue")


def _reopened(refused: Sequence[Effect], code: str, reason: str) -> tuple[Put, ...]:
    error = json.dumps({"code": code, "detail": reason})
    return tuple(
        Put(EFFECT, e._replace(version=e.version + 1, status=effect_target("reopen", e.status), error=error), e.version)
        for e in refused
    )


def answer(
    run: Run,
    reason: Reason,
    choice: Choice,
    *,
    key: str,
    actor: str,
    text: str,
    by_ms: int,
    now: Instant,
    refused: Sequence[Effect] = (),
    approvals: Sequence[Approval] = (),
    recorded: Sequence[tuple[int, str, str]] = (),
) -> Commit:
    """A person's choice for one reason of the attention set; the holder acts on it.

    `refused`: effects whose attempts are used up: `retry` re-opens them, `give_up` leaves them refused under the
    code `given_up`, which a node may handle. `approvals`: those to withdraw, because the choice ends the run (S-20).
    `recorded`: (visit, key, digest) of each call that `use_recorded` answers from its row, as long as the run lives.
    """
    assert choice in CHOICES[reason]
    said: dict[str, object] = {"choice": choice.value, "key": key, "reason": text, "by_ms": by_ms}
    if recorded:
        said["recorded"] = recorded
    message = _note(run.tenant, run.run, "answer", reason.value, actor, json.dumps(said).encode())
    reopened = _reopened(refused, GIVEN_UP if choice is Choice.GIVE_UP else REOPENED, text)
    withdrawn = tuple(put for a in approvals if (put := withdraw(a, now)) is not None)
    return Commit((message, *reopened, *withdrawn), label=f"{run.run} post answer")

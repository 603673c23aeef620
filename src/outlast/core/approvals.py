"""The verbs of approvals: ask, vote, decide, reassign, expire, withdraw (S-20)."""

import json
from collections.abc import Sequence
from typing import Literal

from outlast.core.approval_columns import CLAIMS, PLANS, VOTES, ApprovalVote, OfferedCall
from outlast.core.codec import digest
from outlast.core.commit import Commit, Fence, Instant, Put, When, append_to_inbox
from outlast.core.machine import (
    ApprovalStatus,
    approval_target,
)
from outlast.core.rows import APPROVAL, Approval
from outlast.errors import NotStorable


def ask(approval: Approval, *, fence: Fence) -> Commit:
    """Request an approval. `approval` is the new row; the fence holds the claim and the inbox as read (S-20)."""
    assert fence.inbox_seq is not None, "so that a cancel that arrives first refuses this commit"
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
    changed: OfferedCall | None = None,
) -> Commit:
    """Decide an approval once, before it expires by the store's clock, and make its run due (S-1, S-20).

    If a quorum is required, an approval below it is a vote: the request stays pending, and no run becomes due. All
    votes name the same plan, each by a different person; one rejection rejects. `changed` is the chosen plan if it is
    not among those offered; it is stored beside them.
    """
    assert not (approval.not_requester and by == approval.requested_by), "the requester may not decide"
    votes = votes_of(approval)
    assert all(vote.by != by and (verb != "approve" or vote.chosen == chosen) for vote in votes)
    if verb == "approve" and approval.quorum > 1:
        votes = (*votes, ApprovalVote(by, tuple(sorted(claims)), chosen, reason, now.business, approval.who))
    row = approval._replace(version=approval.version + 1, votes_text=VOTES.encode(votes))
    if changed is not None and all(plan.digest != changed.digest for plan in approval.plans):
        row = row._replace(plans_text=PLANS.encode((*approval.plans, changed)))
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
        claims_text=CLAIMS.encode(claims),
        reason=reason,
        chosen=chosen if approve else "",
        valid_until=now.business + approval.valid_ms if approve else 0,
    )
    return Commit(
        (
            Put(APPROVAL, row, approval.version),
            append_to_inbox(approval.tenant, approval.run, "decision", approval.id, by),
        ),
        whens=in_time,
        label=f"{approval.run} decide {approval.wait}",
    )


def votes_of(approval: Approval) -> tuple[ApprovalVote, ...]:
    """Return each approval in order; without a quorum, the one decision."""
    if approval.votes_text or not approval.chosen:
        return approval.votes
    a = approval
    return (ApprovalVote(a.decided_by, a.claims, a.chosen, a.reason, a.decided_at, a.who),)


def altered_plan(approval: Approval) -> str:
    """Return the key of the first stored plan whose digest does not match its call; '' if all match."""
    plans = approval.plans
    return next((plan.key for plan in plans if not is_exact(approval.tenant, approval.run, plan)), "")


def is_exact(tenant: str, run: str, plan: OfferedCall) -> bool:
    """True if the digest stored with a plan is that of its activity, key and arguments in this run."""
    try:
        return plan.digest == digest(tenant, run, plan.activity, plan.key, plan.arguments_text.encode())
    except NotStorable:
        return False


def acknowledge(approval: Approval, *, by: str) -> Commit:
    """Record that a person is looking at the approval. It binds no one, and no run becomes due."""
    row = approval._replace(
        version=approval.version + 1, status=approval_target("acknowledge", approval.status), claimed_by=by
    )
    return Commit(
        (Put(APPROVAL, row, approval.version),),
        whens=(When(approval.within_until, False, "business", ApprovalStatus.EXPIRED),),
        label=f"{approval.run} acknowledge {approval.wait}",
    )


def reassign(approval: Approval, *, who: str, by: str, reason: str) -> Commit:
    """Change the rule of who may decide; votes stay.

    The message keeps the old and the new rule, the person and the reason (GATE-8).
    """
    row = approval._replace(
        version=approval.version + 1, status=approval_target("reassign", approval.status), who=who, claimed_by=""
    )
    payload = json.dumps({"approval": approval.id, "from": approval.who, "to": who, "reason": reason}).encode()
    return Commit(
        (
            Put(APPROVAL, row, approval.version),
            append_to_inbox(approval.tenant, approval.run, "reassign", approval.id, by, payload),
        ),
        whens=(When(approval.within_until, False, "business", ApprovalStatus.EXPIRED),),
        label=f"{approval.run} reassign {approval.wait}",
    )


def expire(approval: Approval, now: Instant, *, fence: Fence) -> Commit:
    """Expire an approval that was not decided in time by the store's clock. It is neither approved nor rejected."""
    row = approval._replace(version=approval.version + 1, status=approval_target("expire", approval.status))
    return Commit(
        (Put(APPROVAL, row, approval.version),),
        fence,
        whens=(When(approval.within_until, True, "business", "early"),),
        label=f"{approval.run} expire {approval.wait}",
    )


def withdraw(approval: Approval, now: Instant) -> Put | None:
    """Return the withdrawal of an approval that is pending, or approved and unused; None for others."""
    open_ = approval.status is ApprovalStatus.PENDING
    unused = approval.status is ApprovalStatus.APPROVED and not approval.consumed_by
    if not (open_ or unused):
        return None
    row = approval._replace(version=approval.version + 1, status=approval_target("withdraw", approval.status))
    return Put(APPROVAL, row, approval.version)

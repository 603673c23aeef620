"""Rows as JSON data, the same for the command line and for HTTP.

Instants are RFC 3339 text of business time, except in names that end in `_real`. Nothing is shortened or escaped here;
code that prints on a terminal escapes first.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from outlast.core.approvals import votes_of
from outlast.core.commit import Instant
from outlast.core.effect_columns import NO_ERROR
from outlast.core.events import iso
from outlast.core.keys import OncePer
from outlast.core.machine import EffectStatus, LeaseStatus
from outlast.core.mailbox import REOPENED
from outlast.core.rows import Approval, Effect, Evidence, Pause, Worker
from outlast.flow.approval_rule import EVERY_ROLE
from outlast.runtime.confusables import confusable_texts
from outlast.runtime.labels import effect_label, is_alive, worker_label
from outlast.runtime.port import Actor


def instant(at: int) -> str | None:
    """Return an instant as text; None for 0, which means "not yet" or "never"."""
    return iso(at) if at else None


def effect_view(
    effect: Effect, now: Instant, evidence: Sequence[Evidence] = (), *, held: Collection[str] | None = None
) -> dict[str, Any]:
    """Return an effect. `settles_in_ms`: time until a person may answer "did not happen".

    `held`: runs that a worker holds, from `Operations.held_runs`; None: not needed, because the effect is settled.
    """
    error = effect.error or NO_ERROR
    return {
        "run": effect.by_run or effect.run,
        "visit": effect.visit,
        "once_per": once_per(effect),
        "node": effect.node,
        "effect": effect.activity,
        "key": effect.key,
        "version": effect.version,
        "status": effect.status.value,
        "outcome": effect_label(effect, error.code, held=held is None or (effect.by_run or effect.run) in held),
        "code": error.code,
        "detail": error.detail,
        "reopened": effect.status is EffectStatus.REFUSED and error.code == REOPENED,
        "attempts": effect.attempts,
        "arguments": effect.arguments(),
        "response": effect.answer(),
        "external_id": effect.external_id,
        "digest": effect.digest,
        "approval": effect.approval,
        "allowed_by": effect.allowed_by,
        "undo": effect.undo,
        "settled_at": instant(effect.settled_at),
        "settled_by": effect.settled_by,
        "first_at_real": instant(effect.first_at),
        "not_after_real": instant(effect.not_after),
        "waited_ms": effect.waited_ms,
        "evidence": [evidence_view(each) for each in evidence],
        "settle_after_real": instant(effect.settle_after),
        "settles_in_ms": max(0, effect.settle_after - now.real) if effect.status is EffectStatus.UNCERTAIN else 0,
    }


def once_per(effect: Effect) -> OncePer:
    """Return the scope in which the effect's key is unique."""
    if effect.visit:
        return "visit"
    return "run" if effect.run else "tenant"


def evidence_view(evidence: Evidence) -> dict[str, Any]:
    """Return the late answer of a replaced worker, which does not settle the effect."""
    answer = evidence.answer
    error = answer.error or NO_ERROR
    return {
        "epoch": evidence.epoch,
        "at": instant(evidence.at),
        "status": answer.status,
        "response": answer.response(),
        "code": error.code,
        "detail": error.detail,
    }


def approval_view(approval: Approval) -> dict[str, Any]:
    """Return an approval with the exact calls it allows; the first is the requested one."""
    return {
        "approval": approval.id,
        "run": approval.run,
        "status": approval.status.value,
        "asks": approval.summary,
        "risk": approval.risk,
        "who": approval.who,
        "requested_by": approval.requested_by,
        "asked_at": instant(approval.asked_at),
        "within_until": instant(approval.within_until),
        "valid_ms": approval.valid_ms,
        "plans": [
            {
                "alternative": n,
                "effect": plan.activity,
                "key": plan.key,
                "digest": plan.digest,
                "arguments": plan.arguments(),
                "chosen": plan.digest == approval.chosen,
                "changed_by": plan.change.by if plan.change else "",
                "changes": plan.change.values() if plan.change else {},
                "warnings": confusable_texts(plan.arguments()),
            }
            for n, plan in enumerate(approval.plans)
        ],
        "decided_at": instant(approval.decided_at),
        "decided_by": approval.decided_by,
        "roles": list(approval.claims),
        "reason": approval.reason,
        "valid_until": instant(approval.valid_until),
        "consumed_by": approval.consumed_by,
        "another_round": bool(approval.again),
        "quorum": approval.quorum,
        "votes": [
            {**vote._asdict(), "claims": list(vote.claims), "at": instant(vote.at)} for vote in votes_of(approval)
        ],
        "not_requester": bool(approval.not_requester),
        "editable": list(approval.editable),
        "claimed_by": approval.claimed_by,
        "warnings": confusable_texts([approval.summary, approval.risk]),
    }


def worker_view(worker: Worker, now: Instant, held: int) -> dict[str, Any]:
    """Return a worker: its lanes, lease, and health at its last heartbeat."""
    health = worker.health
    return {
        "worker": worker.id,
        "name": worker.name,
        "status": worker.status.value,
        "serving": is_alive(worker, now),
        "state": worker_label(worker, now),
        "serves": worker.lanes.split(),
        "holds": held,
        "concurrency": health.of,
        "free": None if health.of is None else max(0, health.of - held),
        "pid": health.pid,
        "host": health.host,
        "version": health.version,
        "loop_late_ms": health.loop_late_ms,
        "loop_ticked_ms": health.loop_ticked_ms,
        "lease_left_ms": max(0, worker.lease_until - now.real) if worker.status is LeaseStatus.ALIVE else 0,
        "heartbeat_ago_ms": max(0, now.real - worker.renewed_at),
        "started_at": instant(worker.started_at),
        "renewed_at_real": instant(worker.renewed_at),
        "lease_until_real": instant(worker.lease_until),
    }


def pause_view(pause: Pause, runs: int, business: Callable[[int], int]) -> dict[str, Any]:
    """Return a pause with its number of waiting runs.

    `again_at`: of a breaker, when one run tries the provider; `business` converts real instants to business time.
    """
    return {
        "paused": pause.key.replace("/", " ", 1),
        "kind": pause.kind,
        "runs": runs,
        "by": pause.by,
        "since": instant(pause.since),
        "again_at": instant(business(pause.again_at)) if pause.again_at else None,
        "reason": pause.reason,
    }


def caller_view(actor: Actor, tenant: str, until_real: int = 0) -> dict[str, Any]:
    """Return the caller's identity and roles. `every_role`: the local operator, who has every role."""
    return {
        "name": actor.name,
        "tenant": tenant,
        "roles": list(actor.claims),
        "every_role": actor.roles is EVERY_ROLE,
        "person": actor.person,
        "until_real": instant(until_real),
    }

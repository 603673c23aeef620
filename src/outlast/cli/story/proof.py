"""What can be proven at the end, from the store and from what the suppliers themselves recorded."""

import json
from types import ModuleType
from typing import Any, NamedTuple

from outlast.cli.story.notes import Notes
from outlast.core.events import EventType
from outlast.core.machine import ApprovalStatus, EffectStatus, RunStatus
from outlast.core.rows import Effect, Event, Run
from outlast.runtime.operations import Operations

INVITE = "invite"


class Claim(NamedTuple):
    """One sentence, and whether it holds."""

    text: str
    holds: bool


class Proof(NamedTuple):
    """The facts as `--json` shows them, and the claims they are judged by."""

    facts: dict[str, Any]
    claims: tuple[Claim, ...]

    @property
    def holds(self) -> bool:
        """All of it."""
        return all(claim.holds for claim in self.claims)


WELL = (RunStatus.COMPLETED, RunStatus.CANCELLED)


async def prove(
    operations: Operations,
    notes: Notes,
    record: ModuleType,
    entries: list[Any],
    ends: tuple[RunStatus, ...] = WELL,
) -> Proof:
    """Compute it from nothing but the store, the market's record, and when the kill was."""
    run = await operations.run(notes.run)
    history = await operations.history(notes.run)
    effects = await operations.effects(notes.run)
    counts = record.summary(entries, notes.run)
    approaches = [counts[kind] for kind in record.APPROACHES]
    invitations = {name: sum(getattr(count, name) for count in approaches) for name in ("sent", "distinct", "repeated")}
    taken = [event for event in history if event.type == EventType.TAKEN_OVER.value]
    killed = {kill.worker for kill in notes.kills}
    crashed = [event for event in taken if json.loads(event.body)["data"]["from"] in killed]
    slots = [slot for slot in await operations.slots() if slot.holder]
    end = json.loads(history[-1].body)["data"]
    facts = {
        "outcome": run.status.value.upper(),
        "run": run.run,
        "store": operations.store.url,
        "order": (end.get("outcome") or {}).get("order_id", ""),
        "reason": end.get("reason", ""),
        "invitations": invitations,
        "all_requests_repeated": sum(count.repeated for count in counts.values()),
        "crashes": len(crashed),
        "takeovers": len(taken),
        "takeover_seconds": takeover_seconds(notes, history),
        "resume_seconds": await _resume_seconds(operations, notes, history),
        "effects": {
            "executed": sum(1 for e in effects if e.status is EffectStatus.DONE),
            "declined": sum(1 for e in effects if e.status is EffectStatus.REFUSED),
            "unsettled": sum(1 for e in effects if not e.settled_at),
            "answered_from_ledger": _from_ledger(effects, crashed),
            "settled_by_asking": asked(effects),
        },
        "slots_in_use": len(slots),
        "seconds": round((notes.real(run.ended_at) - notes.begun_at) / 1000, 1),
    }
    claims = _claims(run, facts, notes, effects, counts, ends)
    return Proof({**facts, "proven": all(claim.holds for claim in claims)}, claims)


def _claims(
    run: Run,
    facts: dict[str, Any],
    notes: Notes,
    effects: tuple[Effect, ...],
    counts: dict[str, Any],
    ends: tuple[RunStatus, ...],
) -> tuple[Claim, ...]:
    sent, repeated = facts["invitations"], facts["all_requests_repeated"]
    known = {kind: sum(1 for e in effects if _KIND.get(e.activity) == kind) for kind in counts}
    agree = all(counts[kind].distinct == known[kind] for kind in counts)
    crashes, slots = facts["crashes"], facts["slots_in_use"]
    executed = facts["effects"]
    return (
        Claim(
            f"the suppliers' own record: {sent['sent']} invitations sent, {sent['distinct']} distinct, "
            f"{sent['repeated']} repeated",
            sent["repeated"] == 0 < sent["sent"],
        ),
        Claim(
            f"the store and that record agree on every request; "
            f"{repeated} of {sum(count.sent for count in counts.values())} were repeated",
            agree and repeated == 0,
        ),
        Claim(
            f"{executed['executed']} effects executed, {executed['answered_from_ledger']} answered from the ledger "
            f"after the crash, {executed['unsettled']} unsettled",
            executed["unsettled"] == 0,
        ),
        Claim(
            f"{crashes} crash{'' if crashes == 1 else 'es'}"
            + (f", taken over after {facts['takeover_seconds']}s" if notes.kills else ""),
            crashes == len(notes.kills),
        ),
        Claim(f"{slots} slots in use", slots == 0),
        Claim(f"the run is {facts['outcome']}", run.status in ends),
    )


_KIND = {
    INVITE: "invitations",
    "request_quote": "quotes",
    "inquire": "inquiries",
    "propose": "proposals",
    "send_feedback": "feedback",
    "place_order": "orders",
    "send_message": "messages",
}
"""The activity whose effects the suppliers record as a kind of request."""


def asked(effects: tuple[Effect, ...]) -> int:
    """Effects whose outcome nobody knew, until the receiver was asked."""
    return sum(1 for e in effects if e.settled_by == "reconcile")


def takeover_seconds(notes: Notes, history: tuple[Event, ...]) -> float | None:
    """From the first kill to the takeover event; None where there was none."""
    if not notes.kills:
        return None
    after = (notes.real(e.at) for e in history if e.type == EventType.TAKEN_OVER.value)
    taken = next((at for at in after if at >= notes.kills[0].at), None)
    return None if taken is None else round((taken - notes.kills[0].at) / 1000, 2)


async def _resume_seconds(operations: Operations, notes: Notes, history: tuple[Event, ...]) -> float | None:
    """From the decision to the first event of the node after it; None where nobody decided."""
    approvals, _ = await operations.approvals()
    mine = [a for a in approvals if a.run == notes.run and a.decided_at]
    if not mine or mine[0].status is ApprovalStatus.REJECTED:
        return None
    moved = (e.at for e in history if e.at >= mine[0].decided_at and e.visit > mine[0].visit)
    at = next(moved, None)
    return None if at is None else round((notes.real(at) - notes.real(mine[0].decided_at)) / 1000, 2)


def _from_ledger(effects: tuple[Effect, ...], crashed: list[Event]) -> int:
    """Effects of the crashed visit that were settled before it was taken over: asked for again, and not done again."""
    return sum(1 for over in crashed for e in effects if e.visit == over.visit and 0 < e.settled_at < over.at)

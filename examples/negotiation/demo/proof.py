"""Proof of the outcome, computed from the store and from the record of the suppliers."""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from outlast.core.effect_rows import Effect
from outlast.core.events import EventType
from outlast.core.machine import ApprovalStatus, EffectStatus
from outlast.core.rows import Event, Run
from outlast.runtime.labels import shown_status
from outlast.runtime.operations import Operations

from .. import record
from .state import DemoState

INVITE: Final = "invite"


class Claim(NamedTuple):
    """A sentence about the run, and whether it is true."""

    text: str
    holds: bool


class Proof(NamedTuple):
    """Facts as `--json` prints them, and the claims derived from them."""

    facts: dict[str, Any]
    claims: tuple[Claim, ...]

    @property
    def holds(self) -> bool:
        """True if every claim holds."""
        return all(claim.holds for claim in self.claims)


WELL: Final = ("AWARDED", "CANCELLED")

AFTER_DEATH: Final = (EventType.TAKEN_OVER.value, EventType.REQUEUED.value)
"""Events of a run whose worker died. A run of another scheduler is queued for that engine."""


async def prove(operations: Operations, state: DemoState, entries: list[Any], ends: tuple[str, ...] = WELL) -> Proof:
    """Compute the proof from the store, the market's record (`entries`) and the time of the kill."""
    run = await operations.rows.run(state.run)
    history = await operations.rows.history(state.run)
    effects = await operations.rows.effects(state.run)
    counts = record.summary(entries, state.run)
    approaches = [counts[kind] for kind in record.APPROACHES]
    invitations = {name: sum(getattr(count, name) for count in approaches) for name in ("sent", "distinct", "repeated")}
    taken = [event for event in history if event.type in AFTER_DEATH]
    killed = {kill.worker for kill in state.kills}
    crashed = [event for event in taken if event.data()["from"] in killed]
    slots = [slot for slot in await operations.rows.slots() if slot.holder]
    end = json.loads(history[-1].body)["data"]
    facts = {
        "outcome": shown_status(run),
        "run": run.run,
        "store": operations.store.url,
        "order": (end.get("outcome") or {}).get("order_id", ""),
        "reason": end.get("reason", ""),
        "invitations": invitations,
        "all_requests_repeated": sum(count.repeated for count in counts.values()),
        "crashes": len(crashed),
        "takeovers": len(taken),
        "takeover_seconds": takeover_seconds(state, history),
        "resume_seconds": await _resume_seconds(operations, state, history),
        "effects": {
            "executed": sum(1 for e in effects if e.status is EffectStatus.DONE),
            "declined": sum(1 for e in effects if e.status is EffectStatus.REFUSED),
            "unsettled": sum(1 for e in effects if not e.settled_at),
            "answered_from_ledger": _from_ledger(effects, crashed),
            "settled_by_asking": asked(effects),
        },
        "slots_in_use": len(slots),
        "seconds": round((state.real(run.ended_at) - state.begun_at) / 1000, 1),
    }
    claims = _claims(run, facts, state, effects, counts, ends)
    return Proof({**facts, "proven": all(claim.holds for claim in claims)}, claims)


def _claims(
    run: Run,
    facts: dict[str, Any],
    state: DemoState,
    effects: tuple[Effect, ...],
    counts: Mapping[record.Kind, record.Count],
    ends: tuple[str, ...],
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
            + (f", taken over after {facts['takeover_seconds']}s" if state.kills else ""),
            crashes == len(state.kills),
        ),
        Claim(f"{slots} slots in use", slots == 0),
        Claim(f"the run is {facts['outcome']}", facts["outcome"] in ends),
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
"""Activity → kind of request in the suppliers' record."""


def asked(effects: tuple[Effect, ...]) -> int:
    """Count the effects that were settled by asking the receiver."""
    return sum(1 for e in effects if e.settled_by == "reconcile")


def takeover_seconds(state: DemoState, history: tuple[Event, ...]) -> float | None:
    """Return the seconds from the first kill to the takeover, or None without a kill."""
    if not state.kills:
        return None
    held = (EventType.TAKEN_OVER.value, EventType.CLAIMED.value)  # claimed: the run was queued for its engine before
    after = (state.real(e.at) for e in history if e.type in held)
    taken = next((at for at in after if at >= state.kills[0].at), None)
    return None if taken is None else round((taken - state.kills[0].at) / 1000, 2)


async def _resume_seconds(operations: Operations, state: DemoState, history: tuple[Event, ...]) -> float | None:
    """Return the seconds from the decision to the first event of the next node, or None without an approval."""
    approvals, _ = await operations.rows.approvals()
    mine = [a for a in approvals if a.run == state.run and a.decided_at]
    if not mine or mine[0].status is ApprovalStatus.REJECTED:
        return None
    moved = (e.at for e in history if e.at >= mine[0].decided_at and e.visit > mine[0].visit)
    at = next(moved, None)
    return None if at is None else round((state.real(at) - state.real(mine[0].decided_at)) / 1000, 2)


def _from_ledger(effects: tuple[Effect, ...], crashed: list[Event]) -> int:
    """Count the effects of crashed visits settled before the takeover: requested again, not executed again."""
    return sum(1 for over in crashed for e in effects if e.visit == over.visit and 0 < e.settled_at < over.at)

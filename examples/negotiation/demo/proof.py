"""Proof of the outcome, computed from the store and from the record of the suppliers."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from outlast.core.events import EventType
from outlast.core.keys import idempotency_key
from outlast.core.machine import ApprovalStatus, EffectStatus
from outlast.core.rows.effect_rows import Effect
from outlast.core.rows.run_rows import Event
from outlast.insight.labels import shown_status
from outlast.runtime.operations import Operations

from .. import record
from .state import DemoState

INVITE: Final = "invite"


REFUSED: Final = "REFUSED"
"""Outcome of an input that starts no run."""
RESUMED_WITHIN_S: Final = 5
"""Seconds within which the next node is to begin after a decision, if a worker is alive (GATE-2)."""
TAKEN_OVER_WITHIN_S: Final = 30
"""Seconds within which a run of a dead worker is to go on elsewhere (REC-4)."""


class Claim(NamedTuple):
    """A sentence about the run, and whether it is true. Made by `claim` and `not_measured` only."""

    text: str
    holds: bool | None
    """None: nothing was measured, and need not be."""
    decides: bool = True
    """False for a duration, which depends on the machine: it is judged, and proves nothing about the run."""


def claim(text: str, is_true: bool, *, of: int, decides: bool = True) -> Claim:
    """Return a claim that was measured on `of` things. It does not hold for none, of which any sentence is true."""
    return Claim(text if of else f"{text}: nothing was measured", is_true and of > 0, decides)


def not_measured(text: str) -> Claim:
    """Return a claim about things that the run need not have. The text says why there are none."""
    return Claim(f"not measured: {text}", None)


def mark(holds: bool | None) -> str:
    """Return the sign before a line: that it was measured and is true, that it is not, or that nothing was measured."""
    return "–" if holds is None else "✓" if holds else "✗"


def lines(claims: Sequence[Claim]) -> str:
    """Return the proof as text, one claim in a line. Raises ValueError without a claim."""
    if not claims:
        raise ValueError("a proof needs a claim")
    return "\n".join(f"    {mark(each.holds)} {each.text}" for each in claims)


def proven(claims: Sequence[Claim]) -> bool:
    """True if there is a claim that decides, and each of them holds."""
    deciding = [each.holds for each in claims if each.decides and each.holds is not None]
    return bool(deciding) and all(deciding)


class Proof(NamedTuple):
    """Facts as `--json` prints them, and the claims derived from them."""

    facts: dict[str, Any]
    claims: tuple[Claim, ...]

    @property
    def holds(self) -> bool:
        """True if the claims prove the run."""
        return proven(self.claims)


WELL: Final = ("AWARDED", "CANCELLED")

AFTER_DEATH: Final = (EventType.TAKEN_OVER.value, EventType.REQUEUED.value)
"""Events of a run whose worker died. A run of another scheduler is queued for that engine."""


async def prove(
    operations: Operations, state: DemoState, entries: list[Any], ends: tuple[str, ...] = WELL, *, kills: bool
) -> Proof:
    """Compute the proof from the store, the market's record (`entries`) and the time of the kill.

    `kills`: the program kills a worker, so without a kill nothing is proven about crashes.
    """
    run = await operations.rows.run(state.run)
    history = await operations.rows.history(state.run)
    effects = await operations.rows.effects(state.run)
    counts = record.summary(entries, state.run)
    approaches = [counts[kind] for kind in record.APPROACHES]
    invitations = {name: sum(getattr(count, name) for count in approaches) for name in ("sent", "distinct", "repeated")}
    taken = [event for event in history if event.type in AFTER_DEATH]
    killed = {kill.worker for kill in state.kills}
    crashed = [event for event in taken if event.data()["from"] in killed]
    limited = await operations.rows.slots()
    slots = [slot for slot in limited if slot.holder]
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
    claims = _claims(facts, state, effects, record.keys(entries, state.run), ends, len(limited), kills=kills)
    return Proof({**facts, "proven": proven(claims)}, claims)


def _claims(
    facts: dict[str, Any],
    state: DemoState,
    effects: tuple[Effect, ...],
    keys: Mapping[record.Kind, Counter[str]],
    ends: tuple[str, ...],
    slots_there: int,
    *,
    kills: bool,
) -> tuple[Claim, ...]:
    sent, repeated = facts["invitations"], facts["all_requests_repeated"]
    known = {kind: {_key(e) for e in effects if _KIND.get(e.activity) == kind} for kind in keys}
    agree = all(keys[kind].keys() == known[kind] for kind in keys)
    requests, crashes, slots = sum(each.total() for each in keys.values()), facts["crashes"], facts["slots_in_use"]
    executed = facts["effects"]
    done, ledger = executed["executed"], executed["answered_from_ledger"]
    after = f", {ledger} answered from the ledger after the crash" if state.kills else ""
    return (
        claim(
            f"the suppliers' own record: {sent['sent']} invitations sent, {sent['distinct']} distinct, "
            f"{sent['repeated']} repeated",
            sent["repeated"] == 0,
            of=sent["sent"],
        ),
        claim(
            f"the store and that record agree on every request; {repeated} of {requests} were repeated",
            agree and repeated == 0,
            of=requests,
        ),
        claim(
            f"{done} effects executed{after}, {executed['unsettled']} unsettled",
            executed["unsettled"] == 0 and (ledger > 0 or not state.kills),
            of=len(effects),
        ),
        claim(
            f"{crashes} crash{'' if crashes == 1 else 'es'}, taken over by another worker",
            crashes == len(state.kills) and facts["takeover_seconds"] is not None,
            of=len(state.kills),
        )
        if kills or state.kills
        else not_measured("crashes, because this sample kills no worker"),
        *taken_over(facts["takeover_seconds"], len(state.kills)),
        *resumed(facts["resume_seconds"], alive=state.alive_at_decision),
        claim(f"{slots} of {slots_there} slots in use", slots == 0, of=slots_there),
        claim(f"the run is {facts['outcome']}", facts["outcome"] in ends, of=1),
    )


def _key(effect: Effect) -> str:
    """Return the key under which the suppliers got the request of an effect."""
    return idempotency_key(effect.tenant, effect.run, effect.visit or effect.redone, effect.key)


def taken_over(seconds: float | None, kills: int) -> tuple[Claim, ...]:
    """Return the claim about the time from the kill to the takeover."""
    if seconds is None:
        return ()
    text = f"taken over after {seconds}s; at most {TAKEN_OVER_WITHIN_S}s are asked"
    return (claim(text, 0 <= seconds <= TAKEN_OVER_WITHIN_S, of=kills, decides=False),)


def resumed(seconds: float | None, *, alive: bool) -> tuple[Claim, ...]:
    """Return the claim about the time from a decision to the next node. `alive`: a worker was alive at the decision."""
    if seconds is None:
        return ()
    if not alive:
        return (not_measured(f"resumed {seconds}s after the decision, which includes the start of a worker"),)
    text = f"resumed {seconds}s after the decision, by a worker that was alive; at most {RESUMED_WITHIN_S}s are asked"
    return (claim(text, 0 <= seconds <= RESUMED_WITHIN_S, of=1, decides=False),)


def refused(problems: int, runs: int, *, ends: str) -> tuple[Claim, ...]:
    """Return the claims about an input that was refused. `ends`: how the sample was to end."""
    return (
        claim(f"{problems} problems are named and {runs} runs were started", runs == 0, of=problems),
        claim(f"the input is {REFUSED}", ends == REFUSED, of=1),
    )


def started_once(times: int, runs: int) -> Claim:
    """Return the claim about a purchase that was asked for several times."""
    started = "once" if runs == 1 else f"{runs} times"
    return claim(f"asked for {times} times, started {started}", runs == 1, of=times)


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

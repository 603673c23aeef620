"""What rows say to people: the status shown, and words for what became of an effect."""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from outlast.core.budget import HEARTBEAT_EVERY
from outlast.core.commit import Instant
from outlast.core.compensation import BY_HAND
from outlast.core.ledger import NOT_SENT
from outlast.core.machine import HELD, EffectStatus, LeaseStatus
from outlast.core.overlay import WaitingFor, attention_of, waiting_of
from outlast.core.people import REOPENED
from outlast.core.rows import Effect, Run, Worker, is_over

ATTENTION = "REQUIRES_ATTENTION"
APPROVAL = "PENDING_APPROVAL"
LATE_CHARS = 200
STALLED = 2 * HEARTBEAT_EVERY  # of a loop that has not turned: a beat was missed
BY_ITSELF = frozenset({"", "call", "reconcile"})  # what settles an effect without a person


def shown_status(run: Run) -> str:
    """REQUIRES_ATTENTION if a person must look, else the node's business status, else the engine's (RUN-2)."""
    if attention_of(run):
        return ATTENTION
    if is_over(run):
        return run.status.upper()
    if run.status_label:
        return run.status_label
    if any(w.kind == "approval" for w in waiting_of(run)):
        return APPROVAL
    return run.status.upper()


def is_held(run: Run) -> bool:
    """Does a worker hold it at this moment?"""
    return run.status in HELD and bool(run.owner)


def waiting_text(run: Run, serving: Collection[str]) -> str:
    """What the run waits for, in one line; where a worker walks it, what it walks. `serving`: the lanes served."""
    if is_over(run):
        return ""
    if is_held(run):
        return f"node {run.node} (visit {run.visit}, {run.owner})"
    return " + ".join(_one_wait(w, run, serving) for w in waiting_of(run)) or "a worker"


def _one_wait(wait: WaitingFor, run: Run, serving: Collection[str]) -> str:
    by = f" by {wait.who}" if wait.who else ""
    match wait.kind:
        case "worker":
            return f"a worker that serves {run.lane}" if run.lane in serving else f"no worker serves {run.lane}"
        case "approval":
            return f"{wait.kind} {wait.what.partition(' ')[0]}{by}"
        case "attention":
            return f"you: {wait.what.removeprefix('a person: ')}"
        case "retry":
            return f"{wait.what}: {wait.who}" if wait.who else wait.what
        case "settle":
            return f"{wait.what}: a call may still land"
        case "slot":
            return wait.what
    return f"{wait.kind} {wait.what}{by}"


def is_alive(worker: Worker, now: Instant) -> bool:
    """Does its lease still run?"""
    return worker.status is LeaseStatus.ALIVE and worker.lease_until > now.real


def lanes_served(workers: Iterable[Worker], now: Instant) -> frozenset[str]:
    """The lanes that some worker serves whose lease still runs."""
    return frozenset(lane for worker in workers if is_alive(worker, now) for lane in worker.lanes.split())


def worker_label(worker: Worker, now: Instant) -> str:
    """What a worker is doing, by its row: serving, draining, silent (its lease has run out), or gone."""
    if worker.status is LeaseStatus.CLOSED:
        return "gone"
    if not is_alive(worker, now):
        return "silent: its runs are taken over"
    return "draining" if worker.health and json.loads(worker.health).get("draining") else "serving"


def blocked_ms(worker: Worker, now: Instant) -> int:
    """Return for how long the event loop of a worker is blocked, by its last heartbeat; 0 if it turns."""
    ticked = int(json.loads(worker.health).get("loop_ticked_ms", 0)) if worker.health else 0
    return ticked + max(0, now.real - worker.renewed_at) if ticked > STALLED else 0


def effect_label(effect: Effect, code: str, *, held: bool = True) -> str:
    """What became of an effect. `code`: of its refusal, of its doubt or of its last failed attempt.

    `held`: a worker holds its run.
    """
    again = f", asked again ×{effect.attempts - 1}" if effect.attempts > 1 else ""
    if effect.status is EffectStatus.DONE and code == BY_HAND:
        return f"done by hand{_told_by(effect)}"
    if effect.status is EffectStatus.DONE:
        return f"executed{again}{_told_by(effect)}"
    if effect.status is EffectStatus.UNCERTAIN:
        return f"UNCERTAIN {code}"
    if effect.status is EffectStatus.UNDONE:
        return f"{effect.status.value}{again}"
    if effect.status is EffectStatus.REFUSED:
        if code == REOPENED:
            return f"to be called again{_told_by(effect)}"
        return f"{effect.status.value} {code}{again}{_told_by(effect)}"
    if effect.settle_after == 0:
        return f"to be called again after {code}"
    return f"under way{again}" if held else f"left open{again}: it may have happened"


def late_answer_label(view: Mapping[str, Any]) -> str:
    """What a replaced worker was told, of an evidence view."""
    if view["status"] == NOT_SENT:
        return f"a replaced worker did not send it: {view['detail']} (epoch {view['epoch']})"
    said = view["code"] and f" {view['code']}: {view['detail']}"
    answer = json.dumps(view["response"], ensure_ascii=False)[:LATE_CHARS] if view["response"] is not None else ""
    return f"a replaced worker later got: {view['status']}{said or (answer and ' ' + answer)} (epoch {view['epoch']})"


def _told_by(effect: Effect) -> str:
    if effect.settled_by == "reconcile":
        return " (the receiver was asked)"
    return "" if effect.settled_by in BY_ITSELF else f" (says {effect.settled_by})"

"""Rows of a run in every state that explanations are tested with."""

import json
from typing import Any

from outlast.core.commit import Instant
from outlast.core.durations import HOUR, MINUTE, SECOND
from outlast.core.events import EventType
from outlast.core.machine import (
    ENDED,
    ApprovalStatus,
    EffectStatus,
    LeaseStatus,
    Reason,
    RunStatus,
    WaitStatus,
)
from outlast.core.rows.approval_columns import PLANS, OfferedCall
from outlast.core.rows.effect_rows import Approval, Effect, Wait
from outlast.core.rows.limit_rows import Pause, Slot
from outlast.core.rows.run_columns import ATTENTION, WAITING_FOR, Attention, WaitingFor, WaitingKind
from outlast.core.rows.run_rows import Event, Message, Run
from outlast.core.rows.store_rows import Worker
from outlast.core.run_transition import event
from outlast.insight.run_facts import RunFacts

T = 1_767_225_600_000
NOW = Instant(T, T, 0)
RUN = Run(
    tenant="t", run="r1", version=3, epoch=1, owner="", inbox_seq=0, due_at=None, lane="refund@1", queue="",
    status=RunStatus.WAITING, workflow="refund", node="pay", status_label="", visit=2, entered_at=T - HOUR, seq=3,
    event_hash="",
    attention_text="", waiting_for_text="", timers_text="", visits_text='{"look": 1, "pay": 1}', crash_count=0,
    slots_text="", ceiling_at=0, created_at=T - 2 * HOUR, ended_at=0, requested_by="local:ana", correlation_id="",
    trace_id="",
)  # fmt: skip
EFFECT = Effect(
    tenant="t", run="r1", visit=0, key="refund/A-17", version=2, status=EffectStatus.UNCERTAIN, activity="issue_refund",
    digest="d", node="pay", args=b"{}", response=None,
    error_text="", external_id="", attempts=3, waited_ms=0, ordinal=1,
    epoch=1, first_at=T - MINUTE, not_after=T - MINUTE, settle_after=T - SECOND, covered_until=0, approval="",
    allowed_by="", undo="", settled_at=0, settled_by="",
)  # fmt: skip
APPROVAL = Approval(
    tenant="t", run="r1", id="ap_1", version=1, status=ApprovalStatus.PENDING, visit=2, wait="ok",
    plans_text=PLANS.encode([OfferedCall("issue_refund", "refund/A-17", "d", "{}")]), summary="Refund 42 EUR", risk="",
    who="finance", requested_by="local:ana", asked_at=T - HOUR, within_until=T + 95 * HOUR, valid_ms=HOUR,
    decided_at=0, decided_by="", claims_text="", reason="", chosen="", valid_until=0, consumed_by="", again=0,
)  # fmt: skip


DIED = "3 workers died, one after the other"


def worker(name: str, *, left: int = 12 * SECOND, renewed: int = 3 * SECOND, lanes: str = "refund@1") -> Worker:
    """Return a worker whose lease has `left` ms and was renewed that long ago."""
    return Worker("*", name, 4, LeaseStatus.ALIVE, T + left, lanes, "", T - HOUR, T - renewed, "")


W1, W2 = worker("w-1"), worker("w-2")
DRAINING = W1._replace(health_text='{"draining": true}')
BLOCKED = W1._replace(health_text='{"loop_late_ms": 1, "loop_ticked_ms": 14000}')


def waits(kind: WaitingKind, what: str, who: str = "", *, until: int = 0, then: str = "", **more: Any) -> Run:
    """Return the run, waiting for one thing for an hour."""
    waiting = WAITING_FOR.encode([WaitingFor(kind, what, who, T - HOUR, until, then)])
    return RUN._replace(waiting_for_text=waiting, **more)


def flagged(reason: Reason, detail: str, *, since: int = T - HOUR, key: str = "", trigger: str = "") -> Run:
    """Return the run, flagged for one reason."""
    entry = Attention(reason, since, detail, key, 0, trigger)
    return waits("attention", f"a person: {reason.value}", attention_text=ATTENTION.encode([entry]))


def events_of(type_: EventType, at: int, data: dict[str, object]) -> tuple[Event, ...]:
    """Return the newest event of the run."""
    return (event(RUN, type_, at, data),)


def note(kind: str, name: str, n: int = 1, at: int = T - 3 * SECOND, **payload: Any) -> Message:
    """Return a message in the run's inbox."""
    return Message("t", "r1", n, kind, name, json.dumps(payload).encode(), "", "local:bo", at)


def ended(status: RunStatus, type_: EventType, reason: str, *stands: str) -> RunFacts:
    """Return the run, ended three minutes ago."""
    run = RUN._replace(status=status, owner=ENDED, ended_at=T - 3 * MINUTE)
    data: dict[str, object] = {"outcome": None, "reason": reason, "not_undone": list(stands)}
    return RunFacts(run, NOW, events=events_of(type_, T - 3 * MINUTE, data))


HELD = RUN._replace(status=RunStatus.RUNNING, owner="w-1", due_at=T + 9 * MINUTE)
CLAIMED = events_of(EventType.CLAIMED, T - 3 * MINUTE, {"worker": "w-1"})
QUEUED = waits("worker", "a worker that serves refund@1", status=RunStatus.QUEUED, due_at=T - 5)
ASKED = waits("approval", "ap_1 «Refund 42 EUR»", "finance", until=T + 95 * HOUR, then="REQUIRES_ATTENTION")
COLLECT = Wait("t", "r1", 2, "bids", 1, WaitStatus.OPEN, "collect", "bids", T + 3 * HOUR, 5, "", T - HOUR)
COLLECTING = waits("signal", "bids", until=T + 3 * HOUR, then="goes on with what has come")
QUIET = waits("settle", "the outcome of issue_refund refund/A-17", until=T + 3 * MINUTE, then="asks the receiver")
UNCERTAIN = flagged(Reason.EFFECT_UNCERTAIN, "timeout: ReadTimeout", key="refund/A-17")
EXHAUSTED = flagged(Reason.RETRIES_EXHAUSTED, "after 3 attempts: http_503: busy", key="refund/A-17")
OVERDUE = Attention(Reason.TOTAL_TIMEOUT, T - 2 * HOUR, "r1 is 170 h old", trigger="refund_total_timeout")
TIMED_OUT = flagged(Reason.APPROVAL_TIMEOUT, "ap_1 «Refund 42 EUR» was not decided in time by finance")
GUESTS_LANE = "temporal:refund@1"
GUESTS_RUN = QUEUED._replace(lane=GUESTS_LANE)
GUEST = worker("g-1", lanes=GUESTS_LANE)._replace(health_text='{"scheduler": "temporal", "bridged_ms": 40}')
AWAY = worker("g-2", lanes=GUESTS_LANE)._replace(
    health_text=json.dumps({"scheduler": "temporal", "away_since": T - 5 * MINUTE, "away_why": "connection refused"})
)
DEAF = GUEST._replace(health_text='{"scheduler": "temporal", "bridged_ms": 3600000}')
SERVED: dict[str, Any] = {"workers": (W1,)}

SITUATIONS: dict[str, RunFacts] = {
    "queued, no worker serves": (RunFacts(QUEUED, NOW, workers=(worker("w-9", lanes="loan@1"),))),
    "queued, a worker takes it": (RunFacts(QUEUED, NOW, **SERVED)),
    "queued for a slot": (
        RunFacts(
            waits("slot", "a free slot", then="starts, first come first served", status=RunStatus.QUEUED, queue="t"),
            NOW, slots=(Slot("t", 1, 1, "t", "r0"), Slot("t", 2, 1, "t", "r9")), **SERVED,
        )
    ),
    "walked": (RunFacts(HELD, NOW, events=CLAIMED, workers=(W1, W2))),
    "recovering": (
        RunFacts(HELD._replace(status=RunStatus.RECOVERING, owner="w-2"), NOW, events=CLAIMED, workers=(W2,))
    ),
    "the owner's event loop is blocked": (RunFacts(HELD, NOW, events=CLAIMED, workers=(BLOCKED, W2))),
    "queued, the one worker is blocked": (RunFacts(QUEUED, NOW, workers=(BLOCKED,))),
    "queued, one of two workers is blocked": (RunFacts(QUEUED, NOW, workers=(BLOCKED, W2))),
    "the owner drains": (RunFacts(HELD, NOW, events=CLAIMED, workers=(DRAINING,))),
    "the owner is silent": (
        RunFacts(HELD, NOW, events=CLAIMED, workers=(worker("w-1", left=6 * SECOND, renewed=9 * SECOND), W2))
    ),
    "the owner's lease has expired": (RunFacts(HELD, NOW, workers=(worker("w-1", left=-2 * SECOND), W2))),
    "the owner's lease has expired, no other worker": (RunFacts(HELD, NOW, workers=(worker("w-1", left=-2 * SECOND),))),
    "the owner is gone": (RunFacts(HELD, NOW, workers=(W1._replace(status=LeaseStatus.CLOSED), W2))),
    "a guest chooses a worker": (RunFacts(GUESTS_RUN, NOW, workers=(GUEST,))),
    "every worker of a guest is dead": (
        RunFacts(GUESTS_RUN, NOW, workers=(W1, GUEST._replace(status=LeaseStatus.CLOSED)))
    ),
    "a guest's engine is away": (RunFacts(GUESTS_RUN, NOW, workers=(AWAY,))),
    "a guest's engine is away from one of two workers": (RunFacts(GUESTS_RUN, NOW, workers=(AWAY, GUEST))),
    "the bridge to a guest's engine is silent": (RunFacts(GUESTS_RUN, NOW, workers=(DEAF,))),
    "the worker of a guest is dead": (
        RunFacts(HELD._replace(lane=GUESTS_LANE), NOW, workers=(worker("w-1", left=-2 * SECOND), GUEST))
    ),
    "sleeping": (RunFacts(waits("timer", "night", until=T + 2 * HOUR, then="goes on"), NOW, **SERVED)),
    "slept, and no worker took it": (
        RunFacts(waits("timer", "night", until=T - 5 * SECOND, then="goes on", due_at=T - 5 * SECOND), NOW)
    ),
    "a signal, with an end": (
        RunFacts(waits("signal", "paid", until=T + 24 * HOUR, then="goes on without it"), NOW, **SERVED)
    ),
    "a signal, without an end": (RunFacts(waits("signal", "paid"), NOW, **SERVED)),
    "a signal that did not fit": (RunFacts(waits("signal", "paid"), NOW, messages=(note("signal", "paid"),), **SERVED)),
    "a signal that came": (
        RunFacts(waits("signal", "paid", due_at=T - 3 * SECOND), NOW, messages=(note("signal", "paid"),), **SERVED)
    ),
    "collecting": (
        RunFacts(
            COLLECTING, NOW, waits=(COLLECT,), messages=(note("signal", "bids"), note("signal", "bids", 2)), **SERVED
        )
    ),
    "an approval": (RunFacts(ASKED, NOW, approvals=(APPROVAL,), **SERVED)),
    "an approval with another round": (RunFacts(ASKED, NOW, approvals=(APPROVAL._replace(again=1),), **SERVED)),
    "decided, not taken yet": (
        RunFacts(
            ASKED._replace(due_at=T - 3 * SECOND), NOW,
            approvals=(
                APPROVAL._replace(status=ApprovalStatus.APPROVED, decided_by="local:bo", decided_at=T - 3 * SECOND),
            ),
            messages=(note("decision", "ap_1"),), **SERVED,
        )
    ),
    "retry": (
        RunFacts(
            waits("retry", "attempt 3 of 3 of issue_refund", "http_503", until=T + 20 * SECOND, then="calls again"),
            NOW, **SERVED,
        )
    ),
    "settle": (RunFacts(QUIET._replace(status=RunStatus.RECOVERING), NOW, **SERVED)),
    "uncertain, too early": (
        RunFacts(UNCERTAIN, NOW, effects=(EFFECT._replace(settle_after=T + 2 * MINUTE),), **SERVED)
    ),
    "uncertain": (RunFacts(UNCERTAIN, NOW, effects=(EFFECT,), **SERVED)),
    "uncertain, and settled": (
        RunFacts(
            UNCERTAIN._replace(due_at=T), NOW,
            effects=(EFFECT._replace(status=EffectStatus.DONE, response=b"1", settled_at=T, settled_by="local:bo"),),
            **SERVED,
        )
    ),
    "exception": (RunFacts(flagged(Reason.EXCEPTION, "RuntimeError: on fire\nTraceback …"), NOW, **SERVED)),
    "retries exhausted": (
        RunFacts(EXHAUSTED, NOW, effects=(EFFECT._replace(status=EffectStatus.REFUSED, settled_at=T),), **SERVED)
    ),
    "answered": (
        RunFacts(
            flagged(Reason.EXCEPTION, "RuntimeError: on fire")._replace(due_at=T), NOW,
            messages=(note("answer", "exception", choice="continue", key="", reason="mended", by_ms=0),), **SERVED,
        )
    ),
    "approval timed out": (RunFacts(TIMED_OUT, NOW, **SERVED)),
    "ceiling passed": (
        RunFacts(waits("signal", "paid")._replace(attention_text=ATTENTION.encode([OVERDUE])), NOW, **SERVED)
    ),
    "held by an operator": (
        RunFacts(
            waits("pause", "activity/issue_refund: the bank is down", "local:bo", then="continues when it is resumed"),
            NOW, pauses=(Pause("t", "activity/issue_refund", 1, 1, "local:bo", "the bank is down", T - 2 * HOUR),),
            **SERVED,
        )
    ),
    "asked to end, walked": (
        RunFacts(
            HELD, NOW, events=CLAIMED, messages=(note("cancel", "cancel", reason="ordered twice"),), workers=(W1,),
            effects=(EFFECT._replace(status=EffectStatus.INTENDED),),
        )
    ),
    "asked to end, no worker serves": (
        RunFacts(ASKED._replace(due_at=T), NOW, messages=(note("cancel", "cancel", reason="ordered twice"),))
    ),
    "asked to end, still settling": (
        RunFacts(QUIET, NOW, messages=(note("cancel", "cancel", reason="ordered twice"),), **SERVED)
    ),
    "poisoned": (
        RunFacts(flagged(Reason.POISONED, f"{DIED}, while each held this run and no other"), NOW)
    ),
    "of a dead worker, in a group": (RunFacts(waits("worker", "", due_at=T, group_max=40), NOW, **SERVED)),
    "of a dead worker, alone": (RunFacts(waits("worker", "", due_at=T, group_max=1, crash_count=2), NOW, **SERVED)),
    "stranded, without a worker": (
        RunFacts(flagged(Reason.STRANDED_VERSION, "no worker serves refund@1 any more"), NOW)
    ),
    "stranded, and served again": (
        RunFacts(flagged(Reason.STRANDED_VERSION, "no worker serves refund@1 any more"), NOW, **SERVED)
    ),
    "node gone": (RunFacts(flagged(Reason.NODE_GONE, "refund v1 has no node pay any more"), NOW, **SERVED)),
    "completed": (ended(RunStatus.COMPLETED, EventType.FINISHED_WELL, "")),
    "failed": (ended(RunStatus.FAILED, EventType.FAILED, "nothing to refund")),
    "cancelled, with effects not undone": (
        ended(
            RunStatus.CANCELLED, EventType.CANCELLED, "cancelled by local:bo: ordered twice", "issue_refund refund/A-17"
        )
    ),
}  # fmt: skip

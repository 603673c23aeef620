"""Attention: requests to people in a run row, their answers, and the ceiling (GATE-3, GATE-4, GATE-5, S-21)."""

from collections.abc import Iterable, Sequence
from typing import Final

from outlast.core.codec import digest
from outlast.core.commit import Commit, Instant, Mapping
from outlast.core.events import EventType
from outlast.core.machine import CHOICES, OVERLAY_ONLY, Choice, Reason
from outlast.core.route import Answer, meant
from outlast.core.rows import Run
from outlast.core.run_columns import ATTENTION, Attention, Timer, WaitingFor, stale_timer
from outlast.core.run_transition import LogEntry, SlotChange, fence, give_back, hand_over
from outlast.errors import Conflict

KEPT: Final = frozenset({(Reason.VISITS_EXHAUSTED, Choice.ONE_MORE), (Reason.RESULTS_MISSING, Choice.CONTINUE)})
"""Answers kept in the set until the transition that they allow, so that a crash or a park before it loses none."""


def joined(run: Run, reasons: Sequence[Attention]) -> list[Attention]:
    """Return the attention set with `reasons` added; each replaces an entry of the same reason and key."""
    new = {(r.reason, r.key) for r in reasons}
    return [*(a for a in run.attention if (a.reason, a.key) not in new), *reasons]


def tripped(run: Run, reason: Attention) -> tuple[Run, LogEntry]:
    """Return the run row after its ceiling: a person is asked, the ceiling is disarmed, the run continues (GATE-4).

    The holder's next transition writes the row and the log entry.
    """
    data: dict[str, object] = {"reasons": [reason.reason.value], "detail": reason.detail, "trigger": reason.trigger}
    logged = LogEntry(f"ceiling/{run.ceiling_at}", reason.trigger, data, EventType.FLAGGED)
    return run._replace(attention_text=ATTENTION.encode(joined(run, [reason])), ceiling_at=0), logged


def answered(run: Run, left: Sequence[Attention], answers: Sequence[Answer], *, now: Instant) -> tuple[Run, LogEntry]:
    """Return the run row after people's answers: their entries removed, the ceiling re-armed if extended.

    The holder's next transition writes the row. If that is lost, the messages give the same answers again. A poisoned
    run stays alone on its worker until it advances, so that a further crash affects no other run (S-5).
    """
    extended = sum(a.by_ms for a in answers if a.attention.reason is Reason.TOTAL_TIMEOUT)
    said = [{"reason": a.attention.reason.value, "choice": a.choice.value, "by": a.by, "text": a.text} for a in answers]
    names = digest(*(f"{a.attention.reason}/{a.attention.key}/{a.attention.seen}" for a in answers))
    logged = LogEntry(f"answer/{names[:16]}", "answered", {"answers": said}, EventType.ANSWERED)
    kept = [a.attention for a in answers if (a.attention.reason, a.choice) in KEPT]
    poisoned = any(a.attention.reason is Reason.POISONED for a in answers)
    row = run._replace(
        attention_text=ATTENTION.encode([*left, *kept]),
        ceiling_at=now.business + extended if extended else run.ceiling_at,
        crash_count=0 if poisoned else run.crash_count,
    )
    return row, logged


def flag(
    run: Run,
    reasons: Sequence[Attention],
    *,
    inbox_seq: int,
    now: Instant,
    mapping: Mapping,
    log_entries: Sequence[LogEntry] = (),
    freed: Sequence[SlotChange] = (),
    uncertain: Sequence[Commit] = (),
    waiting: Sequence[WaitingFor] = (),
    timers: Sequence[Timer] = (),
) -> Commit:
    """Ask a person and release the run; status, node and visit are unchanged (RUN-2).

    `freed`: as in `park`. `doubted`: commits that mark effects uncertain, merged into this one. `waiting`, `timers`:
    waits of effects that settle at the same time.
    """
    assert reasons
    left = joined(run, reasons)
    waiting = [*waiting_for(left), *waiting]
    data: dict[str, object] = {"reasons": [a.reason.value for a in reasons], "detail": reasons[0].detail}
    put = give_back(
        run,
        "flag",
        EventType.FLAGGED,
        now,
        data,
        waiting,
        [*(c for c in stale_timer(left) if c.at > now.business), *timers],  # timers in the past have been handled
        mapping,
        log_entries=log_entries,
        attention=left,
        slots=() if freed else None,
    )
    handed, expects = hand_over(freed)
    under = fence(run, inbox_seq=inbox_seq, mapping=mapping.version)
    beside = [write for commit in uncertain for write in commit.writes]
    return Commit((*put, *handed, *beside), under, expects, label=f"{run.run} flag {run.node}#{run.visit}")


def waiting_for(reasons: Iterable[Attention]) -> list[WaitingFor]:
    """Return the waits for a person, without reasons that do not stop the run."""
    return [
        WaitingFor("attention", f"a person: {a.reason.value}" + (f" {a.key}" if a.key else ""), since=a.since)
        for a in reasons
        if a.reason not in OVERLAY_ONLY
    ]


def check_for_all(reason: Reason, choice: Choice) -> None:
    """Raise Conflict unless this choice can be made for many runs at once."""
    if meant(reason, choice) not in CHOICES[reason]:
        offered = ", ".join(c.value for c in CHOICES[reason])
        raise Conflict(f"{reason.value} does not offer {choice.value}", f"it offers {offered}", "choose one of these")
    if choice is Choice.HAPPENED:
        raise Conflict(
            "«happened» cannot be recorded for many effects at once",
            "each effect has its own id at the receiver",
            "record each one: outlast effects resolve RUN KEY --happened ID",
        )

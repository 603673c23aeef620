"""Recovery of a run: its checkpoint and history (CKP-6), effects that were cut off, and restored backups."""

from collections.abc import Iterable, Sequence
from typing import Final

from outlast.core.attention import joined
from outlast.core.commit import Commit, Instant, Mapping, Put
from outlast.core.durations import ATTEMPT_TIMEOUT, SETTLE_MARGIN, START_BUDGET
from outlast.core.events import EventType
from outlast.core.machine import EffectStatus, Reason, effect_target
from outlast.core.mailbox import REOPENED
from outlast.core.row_checks import check_effect
from outlast.core.rows.effect_columns import ERROR, EffectError
from outlast.core.rows.effect_rows import EFFECT, Effect
from outlast.core.rows.run_columns import ATTENTION, Attention, WaitingFor, attention_timers
from outlast.core.rows.run_rows import Event, Run, is_over
from outlast.core.run_transition import give_back

RESTORED: Final = Reason.RESTORED.value
"""Code of an effect that may have happened in the time that a restore lost."""
WHY: Final = "it may have happened before the restore, in the time that was lost"
QUIET: Final = START_BUDGET + ATTEMPT_TIMEOUT + SETTLE_MARGIN


def may_have_changed(effect: Effect) -> bool:
    """True if an attempt may have been made in the lost time. A recorded answer is trusted.

    A child is no attempt: its run is in the same backup.
    """
    code = effect.code
    return not effect.child_text and (
        effect.status is EffectStatus.INTENDED
        or (effect.status is EffectStatus.UNCERTAIN and code != RESTORED)
        or (effect.status is EffectStatus.REFUSED and code == REOPENED)
    )


def restore_run(
    run: Run,
    effects: Sequence[Effect],
    *,
    generation: int,
    actor: str,
    now: Instant,
    mapping: Mapping,
    skew: int = 0,
) -> Commit:
    """Release an unfinished run after a restore, and ask a person.

    `effects`: own effects that may have changed. Those for which a person was asked are asked about again. The others
    stay open, and are settled as declared once a person lets the run continue. So is a key that is missing in the
    ledger, because it counts as one that may have happened (`Run.restored`). Earlier holders cannot write: the epoch
    has risen. `skew`: of the store; it widens the settle time of the effects.
    """
    assert not is_over(run) and generation > run.restored
    assert all(may_have_changed(effect) for effect in effects)
    reason = f"the store was restored from a backup: generation {generation}"
    called = [
        Attention(Reason.RESTORED, now.business, reason, seen=run.inbox_seq),
        *(
            Attention(Reason.EFFECT_UNCERTAIN, now.business, f"{e.activity}: {WHY}", e.key, e.visit, name=e.activity)
            for e in effects
            if e.status is EffectStatus.UNCERTAIN
        ),
    ]
    opened = {(e.visit, e.key) for e in effects if e.status is not EffectStatus.UNCERTAIN}
    asked = [a for a in run.attention if (a.visit, a.key) not in opened]  # a reopened effect was answered before
    left = joined(run._replace(attention_text=ATTENTION.encode(asked)), called)
    waiting = [WaitingFor("attention", f"a person: {a.reason.value} {a.key}".rstrip(), since=a.since) for a in called]
    names = [f"{e.visit}:{e.key}" for e in effects]
    data: dict[str, object] = {"by": actor, "generation": generation, "doubted": names}
    put = give_back(
        run._replace(restored=generation),
        "restore",
        EventType.RESTORED,
        now,
        data,
        waiting,
        [c for c in attention_timers(left) if c.at > now.business],
        mapping,
        attention=left,
    )
    return Commit((*put, *open_after_restore(effects, now, skew)), label=f"{run.run} restore")


def open_after_restore(effects: Iterable[Effect], now: Instant, skew: int = 0) -> tuple[Put, ...]:
    """Return the writes by which a restore opens effects of which it may have lost a call or an answer."""
    return tuple(Put(EFFECT, _open_after_restore(effect, now, skew), effect.version) for effect in effects)


def _open_after_restore(effect: Effect, now: Instant, skew: int) -> Effect:
    asked = effect.status is EffectStatus.UNCERTAIN
    row = effect._replace(
        version=effect.version + 1,
        status=effect_target("mark_uncertain_after_restore" if asked else "reopen_after_restore", effect.status),
        response=None,
        error_text=ERROR.encode(EffectError(RESTORED, WHY)),  # without a time to wait until: it may have passed
        settle_after=max(effect.settle_after, now.real + QUIET + skew),
        settled_at=0,
        settled_by="",
        shared=0,
    )
    check_effect(row)
    return row


def contradiction(run: Run, checkpoint: Event, newest: Event | None) -> str:
    """Return a sentence that says why a run must not continue from this checkpoint; '' if it may.

    `checkpoint`: newest event with a state; `newest`: last event according to the run row.
    """
    if newest is None:
        return f"the row says that its history ends with event {run.seq}, which is not there"
    if newest.hash != run.event_hash:
        return f"event {run.seq}, the last of its history, is not the one its row was written with"
    version = newest.run_version
    if version != run.version:
        return f"its row has version {run.version}, but the last event of its history has {version}"
    if checkpoint.seq > run.seq or (checkpoint.visit, checkpoint.node) != (run.visit, run.node):
        where = f"visit {checkpoint.visit} of {checkpoint.node}"
        return f"its last checkpoint leads into {where}, but its row is in visit {run.visit} of {run.node}"
    return ""


def cut_off(effect: Effect, *, restored: bool) -> tuple[str, str]:
    """Return code and detail for an open effect whose call was cut off."""
    if effect.code == RESTORED or (restored and effect.attempts == 1):
        return RESTORED, WHY
    return "interrupted", "the process that called it died or was replaced before the answer was recorded"


def used_up(effect: Effect) -> tuple[str, str]:
    """Return code and detail for an effect that may have happened and has no attempt left."""
    detail = f"after {effect.attempts} attempts it is unknown whether it happened"
    return Reason.RETRIES_EXHAUSTED.value, detail

"""Compensation: undo of a run's effects before it ends failed or cancelled (S-19).

An undo is an effect with the key `undo/KEY`: intent, call, record. One commit records the undo and marks the effect
undone, so the two rows always agree.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from outlast.core import mailbox
from outlast.core.approvals import withdraw
from outlast.core.commit import Commit, Instant, Put, When
from outlast.core.effect_verbs import Intent, given, intend, record, reserve_undo, settle
from outlast.core.events import EventType
from outlast.core.keys import undo_key
from outlast.core.machine import OVERLAY_ONLY, Choice, EffectStatus, Reason, RunStatus, effect_target
from outlast.core.row_checks import check_effect
from outlast.core.rows.effect_columns import ERROR, EffectError
from outlast.core.rows.effect_rows import EFFECT, STATED, UNDO_RESERVED, WITHHELD, Approval, Effect
from outlast.core.rows.run_columns import ATTENTION, ENDING, Ending
from outlast.core.rows.run_rows import Run
from outlast.core.run_transition import LogEntry, fence, transition

NO_UNDO: Final = "no: "
"""Prefix of the column `undo` if there is no undo; the author's reason follows."""
BY_HAND: Final = Choice.DONE_BY_HAND.value
"""Code of an undo that a person did outside of Outlast; its row names the person and the reason."""
NO_ANSWER: Final = b"null"
NAMED_MAX: Final = 100  # effects named in one event; the ledger has all of them


# --- effects to undo --------------------------------------------------------------------------
def is_own(run: Run, effect: Effect) -> bool:
    """True if this run may undo the effect: it owns the effect, and the effect is no undo."""
    return not effect.undoes and effect.by_run in ("", run.run)


def can_undo(effect: Effect) -> bool:
    """True if the activity had an undo when the call was made. A child that its parent leaves alone has none (S-30)."""
    return bool(effect.undo) and not effect.undo.startswith(NO_UNDO) and effect.child.close != "abandon"


def owed(run: Run, effects: Iterable[Effect]) -> list[Effect]:
    """Return the effects to undo in the order of undoing, latest first."""
    found = [e for e in effects if is_own(run, e) and e.status is EffectStatus.DONE and can_undo(e)]
    return sorted(found, key=lambda e: -e.ordinal)


def must_undo(run: Run, effects: Iterable[Effect]) -> bool:
    """True if an effect must be undone, or an open effect may have to be, or a living child must end first."""
    return any(is_own(run, e) and _must_undo(e) for e in effects)


def _must_undo(effect: Effect) -> bool:
    if effect.settled_at == 0 and effect.child_text:
        return effect.child.close == "cancel"
    return can_undo(effect) and (effect.settled_at == 0 or effect.status is EffectStatus.DONE)


def undone(run: Run, effects: Iterable[Effect]) -> list[Effect]:
    """Return the undone effects, latest first."""
    found = [e for e in effects if is_own(run, e) and e.status is EffectStatus.UNDONE]
    return sorted(found, key=lambda e: -e.ordinal)


def not_undone(run: Run, effects: Iterable[Effect]) -> list[Effect]:
    """Return the effects of the run that were not undone, latest first, with children that were detached."""
    found = [e for e in effects if is_own(run, e) and (e.status is EffectStatus.DONE or e.child.detached)]
    return sorted(found, key=lambda e: -e.ordinal)


def named(effect: Effect) -> str:
    """Return the activity and key of an effect, with the reason if it has no undo."""
    why = f": {effect.undo.removeprefix(NO_UNDO)}" if effect.undo.startswith(NO_UNDO) else ""
    gone = f"; run {effect.external_id} was detached" if effect.child.detached else ""
    return f"{effect.activity} {effect.key}{why}{gone}"


def names(effects: Sequence[Effect]) -> list[str]:
    """Return `effect_name` for up to NAMED_MAX effects."""
    more = [f"… and {len(effects) - NAMED_MAX} more"] if len(effects) > NAMED_MAX else []
    return [*(named(e) for e in effects[:NAMED_MAX]), *more]


# --- the decision ------------------------------------------------------------------------------------
def compensate(
    run: Run,
    ending: Ending,
    effects: Iterable[Effect],
    *,
    inbox_seq: int | None,
    approvals: Iterable[Approval],
    now: Instant,
    log_entries: Sequence[LogEntry] = (),
) -> Commit:
    """Decide the end of the run before its effects are undone. No worker executes a node of it again.

    The commit also withdraws open approvals. With `inbox_seq` it is refused if a message has arrived since, for an end
    that a message may still change. Attention that stops the run is dropped.
    """
    assert ending.outcome in (RunStatus.FAILED, RunStatus.CANCELLED) and not run.ending_text
    data: dict[str, object] = {
        "outcome": ending.outcome.value,
        "reason": ending.reason,
        "by": ending.by,
        "undo": names(owed(run, effects)),
    }
    put = transition(
        run,
        "compensate",
        EventType.COMPENSATING,
        now,
        data,
        log_entries=log_entries,
        ending_text=ENDING.encode(ending),
        attention_text=ATTENTION.encode(a for a in run.attention if a.reason in OVERLAY_ONLY),
        crash_count=0,
        group_max=0,
    )
    withdrawn = tuple(w for a in approvals if (w := withdraw(a, now)) is not None)
    return Commit(
        (*put, *withdrawn), fence(run, inbox_seq=inbox_seq), label=f"{run.run} compensate {run.node}#{run.visit}"
    )


def compensated(run: Run, effects: Sequence[Effect], purged: Sequence[str] = ()) -> LogEntry:
    """Return the log entry of the final commit: which effects were undone and which were not (OBS-3).

    `purged`: texts about effects whose rows are gone.
    """
    hands = {e.undoes for e in effects if e.undoes and e.code == BY_HAND}
    gone = undone(run, effects)
    data: dict[str, object] = {
        EffectStatus.UNDONE.value: names(gone),
        "undone_manually": names([e for e in gone if f"{e.visit}:{e.key}" in hands]),
        "not_undone": [*names(not_undone(run, effects)), *purged],
    }
    text = f"{len(gone)} undone, {len(not_undone(run, effects))} not undone"
    return LogEntry("outlast/compensated", text, data, EventType.COMPENSATED)


# --- one undo ----------------------------------------------------------------------------------------
def undo_ident(effect: Effect) -> tuple[int, str]:
    """Return the ledger key of the undo of an effect: the same visit, with the key `undo/KEY`."""
    return effect.visit, undo_key(effect.key)


def is_refused(undo: Effect) -> bool:
    """True if the effect was refused and no person has reopened it."""
    return undo.status is EffectStatus.REFUSED and undo.code != mailbox.REOPENED


def intend_undo(
    run: Run, what: Intent, previous: Effect | None, original: Effect, *, ordinal: int, now: Instant
) -> Commit:
    """Write the intent of an undo. An effect shared in the tenant is reserved: no other run may use it from here on.

    From here on no person can correct its answer. The commit is Stale ("version") if another run has used the effect.
    """
    assert original.status is EffectStatus.DONE and undo_ident(original) == (what.visit, what.key)
    commit = intend(run, what, previous, ordinal=ordinal, now=now)
    put, *rest = commit.writes
    assert isinstance(put, Put) and isinstance(put.row, Effect) and not rest
    writes = [put._replace(row=put.row._replace(undoes=f"{original.visit}:{original.key}"))]
    if original.by_run and original.shared != UNDO_RESERVED:
        writes.append(reserve_undo(original))
    elif original.shared == STATED:
        writes.append(given(original))
    return commit._replace(writes=tuple(writes))


def withhold(
    run: Run, original: Effect, previous: Effect | None, code: str, detail: str, *, ordinal: int, now: Instant
) -> Commit:
    """Refuse an undo before any call, so that a person decides."""
    visit, key = undo_ident(original)
    row = Effect(
        tenant=run.tenant,
        run=run.run,
        visit=visit,
        key=key,
        version=previous.version + 1 if previous else 1,
        status=effect_target("withhold", previous.status if previous else None),
        activity=original.activity,
        digest=original.digest,
        node=run.node,
        args=original.args,
        response=None,
        error_text=ERROR.encode(EffectError(code, detail)),
        external_id="",
        attempts=previous.attempts if previous else 1,
        interrupted=previous.interrupted if previous else 1,  # no call was made, so no attempt is used up
        waited_ms=0,
        ordinal=ordinal,
        epoch=run.epoch,
        first_at=now.real,
        not_after=now.real,
        settle_after=0,
        covered_until=0,
        approval="",
        allowed_by="",
        undo="",
        settled_at=now.business,
        settled_by=WITHHELD,
        undoes=f"{original.visit}:{original.key}",
    )
    check_effect(row)
    return Commit((Put(EFFECT, row, row.version - 1),), fence(run), label=f"{run.run} withhold {key}")


def record_undo(run: Run, undo: Effect, original: Effect, *, now: Instant) -> Commit:
    """Record the undo as done and its effect as undone."""
    return _with(record(run, undo, NO_ANSWER, now=now, external_id=undo.external_id), original)


def settle_undo(run: Run, undo: Effect, original: Effect, *, now: Instant, external_id: str = "") -> Commit:
    """Record an undo that the receiver confirms."""
    return _with(settle(run, undo, NO_ANSWER, now=now, external_id=external_id), original)


def _with(commit: Commit, original: Effect) -> Commit:
    return commit._replace(writes=(*commit.writes, _undone(original)))


def _undone(original: Effect) -> Put:
    shared = 0 if original.shared == STATED else original.shared
    row = original._replace(version=original.version + 1, status=effect_target("undo", original.status), shared=shared)
    check_effect(row)
    return Put(EFFECT, row, original.version)


def answer_undo(
    run: Run, undo: Effect, original: Effect, choice: Choice, *, actor: str, text: str, now: Instant
) -> Commit:
    """Record a person's answer to a failed undo, and make the run due: call it again, or it was done manually.

    A call that may still arrive forbids another until its settle time is over by the store's clock (S-17, EFF-3). A
    manual undo records the person and the reason, and marks the effect undone, in this commit.
    """
    answer = mailbox.answer(run, Reason.UNDO_FAILED, choice, key=undo.key, actor=actor, text=text, by_ms=0, now=now)
    if choice is Choice.DONE_BY_HAND:
        by_hand = _answered(undo, "undone_manually", BY_HAND, text, actor, now, response=NO_ANSWER)
        return answer._replace(writes=(*answer.writes, by_hand, _undone(original)))
    if undo.status is EffectStatus.UNCERTAIN:
        again = _answered(undo, "did_not_happen", mailbox.REOPENED, text, actor, now)
        quiet = When(undo.settle_after, True, "real", "settle")
        return answer._replace(writes=(*answer.writes, again), whens=(quiet,))
    again = _answered(undo, "reopen", mailbox.REOPENED, text, actor, now)
    return answer._replace(writes=(*answer.writes, again))


def _answered(
    undo: Effect, verb: str, code: str, detail: str, actor: str, now: Instant, response: bytes | None = None
) -> Put:
    row = undo._replace(
        version=undo.version + 1,
        status=effect_target(verb, undo.status),
        response=response,
        error_text=ERROR.encode(EffectError(code, detail)),
        settled_at=now.business,
        settled_by=actor,
    )
    check_effect(row)
    return Put(EFFECT, row, undo.version)

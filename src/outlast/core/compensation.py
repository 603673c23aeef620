"""Undoing what a run did, before it ends failed or cancelled: the decision, the order, and the moves of an undo (S-19).

An undo is an effect of the run like any other, under the key `undo/KEY`: intent, call, record. Its record moves the
effect it undoes as well, in one commit, so neither can say something else than the other.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from outlast.core import people
from outlast.core.commit import Commit, Instant, Put, When
from outlast.core.effect_verbs import Intent, intend, record, reserve_undo, settle
from outlast.core.events import EventType
from outlast.core.keys import undo_key
from outlast.core.machine import OVERLAY_ONLY, Choice, EffectStatus, Reason, RunStatus, effect_target
from outlast.core.rows import EFFECT, UNDO_RESERVED, Approval, Effect, Run, check_effect
from outlast.core.run_columns import attention_of, dump_attention
from outlast.core.run_transition import LogEntry, fence, transition

NO_UNDO: Final = "no: "
"""What the column `undo` begins with where there is none; then comes the author's reason."""
BY_HAND: Final = Choice.DONE_BY_HAND.value
"""The code of an undo that a person did; its row says who, and why."""
NO_ANSWER: Final = b"null"
NAMED_MAX: Final = 100  # effects that one event names; the ledger has them all


class Ending(NamedTuple):
    """How a run is going to end, why, and who decided it ('' = the workflow's own code)."""

    outcome: RunStatus
    reason: str
    by: str


def ending_of(run: Run) -> Ending | None:
    """How the run ends once all is undone; None while nothing is decided, or nothing had to be undone."""
    if not run.ending:
        return None
    plain = json.loads(run.ending)
    return Ending(RunStatus(plain["outcome"]), plain["reason"], plain["by"])


# --- what is to be undone --------------------------------------------------------------------------
def is_own(run: Run, effect: Effect) -> bool:
    """Is it this run's to undo: its own work, and no undo itself?"""
    return not effect.undoes and effect.by_run in ("", run.run)


def can_undo(effect: Effect) -> bool:
    """Did its activity have an undo when it was done?"""
    return bool(effect.undo) and not effect.undo.startswith(NO_UNDO)


def owed(run: Run, effects: Iterable[Effect]) -> list[Effect]:
    """What stands and is to be undone, in the order of undoing: by falling ordinal."""
    found = [e for e in effects if is_own(run, e) and e.status is EffectStatus.DONE and can_undo(e)]
    return sorted(found, key=lambda e: -e.ordinal)


def must_undo(run: Run, effects: Iterable[Effect]) -> bool:
    """Is there anything to undo, or anything open that may turn out so?"""
    return any(is_own(run, e) and can_undo(e) and (e.settled_at == 0 or e.status is EffectStatus.DONE) for e in effects)


def undone(run: Run, effects: Iterable[Effect]) -> list[Effect]:
    """What was undone, the latest first."""
    found = [e for e in effects if is_own(run, e) and e.status is EffectStatus.UNDONE]
    return sorted(found, key=lambda e: -e.ordinal)


def not_undone(run: Run, effects: Iterable[Effect]) -> list[Effect]:
    """What the run did and nobody undid, the latest first."""
    found = [e for e in effects if is_own(run, e) and e.status is EffectStatus.DONE]
    return sorted(found, key=lambda e: -e.ordinal)


def named(effect: Effect) -> str:
    """An effect in words, with the reason why it cannot be undone where there is one."""
    why = f": {effect.undo.removeprefix(NO_UNDO)}" if effect.undo.startswith(NO_UNDO) else ""
    return f"{effect.activity} {effect.key}{why}"


def names(effects: Sequence[Effect]) -> list[str]:
    """As `effect_name`, as many as an event names."""
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
    """Decide how the run ends, before anything is undone: from here on it is never walked again, whoever takes it.

    Its open approvals are withdrawn in the same commit. `inbox_seq`: refused where a message has come since it was read,
    for an ending that a message may still change. Calls for a person stay only where they stop nothing.
    """
    assert ending.outcome in (RunStatus.FAILED, RunStatus.CANCELLED) and not run.ending
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
        ending=json.dumps({"outcome": ending.outcome.value, "reason": ending.reason, "by": ending.by}),
        attention=dump_attention(a for a in attention_of(run) if a.reason in OVERLAY_ONLY),
        crash_count=0,
        group_max=0,
    )
    withdrawn = tuple(w for a in approvals if (w := people.withdraw(a, now)) is not None)
    return Commit(
        (*put, *withdrawn), fence(run, inbox_seq=inbox_seq), label=f"{run.run} compensate {run.node}#{run.visit}"
    )


def compensated(run: Run, effects: Sequence[Effect]) -> LogEntry:
    """All is undone that is to be: what was, and what stands. Told by the commit that ends the run (OBS-3)."""
    hands = {e.undoes for e in effects if e.undoes and code_of(e) == BY_HAND}
    gone = undone(run, effects)
    data: dict[str, object] = {
        EffectStatus.UNDONE.value: names(gone),
        "undone_manually": names([e for e in gone if f"{e.visit}:{e.key}" in hands]),
        "not_undone": names(not_undone(run, effects)),
    }
    text = f"{len(gone)} undone, {len(not_undone(run, effects))} not undone"
    return LogEntry("outlast/compensated", text, data, EventType.COMPENSATED)


# --- one undo ----------------------------------------------------------------------------------------
def undo_ident(effect: Effect) -> tuple[int, str]:
    """Where the undo of an effect stands in its run's ledger: the same visit, a key of its own."""
    return effect.visit, undo_key(effect.key)


def code_of(effect: Effect) -> str:
    """The code of what is recorded as its error, '' for none."""
    return str(json.loads(effect.error)["code"]) if effect.error else ""


def is_refused(undo: Effect) -> bool:
    """Was it refused, and has no person said since that it is called again?"""
    return undo.status is EffectStatus.REFUSED and code_of(undo) != people.REOPENED


def intend_undo(
    run: Run, what: Intent, previous: Effect | None, original: Effect, *, ordinal: int, now: Instant
) -> Commit:
    """Durable before the undo is called. Work that the tenant shares is taken back with it: nobody may use it now.

    Where another run has used it meanwhile, the commit is Stale ("version").
    """
    assert original.status is EffectStatus.DONE and undo_ident(original) == (what.visit, what.key)
    commit = intend(run, what, previous, ordinal=ordinal, now=now)
    put, *rest = commit.writes
    assert isinstance(put, Put) and isinstance(put.row, Effect) and not rest
    writes = [put._replace(row=put.row._replace(undoes=f"{original.visit}:{original.key}"))]
    if original.by_run and original.shared != UNDO_RESERVED:
        writes.append(reserve_undo(original))
    return commit._replace(writes=tuple(writes))


def withhold(
    run: Run, original: Effect, previous: Effect | None, code: str, detail: str, *, ordinal: int, now: Instant
) -> Commit:
    """An undo that must not be called as things stand: refused before any call, for a person to answer."""
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
        error=json.dumps({"code": code, "detail": detail}),
        external_id="",
        attempts=previous.attempts if previous else 1,
        interrupted=previous.interrupted if previous else 1,  # nothing was called: it uses up no attempt
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
        settled_by="",
        undoes=f"{original.visit}:{original.key}",
    )
    check_effect(row)
    return Commit((Put(EFFECT, row, row.version - 1),), fence(run), label=f"{run.run} withhold {key}")


def record_undo(run: Run, undo: Effect, original: Effect, *, now: Instant) -> Commit:
    """Durable after the call: the undo was done, and what it undoes is undone."""
    return _with(record(run, undo, NO_ANSWER, now=now, external_id=undo.external_id), original)


def settle_undo(run: Run, undo: Effect, original: Effect, *, now: Instant, external_id: str = "") -> Commit:
    """The receiver was asked and knows the undo."""
    return _with(settle(run, undo, NO_ANSWER, now=now, external_id=external_id), original)


def _with(commit: Commit, original: Effect) -> Commit:
    return commit._replace(writes=(*commit.writes, _undone(original)))


def _undone(original: Effect) -> Put:
    row = original._replace(version=original.version + 1, status=effect_target("undo", original.status))
    check_effect(row)
    return Put(EFFECT, row, original.version)


def answer_undo(
    run: Run, undo: Effect, original: Effect, choice: Choice, *, actor: str, text: str, now: Instant
) -> Commit:
    """A person's answer to an undo that failed: it is called again, or he has done it by hand; wakes the run.

    A call that may still land forbids another until its settle time is over, by the store's clock (S-17, EFF-3).
    Done by hand, the undo says by whom and why, and what it undoes is undone, in this commit.
    """
    said = people.answer(run, Reason.UNDO_FAILED, choice, key=undo.key, actor=actor, text=text, by_ms=0, now=now)
    if choice is Choice.DONE_BY_HAND:
        by_hand = _answered(undo, "undone_manually", BY_HAND, text, actor, now, response=NO_ANSWER)
        return said._replace(writes=(*said.writes, by_hand, _undone(original)))
    if undo.status is EffectStatus.UNCERTAIN:
        again = _answered(undo, "did_not_happen", people.REOPENED, text, actor, now)
        quiet = When(undo.settle_after, True, "real", "settle")
        return said._replace(writes=(*said.writes, again), whens=(quiet,))
    again = _answered(undo, "reopen", people.REOPENED, text, actor, now)
    return said._replace(writes=(*said.writes, again))


def _answered(
    undo: Effect, verb: str, code: str, detail: str, actor: str, now: Instant, response: bytes | None = None
) -> Put:
    row = undo._replace(
        version=undo.version + 1,
        status=effect_target(verb, undo.status),
        response=response,
        error=json.dumps({"code": code, "detail": detail}),
        settled_at=now.business,
        settled_by=actor,
    )
    check_effect(row)
    return Put(EFFECT, row, undo.version)

"""Reasons for which an execution of a node stops: requests to a person, waits and refusals (S-16)."""

import logging
import traceback
from collections.abc import Callable
from typing import Any, Final

from outlast.core.commit import Mapping
from outlast.core.compensation import is_own, owed, undone
from outlast.core.conclude import Flagged, NodeResult, Parked, Raised, Resting, Returned, Stopping
from outlast.core.durations import HOLD_LOOK_AGAIN
from outlast.core.effect_steps import EXHAUSTED, Known, MarkUncertain, Moment, Terms, next_step
from outlast.core.effect_verbs import is_unsent
from outlast.core.failed_calls import EffectKey
from outlast.core.limits import TEXT_CHARS_MAX
from outlast.core.machine import EffectStatus, Reason, RunStatus
from outlast.core.rows.effect_columns import DETACHED, NO_ERROR, EffectError
from outlast.core.rows.effect_rows import Effect, Memo
from outlast.core.rows.limit_rows import Pause
from outlast.core.rows.run_columns import COUNTED, Attention, Ending, Timer, WaitingFor
from outlast.engine.call_outcome import is_fault_of_receiver
from outlast.engine.compatibility import activity_of
from outlast.engine.known_pauses import waiting_for
from outlast.engine.run_session import RunSession
from outlast.engine.user_code import text_of
from outlast.errors import AnswerNotStored, Misplaced, OutlastError
from outlast.flow.activity import Activity, BoundCall
from outlast.flow.options import Callee
from outlast.flow.outcomes import Cancel, ChildFailed, Fail, Refusal, Refused
from outlast.flow.workflow import Workflow
from outlast.telemetry.redact import redact_shown, secrets_in

log = logging.getLogger("outlast.engine")
SHOWN_MAX: Final = 10
TRACEBACK_CHARS: Final = 4_000
ARGUMENTS_SHOWN: Final = 200


class EffectRefused(Refused):
    """Refusal of one effect, with the key of the effect."""

    def __init__(self, refusal: Refusal, ident: EffectKey) -> None:
        super().__init__(refusal.code, refusal.detail)
        self.ident = ident


def refusal_of(effect: Effect) -> Refusal:
    """Return the recorded refusal of an effect."""
    error = effect.error or EffectError(EffectStatus.REFUSED.value, "")
    return Refusal(error.code, error.detail)


def answer_not_stored(effect: Effect) -> AnswerNotStored:
    """Return the error of a call that was done without a stored response."""
    error = effect.error or NO_ERROR
    size, limit, head = error.unstored or (0, 0, "")
    return AnswerNotStored(
        f"the answer of {effect.activity} {effect.key} is not stored",
        f"the call was done, and is not made again; {error.detail}",
        "catch AnswerNotStored, or return a smaller answer, such as an address",
        key=effect.key,
        size=size,
        limit=limit,
        head=head,
    )


def uncertain(session: RunSession, effect: Effect) -> Attention:
    """Return the reason to call a person about an effect or an undo that may have happened."""
    if effect.undoes:
        return undo_failed(session, effect)
    error = refusal_of(effect)
    return attention(session, Reason.EFFECT_UNCERTAIN, f"{error.code}: {error.detail}", effect)


def undo_failed(session: RunSession, undo: Effect) -> Attention:
    """Return the reason to call an operator: the undo, its outcome, and the effects that remain."""
    run, effects = session.held.run, session.held.effects.values()
    error = refusal_of(undo)
    became = "it is not known whether it happened" if undo.status is EffectStatus.UNCERTAIN else "it was not done"
    if undo.child.detached:
        became = f"run {undo.external_id} was detached and goes on alone"
    visit, _, of = undo.undoes.partition(":")
    original = session.held.effects.get((int(visit), of), undo)
    by = f" by {undo.activity}" if undo.activity != original.activity else ""
    detail = (
        f"the undo of {original.activity} {of}{by}: {became}: {error.code}: {error.detail}; "
        f"undone: {_shown(undone(run, effects))}; to undo: {_shown(owed(run, effects))}"
    )
    entry = attention(session, Reason.UNDO_FAILED, detail, undo)
    return entry._replace(trigger=DETACHED) if undo.child.detached else entry


def _shown(effects: list[Effect]) -> str:
    more = f" and {len(effects) - SHOWN_MAX} more" if len(effects) > SHOWN_MAX else ""
    return (", ".join(f"{e.activity} {e.key}" for e in effects[:SHOWN_MAX]) or "nothing") + more


def attention(session: RunSession, reason: Reason, detail: str, effect: Effect | None = None) -> Attention:
    """Return an entry of the attention set. Only messages that this execution has not read can answer it."""
    key, visit, name = (effect.key, effect.visit, effect.activity) if effect else ("", 0, "")
    return Attention(reason, session.clock.now.business, detail, key, visit, seen=session.held.inbox_read, name=name)


def paused_by(pause: Pause, now_real: int) -> Parked:
    """Return the wait for the end of a pause. Resuming makes the run due; a timer finds a missed resume."""
    return Parked("park", waiting_for(pause), Timer(pause.key, now_real + HOLD_LOOK_AGAIN, real=True))


def paused_by_breaker(pause: Pause, at_real: int, mapping: Mapping) -> Parked:
    """Return the wait for a breaker to close. At `at_real` the run checks the provider itself."""
    then = "one run tries whether it answers; the others continue when it does"
    waiting = WaitingFor(
        "pause", f"{pause.key}: {pause.reason}", pause.by, pause.since, mapping.business(pause.again_at), then
    )
    return Parked("park", waiting, Timer(pause.key, at_real, real=True))


def contradiction(
    session: RunSession, callee: Callee, call: BoundCall, row: Effect | Memo, differs: str = ""
) -> Attention:
    """Return the reason to call a person about a key that is recorded with other arguments.

    `differs`: what differs, if the callee can tell. If the same activity recorded the key, the person may choose the
    recorded answer (S-18).
    """
    given = f" with {row.args.decode(errors='replace')[:ARGUMENTS_SHOWN]}" if isinstance(row, Effect) else ""
    detail = (
        f"key {row.key} is recorded for {row.activity}{given}; "
        f"now {callee.name} asks for it with "
        f"{'another request: ' + differs if differs else call.args_bytes.decode(errors='replace')[:ARGUMENTS_SHOWN]}"
    )
    usable = call.digest if row.activity == callee.name else ""
    entry = attention(session, Reason.CONTRADICTION, detail)
    return entry._replace(key=row.key, visit=row.visit, digest=usable)


def under_way(session: RunSession, callee: Callee, call: BoundCall, ident: EffectKey) -> Attention:
    """Return the same reason for a key whose first call has no row yet."""
    detail = f"key {call.key} is under way; now {callee.name} asks for it with other arguments"
    entry = attention(session, Reason.CONTRADICTION, detail)
    return entry._replace(key=call.key, visit=ident[0], digest=call.digest)


def recorded_call(activity: Activity[Any, Any], effect: Effect) -> BoundCall:
    """Return the call with its recorded arguments. Raises NotStorable if they no longer fit the activity."""
    args, kwargs = activity.load_args(effect.args) if effect.settled_at == 0 else ((), {})
    return BoundCall(args, kwargs, effect.key, effect.args, effect.digest)


def exception_attention(session: RunSession, error: BaseException) -> Attention:
    """Log an exception of the author's code and return the reason to call an operator. Secrets are redacted."""
    plans = (approval.plans_text for approval in session.held.approvals.values())
    known = secrets_in(session.held.last.snapshot, *(effect.args for effect in session.held.effects.values()), *plans)
    shown = redact_shown(str(error) if isinstance(error, OutlastError) else text_of(error), known)[:TEXT_CHARS_MAX]
    if is_fault_of_receiver(error):
        shown = "\n".join([shown, *(redact_shown(note, known) for note in getattr(error, "__notes__", ()))])
        log.warning("run %s: %s", session.held.run.run, shown)
        return attention(session, Reason.EXCEPTION, shown)
    text = redact_shown("".join(traceback.format_exception(error)), known)[-TRACEBACK_CHARS:]
    log.warning("run %s: %s", session.held.run.run, text)
    return attention(session, Reason.EXCEPTION, f"{shown}\n{text}")


def without_attempt(
    session: RunSession, workflow: Workflow[Any], terms_of: Callable[[Callee], Terms]
) -> tuple[tuple[Effect, str, str], ...]:
    """Return open effects that the next execution would mark uncertain, each with a code and a detail."""
    found, restored = [], Known(restored=session.held.run.restored > 0)
    for effect in session.held.open_effects():
        activity = activity_of(workflow, effect.activity) if is_own(session.held.run, effect) else None
        unsent = session.late.is_unsent(effect) or is_unsent(effect, session.held.evidence)
        if activity is None or unsent:
            continue
        step = next_step(effect, terms_of(activity), Moment.START, session.clock.now, restored)
        if isinstance(step, MarkUncertain):
            found.append((effect, *step))
    return tuple(found)


def with_forgotten(verdict: Returned | Raised, forgotten: Misplaced) -> Raised:
    """Return the result of a node that never awaited a call: a failure. An error of the node gets a note instead."""
    if isinstance(verdict, Returned) or isinstance(verdict.error, Fail | Cancel):
        return Raised(forgotten)
    verdict.error.add_note(f"{forgotten.what}: {forgotten.why}")
    return verdict


def with_given_up(result: NodeResult, given_up: Misplaced) -> NodeResult:
    """Return the result of a node that did not await a wait to its end: a failure. Its own error gets a note.

    An end that the node chose (`Fail`, `Cancel`) is kept if it follows from another error. Otherwise the node chose it
    because of a timer or a race of asyncio.
    """
    if not isinstance(result, Raised):
        return Raised(given_up) if isinstance(result, Returned | Resting) else result
    if isinstance(result.error, Fail | Cancel):
        return result if _follows_error(result.error) else Raised(given_up)
    result.error.add_note(f"{given_up.what}: {given_up.why}; {given_up.fix}")
    return result


def _follows_error(error: BaseException) -> bool:
    """Return True if an error was raised while another one was handled that is no timeout."""
    cause = error.__cause__ or error.__context__
    return isinstance(cause, Exception) and not isinstance(cause, TimeoutError)


def raised(session: RunSession, error: BaseException) -> Flagged | Stopping:
    """Return what follows an exception of the node: the end that it asks for, or a request to a person."""
    if isinstance(error, Fail | Cancel):
        outcome = RunStatus.FAILED if isinstance(error, Fail) else RunStatus.CANCELLED
        return Stopping(Ending(outcome, error.reason, "", _failed_child(error)), session.held.inbox_read)
    return Flagged(
        children_failed_in(session, error) or exhausted_in(session, error) or (exception_attention(session, error),)
    )


def _failed_child(error: BaseException) -> str:
    """Return visit and key of the child whose failure the node handled when it ended its run; '' if it was none."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return f"{cause.place[0]}:{cause.place[1]}" if isinstance(cause, ChildFailed) else ""


def exhausted_in(session: RunSession, error: BaseException) -> tuple[Attention, ...]:
    """Return a reason for each refusal in an uncaught error, if all of them say that the attempts are used up."""
    leaves = _leaves(error)
    found = {e.ident: e for e in leaves if isinstance(e, EffectRefused) and e.code == EXHAUSTED}
    if not all(isinstance(e, EffectRefused) for e in leaves):
        return ()
    entries = (attention(session, Reason.RETRIES_EXHAUSTED, e.detail) for e in found.values())
    return tuple(
        entry._replace(visit=visit, key=key, name=_activity_at(session, (visit, key)))
        for entry, (visit, key) in zip(entries, found, strict=True)
    )


def _activity_at(session: RunSession, ident: EffectKey) -> str:
    effect = session.held.effects.get(ident)
    return effect.activity if effect is not None else ""


def children_failed_in(session: RunSession, error: BaseException) -> tuple[Attention, ...]:
    """Return a reason for each child that failed, if an uncaught error consists of nothing else."""
    leaves = _leaves(error)
    found = {e.place: e for e in leaves if isinstance(e, ChildFailed)}
    if len(found) < len(leaves):
        return ()
    entries = [
        attention(session, Reason.CHILD_FAILED, str(e))._replace(trigger=_without_retry(session, e))
        for e in found.values()
    ]
    return tuple(
        entry._replace(visit=visit, key=key, name=_activity_at(session, (visit, key)))
        for entry, (visit, key) in zip(entries, found, strict=True)
    )


def _without_retry(session: RunSession, error: ChildFailed) -> str:
    """Return why no other run may take the place of a failed child; '' if one may.

    DETACHED: it would act beside a run that goes on alone. COUNTED: the results of its map do not change.
    """
    if any(each.code == DETACHED for each in error.path):
        return DETACHED
    row = session.held.effects.get(error.place)
    is_counted = row is None or bool(row.child.map)
    return COUNTED if is_counted and session.held.fork is None else ""


def _leaves(error: BaseException) -> list[BaseException]:
    """Return the errors of which an error, perhaps a group, consists."""
    leaves = [error]
    while any(isinstance(leaf, BaseExceptionGroup) for leaf in leaves):
        leaves = [e for leaf in leaves for e in (leaf.exceptions if isinstance(leaf, BaseExceptionGroup) else [leaf])]
    return leaves

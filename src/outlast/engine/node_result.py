"""What a walk came to, taken from the context and never from what the body raised or returned afterwards (S-16)."""

import json
import logging
import traceback
from typing import Any, Final, NamedTuple, TypeAlias

from outlast.core.budget import HOLD_LOOK_AGAIN
from outlast.core.commit import Mapping
from outlast.core.compensation import is_own
from outlast.core.ledger import is_unsent
from outlast.core.limits import TEXT_CHARS_MAX
from outlast.core.machine import EffectStatus, Reason
from outlast.core.overlay import Armed, Attention, WaitingFor
from outlast.core.people import REOPENED
from outlast.core.recovery import without_attempts
from outlast.core.route import EndCancelled
from outlast.core.rows import Effect, Hold, Memo
from outlast.engine.compatibility import activity_of
from outlast.engine.pauses import waiting_for
from outlast.engine.run_session import EffectKey, RunSession
from outlast.engine.user_code import text_of
from outlast.errors import Misplaced, OutlastError
from outlast.flow.activity import Activity, BoundCall
from outlast.flow.callee import Callee
from outlast.flow.outcomes import ActivityFailed, Cancel, Fail, Refusal
from outlast.flow.workflow import Workflow
from outlast.telemetry.redact import redact, secrets_in

log = logging.getLogger("outlast.engine")
EXHAUSTED: Final = Reason.RETRIES_EXHAUSTED.value
TRACEBACK_CHARS: Final = 4_000
ARGUMENTS_SHOWN: Final = 200


class Parked(NamedTuple):
    """One thing the walk waits for: the table's verb, the words for people, and the clock it arms (None: no end)."""

    verb: str
    waiting: WaitingFor
    armed: Armed | None


class Flagged(NamedTuple):
    """A person must look. `parked`: what else the walk waits for."""

    reasons: tuple[Attention, ...]
    parked: tuple[Parked, ...] = ()


class Resting(NamedTuple):
    """The run waits, and nothing of it runs."""

    parked: tuple[Parked, ...]


class Again(NamedTuple):
    """Walk the node again at once, with fresh rows."""

    why: str


class HandBack(NamedTuple):
    """The slice has no room for the next attempt, or the worker drains."""

    why: str


class Raised(NamedTuple):
    """The body raised, and nothing else came first."""

    error: BaseException


class Returned(NamedTuple):
    """The body returned the next node, or None for the end, and nothing else came first."""

    value: Any


Verdict: TypeAlias = EndCancelled | Flagged | Resting | Again | HandBack | Raised | Returned


class EffectRefused(ActivityFailed):
    """The refusal of one effect, which it names."""

    def __init__(self, refusal: Refusal, ident: EffectKey) -> None:
        super().__init__(refusal)
        self.ident = ident


def is_reopened(effect: Effect) -> bool:
    """Did a person say that it did not happen, or to try again?"""
    return effect.status is EffectStatus.REFUSED and refusal_of(effect).code == REOPENED


def refusal_of(effect: Effect) -> Refusal:
    """The recorded no of an effect."""
    error = json.loads(effect.error) if effect.error else {"code": EffectStatus.REFUSED.value, "detail": ""}
    return Refusal(error["code"], error["detail"])


def uncertain(session: RunSession, effect: Effect) -> Attention:
    """The reason to call a person: it may have happened."""
    error = refusal_of(effect)
    return attention(session, Reason.EFFECT_UNCERTAIN, f"{error.code}: {error.detail}", effect)


def attention(session: RunSession, reason: Reason, detail: str, effect: Effect | None = None) -> Attention:
    """An entry of the attention set, from now on; only messages the walk has not read can answer it."""
    key, visit = (effect.key, effect.visit) if effect else ("", 0)
    return Attention(reason, session.now.business, detail, key, visit, seen=session.inbox_read)


def paused_by(hold: Hold, now_real: int) -> Parked:
    """Waiting for a release: it makes the run due; one that was missed is found by looking again."""
    return Parked("park", waiting_for(hold), Armed(hold.key, now_real + HOLD_LOOK_AGAIN, real=True))


def paused_by_breaker(hold: Hold, at_real: int, mapping: Mapping) -> Parked:
    """Waiting until one may try, or until another has: `at_real` is when this run looks again by itself."""
    then = "one run tries whether it answers; the others go on when it does"
    waiting = WaitingFor(
        "hold", f"{hold.key}: {hold.reason}", hold.by, hold.since, mapping.business(hold.again_at), then
    )
    return Parked("park", waiting, Armed(hold.key, at_real, real=True))


def contradiction(session: RunSession, callee: Callee, call: BoundCall, row: Effect | Memo) -> Attention:
    """The reason to call a person. Its recorded answer can be used where the same activity made it."""
    given = f" with {row.args.decode(errors='replace')[:ARGUMENTS_SHOWN]}" if isinstance(row, Effect) else ""
    detail = (
        f"key {row.key} is recorded for {row.activity}{given}; "
        f"now {callee.name} asks for it with {call.args_bytes.decode(errors='replace')[:ARGUMENTS_SHOWN]}"
    )
    usable = call.digest if row.activity == callee.name else ""
    entry = attention(session, Reason.CONTRADICTION, detail)
    return entry._replace(key=row.key, visit=row.visit, digest=usable)


def under_way(session: RunSession, callee: Callee, call: BoundCall, ident: EffectKey) -> Attention:
    """The reason to call a person while the first call of this walk has no row yet."""
    detail = f"key {call.key} is under way; now {callee.name} asks for it with other arguments"
    entry = attention(session, Reason.CONTRADICTION, detail)
    return entry._replace(key=call.key, visit=ident[0], digest=call.digest)


def uses_recorded(session: RunSession, ident: EffectKey, digest: str) -> bool:
    """Did a person say that this key's recorded answer is used for exactly this call? The message that says so stays."""
    named = [*ident, digest]
    return any(
        message.kind == "answer"
        and message.name == Reason.CONTRADICTION
        and named in json.loads(message.payload).get("recorded", ())
        for message in session.messages
    )


def recorded_call(activity: Activity[Any, Any], effect: Effect) -> BoundCall:
    """The call as it was recorded: what is open settles as what it is. Raises NotStorable: it fits no longer."""
    args, kwargs = activity.load_args(effect.args) if effect.settled_at == 0 else ((), {})
    return BoundCall(args, kwargs, effect.key, effect.args, effect.digest)


def exception_attention(session: RunSession, error: BaseException) -> Attention:
    """Log an exception of the author's code and return the reason to call an operator. Secrets are redacted."""
    plans = (approval.plans for approval in session.approvals.values())
    known = secrets_in(session.last.snapshot, *(effect.args for effect in session.effects.values()), *plans)
    text = redact("".join(traceback.format_exception(error)), known)[-TRACEBACK_CHARS:]
    log.warning("run %s: %s", session.run.run, text)
    shown = redact(str(error) if isinstance(error, OutlastError) else text_of(error), known)[:TEXT_CHARS_MAX]
    return attention(session, Reason.EXCEPTION, f"{shown}\n{text}")


def without_attempt(session: RunSession, workflow: Workflow[Any]) -> list[tuple[Effect, str, str]]:
    """Return open effects that neither an attempt nor a reconcile can follow, each with a code and a detail."""
    found = []
    for effect in session.open_effects():
        activity = activity_of(workflow, effect.activity) if is_own(session.run, effect) else None
        known = session.unsent.get((effect.visit, effect.key)) == effect or is_unsent(effect, session.evidence)
        if activity is None or known:
            continue
        if why := without_attempts(session.run, effect, activity.mode, activity.retry.attempts):
            found.append((effect, *why))
    return found


def storable(text: str) -> str:
    """Return text that every store can hold: halves of surrogate pairs are escaped."""
    return text.encode(errors="backslashreplace").decode()


def with_forgotten(verdict: Returned | Raised, forgotten: Misplaced) -> Raised:
    """A node that ended with a call it never awaited: a person must look. An error of its own keeps its name."""
    if isinstance(verdict, Returned) or isinstance(verdict.error, Fail | Cancel):
        return Raised(forgotten)
    verdict.error.add_note(f"{forgotten.what}: {forgotten.why}")
    return verdict


def exhausted_in(error: BaseException) -> list[EffectRefused]:
    """The refusals an uncaught error consists of, if all of them say that the attempts are used up; else none."""
    leaves = [error]
    while any(isinstance(leaf, BaseExceptionGroup) for leaf in leaves):
        leaves = [e for leaf in leaves for e in (leaf.exceptions if isinstance(leaf, BaseExceptionGroup) else [leaf])]
    found = {e.ident: e for e in leaves if isinstance(e, EffectRefused) and e.refusal.code == EXHAUSTED}
    return list(found.values()) if all(isinstance(e, EffectRefused) for e in leaves) else []

"""The next step of an effect: one pure function of its row, its terms and the latest outcome (S-17).

`next_step` reads no clock, draws no random number and awaits nothing. `engine/effect_executor.py` carries each step
out and asks again. A step depends on the row as the ledger holds it, so that a process that takes over decides alike.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from outlast.core.commit import Instant
from outlast.core.compensation import can_undo
from outlast.core.durations import SECOND, wait_before
from outlast.core.effect_verbs import TOO_LATE, deferred_until, tries
from outlast.core.machine import EffectStatus, Reason
from outlast.core.recovery import cut_off, used_up
from outlast.core.rows.effect_columns import EffectError
from outlast.core.rows.effect_rows import Effect

R_co = TypeVar("R_co", covariant=True)
CANCELLED: Final = "run_cancelled"
LOCAL_LIMIT: Final = "local_limit"
"""Code of an attempt for which this process had no connection, descriptor or thread. It uses up no attempt."""
EXHAUSTED: Final = Reason.RETRIES_EXHAUSTED.value


# --- outcomes of one attempt -------------------------------------------------------------------
class Answered(NamedTuple):
    """Outcome: the call happened and returned a value."""

    value: Any
    external_id: str = ""


class No(NamedTuple):
    """Outcome: the receiver refused the call. Nothing happened, and no attempt follows.

    `conflicts`: it contradicts a record of the receiver, which an earlier attempt of this call may have made.
    """

    code: str
    detail: str
    conflicts: bool = False


class Unsent(NamedTuple):
    """Outcome: not sent, or the receiver asked to retry later. Nothing happened, so another attempt is safe."""

    code: str
    detail: str
    after_ms: int = 0


class Maybe(NamedTuple):
    """Outcome: sent, with an unknown result.

    `abandoned`: only a person can settle it, because a thread outlived its timeout and may still send, or because the
    function returned before its work had run. `external_id`: learned by the activity before it
    failed.
    """

    code: str
    detail: str
    abandoned: bool = False
    after_ms: int = 0
    external_id: str = ""


Outcome: TypeAlias = Answered | No | Unsent | Maybe


# --- answers of a reconcile function --------------------------------------------------------
@dataclass(frozen=True)
class Happened(Generic[R_co]):
    """Answer of a reconcile function: the call happened, with its `response` and the receiver's own `external_id`."""

    response: R_co
    external_id: str | None = None

    def __post_init__(self) -> None:
        """Make text of an `external_id` that is a number, because receivers have such ids."""
        if self.external_id is not None:
            object.__setattr__(self, "external_id", str(self.external_id))


@dataclass(frozen=True)
class DidNotHappen:
    """Answer of a reconcile function: the receiver has no such call. It is proof only after the settle time (S-17)."""


@dataclass(frozen=True)
class Unknown:
    """Answer of a reconcile function: the receiver cannot tell, and `why`. The activity's `if_uncertain` decides."""

    why: str

    def __post_init__(self) -> None:
        """Make text of a `why` that is an exception."""
        object.__setattr__(self, "why", str(self.why))


ReceiverAnswer: TypeAlias = Happened[Any] | DidNotHappen | Unknown


class Moment(Enum):
    """A moment at which a step is due without a new outcome."""

    START = "start"
    """The executor begins and knows only the row."""
    DEFERRED = "deferred"
    """This executor has deferred the next attempt, and has no question for the receiver."""
    CANCEL = "cancel"
    """The intent is durable, and a cancel of the run has arrived with it."""


Fact: TypeAlias = Outcome | ReceiverAnswer | Moment
"""The latest news of an effect, from which the next step is decided."""


# --- what a step depends on ---------------------------------------------------------------------
class Purpose(Enum):
    """Why an effect is executed."""

    DO = "do"
    UNDO = "undo"
    SETTLE = "settle"
    """The run ends: find out what happened, and call again only if that tells it and can be undone."""


class Terms(NamedTuple):
    """Rules of one call, from the activity's options and the deployment's. Durations are in ms."""

    asks_receiver: bool
    """If a call may have happened, the receiver is asked before anything else."""
    attempts_max: int
    total_wait: int
    first_wait: int
    wait_factor: float
    backoff_ceiling: int
    remembered_for: int
    """Time for which the receiver remembers a key, from the first intent; 0 = it does not.

    Within it, the call may be made again. A person decides if neither the receiver can be asked nor the call be made
    again.
    """
    timeout: int
    settle_margin: int
    start_budget: int
    purpose: Purpose = Purpose.DO
    shared: bool = False
    """All runs of the tenant share the effect. The run that makes it also settles it."""
    keep_ms: int = 0
    """Time for which a shared effect outlives the runs that used it; 0 = without limit."""
    in_transaction: bool = False
    """The effect and the author's rows commit together, so a restore loses both or neither."""


class Known(NamedTuple):
    """Facts that an executor has in memory, and its random number."""

    maybe_done: bool = False
    """An attempt before the latest may have happened. An attempt that was not sent does not disprove it."""
    in_transit: bool = False
    """Such an attempt may arrive after the latest, whose refusal is no proof then."""
    restored: bool = False
    """The store was restored during this run, so a missing row may be a lost one."""
    probing: bool = False
    """The attempt tried a provider behind a breaker, for all runs that wait."""
    asked_at: int = 0
    """Real time of the question that the receiver answered. Its answer holds for that time."""
    jitter: float = 0.0
    """Random number in [0, 1) for the next wait."""


NOTHING: Final = Known()


# --- steps -----------------------------------------------------------------------------------------
class Intend(NamedTuple):
    """Commit an intent, then make the attempt.

    `lost`: a restore may have lost an earlier attempt. The attempt is not made; the effect is settled like one that a
    dead worker left open. `in_transit`: the settle time of an earlier attempt has not passed.
    """

    maybe_done: bool = False
    lost: bool = False
    in_transit: bool = False


class Defer(NamedTuple):
    """Record the attempt as one without an outcome; the next may follow after `wait_ms`."""

    code: str
    detail: str
    wait_ms: int
    happened: bool
    """The call may have happened."""
    counts: bool = True
    settles: bool = False
    """The wait is for the settle time. It counts towards no limit."""


class AskReceiver(NamedTuple):
    """Ask the receiver whether the call happened, after `first` was recorded."""

    first: Defer | None = None


class WaitUntil(NamedTuple):
    """Wait until a real time, then decide again from the same outcome. `settles`: wait for the settle time."""

    until: int
    settles: bool = False


class RecordResponse(NamedTuple):
    """Record the response. `found`: the receiver confirmed it when asked."""

    response: Any
    external_id: str = ""
    found: bool = False


class Refuse(NamedTuple):
    """Record that the call did not happen and will not be made."""

    code: str
    detail: str


class MarkUncertain(NamedTuple):
    """Record that a person must decide, because the call may have happened."""

    code: str
    detail: str


class LeaveOpen(NamedTuple):
    """Write nothing: the effect stays open, and the end of the run settles it."""


Step: TypeAlias = Intend | Defer | AskReceiver | WaitUntil | RecordResponse | Refuse | MarkUncertain | LeaveOpen


# --- the decision ----------------------------------------------------------------------------------
def next_step(
    effect: Effect | None,
    terms: Terms,
    fact: Fact,
    now: Instant,
    known: Known = NOTHING,
) -> Step:
    """Return the step that follows `fact`. `effect` is the row as the executor knows it; None without one."""
    if isinstance(fact, Answered):
        return RecordResponse(fact.value)
    if effect is None or effect.status is not EffectStatus.INTENDED:
        lost = known.restored and not terms.in_transaction and (effect is None or _is_new(effect))
        return Intend(maybe_done=lost, lost=lost)
    if isinstance(fact, Moment):
        return _at(fact, effect, terms, now, known)
    if isinstance(fact, No):
        if not (fact.conflicts and known.maybe_done):
            return _refused(effect, terms, fact, now, known)
        fact = Maybe(fact.code, fact.detail)
    if isinstance(fact, Unsent):
        return _not_sent(effect, terms, fact, known)
    if isinstance(fact, Maybe):
        return _maybe_happened(effect, terms, fact, now, known)
    return _after_answer(effect, terms, fact, now, known)


def _is_new(effect: Effect) -> bool:
    """True if the next attempt is the first one of new work under an old key."""
    return effect.status is EffectStatus.UNDONE


# --- without a new outcome ---------------------------------------------------------------------------
def _at(moment: Moment, effect: Effect, terms: Terms, now: Instant, known: Known) -> Step:
    if moment is Moment.START:
        return _at_start(effect, terms, now, known)
    if moment is Moment.DEFERRED:
        return _after_deferral(effect, terms, now)
    # a cancel stops the call; an attempt that may have happened is not refused
    return LeaveOpen() if known.maybe_done else Refuse(CANCELLED, "cancelled before it was sent")


def _at_start(effect: Effect, terms: Terms, now: Instant, known: Known) -> Step:
    """Decide about an effect that an earlier execution left open."""
    if terms.purpose is Purpose.SETTLE:
        return _at_the_end(effect, terms, now)
    if (until := deferred_until(effect)) > now.real:
        return WaitUntil(until)
    if _has_lapsed(effect, now):
        return _lapse(effect)
    has_attempt = tries(effect) < terms.attempts_max
    if effect.settle_after == 0:  # the last attempt had no effect
        error = effect.error or EffectError(EffectStatus.REFUSED.value, "")
        return Intend() if has_attempt else _exhausted(effect, error.code, error.detail, happened=False)
    if terms.asks_receiver:
        return AskReceiver()
    if _window_open(effect, terms, now):
        return _repeat(effect, now) if has_attempt else MarkUncertain(*used_up(effect))
    return MarkUncertain(*cut_off(effect, restored=known.restored))


def _at_the_end(effect: Effect, terms: Terms, now: Instant) -> Step:
    """Decide about an open effect of a run that ends."""
    if effect.settle_after == 0:
        return Refuse(CANCELLED, "the run ended before another attempt")
    if terms.asks_receiver:
        return AskReceiver()
    if _has_lapsed(effect, now):
        return _lapse(effect)
    if not _window_open(effect, terms, now):
        return MarkUncertain("interrupted", "its outcome is not known and the run ends")
    if (until := deferred_until(effect)) > now.real:
        return WaitUntil(until)
    return _repeat(effect, now) if tries(effect) < terms.attempts_max else MarkUncertain(*used_up(effect))


def _after_deferral(effect: Effect, terms: Terms, now: Instant) -> Step:
    """Make the next attempt as soon as it is due, unless the receiver may forget the key in the meantime."""
    if (until := deferred_until(effect)) > now.real:
        return WaitUntil(until)
    maybe_done = effect.settle_after != 0
    if maybe_done and not _window_open(effect, terms, now):
        assert effect.error is not None
        return MarkUncertain(effect.error.code, effect.error.detail)
    if _has_lapsed(effect, now):
        return _lapse(effect)
    return _repeat(effect, now) if maybe_done else Intend()


def _repeat(effect: Effect, now: Instant) -> Intend:
    """Make another attempt of a call that may have happened."""
    return Intend(maybe_done=True, in_transit=now.real < effect.settle_after)


# --- after an attempt ----------------------------------------------------------------------------------
def _refused(effect: Effect, terms: Terms, outcome: No, now: Instant, known: Known) -> Step:
    """Record a refusal. If an earlier attempt may still arrive, repeat the call after the settle time instead.

    A receiver remembers what it did, not what it refused, so it may execute the earlier request after this refusal.
    """
    code, detail = outcome.code or EffectStatus.REFUSED.value, outcome.detail
    if not known.in_transit:
        return Refuse(outcome.code, detail)
    settled = now._replace(real=max(now.real, effect.settle_after))
    if not _window_open(effect, terms, settled):
        return MarkUncertain(code, detail)
    wait = settled.real - now.real
    return Defer(code, f"{detail}; {EARLIER}".lstrip("; "), wait, happened=True, counts=False, settles=True)


def _not_sent(effect: Effect, terms: Terms, outcome: Unsent, known: Known) -> Step:
    if outcome.code == TOO_LATE:  # the last check stopped it: intend again at once
        return Defer(TOO_LATE, outcome.detail, 0, known.maybe_done)
    return _try_again(effect, terms, outcome.code, outcome.detail, outcome.after_ms, known, happened=known.maybe_done)


def _maybe_happened(effect: Effect, terms: Terms, outcome: Maybe, now: Instant, known: Known) -> Step:
    code, detail, wait = outcome.code, outcome.detail, outcome.after_ms
    if outcome.abandoned:
        return MarkUncertain(code, detail)
    if terms.asks_receiver:  # a wait that the receiver asked for (408) precedes the next call, not the question
        if why := _too_long(effect, terms, wait, wait):
            code, detail, wait = EXHAUSTED, f"{code}: {detail}; {why}", 0
        return AskReceiver(Defer(code, detail, wait, happened=True))
    if _window_open(effect, terms, now):
        return _try_again(effect, terms, code, detail, wait, known, happened=True)
    return MarkUncertain(code, detail)


def _try_again(
    effect: Effect, terms: Terms, code: str, detail: str, after_ms: int, known: Known, *, happened: bool
) -> Step:
    """Defer the next attempt, unless the attempts or the time for waits are used up."""
    if known.probing:  # a try for all waiting runs does not count as an attempt of this effect
        return Defer(code, detail, 0, happened, counts=False)
    local = code == LOCAL_LIMIT
    ended = effect.attempts - (0 if local else effect.interrupted)  # including this one
    if ended >= terms.attempts_max and not local:
        return _exhausted(effect, code, detail, happened=happened)
    wait = wait_before(
        ended + 1,
        known.jitter,
        first_ms=terms.first_wait,
        ceiling_ms=terms.backoff_ceiling,
        factor=terms.wait_factor,
    )
    wait = max(wait, after_ms)
    if why := _too_long(effect, terms, wait, after_ms):
        return _exhausted(effect, code, f"{detail}; {why}", happened=happened)
    return Defer(code, detail, wait, happened, counts=not local)


# --- after an answer of the receiver ---------------------------------------------------------------
def _after_answer(effect: Effect, terms: Terms, answer: ReceiverAnswer, now: Instant, known: Known) -> Step:
    """Decide from the answer. A yes is proof at any time, a no only after the settle time."""
    if isinstance(answer, Happened):
        return RecordResponse(answer.response, answer.external_id or effect.external_id, found=True)
    if known.asked_at < effect.settle_after:  # a call that was sent may have arrived since
        early = now.real < effect.settle_after
        return WaitUntil(effect.settle_after, settles=True) if early else AskReceiver()
    if isinstance(answer, DidNotHappen):
        return _did_not_happen(effect, terms, now)
    if _window_open(effect, terms, now):
        return _try_again(effect, terms, "unknown_outcome", answer.why, 0, known, happened=True)
    return MarkUncertain("unknown_outcome", answer.why)


def _did_not_happen(effect: Effect, terms: Terms, now: Instant) -> Step:
    """Call again, because the receiver does not know the call and none can arrive any more."""
    if terms.purpose is Purpose.SETTLE:
        return Refuse(CANCELLED, "the receiver does not know it")
    error = effect.error
    if error is not None and error.code == EXHAUSTED:  # the receiver asked for more time than is left
        return Refuse(EXHAUSTED, f"the receiver does not know it; {error.detail}")
    if tries(effect) >= terms.attempts_max:
        return _exhausted(effect, "not_found", "the receiver does not know it", happened=False)
    if (until := deferred_until(effect)) > now.real:
        return WaitUntil(until)
    return Refuse("approval_lapsed", LAPSED) if _has_lapsed(effect, now) else Intend()


# --- rules -------------------------------------------------------------------------------------------
EARLIER: Final = "an earlier request may still arrive"
LAPSED: Final = "its approval lapsed while its outcome was open"


def _has_lapsed(effect: Effect, now: Instant) -> bool:
    return 0 < effect.covered_until <= now.business


def _lapse(effect: Effect) -> Refuse | MarkUncertain:
    """Refuse or mark uncertain an open effect whose approval has lapsed, in every mode (S-20)."""
    step = Refuse if effect.settle_after == 0 else MarkUncertain
    return step("approval_lapsed", LAPSED)


def _window_open(effect: Effect, terms: Terms, now: Instant) -> bool:
    """Return True if a repeated call would arrive while the receiver remembers the first one (S-17)."""
    if not terms.remembered_for or (terms.purpose is Purpose.SETTLE and not can_undo(effect)):
        return False
    lands_by = now.real + terms.start_budget + terms.timeout + terms.settle_margin
    return lands_by < effect.first_at + terms.remembered_for


def _too_long(effect: Effect, terms: Terms, wait_ms: int, asked_ms: int) -> str:
    """Return why there is no time for a wait, or '' if there is."""
    left = terms.total_wait - effect.waited_ms
    if wait_ms <= left:
        return ""
    what = "the receiver asks to wait" if asked_ms == wait_ms else "the next wait is"
    return f"{what} {wait_ms / SECOND:g} s, and retry.total_wait leaves {left / SECOND:g} s"


def _exhausted(effect: Effect, code: str, detail: str, *, happened: bool) -> Refuse | MarkUncertain:
    attempts = f"{effect.attempts} attempt{'' if effect.attempts == 1 else 's'}"
    step = MarkUncertain if happened else Refuse
    return step(EXHAUSTED, f"after {attempts}: {code}: {detail}")

"""Structured values of a run row's JSON columns: reasons for waiting, timers, and attention."""

from collections.abc import Iterable
from json import JSONEncoder, loads
from typing import Final, Literal, NamedTuple

from outlast.core.commit import Mapping
from outlast.core.durations import APPROVAL_STALE_AFTER
from outlast.core.machine import CHOICES, Choice, Reason, if_ignored
from outlast.core.rows import Run

_encode: Final = JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

WaitingKind = Literal[
    "timer", "signal", "approval", "effect", "retry", "settle", "slot", "worker", "pause", "limit", "attention"
]


class WaitingFor(NamedTuple):
    """Wait of an unfinished run. Instants are business time in ms, 0 = no end; `then` says what follows."""

    kind: WaitingKind
    what: str
    who: str = ""
    since: int = 0
    until: int = 0
    then: str = ""


class Armed(NamedTuple):
    """Timer at which the run becomes due. `real`: the instant is real time, else business time (S-4)."""

    what: str
    at: int
    real: bool = False


class Attention(NamedTuple):
    """Reason why a person must decide. The reason determines the choices."""

    reason: Reason
    since: int
    detail: str = ""
    key: str = ""  # key of the effect, if the reason concerns one
    visit: int = 0  # visit of that effect
    trigger: str = ""  # name for alerts, if the reason has one
    seen: int = 0  # last message read when the person was asked; only later messages answer
    digest: str = ""  # contradiction: digest of the call that the recorded answer may serve

    def choices(self) -> tuple[Choice, ...]:
        """Return the choices of the reason that apply to this entry."""
        return tuple(c for c in CHOICES[self.reason] if c is not Choice.USE_RECORDED or self.digest)


def dump_waiting(waiting: Iterable[WaitingFor]) -> str:
    """Return the column `waiting_for`; '' for none."""
    items = [w._asdict() for w in waiting]
    return _encode(items) if items else ""


def waiting_of(run: Run) -> tuple[WaitingFor, ...]:
    """Return the waits of the run."""
    return tuple(WaitingFor(**item) for item in loads(run.waiting_for)) if run.waiting_for else ()


def dump_timers(timers: Iterable[Armed]) -> str:
    """Return the column `timers`; '' for none."""
    items = [[c.what, c.at, int(c.real)] for c in timers]
    return _encode(items) if items else ""


def timers_of(run: Run) -> tuple[Armed, ...]:
    """Return the timers of the run."""
    return tuple(Armed(what, at, bool(real)) for what, at, real in loads(run.timers)) if run.timers else ()


def due_of(timers: Iterable[Armed], mapping: Mapping) -> int | None:
    """Return the earliest timer as real time: the run's `due_at` (S-3)."""
    return min((c.at if c.real else mapping.real(c.at) for c in timers), default=None)


def rearmed(run: Run, mapping: Mapping) -> int | None:
    """Return `due_at` of an unowned, unfinished run after a change of the clock mapping (S-4)."""
    timers = timers_of(run)
    return due_of(timers, mapping) if timers else run.due_at


def dump_attention(items: Iterable[Attention]) -> str:
    """Return the column `attention`; '' for none."""
    plain = [{**a._asdict(), "reason": a.reason.value} for a in items]
    return _encode(plain) if plain else ""


def attention_of(run: Run) -> tuple[Attention, ...]:
    """Return the attention set of the run."""
    if not run.attention:
        return ()
    return tuple(Attention(**{**item, "reason": Reason(item["reason"])}) for item in loads(run.attention))


def stale_timer(reasons: Iterable[Attention]) -> tuple[Armed, ...]:
    """Return the timer that cancels a run seven days after the timeout of an undecided approval (S-21)."""
    timed_out = [a.since + APPROVAL_STALE_AFTER for a in reasons if a.reason is Reason.APPROVAL_TIMEOUT]
    return (Armed("approval_stale", min(timed_out)),) if timed_out else ()


def attention_for_people(run: Run) -> list[dict[str, object]]:
    """Return attention as CLI and HTTP show it: reason, since, detail, choices, and the effect of no answer."""
    return [
        {
            "reason": a.reason.value,
            "since": a.since,
            "detail": a.detail,
            "key": a.key,
            "trigger": a.trigger,
            "choices": [c.value for c in a.choices()],
            "if_ignored": if_ignored(a.reason),
        }
        for a in attention_of(run)
    ]

"""What a run row says in words: what it waits for, which clocks are armed, and why a person must look."""

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
    """What an unfinished run waits for: business instants in ms, 0 = no end; `then` says what happens at the end."""

    kind: WaitingKind
    what: str
    who: str = ""
    since: int = 0
    until: int = 0
    then: str = ""


class Armed(NamedTuple):
    """One armed clock: at `at` the run falls due. `real`: the instant is real time, not business time (S-4)."""

    what: str
    at: int
    real: bool = False


class Attention(NamedTuple):
    """One reason why a person must look, with its own clock; the choices follow from the reason."""

    reason: Reason
    since: int
    detail: str = ""
    key: str = ""  # of the effect, where the reason is one effect's
    visit: int = 0  # of that effect
    trigger: str = ""  # the name operators alarm on, where the source gives one
    seen: int = 0  # the mailbox as read when the person was called: only later messages can answer
    digest: str = ""  # contradiction: of the call that may be answered from what is recorded

    def choices(self) -> tuple[Choice, ...]:
        """What a person may answer: those of the reason, less what this entry has nothing to answer with."""
        return tuple(c for c in CHOICES[self.reason] if c is not Choice.USE_RECORDED or self.digest)


def dump_waiting(waiting: Iterable[WaitingFor]) -> str:
    """The column `waiting_for`; '' for nothing."""
    items = [w._asdict() for w in waiting]
    return _encode(items) if items else ""


def waiting_of(run: Run) -> tuple[WaitingFor, ...]:
    """What the run waits for."""
    return tuple(WaitingFor(**item) for item in loads(run.waiting_for)) if run.waiting_for else ()


def dump_timers(timers: Iterable[Armed]) -> str:
    """The column `clocks`; '' for none."""
    items = [[c.what, c.at, int(c.real)] for c in timers]
    return _encode(items) if items else ""


def timers_of(run: Run) -> tuple[Armed, ...]:
    """The clocks armed for the run."""
    return tuple(Armed(what, at, bool(real)) for what, at, real in loads(run.timers)) if run.timers else ()


def due_of(timers: Iterable[Armed], mapping: Mapping) -> int | None:
    """The one pure function from armed clocks to `due_at` (S-3): the earliest of them, in real time."""
    return min((c.at if c.real else mapping.real(c.at) for c in timers), default=None)


def rearmed(run: Run, mapping: Mapping) -> int | None:
    """The `due_at` of an unowned, unfinished run after the mapping of business time has changed (S-4)."""
    timers = timers_of(run)
    return due_of(timers, mapping) if timers else run.due_at


def dump_attention(items: Iterable[Attention]) -> str:
    """The column `attention`; '' when nothing is wrong."""
    plain = [{**a._asdict(), "reason": a.reason.value} for a in items]
    return _encode(plain) if plain else ""


def attention_of(run: Run) -> tuple[Attention, ...]:
    """Why a person must look; () when nobody must."""
    if not run.attention:
        return ()
    return tuple(Attention(**{**item, "reason": Reason(item["reason"])}) for item in loads(run.attention))


def stale_timer(reasons: Iterable[Attention]) -> tuple[Armed, ...]:
    """The clock of an approval that nobody decided: seven days after its timeout the run is cancelled (S-21)."""
    timed_out = [a.since + APPROVAL_STALE_AFTER for a in reasons if a.reason is Reason.APPROVAL_TIMEOUT]
    return (Armed("approval_stale", min(timed_out)),) if timed_out else ()


def attention_for_people(run: Run) -> list[dict[str, object]]:
    """The overlay as CLI and API show it: reason, since, detail, choices, and what happens if ignored."""
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

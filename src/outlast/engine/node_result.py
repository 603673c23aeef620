"""What a walk came to, taken from the context and never from what the body raised or returned afterwards (S-16)."""

from typing import Any, NamedTuple, TypeAlias

from outlast.core.overlay import Armed, Attention, WaitingFor
from outlast.core.route import EndCancelled


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

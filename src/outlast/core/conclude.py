"""Results of an execution of a node (S-16)."""

from typing import Any, NamedTuple, TypeAlias

from outlast.core.route import EndCancelled
from outlast.core.run_columns import Attention, Timer, WaitingFor


class Parked(NamedTuple):
    """One wait of the execution: the verb, the description for operators, and its timer (None: no end)."""

    verb: str
    waiting: WaitingFor
    armed: Timer | None


class Flagged(NamedTuple):
    """Result: a person must decide. `parked` are the other waits."""

    reasons: tuple[Attention, ...]
    parked: tuple[Parked, ...] = ()


class Resting(NamedTuple):
    """Result: the run waits, and no task of it can continue."""

    parked: tuple[Parked, ...]


class Again(NamedTuple):
    """Result: execute the node again at once, with fresh rows."""

    why: str


class HandBack(NamedTuple):
    """Result: release the run, because its time is too short for an attempt or the worker drains."""

    why: str


class Raised(NamedTuple):
    """Result: the body raised."""

    error: BaseException


class Returned(NamedTuple):
    """Result: the body returned the next node, or None for the end."""

    value: Any


NodeResult: TypeAlias = EndCancelled | Flagged | Resting | Again | HandBack | Raised | Returned

"""Decision how a run ends that has failed calls: from counts of its rows and declarations (OUT-4, OUT-7)."""

from collections.abc import Collection
from collections.abc import Mapping as Facts
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from outlast.core.effect_verbs import UNANSWERED
from outlast.core.keys import MODEL
from outlast.core.machine import EffectStatus
from outlast.core.rows.effect_rows import Effect, Memo
from outlast.core.visible import is_blank

RESERVED: Final = "outlast."  # beginning of the names of the package's own lookups
EffectKey = tuple[int, str]


WhenEmpty: TypeAlias = Literal["complete", "ask_person", "fail"]
"""Reaction if calls of a run failed and it emitted no result: it completes, a person is asked, or it fails."""


class EmptyEnd(NamedTuple):
    """Declarations of the author that decide the end of a run without a result whose calls failed (OUT-4)."""

    when_empty: WhenEmpty | None = None
    """None: not declared, so the rows decide."""
    emits: bool = False
    """True if the source of a node mentions `emit`."""
    returns: bool = False
    """True if the outcome is what a function returned; False if it is the state."""
    own_end: bool = False
    """True if the node has its own name among the ends of a graph that has several."""


class FailureLimit(NamedTuple):
    """Failed calls from which a run fails: both at least. `of`: names of activities and lookups; empty for all."""

    share: float
    at_least: int
    of: frozenset[str] = frozenset()


class CallRows(Protocol):
    """Rows of a run that tell what became of its calls."""

    @property
    def effects(self) -> Facts[EffectKey, Effect]: ...
    @property
    def memos(self) -> Facts[EffectKey, Memo]: ...
    @property
    def others(self) -> Facts[str, Effect]: ...
    @property
    def noted(self) -> Collection[str]: ...


def is_call(memo: Memo) -> bool:
    """True if a memo is of a call that left the process. The engine's own memos are not, but requests to models are."""
    return memo.activity == MODEL or not memo.activity.startswith(RESERVED)


class CallCount(NamedTuple):
    """Calls of a run by its rows: those that failed without a further attempt, and all that have an outcome."""

    failed: int
    settled: int


_SETTLED: Final = (EffectStatus.REFUSED, EffectStatus.DONE, EffectStatus.UNDONE)


def count_calls(rows: CallRows, of: Collection[str] = ()) -> CallCount:
    """Count the calls of a run from its rows (OUT-4). `of`: only calls of these activities and lookups."""
    failed = settled = 0
    effects = [*rows.effects.values()]
    if rows.others:
        effects += [effect for effect in rows.others.values() if effect.key in rows.noted]
    for effect in effects:
        if not effect.undoes and (not of or effect.activity in of):
            status = effect.status
            settled += status is EffectStatus.DONE or status in _SETTLED
            failed += status is EffectStatus.REFUSED
    for at, memo in rows.memos.items():
        if memo.digest and is_call(memo) and (not of or memo.activity in of):
            missed = bool(memo.error_text) and not _answered_later(rows.memos, at)
            failed += missed
            settled += missed or not memo.error_text
    return CallCount(failed, settled)


def failed_broadly(rows: CallRows, limit: FailureLimit) -> str:
    """Return why a run fails because of its failed calls; '' if they are below `limit` (OUT-7)."""
    failed, settled = count_calls(rows, limit.of)
    if failed < limit.at_least or failed / settled < limit.share:
        return ""
    of = f" of {', '.join(sorted(limit.of))}" if limit.of else ""
    at_least = f" and {limit.at_least:,} failed calls" if limit.at_least > 1 else ""
    reached = f"{failed} of its {settled} calls{of} failed ({_percent(failed / settled)})"
    return f"{reached}, and it fails from {_percent(limit.share)}{at_least} on"


def _percent(share: float) -> str:
    return f"{share * 100:.3g} %"


WAYS_OUT: Final = (
    '; if this end is right, give it a name with end="…" beside another end, return a value, '
    'or declare when_empty="complete"'
)
"""Continuation of the reason of a run that failed by default: declarations with which it completes."""


def when_nothing_was_produced(declared: EmptyEnd, outcome: Any, calls: CallCount) -> WhenEmpty:
    """Return how a run without a result ends: by its rows and by what its author declared (OUT-4, OUT-7).

    Without `when_empty`, an end with its own name and a returned value say that the author has told the ends apart.
    Otherwise a run fails if each of its calls failed. If some succeeded, it fails if its source mentions `emit`.
    """
    if not calls.failed:
        return "complete"
    if declared.when_empty is not None:
        return declared.when_empty
    if declared.own_end or (declared.returns and not is_nothing(outcome)):
        return "complete"
    return "fail" if declared.emits or calls.failed == calls.settled else "complete"


def is_nothing(outcome: Any) -> bool:
    """Return True for the JSON of None, of a text without a visible character, and of an empty collection."""
    if isinstance(outcome, str):
        return is_blank(outcome)
    return outcome is None or (isinstance(outcome, list | dict) and not outcome)


def _answered_later(memos: Facts[EffectKey, Memo], at: EffectKey) -> bool:
    """Return True for the trace of a failed lookup that a later call of its visit answered."""
    visit, key = at
    return key.startswith(UNANSWERED) and (visit, key.removeprefix(UNANSWERED)) in memos

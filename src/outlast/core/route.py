"""What a holder does with a run it has just claimed: a pure function of the run's rows."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from outlast.core.machine import Choice, EffectStatus, Reason
from outlast.core.overlay import Attention, attention_of
from outlast.core.rows import Effect, Note, Run


class Cancel(NamedTuple):
    """Somebody cancelled the run; open effects settle first."""

    by: str
    reason: str


class Rest(NamedTuple):
    """A person has not answered yet: give the run back as it was."""

    still: tuple[Attention, ...]


class WalkOn(NamedTuple):
    """Walk the node. `cleared`: attention was answered. `one_more`: a visit beyond max_visits was granted."""

    cleared: bool = False
    one_more: bool = False


Route: TypeAlias = Cancel | Rest | WalkOn
ANSWERED_BY_CONTINUE = frozenset(
    {
        Reason.EXCEPTION,
        Reason.WALK_DIVERGED,
        Reason.CONTRADICTION,
        Reason.POLICY_DENIED,
        Reason.RETRIES_EXHAUSTED,
        Reason.VISITS_EXHAUSTED,
        Reason.NODE_GONE,
        Reason.STRANDED_VERSION,
    }
)
"""Reasons that the operator's `continue` answers; the others have answers of their own."""


def cancel_of(notes: Iterable[Note]) -> Cancel | None:
    """The first cancel in the mailbox, if there is one."""
    for note in notes:
        if note.kind == "cancel":
            return Cancel(note.actor, json.loads(note.payload).get("reason", ""))
    return None


def route(run: Run, notes: Sequence[Note], effects: Mapping[tuple[int, str], Effect]) -> Route:
    """Cancel before all else; then rest while a person has not answered; else walk."""
    if (cancel := cancel_of(notes)) is not None:
        return cancel
    reasons = attention_of(run)
    still = tuple(a for a in reasons if not _answered(a, notes, effects))
    if still:
        return Rest(still)
    return WalkOn(cleared=bool(reasons), one_more=any(a.reason is Reason.VISITS_EXHAUSTED for a in reasons))


def _answered(a: Attention, notes: Sequence[Note], effects: Mapping[tuple[int, str], Effect]) -> bool:
    if a.reason is Reason.EFFECT_UNCERTAIN:
        effect = effects.get((a.visit, a.key))
        return effect is None or effect.status is not EffectStatus.UNCERTAIN
    return a.reason in ANSWERED_BY_CONTINUE and any(n.kind == Choice.CONTINUE and n.n > a.seen for n in notes)

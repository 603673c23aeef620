"""What a person may answer to each reason of a run's attention, as commands to copy."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from outlast.core.budget import APPROVAL_STALE_AFTER, HOUR, RUN_CEILING
from outlast.core.events import iso
from outlast.core.machine import CHOICES, Choice, Reason, if_ignored
from outlast.core.overlay import Attention, attention_of
from outlast.core.rows import Run

WHY = "--reason …"
MORE_TIME = f"{RUN_CEILING // HOUR}h"


class Way(NamedTuple):
    """One choice, and the command that makes it."""

    choice: Choice
    command: str


def ways_of(run: Run, entry: Attention) -> tuple[Way, ...]:
    """Every choice that this entry of the run's attention offers."""
    if entry.reason is Reason.EFFECT_UNCERTAIN:
        resolve = f"outlast effects resolve {run.run} {entry.key}"
        return (
            Way(Choice.HAPPENED, f"{resolve} --happened ID"),
            Way(Choice.DID_NOT_HAPPEN, f"{resolve} --did-not-happen"),
            Way(Choice.GIVE_UP, f"{resolve} --give-up {WHY}"),
        )
    named = _named(attention_of(run), entry)
    return tuple(
        Way(choice, f"outlast attention resolve {run.run} {choice.value}{named}{_more(choice)} {WHY}")
        for choice in CHOICES[entry.reason]
    )


def ways_of_all(reason: Reason) -> tuple[Way, ...]:
    """Every choice that can be made for all runs flagged so, at once."""
    alike = [choice for choice in CHOICES[reason] if choice is not Choice.HAPPENED]
    return tuple(
        Way(choice, f"outlast attention resolve --all {reason.value} {choice.value}{_more(choice)} {WHY}")
        for choice in alike
    )


def _named(entries: Sequence[Attention], entry: Attention) -> str:
    """What tells this entry from the others of its run."""
    if len(entries) < 2:
        return ""
    named = f" --reason-name {entry.reason.value}"
    alike = [a for a in entries if a.reason is entry.reason]
    return f"{named} --key {entry.key}" if len(alike) > 1 and entry.key else named


def _more(choice: Choice) -> str:
    return f" --by {MORE_TIME}" if choice is Choice.EXTEND else ""


def until_of(entry: Attention) -> int:
    """When something happens without an answer, in business time; 0 = never."""
    return entry.since + APPROVAL_STALE_AFTER if entry.reason is Reason.APPROVAL_TIMEOUT else 0


def entry_view(run: Run, entry: Attention) -> dict[str, Any]:
    """One reason of one run as plain data, with its choices as commands."""
    until = until_of(entry)
    return {
        "run": run.run,
        "workflow": run.workflow,
        "node": run.node,
        "visit": run.visit,
        "reason": entry.reason.value,
        "trigger": entry.trigger,
        "key": entry.key,
        "detail": entry.detail,
        "since": iso(entry.since),
        "until": iso(until) if until else None,
        "if_ignored": if_ignored(entry.reason),
        "choices": [{"choice": way.choice.value, "command": way.command} for way in ways_of(run, entry)],
    }

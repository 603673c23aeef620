"""A run that undoes what it did before it ends: how far it is, and how it is going to end (EFF-6, RUN-9)."""

from collections.abc import Sequence

from outlast.core.compensation import Ending, ending_of, owed, undone
from outlast.core.machine import RunStatus
from outlast.core.rows import Effect, Run
from outlast.runtime.seen import Part, Seen, first_line, start_one, taker_text
from outlast.runtime.words import is_held

_ENDS = {RunStatus.FAILED: "fails", RunStatus.CANCELLED: f"is {RunStatus.CANCELLED.value}"}


def undo_progress(run: Run, effects: Sequence[Effect]) -> str:
    """How much is undone, of what is to be undone."""
    gone = len(undone(run, effects))
    return f"{gone} of {gone + len(owed(run, effects))} undone"


def undoing_part(seen: Seen, inner: Part | None) -> Part:
    """`inner`: what it waits for meanwhile; None while a worker holds it, or once it is due."""
    run = seen.run
    ending = ending_of(run)
    assert ending is not None
    done = undo_progress(run, seen.effects)
    left = ", ".join(f"{e.activity} {e.key}" for e in owed(run, seen.effects))
    facts = (("ends", run_ends(ending)), ("undo", done), *((("to undo", left),) if left else ()))
    first = f"undoes what it did before it {_ENDS[ending.outcome]} ({first_line(ending.reason)}; {done})"
    if inner is not None:
        return inner._replace(clause=f"{first}; it {inner.clause}", facts=(*inner.facts, *facts))
    who = f"{run.owner} holds it" if is_held(run) else taker_text(seen)
    unblock = () if is_held(run) else start_one(seen)
    return Part(f"{first}; {who}", "the latest of what is left is undone first, then it ends", unblock, facts=facts)


def run_ends(ending: Ending) -> str:
    """How it ends, and who decided it."""
    return f"{ending.outcome.value}" + (f", decided by {ending.by}" if ending.by else "")

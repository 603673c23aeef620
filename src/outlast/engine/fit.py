"""Does what a run stands on still fit the code that is about to walk it? Pure; the deploy gate asks the same (RUN-8).

A walk finds most of what does not fit by itself: a node that is gone, a key under which other arguments stand, an open
effect that nobody asks for. What stands here are the edits it would pass over, and act twice or lose something.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from outlast.core.machine import Choice, Reason
from outlast.core.rows import Effect, Note, Run
from outlast.errors import InvalidInput, NotFound, NotStorable, OutlastError
from outlast.flow.activity import Activity
from outlast.flow.workflow import Workflow

NOTHING: Final[tuple[Any, ...]] = (None, "", [], {})
KEYS_LOOKED_AT: Final = 50  # effects of one visit whose keys are rendered anew; a template shows in the first of them


class Misfit(NamedTuple):
    """One thing that does not fit: a word for it, and a sentence."""

    kind: str
    why: str


def lost_fields(before: bytes, after: bytes) -> list[str]:
    """The paths that hold something in one JSON document and are not there in another."""
    return list(_lost(json.loads(before), json.loads(after), ""))


def _lost(old: Any, new: Any, path: str) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name, value in old.items():
            below = f"{path}.{name}" if path else name
            if name not in new:
                if value not in NOTHING:
                    yield below
            else:
                yield from _lost(value, new[name], below)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for i, (value, other) in enumerate(zip(old, new, strict=True)):
            yield from _lost(value, other, f"{path}[{i}]")


def state_misfits(workflow: Workflow[Any], snapshot: bytes) -> Iterator[Misfit]:
    """The state does not load, or what it holds has no place any more and would be gone with the next checkpoint."""
    codec = workflow.state_codec
    try:
        lost = lost_fields(snapshot, codec.dump(codec.load(snapshot)))
    except (NotStorable, OutlastError) as error:
        yield Misfit("state", f"{error.what}: {' · '.join(error.why.splitlines())}")
        return
    if lost:
        gone = ", ".join(lost)
        yield Misfit("state", f"its state holds {gone}, for which {workflow.state.__name__} has no field any more")


def effect_misfits(workflow: Workflow[Any], run: Run, effects: Iterable[Effect]) -> Iterator[Misfit]:
    """What this visit did, or begun, under a name or key by which the code would not find it again."""
    looked = 0
    for effect in effects:
        if effect.undoes or not effect.run or effect.visit not in (0, run.visit):
            continue
        activity = activity_of(workflow, effect.activity)
        if activity is None:
            if effect.visit or effect.settled_at == 0:
                name = f"{effect.activity} {effect.key}"
                yield Misfit("activity", f"{name} stands in its ledger, and the code has no activity {effect.activity}")
            continue
        looked += 1
        if looked <= KEYS_LOOKED_AT:
            yield from _key_misfits(activity, effect)


def _key_misfits(activity: Activity[Any, Any], effect: Effect) -> Iterator[Misfit]:
    name = f"{effect.activity} {effect.key}"
    was = "run" if effect.visit == 0 else "visit"
    if activity.scope != was:
        yield Misfit("key", f"{name} was made in scope {was}; its activity says {activity.scope} now")
        return
    try:
        key = activity.key_of(effect.args)
    except (NotStorable, InvalidInput) as error:
        yield Misfit("arguments", f"{name} was called with arguments that {activity.name} does not take: {error.why}")
        return
    if key != effect.key:
        yield Misfit("key", f"{name} would have the key {key} now, so it would be made a second time")


def activity_of(workflow: Workflow[Any], name: str) -> Activity[Any, Any] | None:
    """The activity of this name, if the code has one."""
    try:
        return workflow.activity(name)
    except (NotFound, OutlastError):
        return None


def accepted(run: Run, notes: Iterable[Note]) -> bool:
    """Did a person say, in this visit, that the run is to go on although something of it does not fit?"""
    for note in notes:
        if note.at < run.entered_at:
            continue
        if note.kind == Choice.CONTINUE:
            return True
        is_answer = note.kind == "answer" and note.name == Reason.CONTRADICTION
        if is_answer and json.loads(note.payload)["choice"] == Choice.CONTINUE:
            return True
    return False

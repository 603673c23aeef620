"""Does what a run stands on still fit the code that is about to walk it? Pure; the deploy gate asks the same (RUN-8).

A walk finds most of what does not fit by itself: a node that is gone, a key under which other arguments stand, an open
effect that nobody asks for. What stands here are the edits it would pass over, and act twice or lose something.
"""

import json
import traceback
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from outlast.core.limits import TEXT_CHARS_MAX
from outlast.core.machine import Choice, Reason
from outlast.core.route import ENGINE, WalkOn
from outlast.core.rows import Effect, Message, Run
from outlast.core.version_move import MoveRequest, MoveTarget, lane_of, move_request_of, version_in
from outlast.engine.user_code import as_exception, text_of
from outlast.errors import InvalidInput, NotFound, NotStorable, OutlastError
from outlast.flow.activity import Activity
from outlast.flow.migrations import Moved, migrated
from outlast.flow.workflow import Workflow
from outlast.telemetry.redact import redact, secrets_in

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
    if activity.once_per != was:
        yield Misfit("key", f"{name} was made once per {was}; its activity says once_per={activity.once_per} now")
        return
    try:
        key = activity.key_of(effect.args)
    except (NotStorable, InvalidInput) as error:
        yield Misfit("arguments", f"{name} was called with arguments that {activity.name} does not take: {error.why}")
        return
    if key != effect.key:
        yield Misfit("key", f"{name} would have the key {key} now, so it would be made a second time")


def misfits_of(
    workflow: Workflow[Any], run: Run, state: bytes, effects: Iterable[Effect], messages: Iterable[Message]
) -> str:
    """Return why a run does not fit the code, or '' if it does or a person let it continue nevertheless."""
    found = [*state_misfits(workflow, state), *effect_misfits(workflow, run, effects)]
    if not found or accepted(run, messages):
        return ""
    return "; ".join(misfit.why for misfit in found)[:TEXT_CHARS_MAX]


def activity_of(workflow: Workflow[Any], name: str) -> Activity[Any, Any] | None:
    """The activity of this name, if the code has one."""
    try:
        return workflow.activity(name)
    except (NotFound, OutlastError):
        return None


def accepted(run: Run, messages: Iterable[Message]) -> bool:
    """Did a person say, in this visit, that the run is to go on although something of it does not fit?"""
    for message in messages:
        if message.at < run.entered_at:
            continue
        if message.kind == Choice.CONTINUE:
            return True
        is_answer = message.kind == "answer" and message.name == Reason.CONTRADICTION
        if is_answer and json.loads(message.payload)["choice"] == Choice.CONTINUE:
            return True
    return False


Workflows = Mapping[str, Workflow[Any]]
TRACE_CHARS: Final = 3_000
BY_MIGRATION: Final = "by its declared migration"


class Stranded(NamedTuple):
    """No way leads to the code that is here; the run stays exactly as it is."""

    why: str


def newest_of(workflows: Workflows, name: str) -> Workflow[Any] | None:
    """The highest version of a workflow that is here."""
    alike = [workflow for workflow in workflows.values() if workflow.name == name]
    return max(alike, key=lambda workflow: workflow.version, default=None)


def reader_of(workflows: Workflows, run: Run) -> Workflow[Any]:
    """The code that speaks for a run: its own version, else the newest that is here. Raises KeyError for neither."""
    found = workflows.get(run.lane) or newest_of(workflows, run.workflow)
    if found is None:
        raise KeyError(run.lane)
    return found


def wanted(run: Run, messages: tuple[Message, ...], way: WalkOn) -> MoveRequest | None:
    """What a person wants of a run: a named version and node, or a plain `move_to_version` of a run that was stranded."""
    wish = move_request_of(run, messages)
    if wish is not None:
        return wish
    plain = [a for a in way.answers if a.attention.reason is Reason.STRANDED_VERSION and a.choice is Choice.MOVE]
    return MoveRequest(0, "", plain[-1].by, plain[-1].text) if plain else None


def next_place(
    workflows: Workflows, run: Run, snapshot: bytes, wish: MoveRequest | None
) -> MoveTarget | Stranded | None:
    """Where the run goes on: None = where it stands, with the code of its version. Pure but for the migrations."""
    here = workflows.get(run.lane)
    if wish is None:
        return None if here is not None else _by_itself(workflows, run, snapshot)
    target = workflows.get(lane_of(run.workflow, wish.version)) if wish.version else here
    target = target or (newest_of(workflows, run.workflow) if not wish.version else None)
    if target is None:
        served = ", ".join(sorted(w.lane for w in workflows.values() if w.name == run.workflow))
        return Stranded(f"{wish.by} wants version {wish.version}; the worker that took it has {served}")
    if target.lane == run.lane and wish.node in ("", run.node):
        return None
    return _place(target, run, snapshot, wish.node, wish.by, wish.reason, insist=False)


def _by_itself(workflows: Workflows, run: Run, snapshot: bytes) -> MoveTarget | Stranded:
    """The newest version that a declared migration leads to."""
    alike = sorted((w for w in workflows.values() if w.name == run.workflow), key=lambda w: -w.version)
    for target in alike:
        if target.migrations.path(version_in(run.lane), target.version) is not None:
            return _place(target, run, snapshot, "", ENGINE, BY_MIGRATION, insist=True)
    newest = alike[0]
    return Stranded(
        f"no worker serves {run.lane} any more; this one has version {newest.version}, and no migration leads there "
        f"→ keep a worker of version {version_in(run.lane)}, or {command(run, newest)}"
    )


def command(run: Run, target: Workflow[Any]) -> str:
    """What moves the run to a version, in words for people."""
    nodes = "|".join(target.nodes)
    at = "" if run.node in target.nodes else f" --at {nodes}"
    return f"outlast versions move {run.workflow} {target.version} {run.run}{at}"


def _place(
    target: Workflow[Any], run: Run, snapshot: bytes, node: str, by: str, reason: str, *, insist: bool
) -> MoveTarget | Stranded:
    """The run in `target`, or why it cannot be there. `insist`: only by declared migrations."""
    path = target.migrations.path(version_in(run.lane), target.version)
    assert path is not None or not insist
    try:
        moved = migrated(path or (), run.node, json.loads(run.visits), json.loads(snapshot))
        state = target.state_codec.dump(target.state_codec.admit(json.dumps(moved.state)))
    except BaseException as raised:  # an author's migration may raise anything; the state stays as it was
        error = as_exception(raised)
        known = secrets_in(snapshot)
        text = redact("".join(traceback.format_exception(error)), known)[-TRACE_CHARS:]
        first = redact(_first(error), known)
        return Stranded(f"its state does not become that of version {target.version}: {first}\n{text}")
    return _arrived(target, run, moved, state, node, by, reason, declared=bool(path))


def _arrived(
    target: Workflow[Any], run: Run, moved: Moved, state: bytes, node: str, by: str, reason: str, *, declared: bool
) -> MoveTarget | Stranded:
    lost = [] if declared else lost_fields(json.dumps(moved.state).encode(), state)
    if lost:
        what = f"version {target.version} has no place for {', '.join(lost)} of its state"
        return Stranded(f"{what} → declare @….migrate(from_={version_in(run.lane)})")
    place = target.nodes.get(node or moved.node)
    if place is None:
        missing = f"version {target.version} has no node {node or moved.node}"
        return Stranded(f"{missing} → {command(run, target)}, or say renamed={{…}} in the migration")
    return MoveTarget(target.lane, place.name, place.status or "", moved.visits, state, by, reason)


def _first(error: Exception) -> str:
    return text_of(error).partition("\n")[0]

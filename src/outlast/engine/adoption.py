"""How a holder brings its run to the code it has: by declared migrations, or where a person said (S-22, RUN-8)."""

import json
import traceback
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from outlast.core.adoption import Adopted, Wish, lane_of, version_in, wish_of
from outlast.core.machine import Choice, Reason
from outlast.core.route import ENGINE, WalkOn
from outlast.core.rows import Note, Run
from outlast.engine.fit import lost_fields
from outlast.engine.user_code import as_exception, text_of
from outlast.flow.migrations import Moved, migrated
from outlast.flow.workflow import Workflow
from outlast.telemetry.redact import redact, secrets_in

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


def wanted(run: Run, notes: tuple[Note, ...], way: WalkOn) -> Wish | None:
    """What a person wants of a run: a named version and node, or a plain `adopt` of a run that was stranded."""
    wish = wish_of(run, notes)
    if wish is not None:
        return wish
    plain = [a for a in way.answers if a.attention.reason is Reason.STRANDED_VERSION and a.choice is Choice.ADOPT]
    return Wish(0, "", plain[-1].by, plain[-1].text) if plain else None


def next_place(workflows: Workflows, run: Run, snapshot: bytes, wish: Wish | None) -> Adopted | Stranded | None:
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


def _by_itself(workflows: Workflows, run: Run, snapshot: bytes) -> Adopted | Stranded:
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
    return f"outlast versions adopt {run.workflow} {target.version} {run.run}{at}"


def _place(
    target: Workflow[Any], run: Run, snapshot: bytes, node: str, by: str, reason: str, *, insist: bool
) -> Adopted | Stranded:
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
) -> Adopted | Stranded:
    lost = [] if declared else lost_fields(json.dumps(moved.state).encode(), state)
    if lost:
        what = f"version {target.version} has no place for {', '.join(lost)} of its state"
        return Stranded(f"{what} → declare @….migrate(from_={version_in(run.lane)})")
    place = target.nodes.get(node or moved.node)
    if place is None:
        missing = f"version {target.version} has no node {node or moved.node}"
        return Stranded(f"{missing} → {command(run, target)}, or say renamed={{…}} in the migration")
    return Adopted(target.lane, place.name, place.status or "", moved.visits, state, by, reason)


def _first(error: Exception) -> str:
    return text_of(error).partition("\n")[0]

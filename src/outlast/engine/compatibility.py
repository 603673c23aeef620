"""Compatibility of a run with loaded code, moves to another version, and unserved versions (S-22).

An execution finds most differences by itself: a missing node, a key with other arguments, an open effect that the node
does not ask for. The first checks here find edits that it would miss, and that would repeat an effect or lose data.
They are pure; `outlast check` uses them too (RUN-8).
"""

import json
import traceback
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from outlast.core.commit import Commit, Put, Wake, in_portions
from outlast.core.durations import Liveness
from outlast.core.lanes import lane_of, version_in
from outlast.core.limits import TEXT_CHARS_MAX
from outlast.core.machine import Choice, LeaseStatus, Reason
from outlast.core.paging import pages
from outlast.core.route import ENGINE, WalkOn
from outlast.core.rows.effect_rows import Effect
from outlast.core.rows.run_rows import RUN, Message, Run
from outlast.core.rows.store_rows import STORE, TOPOLOGY, WORKER, Topology, Worker
from outlast.core.version_move import MoveRequest, MoveTarget, move_request_of
from outlast.engine.user_code import as_exception, text_of
from outlast.errors import InvalidInput, NotFound, NotStorable, OutlastError, Rejected, Stale
from outlast.flow.activity import Activity
from outlast.flow.migrations import Moved, migrated
from outlast.flow.topology import digest_of, topology_of
from outlast.flow.workflow import Workflow
from outlast.store.port import Store
from outlast.store.queries import Census, NextDue
from outlast.telemetry.redact import redact_shown, secrets_in

NOTHING: Final[tuple[Any, ...]] = (None, "", [], {})
KEYS_LOOKED_AT: Final = 50  # effects of a visit whose keys are compared; a changed template shows in the first ones


class Misfit(NamedTuple):
    """One difference between a run and the code: its kind, and a sentence."""

    kind: str
    why: str


def lost_fields(before: bytes, after: bytes) -> list[str]:
    """Return the paths that have a value in one JSON document and are missing in the other."""
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
    """Yield a misfit if the state does not load, or the next checkpoint would drop a value of it."""
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
    """Yield effects of this visit that the code would not find again under their name or key."""
    looked = 0
    for effect in effects:
        if effect.undoes or effect.child_text or not effect.run or effect.visit not in (0, run.visit):
            continue
        activity = activity_of(workflow, effect.activity)
        if activity is None:
            if effect.visit or effect.settled_at == 0:
                name = f"{effect.activity} {effect.key}"
                yield Misfit("activity", f"{name} is in its ledger, and the code has no activity {effect.activity}")
            continue
        looked += 1
        if looked <= KEYS_LOOKED_AT:
            yield from _key_misfits(activity, effect)


def _key_misfits(activity: Activity[Any, Any], effect: Effect) -> Iterator[Misfit]:
    name = f"{effect.activity} {effect.key}"
    was = "run" if effect.visit == 0 else "visit"
    if activity.once_per != was and (was, activity.once_per) != ("visit", "run"):  # which finds keys of visits
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
    """Return why a run does not fit the code, or '' if it does or an operator accepted that."""
    found = [*state_misfits(workflow, state), *effect_misfits(workflow, run, effects)]
    if not found or accepted(run, messages):
        return ""
    return "; ".join(misfit.why for misfit in found)[:TEXT_CHARS_MAX]


def activity_of(workflow: Workflow[Any], name: str) -> Activity[Any, Any] | None:
    """Return the activity of this name, or None."""
    try:
        return workflow.activity(name)
    except (NotFound, OutlastError):
        return None


def accepted(run: Run, messages: Iterable[Message]) -> bool:
    """Return True if an operator let the run continue in this visit although it does not fit."""
    for message in messages:
        if message.at < run.entered_at:
            continue
        if message.kind == Choice.CONTINUE:
            return True
        is_answer = message.kind == "answer" and message.name == Reason.CONTRADICTION
        if is_answer and message.answer.choice is Choice.CONTINUE:
            return True
    return False


Workflows = Mapping[str, Workflow[Any]]
TRACE_CHARS: Final = 3_000
BY_MIGRATION: Final = "by its declared migration"


class Stranded(NamedTuple):
    """Reason why the loaded code cannot continue a run. The run does not change."""

    why: str


def newest_of(workflows: Workflows, name: str) -> Workflow[Any] | None:
    """Return the highest loaded version of a workflow, or None."""
    alike = [workflow for workflow in workflows.values() if workflow.name == name]
    return max(alike, key=lambda workflow: workflow.version, default=None)


def reader_of(workflows: Workflows, run: Run) -> Workflow[Any]:
    """Return the workflow that reads a run: its version, else the newest loaded. Raises KeyError."""
    found = workflows.get(run.lane) or newest_of(workflows, run.workflow)
    if found is None:
        raise KeyError(run.lane)
    return found


def wanted(run: Run, messages: tuple[Message, ...], way: WalkOn) -> MoveRequest | None:
    """Return the version and node that an operator wants for a run, or None."""
    wish = move_request_of(run, messages)
    if wish is not None:
        return wish
    plain = [a for a in way.answers if a.attention.reason is Reason.STRANDED_VERSION and a.choice is Choice.MOVE]
    return MoveRequest(0, "", plain[-1].by, plain[-1].text) if plain else None


def next_place(
    workflows: Workflows, run: Run, snapshot: bytes, wish: MoveRequest | None
) -> MoveTarget | Stranded | None:
    """Return where the run continues: None if it stays at its node and version.

    Runs the author's migrations; otherwise pure.
    """
    here = workflows.get(run.lane)
    if wish is None:
        return None if here is not None else _by_itself(workflows, run, snapshot)
    target = workflows.get(lane_of(run.workflow, wish.version, run.scheduler)) if wish.version else here
    target = target or (newest_of(workflows, run.workflow) if not wish.version else None)
    if target is None:
        served = ", ".join(sorted(w.lane for w in workflows.values() if w.name == run.workflow))
        return Stranded(f"{wish.by} wants version {wish.version}; the worker that took it has {served}")
    if target.lane == run.lane and wish.node in ("", run.node):
        return None
    return _place(target, run, snapshot, wish.node, wish.by, wish.reason, insist=False)


def _by_itself(workflows: Workflows, run: Run, snapshot: bytes) -> MoveTarget | Stranded:
    """Move the run to the newest version that a declared migration reaches."""
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
    """Return the command that moves the run to a version."""
    nodes = "|".join(target.nodes)
    at = "" if run.node in target.nodes else f" --at {nodes}"
    return f"outlast versions move {run.workflow} {target.version} {run.run}{at}"


def _place(
    target: Workflow[Any], run: Run, snapshot: bytes, node: str, by: str, reason: str, *, insist: bool
) -> MoveTarget | Stranded:
    """Return the run in `target`, or why it cannot move there. `insist`: only by declared migrations."""
    path = target.migrations.path(version_in(run.lane), target.version)
    assert path is not None or not insist
    try:
        moved = migrated(path or (), run.node, run.visits, json.loads(snapshot))
        state = target.state_codec.dump(target.state_codec.admit(json.dumps(moved.state)))
    except BaseException as raised:  # because an author's migration may raise anything; the state does not change
        error = as_exception(raised)
        known = secrets_in(snapshot)
        text = redact_shown("".join(traceback.format_exception(error)), known)[-TRACE_CHARS:]
        first = redact_shown(_first(error), known)
        return Stranded(f"its state does not become that of version {target.version}: {first}\n{text}")
    arrived = _arrived(target, run, moved, state, node, by, reason, declared=bool(path))
    if isinstance(arrived, Stranded):
        return arrived
    dropped = {name for migration in path or () for name in migration.dropped}
    return arrived._replace(dropped=tuple(sorted(dropped)), elsewhere=arrived.node != moved.node)


def _arrived(
    target: Workflow[Any], run: Run, moved: Moved, state: bytes, node: str, by: str, reason: str, *, declared: bool
) -> MoveTarget | Stranded:
    lost = [] if declared else lost_fields(json.dumps(moved.state).encode(), state)
    if lost:
        what = f"version {target.version} has no field for {', '.join(lost)} of its state"
        return Stranded(f"{what} → declare @….migrate(from_={version_in(run.lane)})")
    place = target.nodes.get(node or moved.node)
    if place is None:
        missing = f"version {target.version} has no node {node or moved.node}"
        return Stranded(f"{missing} → {command(run, target)}, or say renamed={{…}} in the migration")
    return MoveTarget(target.lane, place.name, place.status_label, moved.visits, state, by, reason)


def _first(error: Exception) -> str:
    return text_of(error).partition("\n")[0]


PAGE: Final = 500  # runs in one read
LOOK_EVERY: Final = 12  # heartbeats between two reads of the published lanes
EARLIER_MAX: Final = 20  # earlier versions that are checked even if they published no topology


async def wake_stranded(store: Store, lanes: Collection[str]) -> None:
    """Make stranded runs of these lanes due. Reads each flagged run row once."""
    flagged = await store.query(Census(RUN, ("tenant", "lane"), filled="attention"))
    for tenant, lane in flagged:
        if lane not in lanes:
            continue
        async for page in pages(partial(store.page, RUN, tenant, {"lane": lane}, limit=PAGE)):
            for row in page.rows:
                if any(a.reason is Reason.STRANDED_VERSION for a in row.attention):
                    await _wake(store, row)


async def _wake(store: Store, run: Run) -> None:
    with suppress(Stale):  # another worker has moved the run
        await store.commit(Commit((Wake(run.tenant, run.run),), label=f"{run.run} wake"))


class UnservedVersions:
    """Unserved lanes of the workflows of one worker, if they have due runs."""

    def __init__(self, store: Store, workflows: Mapping[str, Workflow[Any]], live: Liveness, worker: str) -> None:
        self._store = store
        self._served = frozenset(workflows)
        self._names = {lane.rpartition("@")[0] for lane in workflows}  # with their scheduler
        self._known = {
            lane_of(workflow.name, version, workflow.scheduler)
            for workflow in workflows.values()
            for version in range(max(1, workflow.version - EARLIER_MAX), workflow.version)
        } | {lane_of(w.name, m.from_, w.scheduler) for w in workflows.values() for m in w.migrations.all}
        self._known -= self._served
        self._live = live
        self._worker = worker
        self._since = 0
        self._looks = 0
        self.lanes: tuple[str, ...] = ()

    async def refresh(self) -> None:
        """Find the unserved lanes, once a heartbeat. Raises StoreError."""
        now = (await self._store.now()).real
        self._since = self._since or now
        if self._looks % LOOK_EVERY == 0:
            await self._read_lanes()
        self._looks += 1
        if not self._known:
            return
        rows = await self._store.rows(WORKER, (STORE,))
        quiet = [lane for lane in sorted(self._known) if now >= self._unserved_from(lane, rows)]
        self.lanes = tuple([lane for lane in quiet if await self._store.query(NextDue((lane,))) is not None])

    async def _read_lanes(self) -> None:
        """Add the lanes of all published topologies."""
        for row in await self._store.rows(TOPOLOGY, (STORE,)):
            name = row.lane.rpartition("@")[0]
            if name in self._names and row.lane not in self._served and version_in(row.lane):
                self._known.add(row.lane)

    def _unserved_from(self, lane: str, workers: Sequence[Worker]) -> int:
        """Return the real time from which a lane counts as unserved."""
        last = self._since
        for row in workers:
            if row.id != self._worker and lane in row.lane_names:
                served = row.lease_until if row.status is LeaseStatus.ALIVE else row.renewed_at
                last = max(last, served + self._store.skew)
        return last + self._live.heartbeat_window


async def publish(store: Store, workflows: Iterable[Workflow[Any]]) -> None:
    """Write topologies that are missing or have changed. A changed one keeps the instant of the first.

    Reads one row for each lane. If two workers start at once, one of them writes. Raises StoreError.
    """
    now = await store.now()
    puts: list[Put] = []
    for workflow in workflows:
        body = topology_of(workflow)
        name = digest_of(body)
        there = await store.load(TOPOLOGY, (STORE, workflow.lane))
        if there is not None and there.digest == name:
            continue
        before, at = (there.version, there.at) if there is not None else (0, now.business)
        text = json.dumps(body, sort_keys=True, ensure_ascii=False)
        puts.append(Put(TOPOLOGY, Topology(STORE, workflow.lane, before + 1, name, text, at), before))
    for portion in in_portions(puts):
        try:
            await store.commit(Commit(portion, label="topologies"))
        except (Stale, Rejected):  # another worker was first, or it is too large: then `check` knows less of this lane
            continue

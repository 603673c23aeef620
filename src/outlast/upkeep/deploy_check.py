"""Deploy check: compares every unfinished run of a store with new code. Read-only (TEST-3, RUN-8).

It applies the engine's own rules for claiming a run (`engine/compatibility.py`), and looks ahead at recorded answers,
waits, approvals, undo and reconcile. `before` is the topology of the run's own version, if a worker has stored one;
checks that need it are skipped otherwise.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from outlast.core.compensation import NO_UNDO
from outlast.core.lanes import OWN, SCHEDULERS
from outlast.core.machine import ApprovalStatus, EffectStatus, RunStatus, WaitStatus
from outlast.core.rows.effect_rows import BY_ITSELF, Approval, Effect
from outlast.core.rows.row_kind import key_of
from outlast.core.rows.run_rows import RUN, Run, is_over
from outlast.core.rows.store_rows import STORE, TOPOLOGY, Topology
from outlast.engine.compatibility import Misfit, Stranded, activity_of, effect_misfits, next_place, state_misfits
from outlast.engine.former_digests import are_alike_but_for_order
from outlast.engine.snapshots import state_of_rows
from outlast.errors import Corrupt, InvalidInput, NotStorable
from outlast.flow.activity import Activity
from outlast.flow.calls import Plan
from outlast.flow.function_workflow import FunctionWorkflow
from outlast.flow.node import Node
from outlast.flow.reach import Reach, reach_of
from outlast.flow.topology import digest_of, topology_of
from outlast.flow.workflow import Workflow
from outlast.store.port import RunRows, Store, rows_of_each

Plain = dict[str, Any]


class Position(NamedTuple):
    """Place where the new code would continue the run: workflow, node, visits so far and state."""

    workflow: Workflow[Any]
    node: str
    visits: Mapping[str, int]
    state: bytes
    dropped: tuple[str, ...] = ()


def misfits(rows: RunRows, workflows: Mapping[str, Workflow[Any]], before: Plain | None, state: bytes) -> list[Misfit]:
    """Return why this code would not continue the run; [] if it would.

    `workflows`: by lane, at least one with the run's name; `state`: from its newest checkpoint.
    """
    run = rows.run
    if run.status is RunStatus.COMPENSATING:
        alike = [w for w in workflows.values() if w.name == run.workflow]
        workflow = workflows.get(run.lane) or max(alike, key=lambda w: w.version)
        return [misfit for effect in rows.effects for misfit in _undo(workflow, effect)]
    to = next_place(workflows, run, state, None)
    if isinstance(to, Stranded):
        return [Misfit("version", to.why)]
    if to is None:
        position = Position(workflows[run.lane], run.node, run.visits, state)
    else:
        position = Position(workflows[to.lane], to.node, to.visits, to.state, to.dropped)
    node = position.workflow.nodes.get(position.node)
    if node is None:
        return [Misfit("node", f'node "{position.node}", its present node, was removed')]
    return list(dict.fromkeys(_in_node(rows, position, node, before)))


def _in_node(rows: RunRows, position: Position, node: Node, before: Plain | None) -> Iterator[Misfit]:
    workflow, run = position.workflow, rows.run
    reach = reach_of(node.fn)
    was = (before or {}).get("nodes", {}).get(run.node)
    yield from state_misfits(workflow, position.state)
    yield from effect_misfits(workflow, run, rows.effects)
    for effect in rows.effects:
        if effect.visit in (0, run.visit) and not effect.undoes:
            yield from _answer(workflow, effect)
            yield from _open(workflow, effect, before)
            if effect.visit or effect.first_visit == run.visit or not effect.settled_at:
                yield from _gone(position, run, effect, reach, was)
        yield from _undo(workflow, effect)
    for memo in rows.memos:
        activity = activity_of(workflow, memo.activity) if memo.visit == run.visit and memo.activity else None
        if activity is not None and memo.response is not None:
            yield from _readable(activity, memo.response, memo.key)
    yield from _waits(rows, node, reach, was)
    for approval in rows.approvals:
        if approval.visit == run.visit and _counts(approval):
            yield from _approval(workflow, run, approval)
    yield from _ways(position, node, reach, before)


def _answer(workflow: Workflow[Any], effect: Effect) -> Iterator[Misfit]:
    activity = activity_of(workflow, effect.activity)
    if activity is not None and effect.status is EffectStatus.DONE and effect.response is not None:
        by = "" if effect.settled_by in BY_ITSELF else f" (stated by {effect.settled_by})"
        yield from _readable(activity, effect.response, effect.key + by)


def _readable(activity: Activity[Any, Any], response: bytes, key: str) -> Iterator[Misfit]:
    try:
        activity.response_codec.load(response)
    except NotStorable as error:
        why = " · ".join(error.why.splitlines())
        yield Misfit("answer", f"the recorded answer of {activity.name} {key} no longer fits its type: {why}")


def _gone(position: Position, run: Run, effect: Effect, reach: Reach, was: Plain | None) -> Iterator[Misfit]:
    """Check a call that the visit has recorded: the new code must ask for it again, or drop its activity (S-27)."""
    if was is None or effect.activity not in was["activities"] or effect.activity in reach.activities:
        return
    name = f'node "{run.node}" no longer calls {effect.activity} {effect.key}'
    if not effect.settled_at:
        yield Misfit("node", f"{name}, whose outcome is not known yet")
    elif effect.activity not in position.dropped:
        drop = f"@….migrate(from_=…, dropped=[{effect.activity!r}])"
        yield Misfit("node", f"{name}, which this visit has recorded: a person would be asked → declare {drop}")


def _open(workflow: Workflow[Any], effect: Effect, before: Plain | None) -> Iterator[Misfit]:
    """Check a call with an unknown outcome: the new code must be able to settle it."""
    activity = activity_of(workflow, effect.activity)
    if effect.settled_at or activity is None:
        return
    name = f"{effect.activity} {effect.key}"
    mode = (before or {}).get("activities", {}).get(effect.activity, {}).get("mode")
    if effect.status is EffectStatus.INTENDED and mode == "reconcile" and activity.mode != "reconcile":
        yield Misfit("reconcile", f"{name} is open, and its activity can no longer ask the receiver")


def _undo(workflow: Workflow[Any], effect: Effect) -> Iterator[Misfit]:
    """Check an effect with an undo: the new code must have that undo until the run ends."""
    if effect.status is not EffectStatus.DONE or not effect.undo or effect.undo.startswith(NO_UNDO) or effect.undoes:
        return
    if effect.child_text:  # its undo is a call of this workflow, or a run of another one
        plan = effect.child.undo
        lost = plan is not None and not plan.is_run and activity_of(workflow, plan.activity) is None
    else:
        activity = activity_of(workflow, effect.activity)
        lost = activity is None or activity.undo_fn is None
    if lost:
        yield Misfit("undo", f"{effect.activity} {effect.key} was done and could no longer be undone")


def _waits(rows: RunRows, node: Node, reach: Reach, was: Plain | None) -> Iterator[Misfit]:
    for wait in rows.waits:
        if wait.visit != rows.run.visit:
            continue
        kind = reach.waits.get(wait.name)
        if kind is not None and kind != wait.kind:
            yield Misfit("wait", f"its wait {wait.name} was a {wait.kind} and is a {kind} now")
        if kind is None and not reach.open and was is not None and wait.name in was["waits"]:
            does = "waits" if wait.status is WaitStatus.OPEN else "waited"
            yield Misfit("wait", f'it {does} for {wait.kind} {wait.name}, which node "{node.name}" no longer asks for')


def _counts(approval: Approval) -> bool:
    pending = approval.status is ApprovalStatus.PENDING
    return pending or (approval.status is ApprovalStatus.APPROVED and not approval.consumed_by)


def _approval(workflow: Workflow[Any], run: Run, approval: Approval) -> Iterator[Misfit]:
    """Check that an approval's exact calls are the same calls in the new code."""
    for plan in approval.plans:
        activity = activity_of(workflow, plan.activity)
        if activity is None:
            yield Misfit("approval", f"{approval.id} asks for {plan.activity}, which the code does not have")
            continue
        try:
            args, kwargs = activity.load_args(plan.arguments_text.encode())
            now: Plan[Any] = activity.plan(*args, **kwargs)
        except (NotStorable, InvalidInput) as error:
            why = " · ".join(error.why.splitlines())
            yield Misfit("approval", f"{approval.id} asks for a call that {activity.name} does not take: {why}")
            continue
        alike = activity.has_sets and are_alike_but_for_order(now.arguments, plan.arguments_text.encode())
        if now.approval_digest(run.tenant, run.run) != plan.digest and not (alike and now.key == plan.key):
            what = f"{plan.activity} {plan.key}, which would be {now.key} now"
            yield Misfit("approval", f"{approval.id} asks for {what}: it would be withdrawn and requested again")


def _ways(position: Position, node: Node, reach: Reach, before: Plain | None) -> Iterator[Misfit]:
    for target in () if isinstance(position.workflow, FunctionWorkflow) else reach.returns:
        if target not in node.exits.targets:
            yield Misfit("edge", f'node "{node.name}" returns "{target}", which it does not declare')
    old = (before or {}).get("nodes", {})
    for name in _reachable(position.workflow, node.name):
        most, entered = position.workflow.nodes[name].max_visits, position.visits.get(name, 0)
        if most is None or entered < most:
            continue
        earlier = old[name]["max_visits"] if name in old else None
        could = name in old and (earlier is None or entered < earlier)
        if could or entered > most:
            yield Misfit("max_visits", f'it has entered node "{name}" {entered} times, and max_visits is {most} now')


def _reachable(workflow: Workflow[Any], start: str) -> list[str]:
    """Return the nodes that the run may still enter from here."""
    found: dict[str, None] = {}
    queue = list(workflow.nodes[start].exits.targets)
    while queue:
        name = queue.pop()
        if name not in found:
            found[name] = None
            queue += workflow.nodes[name].exits.targets
    return list(found)


PAGE: Final = 500
AT_ONCE: Final = 50


class StrandedRun(NamedTuple):
    """One reason why a run would not continue."""

    tenant: str
    run: str
    workflow: str
    lane: str
    node: str
    kind: str  # version, node, state, key, activity, arguments, answer, wait, approval, walk, reconcile, undo, …
    why: str


class DeployReport(NamedTuple):
    """Number of checked runs, and the findings."""

    looked_at: int
    verdicts: tuple[StrandedRun, ...]
    elsewhere: dict[str, int]  # runs of workflows that this code lacks, by lane
    lanes: dict[str, str]  # each lane of this code: 'new', 'as served' or 'changed'
    schedulers: dict[str, int]  # number of checked runs by their scheduler

    @property
    def stranded(self) -> tuple[str, ...]:
        """Runs that would not continue."""
        return tuple(dict.fromkeys(verdict.run for verdict in self.verdicts))


async def check(store: Store, workflows: Sequence[Workflow[Any]]) -> DeployReport:
    """Check every unfinished run of all tenants against this code. Raises StoreError, DefinitionError."""
    lanes = {
        scheduler: {w.lane: w for w in [each.scheduled_by(scheduler) for each in workflows]} for scheduler in SCHEDULERS
    }
    names = {workflow.name for workflow in workflows}
    before = {row.lane: row for row in await store.rows(TOPOLOGY, (STORE,))}
    verdicts: list[StrandedRun] = []
    elsewhere: Counter[str] = Counter()
    checked: Counter[str] = Counter()
    after: tuple[str | int, ...] = ()
    while True:
        page = await store.rows(RUN, (), after=after, limit=PAGE, listed=True)
        mine = [run for run in page if not is_over(run) and run.workflow in names]
        elsewhere.update(run.lane for run in page if not is_over(run) and run.workflow not in names)
        checked.update(run.scheduler for run in mine)
        for i in range(0, len(mine), AT_ONCE):
            keys = [(run.tenant, run.run) for run in mine[i : i + AT_ONCE]]
            for run, rows in zip(mine[i : i + AT_ONCE], await rows_of_each(store, keys), strict=True):
                if isinstance(rows, Corrupt):
                    lane = (run.tenant, run.run, run.workflow, run.lane, run.node)
                    verdicts.append(StrandedRun(*lane, "rows", rows.what))
                elif rows is not None and not is_over(rows.run):
                    verdicts += await _verdicts(store, rows, lanes[rows.run.scheduler], before.get(rows.run.lane))
        if len(page) < PAGE:
            lanes_found = _compared(workflows, before)
            return DeployReport(checked.total(), tuple(verdicts), dict(elsewhere), lanes_found, dict(checked))
        after = key_of(RUN, page[-1])


async def _verdicts(
    store: Store, rows: RunRows, lanes: dict[str, Workflow[Any]], before: Topology | None
) -> list[StrandedRun]:
    run = rows.run
    try:
        state = await state_of_rows(store, rows)
    except Corrupt as error:
        return [StrandedRun(run.tenant, run.run, run.workflow, run.lane, run.node, "state", error.what)]
    found = misfits(rows, lanes, before.structure() if before is not None else None, state)
    return [StrandedRun(run.tenant, run.run, run.workflow, run.lane, run.node, m.kind, m.why) for m in found]


def _compared(workflows: Sequence[Workflow[Any]], before: dict[str, Topology]) -> dict[str, str]:
    reasons: dict[str, str] = {}
    for workflow in (each.scheduled_by(scheduler) for each in workflows for scheduler in SCHEDULERS):
        row = before.get(workflow.lane)
        if row is None and workflow.scheduler != OWN:
            continue  # no worker of that engine has served this version
        same = row is not None and row.digest == digest_of(topology_of(workflow))
        reasons[workflow.lane] = "as served" if same else "changed" if row is not None else "new"
    return reasons

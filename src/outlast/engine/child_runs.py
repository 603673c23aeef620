"""Child runs of a node: started once per key, waited for, sent signals, and asked to end (S-30).

`core/children.py` has the commits, and says why a crash between two of them loses and repeats nothing. No call here is
uncertain: a start is a commit of the parent's own store.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel

from outlast.core import children
from outlast.core.children import ChildCall, ParentRows
from outlast.core.codec import canonical
from outlast.core.commit import Commit, Instant, Put
from outlast.core.compensation import NO_UNDO
from outlast.core.conclude import Parked
from outlast.core.divergence import SIGNAL
from outlast.core.effect_steps import Purpose
from outlast.core.failed_calls import EffectKey
from outlast.core.forks import memo_of_asks
from outlast.core.keys import check_key, check_name, is_engine_key, undo_key
from outlast.core.lanes import check_scheduler
from outlast.core.limits import CHILDREN_MAX, DEPTH_MAX, DESCENDANTS_MAX, MESSAGE_BYTES_MAX
from outlast.core.machine import EffectStatus
from outlast.core.mailbox import is_reopened
from outlast.core.rows.effect_columns import NO_CHILD, NO_ERROR, ChildTerms, ChildUndo
from outlast.core.rows.effect_rows import EFFECT, MEMO, Effect
from outlast.core.rows.run_rows import RUN, TOKEN, Run, Token, is_over
from outlast.core.run_transition import LogEntry
from outlast.core.start_details import NO_DETAILS
from outlast.engine.admission import limits_of
from outlast.engine.commands import new_run, start_token, withdraw_late
from outlast.engine.fork_calls import answer_of_child, answered_by_child, copied_answer, copied_children
from outlast.engine.held_run import HeldRun
from outlast.engine.node_execution import NodeExecution, Unresolved
from outlast.engine.node_result import paused_by
from outlast.engine.permission import UNASKED, Permission, permitted
from outlast.engine.run_session import RunSession
from outlast.engine.start_budget import check_room_left, start_room
from outlast.errors import Conflict, DefinitionError, InvalidInput, LimitExceeded, NotFound
from outlast.flow.activity import Activity, BoundCall
from outlast.flow.calls import Plan
from outlast.flow.child_tool import ChildTool, child_digest, child_key
from outlast.flow.function_workflow import FunctionWorkflow
from outlast.flow.outcomes import ChildFailed
from outlast.flow.registry import WORKFLOWS
from outlast.flow.workflow import Workflow, encoded_input
from outlast.store.port import Store
from outlast.store.queries import RunsBelow

OPTIONS = 'ctx.run(research, research.arguments("tin"), key="tin", no_undo="it only reads")'
START = 'start it first, under this key: await ctx.start(research, research.arguments("tin"), key="tin")'


class ChildOptions(NamedTuple):
    """Options of a child, beside its workflow and its input."""

    key: str = ""
    once_per: Literal["visit", "run"] = "visit"
    parent_close: Literal["cancel", "abandon"] = "cancel"
    undo: Plan[Any] | BaseModel | None = None
    no_undo: str = ""
    scheduler: str = ""


class ChildWait:
    """A child that a node execution waits for: one that it asks for, or that an earlier start has named."""

    def __init__(
        self,
        execution: NodeExecution,
        ident: EffectKey,
        asked: "AskedChild | None" = None,
        workflow: Workflow[Any, Any, Any] | None = None,
    ) -> None:
        self.execution = execution
        self.ident = ident
        self.asked = asked
        self.workflow = workflow if asked is None else asked.workflow

    @property
    def name(self) -> str:
        """Return the identity of the wait in its visit."""
        return f"{self.ident[0]}:{self.ident[1]}"

    @property
    def is_owned(self) -> bool:
        """True if the child was started to be waited for here, so it ends when another wait of the set ends first."""
        return self.asked is not None

    def row(self) -> Effect | None:
        """Return the row of the child; None before its start."""
        row = self.execution.session.held.effects.get(self.ident)
        return None if row is not None and is_reopened(row) else row

    async def held(self) -> None:
        """Wait until this execution has asked for all recorded children of the workflow, if this one is new (S-27).

        It is the body's own task that waits, so a body that can go no further is seen at once.
        """
        execution, asked = self.execution, self.asked
        if (expected := execution.expected) is None or asked is None or not expected.holds(asked.workflow.name):
            return
        held = execution.session.held
        if self.ident in held.effects or (held.fork is not None and copied_answer(held.fork, asked.call) is not None):
            return
        call = BoundCall((), {}, asked.call.key, asked.call.args, asked.call.digest)
        await expected.hold(asked.workflow.name, call)

    async def opened(self, *, within_call: bool = True) -> Effect:
        """Return the row of the child, which its first request starts, or the first one after a person's `retry`.

        `within_call`: a call of the execution asks, not the body.
        """
        if self.asked is not None:
            return await started(self.execution, self.asked, within_call=within_call)
        return await opened(self.execution, self.ident)

    async def answer(self) -> Effect:
        """Return the row of the child once it has ended. Raises Unresolved if the run parks."""
        row = await self.opened()
        if not row.settled_at:
            self.execution.park(parked(row))
            raise Unresolved
        return row


def parked(row: Effect) -> Parked:
    """Return what operators see of a run that waits for a child."""
    return Parked("park", children.waiting(row), None)


class AskedChild(NamedTuple):
    """A child that a node asks for. `permit`: policy and approvers permit its start as this call of a tool."""

    workflow: Workflow[Any, Any, Any]
    call: ChildCall
    permit: tuple[ChildTool, BoundCall] | None = None

    @property
    def ident(self) -> EffectKey:
        """Return visit and key of its row."""
        return self.call[:2]


def asked_child(
    execution: NodeExecution,
    found: Workflow[Any, Any, Any],
    given: Mapping[str, object] | BaseModel,
    options: ChildOptions,
) -> AskedChild:
    """Return the child that a node asks for. Raises InvalidInput, LimitExceeded."""
    if options.once_per not in ("visit", "run"):
        raise InvalidInput(
            f"once_per={options.once_per!r}", "a child is started once per visit or run", 'once_per="run"'
        )
    if options.parent_close not in ("cancel", "abandon"):
        raise InvalidInput(
            f"parent_close={options.parent_close!r}", "it is 'cancel' or 'abandon'", 'parent_close="abandon"'
        )
    if options.undo is not None and options.no_undo:
        raise InvalidInput(f"child {found.name} has undo= and no_undo=", "it has one of them", OPTIONS)
    if options.undo is not None and options.parent_close == "abandon":
        why = "its parent leaves an abandoned child alone, so it never undoes it"
        raise InvalidInput(
            f"child {found.name} has undo= and parent_close='abandon'", why, "no_undo='it goes on alone'"
        )
    if options.scheduler:
        found = found.scheduled_by(check_scheduler(options.scheduler))
    else:
        found = found.scheduled_by(execution.session.held.run.scheduler)
    data = encoded_input(found, given)
    beginning = found.begin(data)
    key = options.key or child_key(found, beginning)
    check_key(f"child {found.name}", key, 'key="tin"; left out or empty, it is made of the input')
    if is_engine_key(key):
        what = f"child {found.name} cannot have the key {key[:200]}"
        raise InvalidInput(what, "such keys are the engine's own", "give it a key= that begins with another word")
    visit = execution.session.held.run.visit if options.once_per == "visit" else 0
    of_input = child_digest(found, beginning)
    return AskedChild(found, ChildCall(visit, key, of_input, data, _undo_of(found, options), _terms(options)))


def proposed_child(execution: NodeExecution, tool: ChildTool, call: BoundCall) -> AskedChild:
    """Return the child that a call of a tool starts."""
    run = execution.session.held.run
    options = ChildOptions(no_undo=tool.no_undo or "")
    child = ChildCall(
        run.visit, call.key, call.digest, call.args_bytes, _undo_of(tool.workflow, options), _terms(options)
    )
    return AskedChild(tool.workflow.scheduled_by(run.scheduler), child, (tool, call))


def found_workflow(workflow: object) -> Workflow[Any, Any, Any]:
    """Return the workflow of a child. Raises InvalidInput for anything but a workflow or a name, NotFound."""
    if isinstance(workflow, str):
        return _loaded(workflow)
    if isinstance(workflow, Workflow):
        return workflow
    what, why = f"a child cannot be a run of {workflow!r}"[:200], "it is a run of a workflow, or of one by its name"
    if isinstance(workflow, Activity):
        raise InvalidInput(what, why, f"call the activity: ctx.do({workflow.name}, …)")
    raise InvalidInput(what, why, OPTIONS + "; a function becomes a workflow by @workflow")


def check_arguments_only(workflow: FunctionWorkflow[Any, Any], given: Mapping[str, object]) -> None:
    """Raise InvalidInput if options are given beside arguments of the function, by which it would be started."""
    if mixed := [name for name in ChildOptions._fields if name in given and not workflow.has_parameter(name)]:
        name, options = workflow.name, ", ".join(f"{each}=…" for each in mixed)
        what = f"child {name} has the option {mixed[0]} without an input"
        why = "arguments and options cannot be told apart, so beside options the arguments are made into one input"
        raise InvalidInput(what, why, f"ctx.run({name}, {name}.arguments(…), {options})")


def check_child_arguments(
    workflow: Workflow[Any, Any, Any] | str, inputs: Sequence[object], options: Mapping[str, object]
) -> None:
    """Raise InvalidInput unless a child has one input and known options."""
    if len(inputs) != 1:
        why, fix = "a run has one input", OPTIONS
        if isinstance(workflow, str):
            why += ", and a name takes it as a dict"
            fix = f'ctx.run("{workflow}", {{"topic": "tin"}}, key="tin")'
        raise InvalidInput(f"a child got {len(inputs)} inputs", why, fix)
    if unknown := sorted(options.keys() - set(ChildOptions._fields)):
        raise InvalidInput(f"a child has no option {unknown[0]}", f"it has {', '.join(ChildOptions._fields)}", OPTIONS)


def _loaded(name: str) -> Workflow[Any, Any, Any]:
    """Return the newest version of a workflow of this process. Raises NotFound, and DefinitionError for several."""
    named: list[Workflow[Any, Any, Any]] = [each for each in WORKFLOWS.all() if each.name == name]
    newest = max((each.version for each in named), default=0)
    found = [each for each in named if each.version == newest]
    if len(found) != 1:
        WORKFLOWS.find(name)  # raises
    return found[0]


def _asked_before(execution: NodeExecution, row: Effect) -> AskedChild:
    """Return a child as the row of its first start has it. Raises NotFound if its workflow is no longer loaded."""
    found = _loaded(row.activity).scheduled_by(execution.session.held.run.scheduler)
    terms = row.child._replace(stop="", detached=False)
    return AskedChild(found, ChildCall(row.visit, row.key, row.digest, row.args, row.undo, terms))


async def started(execution: NodeExecution, asked: AskedChild, *, within_call: bool) -> Effect:
    """Return the row of the child that the node asks for; start it if no execution has. Raises Conflict, Unresolved.

    In a fork, a child of the ancestor that has ended may answer (S-28). Its row is in no ledger of the fork.
    """
    row = _found(execution, asked)
    if row is not None:
        _log_start(execution, row)
        return row
    fork = execution.session.held.fork
    if fork is not None and asked.ident not in execution.session.held.effects:
        copied = await answer_of_child(execution, fork, asked.call)
        if copied is not None:
            return copied
    began: Effect = await execution.deduplicate(asked.ident, lambda: _start(execution, asked), within_call=within_call)
    _log_start(execution, began)
    return began


def _found(execution: NodeExecution, asked: AskedChild) -> Effect | None:
    """Return the row that an execution has written. Raises Conflict if it is another child or a call."""
    row = execution.session.held.effects.get(asked.ident)
    if row is None:
        return None
    _check_same(row, asked)
    return None if is_reopened(row) else row


def _check_same(row: Effect, asked: AskedChild) -> None:
    if row.activity != asked.workflow.name or row.digest != asked.call.digest or not row.child_text:
        what = f"key {row.key} is recorded for {row.activity}"
        if row.child_text:
            what += f" with the input {row.args.decode(errors='replace')[:200]}, as run {row.external_id}"
        raise Conflict(what, "the same key means the same child, so the input must be the same", "give it another key=")


async def _start(execution: NodeExecution, asked: AskedChild) -> Effect:
    if not execution.may_begin():
        raise Unresolved
    session = execution.session
    check_room(session.held.run, len(session.held.children))
    asked.workflow.activities  # noqa: B018 - checks the definition, once
    previous = session.held.effects.get(asked.ident)
    allowed = UNASKED if asked.permit is None else await _permission(execution, *asked.permit, previous)
    new = NewChild(execution, asked, await session.store.now())
    if (why := new.refused(await session.store.load(TOKEN, new.token_key))) is not None:
        raise why
    if execution.observed:
        execution.record_observed()
    limited = bool(await limits_of(session.store, session.held.run.tenant))
    if not asked.call.undoes:
        room = await start_room(execution)
        check_room_left(execution, room, proposed=asked.permit is not None and asked.permit[1].proposed)
    session.held.begin_starts(1)
    try:
        await take_places(session, 1)
        commit = new.commit(limited=limited)
        if asked.permit is not None:
            commit = children.permitted(commit, allowed.by, allowed.approval)
        await session.chain.land(commit)
    finally:
        session.held.begin_starts(-1)
    return session.held.effects[asked.ident]


class NewChild:
    """The first commit of a child, and the row of the store that only one start of its key may write."""

    def __init__(self, execution: NodeExecution, asked: AskedChild, now: Instant) -> None:
        run, workflow, call = execution.session.held.run, asked.workflow, asked.call
        self._execution, self._asked, self._now = execution, asked, now
        self._previous = execution.session.held.effects.get(asked.ident)
        self._child = children.child_id(run, call, self._previous.attempts + 1 if self._previous else 1)
        self._beginning = beginning = workflow.begin(call.args)
        key = start_token(workflow, beginning.key or self._child)
        self.token = Token(run.tenant, "", key, beginning.digest, self._child, now.business)
        self.token_key = self.token[: TOKEN.key]

    def refused(self, other: Token | None) -> Conflict | None:
        """Return why it cannot be started, because its key has started another run, the `other`; else None."""
        if other is None:
            return None
        name, key = self._asked.workflow.name, self._beginning.key
        why = f"{name} derives the key {key} from its input, and a key starts one run of a tenant"
        return Conflict(f"{name} was started before: {other.target}", why, "give the child another input")

    def commit(self, *, limited: bool) -> Commit:
        """Return the commit that starts it."""
        held, workflow, call = self._execution.session.held, self._asked.workflow, self._asked.call
        run, now, beginning = held.run, self._now, self._beginning
        details = NO_DETAILS._replace(
            correlation_id=run.correlation_id or run.run,
            trace_id=run.trace_id,
            objective=beginning.objective or run.objective,
        )
        state, actor, at = workflow.state_codec.canonical(beginning.state), run.requested_by, now.business
        new = new_run(workflow, workflow.start, state, token=self.token, actor=actor, details=details, now=at)
        asked_too = (*new.rows, *_asks_too(held, self._child, now.business))
        place = children.place_below(run, call, self._execution.own_limits)
        new = new._replace(place=place, rows=asked_too, attributes=beginning.attributes)
        ordinal = held.next_ordinal()
        return children.start_child(run, call, new, self._previous, ordinal=ordinal, now=now, limited=limited)


async def _permission(
    execution: NodeExecution, tool: ChildTool, call: BoundCall, previous: Effect | None
) -> Permission:
    """Return who permits the start of a child by a tool (S-20, GATE-6). Raises Refused, Misplaced, Unresolved."""
    session = execution.session
    pause = await execution.services.pauses.first(session.held.run.tenant, (f"activity/{tool.name}",))
    if pause is not None:
        execution.park(paused_by(pause, session.clock.now.real))
        raise Unresolved
    return await permitted(execution, Purpose.DO, tool, call, previous)


def _asks_too(held: HeldRun, child: str, at: int) -> tuple[Put, ...]:
    """Return the row by which a child asks a person for its writes, if the fork above it does (S-28)."""
    return () if held.asks is None else (Put(MEMO, memo_of_asks(held.run.tenant, child, held.asks, at), 0),)


def check_room(run: Run, living: int) -> None:
    """Raise LimitExceeded if a run with so many living children can start none."""
    if run.depth >= DEPTH_MAX:
        why = f"{run.depth} runs are above it, and each of them waits for the next; the limit is {DEPTH_MAX}"
        raise LimitExceeded(f"run {run.run} cannot start a child", why, "start it with a client instead")
    if living >= CHILDREN_MAX:
        why = f"{living:,} of its children have not ended; the limit is {CHILDREN_MAX:,}"
        raise LimitExceeded(f"run {run.run} cannot start a child", why, "wait for some of them before the next start")


async def take_places(session: RunSession, n: int) -> None:
    """Count `n` children among the runs of their tree. Raises LimitExceeded if the tree is full, StoreError.

    The runs are counted once per claim, by an index, so starters at the same time may exceed the limit by what each
    starts in one claim. A root that has no child yet counts nothing.
    """
    held, run = session.held, session.held.run
    root = run.root or run.run
    if held.below_root < 0:
        is_alone = not run.root and not held.has_children
        below = 0 if is_alone else await session.store.query(RunsBelow(run.tenant, root, DESCENDANTS_MAX))
        held.count_below_root(max(below, held.below_root))  # another start may have counted meanwhile
    if held.below_root + n > DESCENDANTS_MAX:
        why = f"{DESCENDANTS_MAX:,} runs are below its root {root}, with those that have ended and are not purged yet"
        raise LimitExceeded(f"run {run.run} cannot start a child", why, "start it with a client, as a tree of its own")
    held.count_below_root(held.below_root + n)


def _terms(options: ChildOptions) -> ChildTerms:
    return ChildTerms(options.parent_close, undo=None if options.undo is None else _planned_undo(options.undo))


def _planned_undo(undo: object) -> ChildUndo:
    """Return the call or run that undoes a child. Raises InvalidInput for what is no plan or input of one workflow."""
    if isinstance(undo, Plan):
        return ChildUndo(undo.activity, undo.arguments.decode(), undo.digest)
    if not isinstance(undo, BaseModel):
        what = f"undo= is {undo!r}"[:200]
        why = "it is a planned call of an activity, or the input of a workflow"
        raise InvalidInput(what, why, "undo=release.plan(room), or undo=cancel_room.arguments(room)")
    named: list[Workflow[Any, Any, Any]] = [w for w in WORKFLOWS.all() if (w.input or w.state) is type(undo)]
    if len({each.name for each in named}) != 1:
        what = f"undo= is a {type(undo).__name__}, which is the input of {len(named)} workflows"
        raise InvalidInput(what, "an input names the run that undoes the child", "undo=cancel_room.arguments(room)")
    found = _loaded(named[0].name)
    data = encoded_input(found, undo)
    return ChildUndo(found.name, data.decode(), child_digest(found, found.begin(data)), is_run=True)


def _undo_of(workflow: Workflow[Any, Any, Any], options: ChildOptions) -> str:
    """Return the column `undo` of a child. Raises InvalidInput without one, if its workflow writes something."""
    if options.undo is not None:
        return _planned_undo(options.undo).activity
    if options.no_undo:
        return NO_UNDO + options.no_undo
    if workflow.writes:
        what = f"child {workflow.name} has neither undo= nor no_undo="
        why = f"it may call {', '.join(workflow.writes[:3])}, and its parent may fail after that"
        raise InvalidInput(what, why, "give it undo=activity.plan(…), or no_undo='why nothing is to be undone'")
    return ""


def _log_start(execution: NodeExecution, row: Effect) -> None:
    """Add the start of a child to the history of its parent, once."""
    key = f"outlast/child/{row.visit}/{row.key}/{row.attempts}"
    text = f"started {row.activity} {row.key} as run {row.external_id}"
    execution.log_entries[key] = LogEntry(key, text, {"child": row.external_id, "workflow": row.activity})


def value_of(row: Effect, workflow: Workflow[Any, Any, Any] | None = None) -> Any:
    """Return the outcome of a child that has ended, of the type of its `workflow`. Raises ChildFailed.

    Without the workflow it is found by its name, or the outcome is plain JSON.
    """
    if row.status in (EffectStatus.DONE, EffectStatus.UNDONE):
        outcome = row.answer()
        try:
            return (workflow or _loaded(row.activity)).decode_outcome(outcome)
        except (NotFound, DefinitionError):
            return outcome
    error = row.error or NO_ERROR
    raise ChildFailed(
        row.activity, row.key, row.external_id, error.code, error.detail, (row.visit, row.key), *error.below
    )


# --- methods of a handle -----------------------------------------------------------------------------------
def child_of(execution: NodeExecution, key: str) -> Effect:
    """Return the row of a child that this run has started, the latest of this key. Raises NotFound.

    A fork has those that its ancestor had started. One that had not ended then has the id that it gets in the fork.
    """
    held = execution.session.held
    rows = [row for (_, at), row in held.effects.items() if at == key and row.child_text]
    if not rows and held.fork is not None:
        rows = copied_children(held.fork, held.run, key)
    if not rows:
        run = execution.session.held.run.run
        raise NotFound(f"run {run} has started no child {key}", "ctx.child names one that was started before", START)
    return max(rows, key=lambda row: row.visit)


async def opened(execution: NodeExecution, ident: EffectKey) -> Effect:
    """Return the row of a child that was started before, or start it again after a person's `retry`. Raises Unresolved.

    A fork starts its own child in place of one that its ancestor had started, and that had not ended.
    """
    held = execution.session.held
    row = held.effects.get(ident)
    if row is None:
        assert held.fork is not None
        row = next(each for each in copied_children(held.fork, held.run, ident[1]) if each.visit == ident[0])
        if row.settled_at:
            return answered_by_child(execution, row)
    elif not is_reopened(row):
        return row
    return await started(execution, _asked_before(execution, row), within_call=True)


async def stop(execution: NodeExecution, ident: EffectKey, why: str) -> None:
    """Ask a child to end, unless it has ended or was asked before. Raises Unresolved."""
    session = execution.session
    row = session.held.effects.get(ident) or await opened(execution, ident)
    if row.settled_at or row.child.stop:
        return
    if not execution.may_begin():
        raise Unresolved
    await session.chain.land(children.stop(session.held.run, row, why))
    await withdraw_late(session.store, row.tenant, row.external_id)  # its holder does so, too, when it ends


class Receiver(NamedTuple):
    """Run that gets a signal: a child by its row, or the parent."""

    run: str
    shown: str
    """Its name for people: the key of the child, or "parent"."""
    child: EffectKey | None = None


def child_receiver(row: Effect) -> Receiver:
    """Return a child as it gets signals."""
    return Receiver(row.external_id, row.key, (row.visit, row.key))


async def held_signal(execution: NodeExecution, to: Receiver, signal_id: str) -> None:
    """Wait until this execution has asked for all recorded signals, if this one is new (S-27)."""
    expected, memos = execution.expected, execution.session.held.memos
    if expected is not None and expected.holds(SIGNAL) and (0, children.signal_key(to.run, signal_id)) not in memos:
        await expected.hold(SIGNAL, BoundCall((), {}, f"{to.shown} {signal_id}", b"", ""))


async def send(execution: NodeExecution, to: Receiver, name: str, value: BaseModel, signal_id: str) -> None:
    """Send a signal to a child or the parent, once per id. Raises InvalidInput, LimitExceeded, Unresolved."""
    session = execution.session
    held, receiver = session.held, to.run
    if to.child is not None:
        row = held.effects.get(to.child) or await opened(execution, to.child)
        if to.child not in held.effects:  # it has ended before the fork began
            return
        receiver = row.external_id
    if (0, children.signal_key(receiver, signal_id)) in held.memos:
        return
    payload = canonical(value.model_dump(mode="json", by_alias=True))
    if len(payload) > MESSAGE_BYTES_MAX:
        why = f"it takes {len(payload):,} bytes, the limit is {MESSAGE_BYTES_MAX:,}"
        raise LimitExceeded(f"signal {name} is too large", why, "keep large values elsewhere and send their address")
    check_name("signal", name)
    if not execution.may_begin():
        raise Unresolved
    other = await session.store.load(RUN, (held.run.tenant, receiver))
    over = other is None or is_over(other)
    commit = children.send_signal(held.run, receiver, name, payload, signal_id, is_over=over, now=session.clock.now)
    await session.chain.land(commit)


async def parent_rows(store: Store, child: Run) -> ParentRows:
    """Return the rows of the parent that the end of a child changes. Raises StoreError."""
    visit, key = children.place_of(child)
    run = await store.load(RUN, (child.tenant, child.parent))
    call = await store.load(EFFECT, (child.tenant, child.parent, visit, key))
    if call is None or not call.undoes:
        return ParentRows(run, call)
    undone, _, of = call.undoes.partition(":")
    return ParentRows(run, call, await store.load(EFFECT, (child.tenant, child.parent, int(undone), of)))


async def undone_by_run(execution: NodeExecution, original: Effect, undo: ChildUndo) -> bool:
    """Start the run that undoes a completed child, or wait for its end. False if it has failed.

    Raises NotFound, LimitExceeded, Conflict if it cannot be started, Unresolved.
    """
    held, undoes = execution.session.held, f"{original.visit}:{original.key}"
    workflow = _loaded(undo.activity).scheduled_by(held.run.scheduler)
    key, args = undo_key(original.key), undo.arguments.encode()
    asked = AskedChild(workflow, ChildCall(original.visit, key, undo.digest, args, "", NO_CHILD, undoes))
    row = held.effects.get(asked.ident)
    if row is None or is_reopened(row):
        row = await execution.deduplicate(asked.ident, lambda: _start(execution, asked))
    if not row.settled_at:
        execution.park(parked(row))
        await execution.never()
    return row.status is EffectStatus.DONE


# --- the end of a parent ------------------------------------------------------------------------------------
async def end_children(execution: NodeExecution) -> None:
    """Ask the living children to end and wait until each has. Never returns while one lives."""
    session = execution.session
    why = f"{children.by_run(session.held.run)} ends"
    for row in children.awaited(session.held.children.values()):
        ident = (row.visit, row.key)
        # as a call, so that a commit that is refused is decided again
        await execution.deduplicate((row.visit, f"stop?{row.external_id}"), partial(stop, execution, ident, why))
    living = children.awaited(session.held.children.values())
    for row in living:
        execution.park(parked(row))
    if living:
        await execution.never()

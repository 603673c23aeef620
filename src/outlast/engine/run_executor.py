"""Executor of one claimed run: do what the run needs, and commit what follows.

It repeats this until the run is released or has ended. `core/route.py` decides what the run needs, `core/conclude.py`
what follows. Between them the executor makes the move: it executes the node, settles effects or reads a slot.

Theory of operation. Each move is decided from the rows that this holder has in memory. Other processes change the
same rows: people answer, workers take over, operators pause. Faults, and why none leaves a run between two states:

1. *The rows have changed since they were read.* A commit names versions, the claim and the last message read. The
   store refuses it (`ConditionFailed`). Nothing of the move has happened to the run; it is reloaded and decided
   again.
2. *A message of no concern arrives as the run parks.* Then only the park is made again (`pass_over`). Without this, a
   sender of many signals would make the node run again each time.
3. *The store is away, or an answer is lost.* `_reload` first lets the chain settle, because a record of an answer
   must not be lost. Then it reads the rows: they tell what has landed.
4. *The store will never accept a commit*, for example because of a value that is too large. The next execution would
   make it again, so a person is asked, and if that is rejected, too, in a few words of the engine.
5. *Another worker holds the run* (`RunLost`). The executor stops, and its late answers become evidence.
6. *The run kills its worker.* A verdict of a person to go on is durable before the node runs (`HandBack`), because
   the run may kill this worker, too.
"""

import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from outlast.core import effect_verbs, maps
from outlast.core.attention import answered, corrections, tripped
from outlast.core.attributes import changed_attributes
from outlast.core.budget import after_answers
from outlast.core.business_days import BusinessDays
from outlast.core.children import NO_PARENT, detachments, returning
from outlast.core.clock_port import Clock
from outlast.core.conclude import (
    Completing,
    Conclusion,
    Entering,
    Flagged,
    HandBack,
    HeldRows,
    Move,
    Raised,
    Relocating,
    Resting,
    Returned,
    StillFlagged,
    StoreReads,
    Then,
    Unwound,
    ceiling_passed,
    conclude,
    ended_by,
    still_flagged,
)
from outlast.core.divergence import continued_after
from outlast.core.durations import INLINE_WAIT_MAX
from outlast.core.kept_deadlines import ceiling_memo, kept_ceiling, kept_due
from outlast.core.machine import RULES, Choice, EffectStatus, Reason, RunStatus
from outlast.core.quarantine import is_poisoned
from outlast.core.recovery import contradiction
from outlast.core.route import WALK_ON, EndCancelled, EndFailed, Rest, Undo, WalkOn, route
from outlast.core.rows.effect_rows import Memo
from outlast.core.rows.run_columns import NOTHING_PURGED, Attention, Ending
from outlast.core.run_transition import LogEntry, write_log
from outlast.core.state.growing_list import KeptItems, dump_growing, load_growing
from outlast.core.state.snapshot_codec import WHOLE_BELOW, StateChunk
from outlast.core.terms import end_of
from outlast.engine import admission
from outlast.engine.budget_checks import answer_tree
from outlast.engine.child_runs import parent_rows
from outlast.engine.commit_chain import ConditionFailed, RunLost, StoreAway
from outlast.engine.compatibility import Stranded, command, effect_misfits, misfits_of, next_place, reader_of, wanted
from outlast.engine.expected_calls import expected_by
from outlast.engine.history_window import HistoryWindow
from outlast.engine.left_code import held_by
from outlast.engine.map_windows import kept_by_maps, move_all, open_maps
from outlast.engine.node_context import NodeContext
from outlast.engine.node_execution import NodeExecution, WorkerServices
from outlast.engine.node_result import (
    attention,
    exception_attention,
    paused_by,
    raised,
    with_forgotten,
    with_given_up,
    without_attempt,
)
from outlast.engine.results import count_results
from outlast.engine.run_end import left_open, unwind
from outlast.engine.run_session import RunSession
from outlast.engine.user_code import as_exception
from outlast.errors import Corrupt, InvalidInput, NotStorable, Rejected, StoreError, Unavailable, Uncertain
from outlast.flow.node import Node
from outlast.flow.workflow import Workflow
from outlast.store.batch import INBOX_SEQ

log = logging.getLogger("outlast.engine")


class Prepared(NamedTuple):
    """A node that may be executed now, and its state."""

    node: Node
    state: Any
    way: WalkOn


class SliceLimit:
    """End of a slice: after so many nodes, or once its time is over."""

    def __init__(
        self, clock: Clock, within_ms: int, nodes: int | None, wrong: str = "", note: LogEntry | None = None
    ) -> None:
        """`wrong`: why the slice may execute nothing. `note`: an entry for the run's history."""
        self.wrong = wrong
        self.note = note
        self._clock = clock
        self._until = clock.mono() + within_ms
        self._nodes = nodes

    def reached(self) -> bool:
        """Count a completed node. Return True if the run must be handed back before the next one."""
        if self._nodes is not None:
            self._nodes -= 1
        return self._nodes == 0 or self._clock.mono() >= self._until


class RunExecutor:
    """Executor of one run while this worker holds it."""

    def __init__(
        self,
        session: RunSession,
        workflows: Mapping[str, Workflow[Any]],
        services: WorkerServices,
        claim_ms: int,
        limit: SliceLimit | None = None,
    ) -> None:
        self._limit = limit  # None: until the run is released or has ended
        self.session = session
        self.execution: NodeExecution | None = None  # the latest one
        self._workflows = workflows
        self._workflow = reader_of(workflows, session.held.run)
        self._services = services
        self._claim_ms = claim_ms
        self._pending: list[LogEntry] = []  # log entries for the next move of the run row
        self._called: list[Attention] = []  # reasons to notify people of once that move has landed
        self._next: tuple[bytes, Any] | None = None  # the state that was written last, as loaded for the next node
        self._items: KeptItems | None = None  # of a large state that ends with a list of immutable items
        self._whole = False  # items of this run's states do not keep their bytes
        self._answered = -1  # last message read when the runs below were answered about the budget
        self._fits = False  # the run was compared with the code, once for each claim
        self._window: HistoryWindow | None = None  # of this claim, if the workflow has one
        self._wrong = limit.wrong if limit is not None else ""  # why the engine that asked must not execute the run
        # the rows of this claim must be checked before a node is executed (CKP-6)
        self._unchecked = session.held.run.status is RunStatus.RECOVERING or bool(self._wrong)
        if limit is not None and limit.note is not None:
            self._pending.append(limit.note)

    async def execute(self) -> None:
        """Execute the run until it is released, ended or lost. Never raises an error of the author's code."""
        held_by.set((self._services.lease, self.session.held.run.run))  # in the context of this task
        try:
            while await self._turn() is not Then.RELEASE:
                pass
        except RunLost:
            log.info("run %s is no longer held here", self.session.held.run.run)
            await self.session.abandon()
        except BaseException as error:  # an error of the engine or of an author's codec: an operator must decide
            await self._fault(as_exception(error))

    async def _turn(self) -> Then:
        """Make the next move of the run and land what follows."""
        rejected: Rejected | None = None
        try:
            move = await self._move()
            return await self._land(await self._execute(move) if isinstance(move, Prepared) else move)
        except Rejected as error:
            rejected = error
        except ConditionFailed:
            pass
        except (StoreAway, Unavailable, Uncertain):
            await self._services.clock.sleep(INLINE_WAIT_MAX)
        rejected = await self._reload() or rejected
        return Then.RELOAD if rejected is None else await self._flag_rejected(rejected)

    async def _flag_rejected(self, rejected: Rejected) -> Then:
        """Call a person about a commit that the store will never accept. The next execution would make it again.

        If the store rejects this request, too, the person gets one of a few words, whatever made it too large.
        """
        for move in (self._exception(rejected), self._in_few_words(rejected)):
            try:
                return await self._land(move)
            except ConditionFailed:
                await self._reload()
                return Then.RELOAD
            except (StoreAway, Unavailable, Uncertain):
                await self._services.clock.sleep(INLINE_WAIT_MAX)
                await self._reload()
                return Then.RELOAD
            except Rejected as error:
                rejected = error
                await self._reload()
        raise rejected

    async def _fault(self, error: Exception) -> None:
        log.exception("run %s: the engine failed", self.session.held.run.run)
        try:
            await self._reload()
            await self._land(self._in_few_words(error) if isinstance(error, Rejected) else self._exception(error))
        except (RunLost, ConditionFailed, StoreAway, Rejected):
            log.warning("run %s could not be flagged; it is released at the next heartbeat", self.session.held.run.run)

    async def _reload(self) -> Rejected | None:
        """Read the rows again as soon as the store answers. Returns the refusal of a submitted commit."""
        rejected: Rejected | None = None
        while True:
            try:
                await self.session.chain.settled()
                await self.session.reload()
                self._window = None
                self._pending, self._called, self._answered = [], [], -1  # they concern rows that have changed
                return rejected
            except Rejected as error:
                rejected = error
            except StoreError as error:
                log.warning("run %s: the store does not answer: %s", self.session.held.run.run, error.reason)
                await self._services.clock.sleep(INLINE_WAIT_MAX)

    # --- committing -----------------------------------------------------------------------------------
    async def _land(self, move: Move) -> Then:
        """Commit what follows a move, and do what follows the commit. No other method commits a move."""
        session = self.session
        reads: StoreReads | None = None
        while True:
            if isinstance(move, HandBack):
                # no later commit of this run carries those that linger, and the next holder reads what they wrote
                session.store.hasten()
                await session.chain.settled()
            end = conclude(self._rows(reads), move, session.clock.now)
            reads = None
            if end.then is Then.READ:
                reads = await self._read(move)
                continue
            if end.then is Then.UNWIND:
                assert end.ending is not None
                move = await self._unwind(end.ending)
                continue
            try:
                if end.then is Then.AGAIN:
                    assert end.commit is not None
                    await session.chain.land(end.commit)
                    continue
                await self._commit(end)
                if self._window is not None and end.then is Then.KEEP and isinstance(move, Entering):
                    await self._window.advanced()
            except ConditionFailed as moved:
                asked = self.execution.awaited_names() if self.execution is not None else ()
                if isinstance(move, Resting) and moved.reason == INBOX_SEQ and await session.pass_over(asked):
                    continue
                raise
            if end.then is Then.RELOAD or (end.then is Then.KEEP and session.held.has_new_messages):
                await self._reload()
            if end.then is not Then.KEEP or not isinstance(move, Entering):
                return end.then
            if self._services.lease.draining:
                move = HandBack("the worker drains")
            elif self._limit is not None and self._limit.reached():
                move = HandBack("its slice is over")
            else:
                return end.then

    async def _commit(self, end: Conclusion) -> None:
        session, commit = self.session, end.commit
        if commit is None:
            return
        if end.chunks:
            commit = await session.with_chunks(commit, end.chunks)
        if end.durable or self._called or self._services.lease.draining:
            await session.chain.land(commit)
            if called := (*self._called, *end.called):
                # After the row has them: a failure hides nothing (GATE-5).
                self._services.notify(session.held.run, called)
        else:
            session.chain.enter(commit)
        self._pending, self._called = [], []

    def _rows(self, reads: StoreReads | None) -> HeldRows:
        held = self.session.held
        return HeldRows(
            held.run,
            held.inbox_read,
            self.session.store.mapping(),
            held.unwritten(self._pending) if self._pending else (),
            held.effects,
            held.memos,
            held.approvals,
            held.last.snapshot or b"{}",
            self._workflow.slot_while_waiting,
            reads,
            held.others,
            held.children,
            held.noted,
            NOTHING_PURGED if self._window is None else self._window.floor.purged,
        )

    async def _read(self, move: Move) -> StoreReads:
        session, run = self.session, self.session.held.run
        parent = await parent_rows(session.store, run) if run.root else NO_PARENT
        reads = await admission.read_slots(session.store, run, returning(parent.run, run))
        results = await count_results(session) if isinstance(move, Completing) else 0
        return reads._replace(
            exhausted=without_attempt(session, self._workflow, self._services.terms.__getitem__),
            results=results,
            parent=parent,
        )

    # --- the route ----------------------------------------------------------------------------------------
    async def _move(self) -> "Move | Prepared":
        """Decide what the run needs, and do it unless that is to execute the node."""
        held, now = self.session.held, self.session.clock.now
        lane = held.run.lane
        if held.has_children:
            self._pending += held.unwritten(detachments(held.effects.values(), held.memos))
        if (passed := ceiling_passed(held.run, held.inbox_read, now)) is not None:
            run, event = tripped(held.run, passed)  # once; the run continues (GATE-4)
            held.amend(run)
            self._called.append(passed)
            self._pending.append(event)
        served = lane in self._workflows
        if served and self._workflow is not self._workflows[lane]:
            self._workflow, self._window = self._workflows[lane], None
        if self._workflow.window is not None and self._window is None:
            self._window = await HistoryWindow.open(self.session, self._workflow.window)
        way = route(held.run, held.messages, held.effects, now.business, served=served)
        if way is WALK_ON:
            return await self._prepare(way, served=served)
        corrected = held.unwritten(corrections(held.run, held.messages))
        if isinstance(way, EndCancelled | EndFailed):
            self._pending += corrected
            return ended_by(way)
        if way.answers:
            self._act_on(way)
        self._pending += corrected
        if not isinstance(way, Undo):
            await self._answer_tree()
        if isinstance(way, Rest):
            return await self._settle(way)
        if way.answers and any(a.attention.reason is Reason.POISONED for a in way.answers):
            return HandBack("an operator let it continue")  # durable first, because it may kill this worker too
        if isinstance(way, WalkOn):
            return await self._prepare(way, served=served)
        return await self._obstacle() or await self._unwind(way.ending)

    async def _answer_tree(self) -> None:
        """Answer the runs below that wait for the budget of this run. If some must wait, a person is asked, once."""
        held = self.session.held
        if held.run.root or not held.has_children or held.inbox_read == self._answered:
            return
        self._answered = held.inbox_read
        reason = await answer_tree(self.session)
        run, entry = after_answers(held.run, reason, held.inbox_read)
        if entry is not None:
            held.amend(run)
            self._pending.append(entry)
            if reason is not None:
                self._called.append(reason)

    def _act_on(self, way: WalkOn | Rest | Undo) -> None:
        """Apply the answers of people to the run row, which the next move writes."""
        session, now = self.session, self.session.clock.now
        if self._services.watch is not None:
            self._services.watch.answered(session.held.run, way.answers, now)
        run, event = answered(session.held.run, way.left, way.answers, now=now)
        session.held.amend(run)
        self._pending.append(event)

    async def _obstacle(self) -> Flagged | Resting | None:
        """Return what replaces the execution: quarantine, contradicting rows or a pause (S-5, S-23)."""
        session, run = self.session, self.session.held.run
        if is_poisoned(run):
            detail = f"{run.crash_count} workers died, one after the other, while each held this run and no other"
            return self._flagged(Reason.POISONED, detail)
        if self._unchecked:
            newest = await session.newest_event()
            if wrong := self._wrong or contradiction(run, session.held.last, newest):
                return self._flagged(Reason.CONTRADICTION, wrong)
            self._unchecked = False
        pause = await self._services.pauses.stopping(run)
        return Resting((paused_by(pause, session.clock.now.real),)) if pause is not None else None

    # --- executing ----------------------------------------------------------------------------------------
    async def _prepare(self, way: WalkOn, *, served: bool) -> "Move | Prepared":
        """Return the node to execute, unless the run must move, wait or be flagged first."""
        session = self.session
        if (state := session.state_in_memory()) is None:
            try:
                state = await session.state()
            except Corrupt as error:  # a run that is to end does not read its state
                return self._flagged(Reason.CONTRADICTION, error.what)
        if not served or session.held.messages or way.answers:
            to = next_place(
                self._workflows, session.held.run, state, wanted(session.held.run, session.held.messages, way)
            )
            if isinstance(to, Stranded):
                return self._flagged(Reason.STRANDED_VERSION, to.why)
            if to is not None:
                self._items, self._whole = None, False
                snapshot, chunks = await session.snapshot_of(to.state)
                return Relocating(to._replace(state=snapshot), chunks)
        if session.held.has_children and served and not way.answers:
            resting = await self._move_maps()
            if resting is not None:
                return resting
        run, workflow = session.held.run, self._workflow
        keeps = workflow.slot_while_waiting and not session.held.has_children
        waits = run.queue or not (run.slots or keeps)
        if waits and (place := await admission.admit(session.store, run, keeps=keeps)) is not None:
            return place
        node = workflow.nodes.get(run.node)
        if node is None:
            gone = f"{workflow.title} has no node {run.node} any more → {command(run, workflow)}"
            return self._flagged(Reason.NODE_GONE, gone)
        stops = run.group_max or self._unchecked or self._services.pauses.up
        if stops and (stop := await self._obstacle()) is not None:
            return stop
        try:
            # each time: a model may differ from what its JSON loads as
            stored, self._next = self._next, None
            if stored is not None and stored[0] == state and workflow.growing is None:
                value = stored[1]  # it was loaded before its checkpoint was written
            else:
                value = self._load(state, stored)
        except NotStorable as error:
            return self._flagged(Reason.CONTRADICTION, f"{error.what}: {error.why}")
        if not self._fits:
            if misfits := misfits_of(workflow, run, state, session.held.effects.values(), session.held.messages):
                return self._flagged(Reason.CONTRADICTION, misfits)
            self._fits = True
        return Prepared(node, value, way)

    async def _move_maps(self) -> Move | None:
        """Move the windows of maps that the body waits for. None if one is settled, so that the body goes on."""
        session = self.session
        if not (memos := await open_maps(session)):
            return None
        if (stop := await self._obstacle()) is not None:
            return stop
        execution = self.execution = NodeExecution(session, self._workflow, self._services)
        result = await execution.run(lambda: move_all(execution, memos), f"the maps of {session.held.run.run}")
        if isinstance(result, Raised):
            return raised(session, result.error)
        return None if isinstance(result, Returned) else result

    def _load(self, state: bytes, stored: tuple[bytes, Any] | None) -> Any:
        """Return a state as its model. Items of the list that grows are loaded once for each claim."""
        workflow, kept = self._workflow, self._items
        if workflow.growing is not None:
            if kept is not None and kept.of is workflow.growing and kept.state == state:
                value, self._items = load_growing(workflow.state_codec, kept)
                self._whole = self._items is None
                return value
            self._items = KeptItems(workflow.growing) if len(state) >= WHOLE_BELOW and not self._whole else None
        if stored is not None and stored[0] == state:
            return stored[1]
        return workflow.state_codec.load(state)

    def _dump(self, state: Any) -> bytes:
        """Return a state as bytes. Items of the list that grows are dumped once for each claim."""
        if self._items is not None:
            self._items = dump_growing(self._workflow.state_codec, state, self._items)
            self._whole = self._items is None
        return self._items.state if self._items is not None else self._workflow.state_codec.dump(state)

    async def _execute(self, prepared: "Prepared") -> Move:
        """Execute the node, and return what its result means."""
        session, node = self.session, prepared.node
        execution = self.execution = NodeExecution(session, self._workflow, self._services)
        if session.held.loaded_visit == session.held.run.visit:  # in a later visit nothing is recorded yet
            execution.expected = expected_by(execution)
            execution.continued_after = continued_after(session.held.messages)
        context = NodeContext(execution, prepared.state, self._write_log)
        title = f'node "{node.name}" of {self._workflow.name}'
        result = await execution.run(
            lambda: context.execute(node.fn),
            title,
            lambda: left_open(execution, ending=False, sent_only=execution.has_diverged()),
            lambda body: context.at_rest(body, node.fn.__module__.partition(".")[0]),
        )
        self._pending += execution.log_entries.values()
        self._pending += context.log_entries.values()
        if session.held.notes:
            self._pending += session.held.take_notes()
        if isinstance(result, Resting) and (keys := maps.waited([each.waiting for each in result.parked])):
            memo = maps.rests_memo(session.held.run, keys, session.clock.now)
            if (memo.visit, memo.key) not in session.held.memos:
                session.chain.submit(effect_verbs.remember(session.held.run, memo))
        forgotten = context.conclude()
        if context.results is not None:
            await context.results.hand_in()
        if context.may_give_up and (given_up := context.given_up()) is not None:
            result = with_given_up(result, given_up)
        if forgotten is not None and isinstance(result, Returned | Raised):
            result = with_forgotten(result, forgotten)
        if isinstance(result, Returned):
            return await self._returned(prepared, context, result.value)
        return raised(session, result.error) if isinstance(result, Raised) else result

    async def _returned(self, prepared: "Prepared", context: NodeContext, target: Any) -> Move:
        session, workflow, (node, _, way) = self.session, self._workflow, prepared
        exits = node.exits
        ends = target is None and exits.ends
        if not ends and target not in exits.targets:
            return self._exception(TypeError(f"node {node.name} returned {target!r}, which it does not declare"))
        try:
            if ends or self._items is not None:
                state = self._dump(context.state)
            else:  # loaded before it counts, and for the next node
                self._next = workflow.state_codec.store(context.state)
                state = self._next[0]
            outcome = json.loads(workflow.outcome_of(context.state)) if ends else None
        except BaseException as error:  # raised by the author's state or outcome function: an operator must decide
            return self._exception(as_exception(error))
        results = context.results.counted() if context.results is not None else None
        found = workflow.attributes
        named = None if found is None else changed_attributes(session.held.run, found.of_state(context.state))
        if not ends:
            # At most one advance is in flight, so a crash loses the work of one node (CKP-2).
            await session.chain.entered()
        chunks: tuple[StateChunk, ...] = ()
        if len(state) >= WHOLE_BELOW:
            state, chunks = await session.snapshot_of(state)
        if ends:
            empty = workflow.empty_ends[node.name]
            if way.chose(Reason.RESULTS_MISSING, Choice.CONTINUE):
                empty = empty._replace(when_empty="complete")
            limit = workflow.fails_if.limit if workflow.fails_if is not None else None
            return Completing(state, outcome, node.end or "", results, empty, limit, chunks, named)
        to = workflow.nodes[target]
        most = to.max_visits
        if most is not None and way.chose(Reason.VISITS_EXHAUSTED, Choice.ONE_MORE):
            most = None
        try:
            ceiling_ms, kept = self._ceiling(to) if to.ceiling else (0, None)
        except InvalidInput as error:  # raised by the author's container of holidays
            return self._exception(error)
        return Entering(target, state, to.status_label, most, ceiling_ms, self._claim_ms, results, chunks, kept, named)

    def _ceiling(self, to: Node) -> tuple[int, Memo | None]:
        """Return the ceiling of a node, counted from the run's creation, and the row that keeps it if it is new."""
        assert to.ceiling is not None
        held = self.session.held
        run = held.run
        if isinstance(to.ceiling, BusinessDays) and (kept := kept_ceiling(held.memos.values(), to.name)) is not None:
            return kept_due(kept).ms - run.created_at, None
        ends, due = end_of(f"ceiling of {to.title}", to.ceiling, run.created_at)
        raises = due is not None and 0 < run.ceiling_at < ends
        now = self.session.clock.now.business
        memo = ceiling_memo((run.tenant, run.run), to.name, due, now) if due is not None and raises else None
        return ends - run.created_at, memo

    async def _settle(self, way: Rest) -> Move:
        """Settle open effects while a person is asked about another one, then wait on (S-16)."""
        session, run = self.session, self.session.held.run
        if (
            any(a.stops and not RULES[a.reason].settles for a in way.left)
            or self._workflow.lane != run.lane
            or not any(e.status is EffectStatus.INTENDED for e in session.held.open_effects())
            or any(effect_misfits(self._workflow, run, session.held.effects.values()))
        ):
            return StillFlagged(way.left)
        if (obstacle := await self._obstacle()) is not None:
            return still_flagged(way.left, obstacle)
        execution = self.execution = NodeExecution(session, self._workflow, self._services, settling=True)
        ends, title = bool(run.ending), f"the open effects of {run.run}"
        sent_only = any(a.reason is Reason.NODE_DIVERGED for a in way.left)
        result = await execution.run(_nothing, title, lambda: left_open(execution, ending=ends, sent_only=sent_only))
        if isinstance(result, Returned | Resting | Flagged):
            return still_flagged(way.left, result)
        return raised(session, result.error) if isinstance(result, Raised) else result

    async def _unwind(self, ending: Ending) -> Move:
        """Settle open effects and undo what must be undone before the run ends."""
        execution = self.execution = NodeExecution(self.session, self._workflow, self._services)
        result = await execution.run(lambda: unwind(execution), f"the end of {self.session.held.run.run}")
        if isinstance(result, Returned):
            held = self.session.held
            return Unwound(ending, await kept_by_maps(self.session) if held.has_children else ())
        return self._exception(result.error) if isinstance(result, Raised) else result

    def _write_log(self, log_entries: Iterable[LogEntry]) -> None:
        """Write the author's new entries while the node goes on, without waiting for the commit.

        An entry of the engine explains a change of the run row that its next move writes. Then all entries wait for it.
        """
        if not self._pending and (new := self.session.held.unwritten(log_entries)):
            self.session.chain.submit(write_log(self.session.held.run, new, now=self.session.clock.now))

    # --- requests to people -----------------------------------------------------------------------------
    def _flagged(self, reason: Reason, detail: str) -> Flagged:
        return Flagged((attention(self.session, reason, detail),))

    def _exception(self, error: BaseException) -> Flagged:
        return Flagged((exception_attention(self.session, error),))

    def _in_few_words(self, error: Exception) -> Flagged:
        """Return the request to a person without a text of an author, a caller or a receiver."""
        return self._flagged(Reason.EXCEPTION, f"{type(error).__name__}: a commit of this run cannot be stored")


async def _nothing() -> None:
    pass

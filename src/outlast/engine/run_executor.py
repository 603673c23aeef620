"""Executor of one claimed run: decide the route, execute the node, commit the result.

It repeats this until the run is released or has ended.
"""

import json
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any

from outlast.core.attention import answered, flag, tripped, waiting_for
from outlast.core.commit import WRITES_MAX
from outlast.core.compensation import compensate, compensated, must_undo
from outlast.core.conclude import Again, Flagged, HandBack, NodeResult, Parked, Raised, Resting, Returned
from outlast.core.durations import INLINE_WAIT_MAX, SECOND
from outlast.core.effect_verbs import mark_uncertain
from outlast.core.limits import TEXT_CHARS_MAX
from outlast.core.machine import OVERLAY_ONLY, Choice, EffectStatus, Reason, RunStatus
from outlast.core.quarantine import is_poisoned
from outlast.core.recovery import contradiction
from outlast.core.route import ENGINE, Answer, EndCancelled, EndFailed, Rest, Undo, WalkOn, route
from outlast.core.rows import EVENT
from outlast.core.run_columns import Attention, Ending, Timer, WaitingFor, stale_timer
from outlast.core.run_transition import LogEntry, SlotChange, admit, queue, write_log
from outlast.core.verbs import advance, hand_back, park
from outlast.core.version_move import move_to_version
from outlast.engine import admission
from outlast.engine.compatibility import Stranded, command, effect_misfits, misfits_of, next_place, reader_of, wanted
from outlast.engine.compensation import end, left_open, unwind
from outlast.engine.context import NodeContext
from outlast.engine.node_execution import NodeExecution, WorkerServices
from outlast.engine.node_result import (
    attention,
    ceiling_passed,
    divergence,
    effect_waits,
    exception_attention,
    exhausted_in,
    paused_by,
    storable,
    with_forgotten,
    without_attempt,
)
from outlast.engine.pauses import TENANT
from outlast.engine.results import ResultBuffer, why_empty
from outlast.engine.run_session import ConditionFailed, RunLost, RunSession, StoreAway
from outlast.engine.user_code import as_exception
from outlast.errors import Corrupt, NotStorable, Rejected, StoreError, Unavailable, Uncertain
from outlast.flow.node import Node
from outlast.flow.outcomes import Cancel, Fail
from outlast.flow.workflow import Workflow

BESIDE = 10  # other rows of the commit that marks effects uncertain, without log entries


log = logging.getLogger("outlast.engine")


LogEntries = tuple[LogEntry, ...]


class RunExecutor:
    """Executor of one run while this worker holds it."""

    def __init__(
        self,
        session: RunSession,
        workflows: Mapping[str, Workflow[Any]],
        services: WorkerServices,
        budget_ms: int,
        draining: Callable[[], bool],
    ) -> None:
        self.session = session
        self._workflow = reader_of(workflows, session.run)
        self._services = services
        self._pending: list[LogEntry] = []  # log entries of the engine for the next move of the run row
        self._called: list[Attention] = []  # reasons to notify people of once that move has landed
        self._workflows = workflows
        self.execution: NodeExecution | None = None  # the latest one
        self._fits = False  # the run was compared with the code, once for each claim
        self._budget_ms = budget_ms
        self._draining = draining
        self._taken_over = session.run.status is RunStatus.RECOVERING  # and its rows are not checked yet (CKP-6)

    async def execute(self) -> None:
        """Execute the run until it is released, ended or lost. Never raises an error of the author's code."""
        try:
            while await self._step_or_reload():
                pass
        except RunLost:
            log.info("run %s is no longer held here", self.session.run.run)
            await self.session.abandon()
        except BaseException as error:  # an error of the engine or of an author's codec: an operator must decide
            await self._fault(as_exception(error))

    async def _fault(self, error: Exception) -> None:
        log.exception("run %s: the engine failed", self.session.run.run)
        try:
            await self._reload()
            await self._exception(error, ())
        except (RunLost, ConditionFailed, StoreAway, Rejected):
            log.warning("run %s could not be flagged; it is released at the next heartbeat", self.session.run.run)

    async def _step_or_reload(self) -> bool:
        """Take one step; return True if this worker keeps the run."""
        try:
            self._check_ceiling()
            return await self._step()
        except ConditionFailed:
            await self._reload()
            return True
        except (StoreAway, Unavailable, Uncertain):
            await self._services.clock.sleep(INLINE_WAIT_MAX)
            await self._reload()
            return True

    async def _reload(self) -> None:
        """Read the rows again as soon as the store answers."""
        while True:
            try:
                await self.session.settled()
                await self.session.reload()
                self._pending, self._called = [], []  # they concern rows that have changed
                return
            except StoreError as error:
                log.warning("run %s: the store does not answer: %s", self.session.run.run, error.reason)
                await self._services.clock.sleep(INLINE_WAIT_MAX)

    async def _step(self) -> bool:
        try:
            return await self._route()
        except Rejected as error:  # a value of the author's code cannot be stored: too large, or not text
            await self._reload()
            return await self._exception(error, ())

    async def _route(self) -> bool:
        session = self.session
        served = session.run.lane in self._workflows
        way = route(session.run, session.messages, session.effects, session.now.business, served=served)
        if isinstance(way, EndCancelled):
            reason = way.reason if way.by == ENGINE else f"cancelled by {way.by}: {way.reason}"
            return await self._end(Ending(RunStatus.CANCELLED, reason, way.by), self._new_log_entries(), inbox_seq=None)
        if isinstance(way, EndFailed):
            reason = f"failed by {way.by}: {way.reason}"
            return await self._end(Ending(RunStatus.FAILED, reason, way.by), self._new_log_entries(), inbox_seq=None)
        if way.answers:
            self._answered(way.answers)
            session.run, said = answered(session.run, way.left, way.answers, now=session.now)
            self._pending.append(said)
        if isinstance(way, Rest):
            return await self._settle_while_flagged(way)
        # durable before the node executes, because it may kill this worker too
        if any(a.attention.reason is Reason.POISONED for a in way.answers):
            return await self.give_back("an operator let it continue")
        if isinstance(way, Undo):
            stop = await self._obstacle()
            return await (stop or self._unwind(way.ending, self._new_log_entries()))
        try:
            state = await session.state()
        except Corrupt as error:  # a run that is to end does not read its state
            return await self._flag_for(Reason.CONTRADICTION, error.what)
        if (gone_over := await self._move_version(way, state)) is not None:
            return gone_over
        if not await self._is_admitted():
            return False
        node = self._workflow.nodes.get(session.run.node)
        if node is None:
            what = f"{self._workflow.title} has no node {session.run.node} any more"
            detail = f"{what} → {command(session.run, self._workflow)}"
            return await self._flag_for(Reason.NODE_GONE, detail)
        return await self._execute(node, way, state)

    async def _move_version(self, way: WalkOn, state: bytes) -> bool | None:
        """Move the run to a served version, or to the node an operator named (S-22).

        Returns None if it stays, else the result of the step.
        """
        session = self.session
        wish = wanted(session.run, session.messages, way)
        to = next_place(self._workflows, session.run, state, wish)
        if to is None:
            return None
        if isinstance(to, Stranded):
            return await self._flag_for(Reason.STRANDED_VERSION, to.why)
        snapshot, values = await session.snapshot_of(to.state)
        commit = move_to_version(
            session.run, to._replace(state=snapshot), now=session.now, log_entries=self._new_log_entries()
        )
        await session.land(await session.with_chunks(commit, values))
        self._pending = []
        self._notify()
        self._workflow = self._workflows[to.lane]
        if session.has_new_messages:
            await self._reload()
        return True

    def _answered(self, answers: Sequence[Answer]) -> None:
        watch, session = self._services.watch, self.session
        if watch is None:
            return
        for a in answers:
            reason, since = a.attention.reason.value, a.attention.since
            watch.waited(session.run, "attention", reason, since, session.now.business, {"choice": a.choice.value})

    def _check_ceiling(self) -> None:
        """Flag a run that has passed its total timeout, once; it continues (GATE-4)."""
        if (reason := ceiling_passed(self.session)) is not None:
            self.session.run, said = tripped(self.session.run, reason)
            self._called.append(reason)
            self._pending.append(said)

    # --- executing ---------------------------------------------------------------------------------
    async def _execute(self, node: Node, way: WalkOn, kept: bytes) -> bool:
        session = self.session
        execution = self.execution = NodeExecution(session, self._workflow, self._services)
        if (stop := await self._obstacle()) is not None:
            return await stop
        try:
            state = self._workflow.state_codec.load(kept)
        except NotStorable as error:
            detail = f"{error.what}: {error.why}"
            return await self._flag_for(Reason.CONTRADICTION, detail)
        if not self._fits and (
            misfits := misfits_of(self._workflow, session.run, kept, session.effects.values(), session.messages)
        ):
            return await self._flag_for(Reason.CONTRADICTION, misfits)
        self._fits = True
        context = NodeContext(execution, state, self._write_log)
        title = f'node "{node.name}" of {self._workflow.name}'
        result = await execution.run(lambda: context.run(node.fn), title, lambda: left_open(execution, ending=False))
        log_entries = self._new_log_entries([*execution.log_entries.values(), *context.log_entries.values()])
        return await self._conclude(execution, node, context, result, log_entries, way)

    async def _obstacle(self) -> Coroutine[Any, Any, bool] | None:
        """Return the step that replaces the execution: quarantine, contradicting rows or a pause (S-5, S-23)."""
        session = self.session
        run = session.run
        if is_poisoned(run):
            detail = f"{run.crash_count} workers died, one after the other, while each held this run and no other"
            return self._flag_for(Reason.POISONED, detail)
        if self._taken_over:
            newest = await session.store.load(EVENT, (run.tenant, run.run, run.seq))
            if wrong := contradiction(run, session.last, newest):
                return self._flag_for(Reason.CONTRADICTION, wrong)
            self._taken_over = False
        pause = await self._services.pauses.first(run.tenant, (f"workflow/{run.workflow}", TENANT))
        if pause is not None:
            return self._park(Resting((paused_by(pause, session.now.real),)), self._new_log_entries())
        return None

    async def _conclude(
        self,
        execution: NodeExecution,
        node: Node,
        context: NodeContext,
        result: NodeResult,
        log_entries: LogEntries,
        way: WalkOn,
    ) -> bool:
        forgotten = context.conclude()
        if context.results is not None:
            await context.results.hand_in()
        if forgotten is not None and isinstance(result, Returned | Raised):
            result = with_forgotten(result, forgotten)
        if isinstance(result, Returned):
            return await self._returned(execution, node, context, result.value, log_entries, way)
        if isinstance(result, Raised):
            return await self._raised(result.error, log_entries)
        return await self._conclude_other(execution, result, log_entries)

    async def _settle_while_flagged(self, way: Rest) -> bool:
        """Settle open effects while a person is asked about another one, then wait on (S-16)."""
        session = self.session
        stopping = [a.reason for a in way.left if a.reason not in OVERLAY_ONLY]
        if any(reason is not Reason.EFFECT_UNCERTAIN for reason in stopping) or not await self._may_settle():
            return await self._rest(way)
        execution = self.execution = NodeExecution(session, self._workflow, self._services, settling=True)
        ending = bool(session.run.ending)
        title = f"the open effects of {session.run.run}"
        result = await execution.run(_nothing, title, lambda: left_open(execution, ending=ending))
        if isinstance(result, Returned | Resting):
            parked = result.parked if isinstance(result, Resting) else ()
            return await self._rest(way, effect_waits(parked))
        return await self._conclude_other(execution, result, self._new_log_entries())

    async def _may_settle(self) -> bool:
        """Return True if an effect is open, and the code and the operators let it settle."""
        session, run = self.session, self.session.run
        is_open = any(e.status is EffectStatus.INTENDED for e in session.open_effects())
        if self._workflow.lane != run.lane or not is_open:
            return False
        if any(effect_misfits(self._workflow, run, session.effects.values())):
            return False
        stop = await self._obstacle()
        if stop is not None:
            stop.close()
        return stop is None

    async def _conclude_other(self, execution: NodeExecution, result: NodeResult, log_entries: LogEntries) -> bool:
        """Release the run, or take the next step, after an execution that did not end by itself."""
        if isinstance(result, Flagged):
            return await self._flag(result.reasons, log_entries, effect_waits(result.parked))
        if isinstance(result, EndCancelled):
            await self._reload()
            return True
        if isinstance(result, Resting):
            return await self._rest_until(result, log_entries, execution.asked)
        if isinstance(result, HandBack):
            return await self.give_back(result.why)
        assert isinstance(result, Again)
        await self._reload()
        return True

    async def _returned(
        self,
        execution: NodeExecution,
        node: Node,
        context: NodeContext,
        target: Any,
        log_entries: LogEntries,
        way: WalkOn,
    ) -> bool:
        if detail := divergence(self.session, node.name, execution.asked):
            return await self._flag_for(Reason.NODE_DIVERGED, detail, log_entries)
        try:
            state = self._workflow.state_codec.dump(context.state)
            if target is None and node.exits.ends:
                result = json.loads(self._workflow.outcome_of(context.state))
                results = context.results.counted() if context.results is not None else None
                if not results and (empty := await self._empty(way, log_entries)) is not None:
                    return empty
                await end(
                    self.session,
                    RunStatus.COMPLETED,
                    state=state,
                    result=result,
                    reason="",
                    log_entries=log_entries,
                    results=results,
                    label=node.end or "",
                )
                return False
        except (RunLost, ConditionFailed, StoreAway, StoreError):
            raise
        except BaseException as error:  # raised by the author's state or outcome function: an operator must decide
            return await self._exception(as_exception(error), log_entries)
        if target not in node.exits.targets:
            return await self._exception(
                TypeError(f"node {node.name} returned {target!r}, which it does not declare"), log_entries
            )
        return await self._advance(target, state, log_entries, way, context.results)

    async def _empty(self, way: WalkOn, log_entries: LogEntries) -> bool | None:
        """Apply `when_empty` of the workflow to a run without a result, if calls of it failed (OUT-4).

        Returns None if the run completes.
        """
        mode = self._workflow.when_empty
        if mode == "complete" or way.chose(Reason.RESULTS_MISSING, Choice.CONTINUE):
            return None
        if not (why := await why_empty(self.session)):
            return None
        if mode == "ask_person":
            return await self._flag_for(Reason.RESULTS_MISSING, why, log_entries)
        return await self._end(Ending(RunStatus.FAILED, why, ""), log_entries, inbox_seq=self.session.inbox_read)

    async def _advance(
        self, target: str, state: bytes, log_entries: LogEntries, way: WalkOn, results: ResultBuffer | None
    ) -> bool:
        session = self.session
        node = self._workflow.nodes[target]
        most = node.max_visits
        n = session.run.visits.get(target, 0) if most is not None else 0
        if most is not None and n >= most and not way.chose(Reason.VISITS_EXHAUSTED, Choice.ONE_MORE):
            detail = f"node {target} has been entered {n} times; max_visits is {most}"
            return await self._flag_for(Reason.VISITS_EXHAUSTED, detail, log_entries)
        await session.entered()  # at most one advance is in flight, so a crash loses the work of one node (CKP-2)
        snapshot, values = await session.snapshot_of(state)
        commit = advance(
            session.run,
            node=target,
            status_label=node.status or "",
            state=snapshot,
            now=session.now,
            budget_ms=self._budget_ms,
            ceiling_ms=int(node.ceiling.total_seconds() * SECOND) if node.ceiling else 0,
            log_entries=log_entries,
            results=results.counted() if results is not None else None,
        )
        commit = await session.with_chunks(commit, values)
        self._pending = []
        # because log entries of the author may be refused for their size
        if log_entries or self._called or self._draining():
            await session.land(commit)
            self._notify()
        else:
            session.enter(commit)
        if session.has_new_messages:
            await self._reload()
        if self._draining():
            return await self.give_back("the worker drains")
        return True

    async def _raised(self, error: BaseException, log_entries: LogEntries) -> bool:
        if isinstance(error, Fail | Cancel):
            outcome = RunStatus.FAILED if isinstance(error, Fail) else RunStatus.CANCELLED
            return await self._end(Ending(outcome, error.reason, ""), log_entries, inbox_seq=self.session.inbox_read)
        if reasons := exhausted_in(self.session, error):
            return await self._flag(reasons, log_entries)
        return await self._exception(error, log_entries)

    def _write_log(self, log_entries: Iterable[LogEntry]) -> None:
        """Write the author's new entries while the node goes on, without waiting for the commit.

        An entry of the engine explains a change of the run row that its next move writes. Then all entries wait for it.
        """
        if not self._pending and (new := self.session.unwritten(log_entries)):
            self.session.submit(write_log(self.session.run, new, now=self.session.now))

    def _new_log_entries(self, log_entries: Iterable[LogEntry] = ()) -> LogEntries:
        """Return the log entries for the next move: the engine's, then the author's."""
        return self.session.unwritten([*self._pending, *log_entries])

    async def _exception(self, error: BaseException, log_entries: LogEntries) -> bool:
        return await self._flag((exception_attention(self.session, error),), log_entries)

    # --- releasing ----------------------------------------------------------------------------------
    async def _flag(
        self, reasons: tuple[Attention, ...], log_entries: LogEntries, parked: Sequence[Parked] = ()
    ) -> bool:
        """Call a person. The same commit marks open effects without a further attempt uncertain (EFF-2)."""
        session = self.session
        mapping = session.store.mapping()
        exhausted = without_attempt(session, self._workflow)[: WRITES_MAX - BESIDE - 2 * len(log_entries)]
        reasons += tuple(
            attention(self.session, Reason.EFFECT_UNCERTAIN, f"{code}: {detail}")._replace(key=e.key, visit=e.visit)
            for e, code, detail in exhausted
        )
        reasons = tuple(a._replace(detail=storable(a.detail)) for a in reasons)
        freed = await self._freed_slots()
        commit = flag(
            session.run,
            reasons,
            inbox_seq=session.inbox_read,
            now=session.now,
            mapping=mapping,
            log_entries=log_entries,
            freed=freed,
            uncertain=[mark_uncertain(session.run, e, code, detail, now=session.now) for e, code, detail in exhausted],
            waiting=[p.waiting for p in parked],
            timers=[p.armed for p in parked if p.armed is not None],
        )
        await session.land(commit)
        self._called += reasons
        self._notify()
        return False

    async def _flag_for(self, reason: Reason, detail: str, log_entries: LogEntries | None = None) -> bool:
        entries = self._new_log_entries() if log_entries is None else log_entries
        return await self._flag((attention(self.session, reason, detail),), entries)

    def _notify(self) -> None:
        """Notify operators after the row records the attention; a failure does not hide it (GATE-5)."""
        if self._called:
            self._services.notify(self.session.run, tuple(self._called))
            self._called = []

    async def _rest(self, way: Rest, parked: Sequence[Parked] = ()) -> bool:
        """Park the run again; an open question is not answered. `parked`: further waits."""
        still = [a for a in way.left if a.reason not in OVERLAY_ONLY]
        timers = [*stale_timer(still), *(p.armed for p in parked if p.armed is not None)]
        waiting = [*waiting_for(still), *(p.waiting for p in parked)]
        return await self._wait("park", waiting, timers, self._new_log_entries())

    async def _rest_until(self, result: Resting, log_entries: LogEntries, asked: set[str]) -> bool:
        """Park the run. Messages that concern none of the waits do not begin the execution again (S-1)."""
        while True:
            try:
                return await self._park(result, log_entries)
            except ConditionFailed as moved:
                messages = await self.session.new_messages() if moved.reason == "inbox_seq" else ()
                if not messages or any(n.kind != "signal" or n.name in asked for n in messages):
                    raise
                await self.session.go_on()
                self.session.also_read(messages)

    async def _park(self, result: Resting, log_entries: LogEntries) -> bool:
        verbs = {p.verb for p in result.parked}
        verb = next(v for v in ("await_settle", "retry", "park") if v in verbs)
        timers = [p.armed for p in result.parked if p.armed is not None]
        return await self._wait(verb, [p.waiting for p in result.parked], timers, log_entries)

    async def _wait(self, verb: str, waiting: list[WaitingFor], timers: list[Timer], log_entries: LogEntries) -> bool:
        session = self.session
        await session.land(
            park(
                session.run,
                verb,
                inbox_seq=session.inbox_read,
                waiting=waiting,
                timers=timers,
                now=session.now,
                mapping=session.store.mapping(),
                log_entries=log_entries,
                freed=await self._freed_slots() if verb == "park" else (),
            )
        )
        self._notify()
        return False

    async def _freed_slots(self) -> tuple[SlotChange, ...]:
        keeps = self._workflow.slot_while_waiting
        return await admission.freed_slots(self.session.store, self.session.run, keeps=keeps)

    async def give_back(self, why: str) -> bool:
        """Release the run, due at once for any worker."""
        session = self.session
        await session.settled()
        mapping, log_entries = session.store.mapping(), self._new_log_entries()
        await session.land(
            hand_back(session.run, inbox_seq=None, now=session.now, mapping=mapping, why=why, log_entries=log_entries)
        )
        self._notify()
        return False

    # --- admission --------------------------------------------------------------------------------------
    async def _is_admitted(self) -> bool:
        """Take a slot of each limit and return True, or queue the run."""
        session = self.session
        if not await admission.needs_slot(session.store, session.run, keeps=self._workflow.slot_while_waiting):
            return True
        limits = await admission.limits_of(session.store, session.run.tenant)
        picked = [admission.pick(session.run, limit) for limit in limits]
        taken = [slot for slot in picked if slot is not None]
        for slot in taken:
            if await admission.left_to_older(session.store, slot, session.run):
                raise ConditionFailed("the slot went to an older run")
        if len(taken) == len(picked):
            await session.land(admit(session.run, taken, now=session.now, log_entries=self._new_log_entries()))
            self._pending = []
            self._notify()
            return True
        seen = [slot for limit in limits for slot in limit]
        mapping = session.store.mapping()
        await session.land(
            queue(session.run, seen, now=session.now, mapping=mapping, log_entries=self._new_log_entries())
        )
        self._notify()
        return False

    # --- ending ---------------------------------------------------------------------------------------
    async def _end(self, ending: Ending, log_entries: LogEntries, *, inbox_seq: int | None) -> bool:
        """End the run in one commit, or record the decision first if effects must be undone."""
        session = self.session
        ending = ending._replace(reason=storable(ending.reason)[:TEXT_CHARS_MAX])
        effects = session.effects.values()
        if not must_undo(session.run, effects):
            return await self._unwind(ending, log_entries)
        approvals = session.approvals.values()
        await session.land(
            compensate(
                session.run,
                ending,
                effects,
                inbox_seq=inbox_seq,
                approvals=approvals,
                now=session.now,
                log_entries=log_entries,
            )
        )
        self._pending = []
        self._notify()
        return True

    async def _unwind(self, ending: Ending, log_entries: LogEntries) -> bool:
        """Settle open effects, undo what must be undone, and end the run in one commit."""
        session = self.session
        execution = self.execution = NodeExecution(session, self._workflow, self._services)
        result = await execution.run(lambda: unwind(execution, self._draining), f"the end of {session.run.run}")
        if isinstance(result, Raised):
            return await self._exception(result.error, log_entries)
        if not isinstance(result, Returned):
            return await self._conclude_other(execution, result, log_entries)
        if session.run.ending:
            log_entries = (*log_entries, compensated(session.run, tuple(session.effects.values())))
        await end(session, ending.outcome, state=None, result=None, reason=ending.reason, log_entries=log_entries)
        return False


async def _nothing() -> None:
    pass

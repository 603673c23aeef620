"""A worker: claims runs of its lanes, executes each in a task, and takes over runs of dead workers (S-2, S-3)."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from outlast.core import effect_verbs
from outlast.core.clock import Clock
from outlast.core.columns import WorkerHealth
from outlast.core.durations import (
    CHANGE_POLL,
    CLOCK_STEP,
    FILE_CHECK,
    IDLE_LOOK,
    INLINE_WAIT_MAX,
    KEPT_LOOK,
    SECOND,
    STORE_RETRY,
    ExecutionBudget,
    Liveness,
    execution_budget,
)
from outlast.core.generation import GENERATION
from outlast.core.machine import EffectStatus, Reason
from outlast.core.quarantine import RunGroup, group_of
from outlast.core.rows import META, Row, Run
from outlast.core.run_transition import rearmed
from outlast.core.verbs import hand_back
from outlast.engine import admission, compatibility
from outlast.engine.activity_calls import check_served
from outlast.engine.admission import NO_OWNERS, Capacity, Owners, Taker, Taking
from outlast.engine.alerts import Alerts, Notifier
from outlast.engine.attempts import ActivityCaller, DaemonPool, SendWindow
from outlast.engine.compatibility import UnservedVersions, wake_stranded
from outlast.engine.dead_workers import DeadWorkers
from outlast.engine.lease import Heartbeat, Lease
from outlast.engine.node_execution import NodeExecution, WorkerServices
from outlast.engine.node_result import attention, uncertain
from outlast.engine.pauses import Breakers, PauseCache
from outlast.engine.rate_limit import RateLimiter
from outlast.engine.reconcile import millis
from outlast.engine.run_executor import RunExecutor
from outlast.engine.run_session import EffectKey, RunLost, RunSession
from outlast.engine.store_maintenance import Retention
from outlast.errors import StoreError, StoreReplaced, Uncertain, restored
from outlast.flow.workflow import Workflow
from outlast.store.port import AnchoredClock, OnFile, Store
from outlast.store.queries import NextDue, Owned
from outlast.telemetry import Counters, Observer
from outlast.telemetry.logs import Outage

# after its timeout has cancelled it, because it may have a connection to close
CALL_ENDS_WITHIN: Final = INLINE_WAIT_MAX
GIVEN_UP_AFTER: Final = 2 * INLINE_WAIT_MAX  # an executor asks a store that was away again within half of it
ENDLESS: Final = "the call did not end, although its time was over and it was cancelled"


class OverrunWatch:
    """Watch over executors whose call or node does not end, or whose time is over.

    Without it such a run would stay `running`, appear in no list, and occupy a slot.
    """

    def __init__(self, store: Store, clock: Clock, lease: Lease, live: Liveness, budget_ms: int) -> None:
        self._store = store
        self._lease = lease
        self._clock = clock
        self._budget_ms = budget_ms
        self._margin = min(2 * live.heartbeat_every + live.checkpoint_write, budget_ms // 2)
        self._held: dict[asyncio.Task[None], RunExecutor] = {}
        self._since: dict[asyncio.Task[None], int] = {}
        self._seen_before: dict[
            NodeExecution, int
        ] = {}  # executions without a call in flight at the last check, with their progress then

    def watch(self, task: asyncio.Task[None], executor: RunExecutor) -> None:
        """Check this executor from now on."""
        self._held[task] = executor

    def forget(self, task: asyncio.Task[None]) -> None:
        """Stop checking a finished executor, so that its rows do not stay in memory until the next check."""
        self._held.pop(task, None)
        self._since.pop(task, None)

    async def look(self) -> None:
        """End calls, nodes and executors that take too long.

        Raises StoreError.

        No executor is given up while the store takes no commit: it may wait to record an answer, and no other worker
        can claim its run.
        """
        if not self._lease.holds(self._clock):
            self._since.clear()
        now = (await self._store.now()).real
        seen_before, self._seen_before = self._seen_before, {}
        for task, executor in list(self._held.items()):
            if executor.execution is not None:
                _end_calls(executor.execution)
                self._end_execution(executor.execution, (executor.session.run.due_at or now) - now, seen_before)
            self._give_up(task, executor, now)

    def _end_execution(self, execution: NodeExecution, left_ms: int, seen_before: dict[NodeExecution, int]) -> None:
        """Call a person for a node that does not return; release a run whose calls outlast its time."""
        if execution.closing:
            return
        if execution.calls_in_flight:
            if left_ms <= 0:
                execution.hand_back("the time of its claim is over")
            return
        self._seen_before[execution] = execution.progress
        if left_ms <= self._margin and seen_before.get(execution) == execution.progress:
            run = execution.session.run
            what = f"node {run.node} does not return: after {(self._budget_ms - left_ms) / SECOND:g} s it still waits"
            why = f"at {execution.waiting_at()}; the execution budget of its worker is {self._budget_ms / SECOND:g} s"
            fix = "put what takes so long into an activity with timeout=, or wait with ctx.receive or ctx.sleep"
            execution.call_person(attention(execution.session, Reason.EXCEPTION, f"{what} {why} → {fix}"))

    def _give_up(self, task: "asyncio.Task[None]", executor: RunExecutor, now: int) -> None:
        """Cancel an executor some time after its claim has ended. The run is due, so any worker claims it."""
        run = executor.session.run
        if not run.due_at or run.due_at > now:
            self._since.pop(task, None)
            return
        mono = self._clock.mono()
        if mono - self._since.setdefault(task, mono) < GIVEN_UP_AFTER:
            return
        log.error("run %s is given up: its time is over, and a call or commit does not end", run.run)
        if executor.execution is not None:
            executor.execution.break_off(RunLost())
        task.cancel()


def _end_calls(execution: NodeExecution) -> None:
    """Abandon calls that swallow the cancellation of their timeout. They may still act, like an abandoned thread."""
    latest = asyncio.get_running_loop().time() - CALL_ENDS_WITHIN / SECOND
    under_way = execution.services.caller.under_way
    for ident, flight in list(execution.calls_in_flight.items()):
        limit = under_way.get(flight.task)
        if limit is not None and (limit.when() or latest) < latest:
            _leave_behind(execution, ident)


def _leave_behind(execution: NodeExecution, ident: EffectKey) -> None:
    session = execution.session
    effect = session.effects.get(ident)
    if effect is None or effect.status is not EffectStatus.INTENDED:
        execution.abandon_call(ident, TimeoutError(ENDLESS))
        return
    session.submit(effect_verbs.mark_uncertain(session.run, effect, "timeout", ENDLESS, now=session.now))
    execution.call_person(uncertain(execution.session, session.effects[ident]))
    execution.abandon_call(ident, TimeoutError(ENDLESS))


class ClockStep:
    """Detector of a wall clock that was set (S-4).

    A step forward counts once it was seen twice, because a clock may be set wrong for a moment.
    """

    def __init__(self, store: Store) -> None:
        self._store = store if isinstance(store, AnchoredClock) else None
        self._before = 0

    async def look(self) -> None:
        """Log a step when it is first seen, and let business time follow it. Raises StoreError."""
        if self._store is None:
            return
        before, step = self._before, await self._store.clock_step()
        self._before = step if abs(step) >= CLOCK_STEP else 0
        if not self._before:
            return
        if abs(step - before) >= CLOCK_STEP:
            ahead, seconds = step > 0, abs(step) / SECOND
            goes_on = "business time follows it" if ahead else "business time goes on, and stays ahead of it"
            log.warning(
                "this machine's clock is %.0f s %s the store's: it was set; leases keep to the boot-time clock, and %s",
                seconds, "ahead of" if ahead else "behind", goes_on,
            )  # fmt: skip
        elif step > 0 and await self._store.follow_clock(rearmed):
            self._before = 0


log = logging.getLogger("outlast.engine")
TAKE_MAX = 200  # runs claimed in one transaction
TAKE_OVER_MAX = 1_000  # the same for runs of dead workers: all are claimed before the first is executed


def budget_of(workflows: Iterable[Workflow[Any]], live: Liveness) -> ExecutionBudget:
    """Return the execution budget of a worker that serves these workflows (REC-2)."""
    calls = [
        (millis(a.timeout) if a.timeout else live.attempt_timeout, a.retry.attempts)
        for workflow in workflows
        for activity in workflow.activities.values()
        for a in (activity, activity.undoing)
        if a is not None
    ]
    return execution_budget(live, calls)


class WorkerProcess:
    """One worker of this process. `run` serves until `drain` is called or another process closes its row."""

    def __init__(
        self,
        store: Store,
        workflows: Sequence[Workflow[Any]],
        *,
        worker: str,
        clock: Clock,
        chance: Callable[[], float],
        live: Liveness | None = None,
        concurrency: int = 100,
        name: str = "",
        threads: bool = True,
        notifier: Notifier | None = None,
        about: WorkerHealth | None = None,
        watch: Observer | None = None,
    ) -> None:
        """Create a worker; nothing is written before `open`.

        `worker`: an id that was never used before. `chance`: random numbers in [0, 1), for jitter. `about`: facts for
        the list of workers. `watch`: observer of its runs. `threads=False`: the heartbeat runs in the event loop, for
        virtual clocks.

        Raises DefinitionError for a mistake in a workflow, ValueError for durations that contradict each other.
        """
        self.live = (live or Liveness()).checked()
        self.id = worker
        self.budget = budget_of([workflow.validate() for workflow in workflows], self.live)
        check_served(store, workflows)
        self._store = store
        self._workflows = {workflow.lane: workflow for workflow in workflows}
        self._clock = clock
        self._concurrency = concurrency
        self._capacity = Capacity(concurrency, clock)
        self._reserving = False  # a slot is free, and reserved for other tenants than those with due runs
        self._passed = 0  # runs that the last take skipped; the next one reads so many more
        self._name = name
        self._threads = threads
        self._pool = DaemonPool(concurrency)
        self._lease = Lease(worker)
        self._about = about or WorkerHealth()
        self._outage = Outage(f"worker {worker}", clock)
        self._heartbeat = Heartbeat(
            store, clock, self.live, self._lease, self._on_lost, outage=self._outage, health=self._health
        )
        self._watch = watch
        self.counters = watch.counters if watch is not None else Counters()
        self._dead_workers = DeadWorkers(
            worker, store, clock, self.live, self.budget.ms,
            take=self._take, counters=self.counters, outage=self._outage,
        )  # fmt: skip
        self._alerts = Alerts(notifier, self.counters)
        self._pauses = PauseCache(store)
        self._retention = Retention(store, clock, worker, self.live.runs_kept)
        self._step = ClockStep(store)
        self._overruns = OverrunWatch(store, clock, self._lease, self.live, self.budget.ms)
        self._unserved = UnservedVersions(store, self._workflows, self.live, worker)
        self._services = self._worker_services(chance)
        self._executors: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._grouped: dict[tuple[str, str], RunSession] = {}  # runs of groups, held because their workers crashed
        # a due run whose group allows fewer runs than are held; claimed before others
        self._makes_room: Run | None = None
        self._skipped: set[tuple[str, str]] = set()
        self._wake = asyncio.Event()
        self._draining = False
        self._taking = asyncio.Lock()
        self._lost_claims: dict[tuple[str, str], int] = {}  # claims whose answer was lost, each with its group size
        self.generation: Row | None = None  # generation of the store when this worker began
        self.replaced = False  # another process closed its row: a new worker may serve, under another id (S-2)
        self.store_replaced: StoreReplaced | None = None  # the store was replaced: this process must stop

    def _worker_services(self, chance: Callable[[], float]) -> WorkerServices:
        return WorkerServices(
            clock=self._clock,
            caller=ActivityCaller(self._clock, self._pool, self._watch.traces if self._watch is not None else None),
            lease=self._lease,
            live=self.live,
            notify=self._alerts.send,
            pauses=self._pauses,
            breakers=Breakers(self._store, self._pauses, self.live),
            throttle=RateLimiter(self._store, self._clock, self._lease, chance),
            window=SendWindow(),
            chance=chance,
            counted=self.counters.add,
            watch=self._watch,
        )

    # --- lifecycle --------------------------------------------------------------------------------------
    async def open(self) -> None:
        """Register the worker in the store; `run` does it if the caller has not. Raises StoreError."""
        if self._heartbeat.is_open:
            return
        # first, because a failed read then leaves no row behind
        self.generation = await self._store.load(META, GENERATION)
        await self._heartbeat.open(self._name, " ".join(self._workflows))
        if self._threads:
            self._heartbeat.start_thread()

    async def run(self) -> None:
        """Serve until drained. Raises StoreError if the store cannot be reached before the worker is open."""
        await self.open()
        await self._read_pauses()
        unsubscribe = self._store.on_change(self._wake.set)
        work = (self._publish_versions(), self._maintain(), self._dead_workers.watch(), self._watch_file())
        chores = [asyncio.create_task(chore) for chore in work]
        try:
            while not self._draining:
                await self._poll()
        finally:
            unsubscribe()
            for chore in chores:
                chore.cancel()
            await self._release_runs()

    async def _read_pauses(self) -> None:
        """Read the pauses before the first run is claimed, as soon as the store answers."""
        while not self._draining:
            try:
                await self._pauses.refresh()
                return
            except StoreError as error:
                self._outage.met("cannot read the pauses", error)
                await self._clock.sleep(STORE_RETRY)

    def drain(self) -> None:
        """Stop claiming runs. Held runs settle and are released, then `run` returns (S-5)."""
        self._draining = True
        self._wake.set()

    @property
    def held(self) -> int:
        """Return the number of runs that it executes now."""
        return len(self._executors)

    def _health(self) -> WorkerHealth:
        return self._about._replace(holds=len(self._executors), of=self._concurrency, draining=self._draining)

    def _on_lost(self) -> None:
        log.error("worker %s was silent for too long and was closed by another process, which takes its runs", self.id)
        self.replaced = True
        self._lease.lost = True
        self.drain()  # executions find out at their next commit; late answers become evidence

    def _on_store_replaced(self, gone: StoreReplaced) -> None:
        log.error("worker %s stops: %s", self.id, gone.what)
        self.store_replaced = gone
        self._lease.lost = True
        self.drain()

    async def _release_runs(self) -> None:
        """Wait for the executors to release their runs. Other workers take over the rest."""
        tasks = list(self._executors.values())
        if tasks:
            gone = isinstance(self._store, OnFile) and self._store.lost() is not None
            # Do not wait for answers that cannot be written, because the file is gone.
            await asyncio.wait(tasks, timeout=0 if gone else self.live.drain_grace / SECOND)
        for task in self._executors.values():
            task.cancel()
        await self._alerts.flush()
        await self._services.throttle.close()
        if not self.store_replaced:  # the file belongs to another store now
            await self._heartbeat.close(died=not self._draining)
        self._pool.close()

    # --- claiming --------------------------------------------------------------------------------------
    def _lanes(self) -> tuple[str, ...]:
        """Return the lanes it serves, and unserved ones of its workflows."""
        return (*self._workflows, *self._unserved.lanes)

    async def _poll(self) -> None:
        """Claim due runs; sleep until a run may be due."""
        self._wake.clear()
        try:
            taken = await self._take()
            free = self._group().free
            if self._makes_room is not None or (free <= 0 and self._grouped):
                await self._sleep(None, KEPT_LOOK)  # a group may dissolve before any of its runs is released
            elif free > 0 and taken < min(free, TAKE_MAX):
                if self._reserving or self._passed:
                    await self._sleep(None, KEPT_LOOK)
                else:
                    await self._sleep(await self._store.query(NextDue(self._lanes())))
            elif free <= 0:
                await self._wake.wait()
        except StoreError as error:
            self._outage.met("cannot look for work", error)
            await self._sleep(None)

    async def _sleep(self, due: int | None, most: int | None = None) -> None:
        ms: int = IDLE_LOOK if most is None else most
        if due is not None:
            left = due - (await self._store.now()).real
            # due, and skipped because its executor is about to release it
            ms = min(ms, left) if left > 0 else CHANGE_POLL
        if not self._wake.is_set():
            sleeper = asyncio.ensure_future(self._clock.sleep(ms))
            waker = asyncio.ensure_future(self._wake.wait())
            _, pending = await asyncio.wait([sleeper, waker], return_when=asyncio.FIRST_COMPLETED)
            for task in pending:
                task.cancel()

    def _group(self) -> RunGroup:
        groups = [*(group_of(session.run) for session in self._grouped.values()), *self._lost_claims.values()]
        return RunGroup(len(self._executors) + len(self._lost_claims), self._concurrency, groups)

    async def _take(self, owners: Owners = NO_OWNERS) -> int:
        """Claim due runs, or runs of these dead workers, and begin to execute them.

        Returns how many runs were moved. A run of a dead worker without a free slot here is queued for any worker.
        """
        async with self._taking:
            group = self._group()
            if self._draining or self._lease.lost or not (owners or group.free):
                return 0
            lanes, free_slots = self._lanes(), self._capacity.among(self._executors)
            taker = Taker(
                self.id, self.budget.ms, lanes, self._executors, self._skipped, self._dead_workers.is_ours_to_make_room
            )
            taking = Taking(taker, owners, group, free_slots, self._makes_room)
            most = TAKE_OVER_MAX if owners else min(group.free, TAKE_MAX) + min(self._passed, TAKE_OVER_MAX)
            try:
                runs = await self._store.take(lanes, most, taking.step, owners=tuple(owners), held=free_slots.held)
            except Uncertain:
                self._lost_claims |= group.given
                raise
            if not owners:
                self._reserving, self._passed = free_slots.refused, taking.passed
            self._makes_room = taking.makes_room
            self._dead_workers.look_at(taking.overdue)
            ours = [run for run in runs if run.owner == self.id]
            self._lost_claims |= {(run.tenant, run.run): group_of(run) for run in ours}
            rows = await self._store.run_rows([(run.tenant, run.run) for run in ours])
        for run, each in zip(ours, rows, strict=True):
            self._lost_claims.pop((run.tenant, run.run), None)
            if each is None or each.run.epoch != run.epoch:
                continue
            session = RunSession(self._store, each, self._clock, self._watch)
            if self._watch is not None:
                was = taking.before[each.run.tenant, each.run.run]
                self._watch.held(was, session, self._dead_workers.last_heard(was.owner))
            self._hold(session)
        return len(runs)

    def _hold(self, session: RunSession) -> None:
        key = (session.run.tenant, session.run.run)
        executor = RunExecutor(session, self._workflows, self._services, self.budget.ms, lambda: self._draining)
        task = asyncio.create_task(executor.execute())
        self._executors[key] = task
        if session.run.group_max:
            self._grouped[key] = session
        self._overruns.watch(task, executor)
        self._capacity.note_held(key[0])
        task.add_done_callback(lambda done: self._released(session, done))

    def _released(self, session: RunSession, task: asyncio.Task[None]) -> None:
        key = (session.run.tenant, session.run.run)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            log.error("run %s: its executor failed, and it is released at the next heartbeat", key[1], exc_info=error)
        self._executors.pop(key, None)
        self._overruns.forget(task)
        if session.run.owner == self.id:  # its executor does not know the current owner
            self._lost_claims[key] = group_of(session.run)
        was_grouped = self._grouped.pop(key, None) is not None
        if self._watch is not None:
            self._watch.let_go(key)
        waited_for = was_grouped or self._reserving or self._passed or key in self._skipped
        if self._concurrency - len(self._executors) == 1 or self._draining or waited_for:
            self._skipped.discard(key)
            self._wake.set()

    # --- periodic work ---------------------------------------------------------------------------------------
    async def _publish_versions(self) -> None:
        """Publish the topology of each lane, and wake stranded runs.

        Does so twice, because a worker of another version may strand a run before it has read this topology.
        """
        published = 0
        while published < 2:
            try:
                await compatibility.publish(self._store, self._workflows.values())
                await wake_stranded(self._store, self._workflows)
                published += 1
                await self._clock.sleep(self.live.heartbeat_window)
            except StoreError as error:
                self._outage.met("cannot publish its topologies", error)
                await self._clock.sleep(self.live.heartbeat_every)

    async def _maintain(self) -> None:
        """Return lost claims, hand on free slots and delete old rows, once a heartbeat."""
        while True:
            await self._clock.sleep(self.live.heartbeat_every)
            try:
                if not self._threads and not self._beat():
                    self._on_lost()
                    return
                if await self._store.load(META, GENERATION) != self.generation:
                    self._on_store_replaced(restored())
                    return
                await self._pauses.refresh()
                await self._return_lost_claims()
                await self._overruns.look()
                await self._unserved.refresh()
                if self._unserved.lanes:
                    self._wake.set()
                await admission.repair(self._store, await admission.limits_wanted(self._store))
                await self._retention.look()
                await self._step.look()
                self._outage.answered()
            except StoreError as error:
                self._outage.met("cannot reach its store", error)

    async def _watch_file(self) -> None:
        """Stop within a second if the file of the store is deleted or replaced."""
        if isinstance(self._store, OnFile):
            while (gone := self._store.lost()) is None:
                await self._clock.sleep(FILE_CHECK)
            self._on_store_replaced(gone)

    def _beat(self) -> bool:
        """Renew the lease in the event loop; False if another process closed the row."""
        self._heartbeat.tick(self._clock.mono())
        return self._heartbeat.renew()

    async def _return_lost_claims(self) -> None:
        """Release runs that the store assigns to this worker and that it does not execute (S-2).

        The answer of such a claim was lost.
        """
        if self._taking.locked():
            return
        async with self._taking:
            unwalked = tuple(self._lost_claims)
            mine = await self._store.query(Owned(self.id))  # the store before the local state: see the model of S-2
            for run in [run for run in mine if (run.tenant, run.run) not in self._executors]:
                try:
                    now, mapping = await self._store.now(), self._store.mapping()
                    why = "this worker did not execute it"
                    await self._store.commit(hand_back(run, inbox_seq=None, now=now, mapping=mapping, why=why))
                except StoreError:
                    pass  # another worker holds it
            for key in unwalked:
                self._lost_claims.pop(key, None)
        if unwalked:
            self._wake.set()

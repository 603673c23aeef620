"""A worker: claims runs of its lanes, executes each in a task, and takes over runs of dead workers (S-2, S-3).

Theory of operation. A worker may lose its store, its lease or its time at any await. Faults, and why each run goes
on:

1. *A notice of a due run is missed.* Notices only shorten a sleep. Each look asks the store for the next due time,
   and no sleep is longer than `IDLE_LOOK`.
2. *Another process closed the row of this worker.* It drains. Its executors find out at their next commit, and
   answers that come late become evidence.
3. *The file or the data of the store is another one.* The worker stops, because its claims and its epoch mean nothing
   there.
4. *Periodic work meets a row that cannot be read.* It is logged once, and the other chores are done.
5. *A due run is offered and never claimed.* `_sleep` would look again at once, without end. After some looks it asks
   for the next due run behind it.
6. *Authors' code does not end.* Its executor is given up (`overruns`), and the worker ends within its drain time and
   names the task or thread that is left.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final

from outlast.core.clock_port import Clock
from outlast.core.drain import DRAINS, drains_of
from outlast.core.durations import (
    CHANGE_POLL,
    FILE_CHECK,
    IDLE_LOOK,
    KEPT_LOOK,
    SECOND,
    STORE_RETRY,
    ClaimTime,
    Liveness,
    longest_claim,
)
from outlast.core.generation import GENERATION
from outlast.core.lanes import OWN
from outlast.core.rows.all_kinds import Row
from outlast.core.rows.columns import WorkerHealth
from outlast.core.rows.store_rows import META
from outlast.core.slices import SliceEnd
from outlast.engine import admission, compatibility
from outlast.engine.activity_calls import check_served
from outlast.engine.alerts import Alerts, Notifier
from outlast.engine.attempts import ActivityCaller
from outlast.engine.call_errors import CallErrors
from outlast.engine.capacity import Capacity, Look
from outlast.engine.claims import Claims
from outlast.engine.compatibility import UnservedVersions, wake_stranded
from outlast.engine.dead_workers import DeadWorkers
from outlast.engine.delta_sender import DeltaSender
from outlast.engine.effect_calls import millis
from outlast.engine.effect_executor import CallTerms
from outlast.engine.guest import Bridge, Guest
from outlast.engine.known_budgets import BudgetCache, blind_budget
from outlast.engine.known_pauses import Breakers, PauseCache
from outlast.engine.lease import Heartbeat, Lease
from outlast.engine.left_code import busy_threads, left_threads, tasks_under
from outlast.engine.limit_seats import RateLimiter
from outlast.engine.model_text_writer import ModelTextWriter
from outlast.engine.node_execution import WorkerServices
from outlast.engine.overruns import OverrunWatch
from outlast.engine.run_executor import RunExecutor, SliceLimit
from outlast.engine.run_session import RunSession
from outlast.engine.send_window import SendWindow
from outlast.engine.store_maintenance import ClockStep, Retention
from outlast.engine.thread_pool import DaemonPool
from outlast.errors import Corrupt, StoreError, StoreReplaced, restored
from outlast.flow.workflow import Workflow
from outlast.store.port import OnFile, Store
from outlast.store.queries import NextDue
from outlast.telemetry import Counters, Observer
from outlast.telemetry.logs import Outage

log = logging.getLogger("outlast.engine")
SKIPPED_MAX: Final = SECOND // CHANGE_POLL
GUEST_ENDS_WITHIN: Final = SECOND  # if the runs have taken the whole time of the drain


class Executors:
    """Executors of the runs that a worker holds, each in a task."""

    def __init__(
        self,
        store: Store,
        workflows: Mapping[str, Workflow[Any]],
        services: WorkerServices,
        capacity: Capacity,
        claim_ms: int,
    ) -> None:
        self.services = services
        self._store = store
        self._workflows = workflows
        self._capacity = capacity
        self._claim_ms = claim_ms
        self._overruns = OverrunWatch(store, services, claim_ms)
        self._tasks: dict[asyncio.Task[None], RunExecutor] = {}

    def begin(self, session: RunSession, limit: SliceLimit | None) -> asyncio.Task[None]:
        """Execute a run until it is released. Return the task, which never raises."""
        executor = RunExecutor(session, self._workflows, self.services, self._claim_ms, limit)
        task = asyncio.create_task(executor.execute())
        self._tasks[task] = executor
        self._capacity.hold(session)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        session = self._tasks.pop(task).session
        run = session.held.run
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            log.error("run %s: its executor failed, and it is released at the next heartbeat", run.run, exc_info=error)
        self._capacity.release(session, self.services.lease.worker)
        if self.services.watch is not None:
            self.services.watch.let_go((run.tenant, run.run))

    async def look(self) -> None:
        """End calls, nodes and executors that take too long. Raises StoreError."""
        await self._overruns.look(self._tasks)

    async def release(self) -> None:
        """Wait for the executors to release their runs, and end the others. Other workers take over those runs."""
        if self._tasks:
            gone = isinstance(self._store, OnFile) and self._store.lost() is not None
            # Do not wait for answers that cannot be written, because the file is gone.
            await asyncio.wait(list(self._tasks), timeout=0 if gone else self.services.live.drain_grace / SECOND)
        for task in self._tasks:
            task.cancel()


def _checked(store: Store, workflows: Sequence[Workflow[Any]]) -> Sequence[Workflow[Any]]:
    """Return the workflows that the store can serve, with a warning of each money budget whose model has no price.

    Runs in flight of such a workflow go on, and none is started. Raises DefinitionError.
    """
    check_served(store, workflows)
    for workflow in workflows:
        if (blind := blind_budget(workflow)) is not None:
            log.warning("%s; its runs go on and count no money for them: %s", blind.what, blind.fix)
    return workflows


def claim_time_of(workflows: Iterable[Workflow[Any]], live: Liveness) -> ClaimTime:
    """Return the execution budget of a worker that serves these workflows (REC-2)."""
    calls = [
        (millis(a.timeout) if a.timeout else live.attempt_timeout, a.retry.attempts)
        for workflow in workflows
        for activity in workflow.activities.values()
        for a in (activity, activity.undoing)
        if a is not None
    ]
    return longest_claim(live, calls)


class WorkerProcess:
    """One worker of this process. `run` serves until `drain` is called or another process closes its row."""

    _skipped = 0  # consecutive looks that found a due run and could not take it

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
        guest: Guest | None = None,
        errors: CallErrors | None = None,
    ) -> None:
        """Create a worker; nothing is written before `open`.

        `worker`: an id that was never used before. `chance`: random numbers in [0, 1), for jitter. `about`: facts for
        the list of workers. `watch`: observer of its runs. `threads=False`: the heartbeat runs in the event loop, for
        virtual clocks. `guest`: the engine that decides which runs it executes; without one, the worker claims them.
        `errors`: tracebacks for a developer; calls that have returned here then have no settle time.

        Raises DefinitionError for a mistake in a workflow, ValueError for durations that contradict each other.
        """
        live = (live or Liveness()).checked()
        if guest is not None:
            workflows = [workflow.scheduled_by(guest.name) for workflow in workflows]
        self.claim_time = claim_time_of([workflow.validate() for workflow in workflows], live)
        self.counters = watch.counters if watch is not None else Counters()
        self.generation: Row | None = None  # generation of the store when this worker began
        self._store = store
        self._workflows = {workflow.lane: workflow for workflow in _checked(store, workflows)}
        self._outage, self._pool = Outage(f"worker {worker}", clock), DaemonPool(concurrency)
        self._alerts = Alerts(notifier, self.counters)
        self._capacity = capacity = Capacity(concurrency, clock)
        lease, pauses, traces = Lease(worker), PauseCache(store), watch.traces if watch is not None else None
        services = WorkerServices(
            clock=clock,
            caller=ActivityCaller(clock, self._pool, traces, errors),
            lease=lease,
            live=live,
            terms=CallTerms(live, store.skew),
            notify=self._alerts.send,
            pauses=pauses,
            budgets=BudgetCache(store),
            model_texts=ModelTextWriter(store),
            breakers=Breakers(store, pauses, live),
            throttle=RateLimiter(store, clock, lease, chance),
            errors=errors,
            window=SendWindow(),
            deltas=DeltaSender(store),
            chance=chance,
            counted=self.counters.add,
            watch=watch,
        )
        self._executors = Executors(store, self._workflows, services, capacity, self.claim_time.ms)
        self._dead_workers = dead = DeadWorkers(
            worker, store, clock, live, self.claim_time.ms, counters=self.counters, outage=self._outage
        )
        scheduler, lanes = guest.name if guest is not None else OWN, lambda: self.lanes
        begin, claim_ms = self._executors.begin, self.claim_time.ms
        self._claims = Claims(store, services, capacity, dead, begin, claim_ms, lanes, scheduler)
        self._bridge = Bridge(guest, store, clock, live, dead, lanes) if guest is not None else None
        health = partial(_health, about or WorkerHealth(), capacity, lease, self._bridge)
        self._heartbeat = self._new_heartbeat(clock, name, threads=threads, health=health)
        self._unserved = UnservedVersions(store, self._workflows, live, worker)
        self._chores = self._all_chores(Retention(store, clock, worker, live))

    def _all_chores(self, retention: Retention) -> Sequence[Callable[[], Awaitable[object]]]:
        return (
            self._refresh_limits, self._claims.return_lost, self._executors.look, self._unserved.refresh,
            self._repair_slots, retention.look, ClockStep(self._store).look, self._drain_if_asked,
        )  # fmt: skip

    def _new_heartbeat(
        self, clock: Clock, name: str, *, threads: bool, health: Callable[[], WorkerHealth]
    ) -> Heartbeat:
        return Heartbeat(
            self._store,
            clock,
            self.live,
            self._services.lease,
            self._on_lost,
            outage=self._outage,
            name=name,
            threads=threads,
            health=health,
        )

    @property
    def _services(self) -> WorkerServices:
        return self._executors.services

    @property
    def id(self) -> str:
        """Return the id of the worker."""
        return self._services.lease.worker

    @property
    def live(self) -> Liveness:
        """Return the durations of its leases, timeouts and retries."""
        return self._services.live

    @property
    def held(self) -> int:
        """Return the number of runs that it executes now."""
        return len(self._capacity.held)

    @property
    def replaced(self) -> bool:
        """Return True if another process closed its row: a new worker may serve, under another id (S-2)."""
        return self._services.lease.replaced

    @property
    def store_replaced(self) -> StoreReplaced | None:
        """Return why this process must stop, if its store was replaced."""
        return self._services.lease.store_replaced

    # --- lifecycle --------------------------------------------------------------------------------------
    async def open(self) -> None:
        """Register the worker in the store; `run` does it if the caller has not. Raises StoreError."""
        if self._heartbeat.is_open:
            return
        # first, because a failed read then leaves no row behind
        self.generation = await self._store.load(META, GENERATION)
        await self._heartbeat.open(" ".join(self._workflows))

    async def run(self) -> None:
        """Serve until drained. Raises StoreError if the store cannot be reached before the worker is open."""
        await self.open()
        lease = self._services.lease
        await self._read_pauses(lease)
        unsubscribe = self._store.on_change(self._capacity.changed.set)
        threads = threading.enumerate()
        work = (
            self._publish_versions(),
            self._maintain(),
            self._dead_workers.watch(self._claims.take),
            self._watch_file(),
        )
        chores = [asyncio.create_task(chore) for chore in work]
        serving = None if self._bridge is None else asyncio.create_task(self._bridge.serve(self))
        try:
            while not lease.draining:
                await self._poll()
        finally:
            unsubscribe()
            for chore in chores:
                chore.cancel()
            ends = asyncio.get_running_loop().time() + self.live.drain_grace / SECOND
            await self._executors.release()
            if serving is not None:
                serving.cancel()
                left = ends - asyncio.get_running_loop().time()  # the drain has one time for both
                await asyncio.wait([serving], timeout=max(left, GUEST_ENDS_WITHIN / SECOND))
            await self._close()
            self._report_left(threads)

    async def _refresh_limits(self) -> None:
        """Read the pauses and the daily budgets. Raises StoreError."""
        await self._services.pauses.refresh()
        await self._services.budgets.refresh()

    async def _read_pauses(self, lease: Lease) -> None:
        """Read the pauses before the first run is claimed, as soon as the store answers."""
        while not lease.draining:
            try:
                await self._refresh_limits()
                return
            except StoreError as error:
                self._outage.met("cannot read the pauses", error)
                await self._services.clock.sleep(STORE_RETRY)

    def drain(self) -> None:
        """Stop claiming runs. Held runs settle and are released, then `run` returns (S-5)."""
        self._services.lease.draining = True
        self._capacity.changed.set()

    def _on_lost(self) -> None:
        log.error("worker %s was silent for too long and was closed by another process, which takes its runs", self.id)
        self._services.lease.replaced = True
        self._services.lease.lost = True
        self.drain()  # executions find out at their next commit; late answers become evidence

    def _on_store_replaced(self, gone: StoreReplaced) -> None:
        log.error("worker %s stops: %s", self.id, gone.what)
        self._services.lease.store_replaced = gone
        self._services.lease.lost = True
        self.drain()

    async def _close(self) -> None:
        await self._alerts.flush()
        await self._services.throttle.close()
        if not self.store_replaced:  # the file belongs to another store now
            await self._heartbeat.close(died=not self._services.lease.draining)
        self._pool.close()

    def _report_left(self, before: Collection[threading.Thread]) -> None:
        """Name the tasks and threads of authors' code that still run. `before`: threads that were there earlier."""
        lease = self._services.lease
        threads = [*busy_threads(self._pool.threads), *left_threads(before, wait=False)]
        for each in (*tasks_under(lease), *threads):
            log.warning("worker %s has ended, and code is left behind: %s. Nothing it does counts", lease.worker, each)

    # --- claiming --------------------------------------------------------------------------------------
    async def _poll(self) -> None:
        """Claim due runs, or let their engine know of them; sleep until a run may be due."""
        self._capacity.changed.clear()
        try:
            if self._bridge is not None:
                await self._sleep(await self._bridge.look())
                return
            taken = await self._claims.take()
            self._skipped = 0 if taken else self._skipped
            look = self._capacity.next_look(taken)
            if look is Look.SOON:
                await self._sleep(None, KEPT_LOOK)
            elif look is Look.WHEN_DUE:
                await self._sleep(await self._store.query(NextDue(self.lanes)))
            elif look is Look.WHEN_RELEASED:
                await self._capacity.changed.wait()
        except (StoreError, Corrupt) as error:
            self._outage.met("cannot look for work", error)
            await self._sleep(None)

    async def _sleep(self, due: int | None, most: int = IDLE_LOOK) -> None:
        changed, ms = self._capacity.changed, most
        if due is not None:
            now = (await self._store.now()).real
            if due > now:
                self._skipped = 0
            elif (repeated := self._skipped + 1) >= SKIPPED_MAX:  # nothing takes it: it cannot be read
                due = await self._store.query(NextDue(self.lanes, after=now)) or now + most
            else:
                self._skipped, due = repeated, now + CHANGE_POLL  # its executor is about to release it
            ms = min(most, due - now)
        if not changed.is_set():
            sleeper = asyncio.ensure_future(self._services.clock.sleep(ms))
            waker = asyncio.ensure_future(changed.wait())
            _, pending = await asyncio.wait([sleeper, waker], return_when=asyncio.FIRST_COMPLETED)
            for task in pending:
                task.cancel()

    @property
    def lanes(self) -> tuple[str, ...]:
        """Return the lanes it serves, and unserved ones of its workflows."""
        return (*self._workflows, *self._unserved.lanes)

    async def slice(self, tenant: str, run: str, *, nodes: int | None = None, seen: int | None = None) -> SliceEnd:
        """Execute one run for the engine of its guest. See `SliceWorker.slice`."""
        return await self._claims.slice(tenant, run, nodes=nodes, seen=seen)

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
                await self._services.clock.sleep(self.live.heartbeat_window)
            except (StoreError, Corrupt) as error:
                self._outage.met("cannot publish its topologies", error)
                await self._services.clock.sleep(self.live.heartbeat_every)

    async def _maintain(self) -> None:
        """Return lost claims, assign free slots and delete old rows, once a heartbeat."""
        while True:
            await self._services.clock.sleep(self.live.heartbeat_every)
            try:
                if not self._heartbeat.renew_in_loop():
                    self._on_lost()
                    return
                if await self._store.load(META, GENERATION) != self.generation:
                    self._on_store_replaced(restored())
                    return
                for chore in self._chores:
                    await _past_damage(chore)
                if self._unserved.lanes:
                    self._capacity.changed.set()
                self._outage.answered()
            except (StoreError, Corrupt) as error:
                self._outage.met("cannot reach its store", error)

    async def _repair_slots(self) -> None:
        await admission.repair(self._store, await admission.limits_wanted(self._store))

    async def _drain_if_asked(self) -> None:
        """Drain if an operator has asked for it. Raises StoreError."""
        asked = drains_of(await self._store.load(META, DRAINS)).get(self.id)
        if asked is not None and not self._services.lease.draining:
            log.warning("worker %s drains, as %s asked: %s", self.id, asked.by, asked.reason)
            self.drain()

    async def _watch_file(self) -> None:
        """Stop within a second if the file of the store is deleted or replaced."""
        if isinstance(self._store, OnFile):
            while (gone := self._store.lost()) is None:
                await self._services.clock.sleep(FILE_CHECK)
            self._on_store_replaced(gone)


async def _past_damage(chore: Callable[[], Awaitable[object]]) -> None:
    """Do a chore. A row that it cannot read is logged once in a process, and the other chores are done."""
    try:
        await chore()
    except Corrupt as error:
        _warn_once(error.what)


@lru_cache(maxsize=256)
def _warn_once(what: str) -> None:
    log.error("periodic work met a row that cannot be read: %s; check the store: outlast fsck", what)


def _health(about: WorkerHealth, capacity: Capacity, lease: Lease, bridge: Bridge | None) -> WorkerHealth:
    """Return facts for the list of workers. Called in the heartbeat thread."""
    about = about._replace(holds=len(capacity.held), of=capacity.count, draining=lease.draining)
    return about if bridge is None else bridge.health(about)

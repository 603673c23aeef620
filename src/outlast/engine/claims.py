"""Claims of a worker: batches of due runs, runs of dead workers, and single runs that a guest's engine asks for.

Theory of operation. A claim is a commit on the run's row, so two workers never hold one epoch. This module keeps the
worker's own count right, which no transaction covers. Faults, and why they end:

1. *The answer of a take is lost.* Each claim of it may land at any time. It counts as held (`LostClaim`) until its
   row has changed, and `return_lost` gives back those that landed here. Otherwise the worker would claim beyond its
   places, or keep runs that nothing executes.
2. *A claim has landed, and the rows of the run cannot be read.* The worker would claim the run again at once. A
   person is asked, which releases it.
3. *Two takes of one worker overlap.* `capacity.claiming` is held from the first look at free places until the
   sessions are counted. `return_lost` does not wait for it: the next heartbeat looks again.
4. *The store was away for longer than the lease.* `may_claim` waits for the renewal. A run that is claimed before it
   would have to be handed back before its first call.
5. *A run is claimed just as its executor here ends.* The step skips runs in `held`, and `Capacity.release` wakes the
   next look.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from outlast.core.attention import flag
from outlast.core.durations import CHANGE_POLL, SECOND
from outlast.core.lanes import OWN
from outlast.core.machine import LeaseStatus, Reason, RunStatus
from outlast.core.rows.effect_rows import APPROVAL, WAIT
from outlast.core.rows.run_columns import Attention
from outlast.core.rows.run_rows import EVENT, RUN, Event, Run, RunKey, is_overdue
from outlast.core.rows.store_rows import STORE, WORKER
from outlast.core.slices import SliceEnd, disagreement, new_history, slice_end
from outlast.core.verbs import hand_back, moved
from outlast.engine.capacity import NO_OWNERS, Capacity, Owners, Taking
from outlast.engine.dead_workers import DeadWorkers
from outlast.engine.node_execution import WorkerServices
from outlast.engine.run_executor import SliceLimit
from outlast.engine.run_session import RunSession
from outlast.errors import Corrupt, Ended, Rejected, Stale, Uncertain
from outlast.store.port import RunRows, Store, rows_of_each
from outlast.store.queries import Owned
from outlast.telemetry import RECOVERY_LOCK_ACQUISITION_FAILURES

log = logging.getLogger("outlast.engine")
ASK_AGAIN: Final = SECOND  # until an engine asks again for a due run that the worker did not claim
Begin = Callable[[RunSession, SliceLimit | None], "asyncio.Task[None]"]


class Claims:
    """Claims of one worker. `begin` executes a claimed run in a task."""

    def __init__(
        self,
        store: Store,
        services: WorkerServices,
        capacity: Capacity,
        dead: DeadWorkers,
        begin: Begin,
        claim_ms: int,
        lanes: Callable[[], tuple[str, ...]],
        scheduler: str = OWN,
    ) -> None:
        self._store = store
        self._services = services
        self._capacity = capacity
        self._dead = dead
        self._begin = begin
        self._claim_ms = claim_ms
        self._lanes = lanes
        self._scheduler = scheduler

    @property
    def _worker(self) -> str:
        return self._services.lease.worker

    # --- batches ---------------------------------------------------------------------------------
    async def take(self, owners: Owners = NO_OWNERS) -> int:
        """Claim due runs, or runs of these dead workers, and begin to execute them.

        Returns how many runs were moved. A run of a dead worker without a free place here is queued for any worker.
        """
        capacity, services, dead = self._capacity, self._services, self._dead
        async with capacity.claiming:
            if not services.lease.may_claim(services.clock):
                return 0
            if not (owners or capacity.group().free or capacity.lost_claims):
                return 0
            lanes = self._lanes()
            taking = capacity.begin_take(
                self._worker, self._claim_ms, lanes, owners, dead.is_chosen_for, skew=self._store.skew
            )
            try:
                runs = await self._store.take(
                    lanes, taking.most, taking.step, owners=tuple(owners), held=taking.room.held
                )
            except Uncertain:
                capacity.lose_take(taking)
                raise
            dead.look_at(taking.overdue)
            if owners and len(runs) < len(taking.before):  # another worker was faster, or recovers them
                services.counted(RECOVERY_LOCK_ACQUISITION_FAILURES)
            ours = [run for run in runs if run.owner == self._worker]
            sessions = await self._sessions(taking, ours)
        for session in sessions:
            self._begin(session, None)
        return len(runs)

    async def _sessions(self, taking: Taking, ours: Sequence[Run]) -> list[RunSession]:
        """Read the rows of claimed runs. Until they are executed, their claims count as lost."""
        capacity, watch = self._capacity, self._services.watch
        capacity.end_take(taking, ours)
        rows = await rows_of_each(self._store, [(run.tenant, run.run) for run in ours])
        newest = await self._newest_events(rows)
        sessions: list[RunSession] = []
        for run, each in zip(ours, rows, strict=True):
            capacity.lost_claims.pop((run.tenant, run.run), None)
            if isinstance(each, Corrupt):
                await self._ask_person(run, each)
                continue
            if each is None or each.run.epoch != run.epoch:
                continue
            last = newest.get((run.tenant, run.run))
            session = RunSession(self._store, each, self._services.clock, watch, last)
            if watch is not None:
                was = taking.before[each.run.tenant, each.run.run]
                watch.held(was, session.held, session.clock.now, self._dead.last_renewal(was.owner))
            sessions.append(session)
        return sessions

    async def _newest_events(self, rows: Sequence[RunRows | Corrupt | None]) -> dict[RunKey, Event]:
        """Read the last event of each run that lost its worker, in one query. One run reads its own (CKP-6)."""
        lost = [
            each.run
            for each in rows
            if each is not None and not isinstance(each, Corrupt) and each.run.status is RunStatus.RECOVERING
        ]
        if len(lost) < 2:
            return {}
        try:
            found = await self._store.load_many(EVENT, [(run.tenant, run.run, run.seq) for run in lost])
        except Corrupt:  # of one run: each executor reads its own
            return {}
        return {(event.tenant, event.run): event for event in found if event is not None}

    async def _ask_person(self, run: Run, error: Corrupt) -> None:
        """Give a claimed run to a person, because one of its rows cannot be read. Raises StoreError."""
        log.error("run %s/%s needs a person: %s", run.tenant, run.run, error.what)
        now, mapping = await self._store.now(), self._store.mapping()
        asked = Attention(Reason.CONTRADICTION, now.business, f"{error.what}; {error.fix}", seen=run.inbox_seq)
        try:
            await self._store.commit(flag(run, [asked], inbox_seq=run.inbox_seq, now=now, mapping=mapping))
        except (Stale, Ended, Rejected) as refused:
            log.warning("run %s/%s stays claimed until its next look: %s", run.tenant, run.run, refused)

    # --- single runs -------------------------------------------------------------------------------
    async def slice(self, tenant: str, run: str, *, nodes: int | None = None, seen: int | None = None) -> SliceEnd:
        """Execute one run until it is released, and return its state. See `SliceWorker.slice`. Raises StoreError."""
        key = (tenant, run)
        row, end = await self._end(key)
        if end.then != "due":
            return end
        assert row is not None
        task = await self._claim(row, nodes, seen)
        if task is not None:
            await asyncio.wait([task])  # if the engine gives up waiting, the execution goes on
            _, end = await self._end(key)
            if end.then == "waits" and end.after_ms is not None and end.after_ms <= CHANGE_POLL:
                # handed back, due at an instant that the store's clock reaches in a moment
                await self._services.clock.sleep(end.after_ms)
                _, end = await self._end(key)
            return end
        _, end = await self._end(key)
        if end.then != "due":  # another worker was faster
            return end
        return end._replace(after_ms=ASK_AGAIN, why=f"{self._worker} {self._why_unclaimed()}")

    def _why_unclaimed(self) -> str:
        """Return why this worker has not claimed a due run."""
        lease = self._services.lease
        if lease.draining or lease.lost:
            return "stops"
        return "has no free slot for it" if lease.holds(self._services.clock) else "has not renewed its lease yet"

    async def _end(self, key: tuple[str, str]) -> tuple[Run | None, SliceEnd]:
        """Return the run, and its state for the engine that asks."""
        store = self._store
        row = await store.load(RUN, key)
        now, lanes = await store.now(), self._lanes()
        end = slice_end(row, self._scheduler, lanes, now)
        if row is not None and end.then == "held":
            if is_overdue(row, now.real, store.skew):  # its execution budget is used up
                self._dead.look_at({row.owner})
            owner = await store.load(WORKER, (STORE, row.owner))
            if owner is not None and owner.status is LeaseStatus.ALIVE:
                end = slice_end(row, self._scheduler, lanes, now, lease_until=owner.lease_until + store.skew)
        elif end.then == "waits":
            waits, approvals = await store.rows(WAIT, key), await store.rows(APPROVAL, key)
            end = slice_end(row, self._scheduler, lanes, now, waits=waits, approvals=approvals)
        return row, end

    async def _claim(self, run: Run, nodes: int | None, seen: int | None) -> "asyncio.Task[None] | None":
        """Claim one due run if its row is unchanged, and begin to execute it; None if it was not claimed."""
        capacity, services, dead = self._capacity, self._services, self._dead
        key = (run.tenant, run.run)
        async with capacity.claiming:
            if not services.lease.may_claim(services.clock):
                return None
            taking = capacity.begin_take(
                self._worker,
                self._claim_ms,
                self._lanes(),
                NO_OWNERS,
                dead.is_chosen_for,
                asked=key,
                skew=self._store.skew,
            )
            commit = taking.step(run, await self._store.now(), self._store.mapping())
            if commit is None:
                capacity.end_take(taking, ())
                return None
            try:
                await self._store.commit(commit)
            except (Stale, Ended):
                capacity.end_take(taking, ())
                return None
            except (Uncertain, asyncio.CancelledError):  # it may have landed
                capacity.lose_take(taking)
                raise
            sessions = await self._sessions(taking, [moved(commit)])
        limit = SliceLimit(services.clock, self._claim_ms, nodes, disagreement(run, seen or 0), new_history(run, seen))
        return self._begin(sessions[0], limit) if sessions else None

    # --- claims without an answer -------------------------------------------------------------------
    async def return_lost(self) -> None:
        """Release runs that the store assigns to this worker and that it does not execute (S-2).

        The answer of such a claim was lost, and it may land late. It counts until its run row has changed, and the run
        is returned if the change was this claim. Raises StoreError.
        """
        capacity = self._capacity
        if capacity.claiming.locked():
            return
        async with capacity.claiming:
            lost = capacity.lost_claims
            rows = {key: await self._store.load(RUN, key) for key in tuple(lost)}  # it changes in the meantime
            owned = await self._store.query(Owned(self._worker))  # it may be old
            mine = {(run.tenant, run.run): run for run in owned}
            mine |= {key: row for key, row in rows.items() if row is not None}
            for key, run in mine.items():
                if run.owner == self._worker and key not in capacity.held and not await self._return(run):
                    continue
                if key in lost and run.version != lost[key].before:
                    del lost[key]
            for key in [key for key, row in rows.items() if row is None]:
                lost.pop(key, None)
        if rows:
            capacity.changed.set()

    async def _return(self, run: Run) -> bool:
        """Release a run that this worker does not execute; False if its row has changed. Raises StoreError."""
        now, mapping, why = await self._store.now(), self._store.mapping(), "this worker did not execute it"
        try:
            await self._store.commit(hand_back(run, inbox_seq=None, now=now, mapping=mapping, why=why))
        except Stale:
            return False
        return True

"""Dead workers: their rows are closed and their runs taken over (S-2)."""

import asyncio
from collections.abc import Awaitable, Callable
from collections.abc import Mapping as Facts

from outlast.clocks import sleep_unless
from outlast.core.clock_port import Clock
from outlast.core.durations import SHARE_LOOK, Liveness
from outlast.core.machine import LeaseStatus
from outlast.core.quarantine import makes_room
from outlast.core.rows.run_rows import Run
from outlast.core.rows.store_rows import STORE, WORKER, Worker, has_expired
from outlast.engine.lease import closed
from outlast.errors import StoreError
from outlast.store.port import Store
from outlast.store.queries import Owned
from outlast.telemetry import RECOVERY_LOCK_ACQUISITION_FAILURES, Counters
from outlast.telemetry.logs import Outage

Take = Callable[[Facts[str, int | None]], Awaitable[int]]


class DeadWorkers:
    """Other workers as one worker knows them, and the takeover of their runs once a lease expires."""

    def __init__(
        self,
        worker: str,
        store: Store,
        clock: Clock,
        live: Liveness,
        claim_ms: int,
        *,
        counters: Counters,
        outage: Outage,
    ) -> None:
        self._worker = worker
        self._store = store
        self._clock = clock
        self._live = live
        self._claim_ms = claim_ms
        self._counters = counters
        self._outage = outage
        self._renewed_at: dict[str, int] = {}
        self._workers: tuple[Worker, ...] = ()  # at the last poll
        self._overdue: set[str] = set()  # owners of due runs; the next check tells whether they live
        self._asked = asyncio.Event()

    def last_renewal(self, worker: str) -> int:
        """Return the real time of the last renewal of a worker closed here; 0 if it was closed elsewhere."""
        return self._renewed_at.get(worker, 0)

    def look_at(self, owners: set[str]) -> None:
        """Check soon whether these owners live, because runs of theirs are due."""
        if owners:
            self._overdue |= owners
            self._asked.set()

    def is_chosen_for(self, run: Run, real: int) -> bool:
        """Return True if this worker, of all that serve the run, makes room for it (S-5) and wakes its engine."""
        serving = [worker.id for worker in self._workers if worker.serves(run.lane, real)]
        return makes_room(run, serving) in ("", self._worker)

    async def watch(self, take: Take) -> None:
        """Close the rows of workers when their lease expires, and take over their runs.

        `take` claims runs of these owners and returns how many it moved. The value of an owner is the number of runs it
        held when it died, 0 if it stopped on request, and None if it lives: then only its overdue runs are taken.
        """
        while True:
            wait = self._live.heartbeat_every
            self._asked.clear()
            try:
                wait = min(wait, await self._poll(take))
            except StoreError as error:
                self._outage.met("cannot check other workers", error)
            await sleep_unless(self._asked, self._clock.sleep(max(wait, 1)))

    async def _poll(self, take: Take) -> int:
        """Close expired rows and take over their runs. Returns the ms until the next lease may expire."""
        rows = await self._store.rows(WORKER, (STORE,))
        # rows that no longer exist are dropped
        self._renewed_at = {row.id: self._renewed_at[row.id] for row in rows if row.id in self._renewed_at}
        now, skew = (await self._store.now()).real, self._store.skew
        self._workers = tuple(rows)
        held_rows = [row for row in rows if row.status is LeaseStatus.ALIVE and not has_expired(row, now, skew)]
        next_ms = min([self._live.heartbeat_every, *(row.lease_until + skew - now for row in held_rows)])
        overdue, self._overdue = self._overdue, set()
        owners: dict[str, int | None] = dict.fromkeys(overdue - {row.id for row in rows}, 0)
        for row in rows:
            if row.status is LeaseStatus.CLOSED:
                if (
                    row.lease_until + self._claim_ms + skew > now or row.id in overdue
                ):  # afterwards its runs are due anyway
                    owners[row.id] = row.died_holding
            elif row.id != self._worker and has_expired(row, now, skew):
                held = len(await self._store.query(Owned(row.id)))
                if await self._close(row, held):
                    owners[row.id] = held
                else:  # if another worker closed it, this one shares the takeover of many runs
                    next_ms = min(next_ms, SHARE_LOOK)
            elif row.id in overdue:
                owners[row.id] = None
        await self._take_over(owners, take)
        return next_ms

    async def _close(self, row: Worker, held: int) -> bool:
        """Close a row; False if it was renewed, or another worker was faster."""
        try:
            await self._store.commit(closed(row, held))
        except StoreError:
            self._counters.add(RECOVERY_LOCK_ACQUISITION_FAILURES)
            return False
        self._renewed_at[row.id] = row.renewed_at
        return True

    async def _take_over(self, owners: Facts[str, int | None], take: Take) -> None:
        orphaned = {owner: held for owner, held in owners.items() if await self._store.query(Owned(owner))}
        try:
            while orphaned and await take(orphaned):
                pass
        except StoreError:
            self._counters.add(RECOVERY_LOCK_ACQUISITION_FAILURES)
            raise

"""The workers beside this one: the rows of those that died are closed, and their runs taken (S-2)."""

from collections.abc import Awaitable, Callable

from outlast.core.budget import Liveness
from outlast.core.clock import Clock
from outlast.core.machine import LeaseStatus
from outlast.core.rows import STORE, WORKER, Worker
from outlast.engine.heartbeat import closed
from outlast.errors import StoreError
from outlast.store.port import Store
from outlast.telemetry import RECOVERY_LOCK_ACQUISITION_FAILURES, Counters
from outlast.telemetry.outage import Outage


class Others:
    """What one worker knows of the others, and does once their leases have expired."""

    def __init__(
        self,
        worker: str,
        store: Store,
        clock: Clock,
        live: Liveness,
        budget_ms: int,
        *,
        take: Callable[[tuple[str, ...], tuple[str, ...]], Awaitable[int]],
        counters: Counters,
        outage: Outage,
    ) -> None:
        """`take` claims runs of the dead workers it is given, of the second ones one at a time; it answers how many."""
        self._worker = worker
        self._store = store
        self._clock = clock
        self._live = live
        self._budget_ms = budget_ms
        self._take = take
        self._counters = counters
        self._outage = outage
        self._heard: dict[str, int] = {}

    def last_heard(self, worker: str) -> int:
        """The store's real time when a worker whose row was closed here was last heard of; 0: it was closed
        elsewhere."""
        return self._heard.get(worker, 0)

    async def watch(self) -> None:
        """Close the rows of workers whose lease has expired, at the moment it expires, and take their runs."""
        while True:
            wait = self._live.heartbeat_every
            try:
                wait = min(wait, await self._look())
            except StoreError as error:
                self._outage.met("cannot see to other workers", error)
            await self._clock.sleep(max(wait, 1))

    async def _look(self) -> int:
        """Close what has expired and take over its runs; answers the ms until the next lease may expire."""
        rows = [row for row in await self._store.rows(WORKER, (STORE,)) if isinstance(row, Worker)]
        self._heard = {row.id: self._heard[row.id] for row in rows if row.id in self._heard}  # the rest is forgotten
        now = (await self._store.now()).real
        next_ms = self._live.heartbeat_every
        dead: list[str] = []
        alone: list[str] = []
        for row in rows:
            if row.id == self._worker:
                continue
            if row.status is LeaseStatus.CLOSED:
                if row.lease_until + self._budget_ms > now:  # what it owned is due by itself after that
                    dead.append(row.id)
            elif row.lease_until <= now:
                held = len(await self._store.owned(row.id))
                if await self._close(row):
                    dead.append(row.id)
                    alone += [row.id] if held == 1 else []
            else:
                next_ms = min(next_ms, row.lease_until - now)
        await self._take_over(dead, alone)
        return next_ms

    async def _close(self, row: Worker) -> bool:
        """False: it has renewed, or another worker was faster."""
        try:
            await self._store.commit(closed(row))
        except StoreError:
            self._counters.add(RECOVERY_LOCK_ACQUISITION_FAILURES)
            return False
        self._heard[row.id] = row.renewed_at
        return True

    async def _take_over(self, dead: list[str], alone: list[str]) -> None:
        orphaned = tuple([owner for owner in dead if await self._store.owned(owner)])
        try:
            while orphaned and await self._take(orphaned, tuple(alone)):
                pass
        except StoreError:
            self._counters.add(RECOVERY_LOCK_ACQUISITION_FAILURES)
            raise

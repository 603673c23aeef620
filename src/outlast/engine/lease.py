"""Lease of a worker: one row for all runs it holds, and the check before each call is sent (S-2, S-4, S-5).

A thread renews the row while the event loop is alive.
"""

import asyncio
import faulthandler
import logging
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from outlast.core.clock_port import Clock
from outlast.core.commit import Commit, Done, Put
from outlast.core.durations import CLOCK_DISAGREEMENT_MAX, SECOND, Liveness
from outlast.core.machine import LeaseStatus, lease_target
from outlast.core.rows.columns import HEALTH, WorkerHealth
from outlast.core.rows.store_rows import STORE, WORKER, Worker
from outlast.errors import Stale, StoreError, StoreReplaced
from outlast.store.port import Store
from outlast.store.queries import Owned
from outlast.telemetry.logs import Outage


class ClockReading(NamedTuple):
    """Readings of the three local clocks at one moment, in ms."""

    boot: int
    wall: int
    mono: int


def read(clock: Clock) -> ClockReading:
    """Read the three local clocks."""
    return ClockReading(clock.boot(), clock.wall(), clock.mono())


class Lease:
    """This process's knowledge of its worker's lease: valid until an instant of the boot clock."""

    def __init__(self, worker: str) -> None:
        self.worker = worker
        self.good_until_boot = 0
        self.lost = False
        self.draining = False  # the worker claims no run, and its executors release theirs (S-5)
        self.replaced = False  # another process closed its row: a new worker may serve, under another id (S-2)
        self.store_replaced: StoreReplaced | None = None  # the store was replaced: this process must stop

    def renewed(self, submitted: ClockReading, lease_until: int, now_real: int) -> None:
        """Record that the store accepted the renewal submitted at `submitted`."""
        self.good_until_boot = submitted.boot + (lease_until - now_real)

    def holds(self, clock: Clock) -> bool:
        """Return True if this worker may still hold runs, as far as this process knows."""
        return not self.lost and clock.boot() < self.good_until_boot

    def may_claim(self, clock: Clock) -> bool:
        """Return True if this worker may claim a run now.

        After an outage of the store it renews first: it would have to hand back each run before its first call.
        """
        return not self.draining and self.holds(clock)


class Permit(NamedTuple):
    """The right to send one attempt, from its intent until `until_boot` on this process's clocks."""

    submitted: ClockReading
    until_boot: int
    lease: Lease

    def refusal(self, clock: Clock) -> str:
        """Return why the call must not be sent now; '' if it may be sent.

        The three clocks must have advanced alike since the intent: the monotonic clock stops while a machine is
        suspended.
        """
        now = read(clock)
        if now.boot >= self.until_boot:
            return "the intent's last moment to send has passed"
        if not self.lease.holds(clock):
            return "this worker's lease has run out"
        spans = (now.boot - self.submitted.boot, now.wall - self.submitted.wall, now.mono - self.submitted.mono)
        if max(spans) - min(spans) > CLOCK_DISAGREEMENT_MAX:
            return "this machine's clocks have not advanced alike since the intent"
        return ""


def permit(submitted: ClockReading, not_after: int, now_real: int, lease: Lease) -> Permit:
    """Return the permit of an intent that the store accepted at `now_real`, valid until `not_after`."""
    return Permit(submitted, submitted.boot + (not_after - now_real), lease)


log = logging.getLogger("outlast.engine")
CLOSINGS = 3  # tries: one for a renewal that is in flight, one for a close by another worker


def opened(
    worker: str,
    *,
    name: str,
    lanes: str,
    now_real: int,
    now_business: int,
    live: Liveness,
    health: WorkerHealth | None = None,
) -> Worker:
    """Return the first row of a worker."""
    return Worker(
        tenant=STORE,
        id=worker,
        version=1,
        status=lease_target("open_lease", None),
        lease_until=now_real + live.heartbeat_window,
        lanes=lanes,
        name=name,
        started_at=now_business,
        renewed_at=now_real,
        health_text=HEALTH.encode(health) if health is not None else "",
    )


def closed(row: Worker, died_holding: int = 0) -> Commit:
    """Return the commit that closes a worker's row.

    A closed row is never renewed.

    The worker closes it when it stops; any other worker may close it once the lease has expired. `died_holding`: number
    of runs that a dead worker still owns; the next claim of each counts the crash.
    """
    status = lease_target("close_lease", row.status)
    after = row._replace(version=row.version + 1, status=status, died_holding=died_holding)
    return Commit((Put(WORKER, after, row.version),), label=f"close worker {row.id}")


class Heartbeat:
    """Renewal of one worker's row. Calls `lost`, once and in the loop, if another process has closed it."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        live: Liveness,
        lease: Lease,
        lost: Callable[[], None],
        *,
        outage: Outage | None = None,
        health: Callable[[], WorkerHealth] = WorkerHealth,
        name: str = "",
        threads: bool = False,
    ) -> None:
        """Create a heartbeat; `open` writes the row. `threads`: a thread renews it, else `renew_in_loop`.

        `health` returns facts for the list of workers. It is called in the heartbeat thread, so it must only read.
        """
        self._store = store
        self._clock = clock
        self._live = live
        self._lease = lease
        self._lost = lost
        self._outage = outage or Outage(f"worker {lease.worker}", clock)
        self._health = health
        self._name = name
        self._threads = threads
        self._row: Worker | None = None
        self._store_time = (0, 0)  # the store's real time in its last answer, and the boot clock at that moment
        self._loop_ticked = clock.mono()
        self._loop_late = 0
        self._stop = threading.Event()
        self._dumped = False

    @property
    def is_open(self) -> bool:
        """Return True if the row has been written."""
        return self._row is not None

    async def open(self, lanes: str) -> None:
        """Write the worker's row and begin to renew it. Raises StoreError."""
        submitted = read(self._clock)
        now = await self._store.now()
        row = opened(
            self._lease.worker,
            name=self._name,
            lanes=lanes,
            now_real=now.real,
            now_business=now.business,
            live=self._live,
            health=self._seen(),
        )
        done = await self._store.commit(Commit((Put(WORKER, row, 0),), label=f"open worker {row.id}"))
        self._row = row
        self._accepted(submitted, row, done)
        if self._threads:  # a daemon: a busy loop does not lose the lease, a dead one does
            loop = asyncio.get_running_loop()
            threading.Thread(target=self._beat, args=(loop,), name="outlast-heartbeat", daemon=True).start()

    def renew_in_loop(self) -> bool:
        """Renew in the event loop if no thread does; False if another process closed the row."""
        if self._threads:
            return True
        self.tick(self._clock.mono())
        return self.renew()

    def tick(self, asked: int) -> None:
        """Note that the event loop is alive. `asked`: monotonic time of the request."""
        self._loop_ticked = self._clock.mono()
        self._loop_late = max(0, self._loop_ticked - asked)
        self._dumped = False

    def stop(self) -> None:
        """Stop renewals; the row stays open until `close`."""
        self._stop.set()

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        """Renew the lease while the loop answers.

        The loop itself is asked, because a task may wait for the store without losing the lease.
        """
        while not self._stop.wait(self._live.heartbeat_every / SECOND):
            with suppress(RuntimeError):  # the loop is closed and never ticks again
                loop.call_soon_threadsafe(self.tick, self._clock.mono())
            if self._clock.mono() - self._loop_ticked > self._live.loop_stall_max:
                self._dump_stacks()
                continue
            if not self.renew() and not self._stop.is_set():
                loop.call_soon_threadsafe(self._lost)
                return

    def renew(self) -> bool:
        """Renew once; False if another process closed the row. If the store is away, the next renewal tries again."""
        row = self._row
        assert row is not None
        submitted = read(self._clock)
        real = self._store_time[0] + submitted.boot - self._store_time[1]
        after = row._replace(
            version=row.version + 1,
            status=lease_target("renew", row.status),
            lease_until=real + self._live.heartbeat_window,
            renewed_at=real,
            health_text=HEALTH.encode(self._seen()),
        )
        try:
            done = self._store.urgent_sync(Commit((Put(WORKER, after, row.version),), label=f"renew {row.id}"))
        except Stale:
            self._lease.lost = True
            return False
        except StoreError as error:
            self._outage.met("could not renew its lease", error)
            return True
        self._accepted(submitted, after, done)
        self._outage.landed()
        return True

    def _seen(self) -> WorkerHealth:
        ticked = max(0, self._clock.mono() - self._loop_ticked)
        return self._health()._replace(loop_late_ms=self._loop_late, loop_ticked_ms=ticked)

    def _accepted(self, submitted: ClockReading, row: Worker, done: Done) -> None:
        self._row = row
        self._store_time = (done.now.real, self._clock.boot())
        self._lease.renewed(submitted, row.lease_until, done.now.real)

    async def close(self, *, died: bool = False) -> None:
        """Close the row, so that other workers claim its runs at once.

        Also closes it after a renewal without an answer, when the row's version is unknown. `died`: the worker ends
        without a request to stop.
        """
        self.stop()
        if self._row is None:
            return
        self._lease.lost = True  # first, because no call may be sent once others may claim its runs
        for _ in range(CLOSINGS):
            try:
                current = await self._store.load(WORKER, (STORE, self._row.id))
                if current is not None and current.status is LeaseStatus.ALIVE:
                    left = len(await self._store.query(Owned(current.id))) if died else 0
                    await self._store.commit(closed(current, left))
                return
            except Stale:
                pass  # a renewal was in flight when it was stopped
            except StoreError:
                return  # the lease expires

    def _dump_stacks(self) -> None:
        if not self._dumped:
            self._dumped = True
            log.error("the event loop of worker %s has not ticked: its lease is no longer renewed", self._lease.worker)
            try:
                faulthandler.dump_traceback(file=sys.__stderr__ or sys.stderr)
            except (OSError, ValueError, AttributeError):
                pass  # no usable stderr: the log line must suffice

"""Guests: other engines that decide when and where a run is executed, and the bridge that wakes them.

The store knows no engine: a decision, a signal or a timer makes a run due. The bridge of each guest's worker finds due
runs of its lanes and calls `Guest.wake`. The engine then asks a worker for a slice (`SliceWorker.slice`). If every
bridge is dead, the engine's own timer (`SliceEnd.after_ms`) finds the run.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from outlast.core.clock_port import Clock
from outlast.core.durations import HEARTBEAT_EVERY, MINUTE, ClaimTime, Liveness
from outlast.core.machine import RunStatus
from outlast.core.rows.columns import WorkerHealth
from outlast.core.rows.run_rows import Run
from outlast.core.slices import SliceEnd
from outlast.engine.dead_workers import DeadWorkers
from outlast.store.bounds import INT_MAX
from outlast.store.due_runs import DueRuns
from outlast.store.fair_queueing import SLACK
from outlast.store.port import Store

log = logging.getLogger("outlast.engine")
SWEEP: Final = HEARTBEAT_EVERY  # between two reads of all due runs
SWEEP_AWAY_MAX: Final = 6 * SWEEP  # the same while the engine is away
WAKE_AGAIN_MAX: Final = MINUTE
PAGE: Final = 500  # due runs in one read
WHY_CHARS: Final = 200


class GuestAway(Exception):
    """A guest's engine cannot be reached. Its text says why."""


class SliceWorker(Protocol):
    """Worker of a guest, as the guest's engine sees it."""

    claim_time: ClaimTime
    """A slice enters no further node after this time, and takes at most twice as long."""

    @property
    def id(self) -> str:
        """Return the id of the worker."""

    @property
    def live(self) -> Liveness:
        """Return its durations; an engine's heartbeat timeout follows from `heartbeat_window`."""

    @property
    def lanes(self) -> tuple[str, ...]:
        """Return the lanes that it serves now, adopted ones included."""

    async def slice(self, tenant: str, run: str, *, nodes: int | None = None, seen: int | None = None) -> SliceEnd:
        """Execute a run until it is released, has ended or its time is over. `nodes`: for at most so many nodes.

        `seen`: the version of the last slice in the engine's history, 0 for a new history. If the store is older, a
        person is asked, and nothing is executed.

        A repeated call has no second effect. Raises StoreError if the store is away; the caller tries again.
        """


class Guest(Protocol):
    """Engine that decides when and where runs are executed."""

    name: str
    """Its scheduler, as `core/lanes.py` lists it."""

    async def wake(self, runs: Sequence[Run]) -> None:
        """Let the engine ask for a slice of each of these due runs. A repeated wake does no harm.

        Without runs, check that the engine answers. Raises GuestAway.
        """

    async def serve(self, worker: SliceWorker) -> None:
        """Call `worker.slice` for the engine until cancelled. Raises GuestAway."""


class Woken(NamedTuple):
    """Last wake of a due run."""

    seen: tuple[int, int]  # version and inbox number of its row
    again: int  # real; from here on it is woken again
    after_ms: int


def patience_ms(run: Run, *, is_first: bool) -> int:
    """Return how long a due run may wait before this worker wakes its engine.

    0 for one worker of all. A run whose slice handed it back is continued by its engine without a wake.
    """
    handed_back = run.status is RunStatus.QUEUED and run.epoch > 0
    return SWEEP if handed_back or not is_first else 0


class Bridge:
    """Search for due runs of a guest's lanes, and calls of the guest's engine for them."""

    def __init__(
        self,
        guest: Guest,
        store: Store,
        clock: Clock,
        live: Liveness,
        dead: DeadWorkers,
        lanes: Callable[[], tuple[str, ...]],
    ) -> None:
        self.guest = guest
        self._store = store
        self._clock = clock
        self._timeout_s = live.heartbeat_window / 1000
        self._lanes = lanes
        self._dead = dead
        self._woken: dict[tuple[str, str], Woken] = {}
        self._seen = 0  # real time of the last look
        self._sweep_at = 0
        self._looked = clock.mono()
        self._serving_since: int | None = None
        self._unreachable: tuple[int, str] | None = None  # since when (real) wakes fail, and why
        self._stopped: tuple[int, str] | None = None  # since when serving fails

    def health(self, about: WorkerHealth) -> WorkerHealth:
        """Return the facts of a worker with those of its guest. Called in the heartbeat thread."""
        since, why = self._unreachable or self._stopped or (None, None)
        looked = max(0, self._clock.mono() - self._looked)
        return about._replace(scheduler=self.guest.name, away_since=since, away_why=why, bridged_ms=looked)

    # --- waking --------------------------------------------------------------------------------
    async def look(self) -> int | None:
        """Wake the runs that are due. Return the real time of the next look, unless a change comes first.

        Raises StoreError.
        """
        now = (await self._store.now()).real
        sweeps = now >= self._sweep_at
        since = 0 if sweeps else self._seen - SLACK
        due = {(run.tenant, run.run): run for lane in self._lanes() for run in await self._due(lane, since, now)}
        if sweeps:
            self._woken = {key: woken for key, woken in self._woken.items() if key in due}
        self._dead.look_at({run.owner for run in due.values() if run.owner})
        wanted = [run for run in due.values() if not run.owner and self._is_wanted(run, now)]
        if sweeps or (wanted and self._unreachable is None):
            await self._wake(wanted, now)
        if sweeps:
            away = self._unreachable
            self._sweep_at = now + (min(max(SWEEP, now - away[0]), SWEEP_AWAY_MAX) if away else SWEEP)
            if self._serving_since is not None and self._clock.mono() - self._serving_since >= SWEEP:
                self._stopped = None
        self._seen, self._looked = now, self._clock.mono()
        later = [await self._store.query(DueRuns(lane, now + 1, INT_MAX, 1)) for lane in self._lanes()]
        return min([self._sweep_at, *(run.due_at or now for runs in later for run in runs)])

    async def _due(self, lane: str, since: int, now: int) -> list[Run]:
        found: dict[tuple[str, str], Run] = {}
        limit = PAGE
        while True:
            page = await self._store.query(DueRuns(lane, since, now, limit))
            found |= {(run.tenant, run.run): run for run in page}
            if len(page) < limit:
                return list(found.values())
            last = page[-1].due_at or now
            limit = PAGE if last > since else 2 * limit  # all of the page fell due at one instant
            since = last

    def _is_wanted(self, run: Run, now: int) -> bool:
        woken = self._woken.get((run.tenant, run.run))
        if woken is not None and woken.seen == (run.version, run.inbox_seq):
            return now >= woken.again
        left = (run.due_at or now) + patience_ms(run, is_first=self._dead.is_chosen_for(run, now)) - now
        return left <= 0

    async def _wake(self, runs: Sequence[Run], now: int) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self.guest.wake(runs)
        except Exception as error:  # because an engine's client may raise anything, and the search must go on
            if self._unreachable is None:
                self._unreachable = (now, _text(error))
                log.warning("%s cannot be reached: %s", self.guest.name, _text(error))
            return
        if self._unreachable is not None:
            log.info("%s answers again", self.guest.name)
            self._unreachable = None
        for run in runs:
            key, seen = (run.tenant, run.run), (run.version, run.inbox_seq)
            before = self._woken.get(key)
            after = min(2 * before.after_ms, WAKE_AGAIN_MAX) if before is not None and before.seen == seen else SWEEP
            self._woken[key] = Woken(seen, now + after, after)

    # --- serving -------------------------------------------------------------------------------
    async def serve(self, worker: SliceWorker) -> None:
        """Let the engine call for slices until cancelled; begin again if it breaks off."""
        while True:
            self._serving_since = self._clock.mono()
            try:
                await self.guest.serve(worker)
                why = "it stopped serving"
            except Exception as error:  # because an engine's client may raise anything, and serving must go on
                why = _text(error)
                log.warning("%s does not serve: %s", self.guest.name, why)
            self._serving_since = None
            if self._stopped is None:
                self._stopped = (self._seen, why)
            await self._clock.sleep(SWEEP)


def _text(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:WHY_CHARS]

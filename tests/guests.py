"""A small engine for tests of guests: it schedules slices in memory, and can be away, deaf or asked twice."""

import asyncio
from collections.abc import Sequence

from outlast.core.clock_port import Clock
from outlast.core.rows.run_rows import Run
from outlast.core.slices import SliceEnd
from outlast.engine.guest import GuestAway, SliceWorker
from outlast.errors import StoreError

OVER = frozenset({"ended", "elsewhere", "gone"})
RETRY = 1_000


class FakeEngine:
    """Engine outside of the worker processes, as a Temporal server is: one loop for each run, with timers and wakes.

    `guest()` returns a client of it for one worker process. Which worker gets a slice is its choice.
    """

    def __init__(self, clock: Clock, name: str = "temporal", *, nodes: int | None = None) -> None:
        self.name = name
        self.nodes = nodes
        self.away = False  # wakes fail
        self.refuses = False  # it does not let workers serve
        self.deaf = False  # wakes are lost, as if every bridge were dead
        self.wakes: list[str] = []
        self.pings = 0
        self.ends: list[tuple[str, str, SliceEnd]] = []  # run, worker and end of each slice
        self._clock = clock
        self._workers: list[SliceWorker] = []
        self._loops: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._woken: dict[tuple[str, str], asyncio.Event] = {}
        self._attempts: list[tuple[str, asyncio.Future[SliceEnd]]] = []
        self._turn = 0
        self.seen: dict[tuple[str, str], int | None] = {}  # version of each run in its history; None: no slice ended

    def guest(self) -> "FakeGuest":
        return FakeGuest(self)

    def thens(self, run: str = "r1") -> list[str]:
        """Return how the slices of a run ended."""
        return [end.then for name, _, end in self.ends if name == run]

    def begin(self, tenant: str, run: str) -> None:
        """Start the loop of a run, or wake it (signal-with-start)."""
        key = (tenant, run)
        if key not in self._loops or self._loops[key].done():
            self._woken[key] = asyncio.Event()
            self._loops[key] = asyncio.get_running_loop().create_task(self._loop(tenant, run))
        self._woken[key].set()

    def lose_history(self) -> None:
        """Forget every run, as a server whose history was deleted."""
        for loop in self._loops.values():
            loop.cancel()
        self._loops.clear()
        self.seen.clear()

    def lose(self, worker: str) -> None:
        """Give up the slices of a dead worker, as a server does once their heartbeats have timed out."""
        self._workers = [each for each in self._workers if each.id != worker]
        for name, attempt in self._attempts:
            if name == worker:
                attempt.cancel()

    async def _loop(self, tenant: str, run: str) -> None:
        woken = self._woken[tenant, run]
        while True:
            woken.clear()
            end = await self._slice(tenant, run)
            if end is None:
                await self._clock.sleep(RETRY)
                continue
            if end.then in OVER:
                return
            if end.after_ms != 0:
                await self._until(woken, end.after_ms)

    async def _slice(self, tenant: str, run: str) -> SliceEnd | None:
        """Let one of the workers execute a slice; None if none can be asked, or if it failed."""
        if not self._workers:
            return None
        self._turn += 1
        worker = self._workers[self._turn % len(self._workers)]
        attempt = asyncio.ensure_future(
            worker.slice(tenant, run, nodes=self.nodes, seen=self.seen.get((tenant, run), 0))
        )
        self._attempts.append((worker.id, attempt))
        self.seen.setdefault((tenant, run), None)
        try:
            await asyncio.wait([attempt])
            if attempt.cancelled():
                return None
            end = attempt.result()
        except StoreError:
            return None
        finally:
            self._attempts.remove((worker.id, attempt))
        self.ends.append((run, worker.id, end))
        self.seen[tenant, run] = end.version
        return end

    async def _until(self, woken: asyncio.Event, ms: int | None) -> None:
        waits = [asyncio.ensure_future(woken.wait())]
        if ms is not None:
            waits.append(asyncio.ensure_future(self._clock.sleep(ms)))
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()


class FakeGuest:
    """Client of a `FakeEngine` in one worker process."""

    def __init__(self, engine: FakeEngine) -> None:
        self.engine = engine
        self.name = engine.name

    async def wake(self, runs: Sequence[Run]) -> None:
        if self.engine.away:
            raise GuestAway("connection refused")
        self.engine.pings += not runs
        for run in runs:
            self.engine.wakes.append(run.run)
            if not self.engine.deaf:
                self.engine.begin(run.tenant, run.run)

    async def serve(self, worker: SliceWorker) -> None:
        if self.engine.refuses:
            raise GuestAway("namespace not found")
        self.engine._workers.append(worker)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.engine._workers = [each for each in self.engine._workers if each is not worker]

"""Virtual time, and worker processes that can be killed, frozen and disconnected from their store."""

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from outlast.clocks import VirtualClock
from outlast.core.commit import Chain, Commit, Done
from outlast.core.durations import Liveness
from outlast.core.rows.run_rows import Run
from outlast.engine.alerts import Notifier
from outlast.engine.call_errors import CallErrors
from outlast.engine.guest import Guest
from outlast.engine.worker import WorkerProcess
from outlast.errors import Rejected, StoreError, Unavailable, Uncertain
from outlast.flow import Workflow
from outlast.store.port import Store
from outlast.store.queries import LoadMany, NextDue, Owned, Query, Under


# --- time --------------------------------------------------------------------------------------
async def _none() -> bool:
    return False


class Time(VirtualClock):
    """Virtual time for the clocks and for the loop's own timers; it moves only by `pass_`."""

    def __init__(self) -> None:
        super().__init__()
        self.answered: Callable[[], Awaitable[bool]] = _none
        """Waits for an answer of a store outside of this loop; False where none is to come."""

    async def settle(self) -> None:
        """Until no task can run on without time passing."""
        ready = asyncio.get_running_loop()._ready
        while True:
            for _ in range(20_000):
                await asyncio.sleep(0)
                if not ready:
                    break
            else:
                raise AssertionError("the tasks never come to rest: something spins")
            if not await self.answered():
                return

    async def pass_(self, ms: int) -> None:
        """Let `ms` pass, stopping at the instant of every sleeper and timer until nothing can run on."""
        end = self._now + ms
        timers = asyncio.get_running_loop()._scheduled
        await self.settle()
        while True:
            while self._sleepers and self._sleepers[0][2].done():
                heapq.heappop(self._sleepers)
            while timers and timers[0]._cancelled:
                heapq.heappop(timers)._scheduled = False
            sleeper = self._sleepers[0][0] if self._sleepers else end + 1
            timer = int(timers[0]._when * 1000 + 0.999) if timers else end + 1
            at = min(sleeper, max(timer, self._now))
            if at > end:
                break
            self._now = max(self._now, at)
            while self._sleepers and self._sleepers[0][0] <= self._now:
                _, _, future = heapq.heappop(self._sleepers)
                if not future.done():
                    future.set_result(None)
            await asyncio.sleep(0)
            await self.settle()
        self._now = end
        await self.settle()


class ProcessClock:
    """The clocks of one process: they can be frozen with it, and made to disagree."""

    def __init__(self, time: Time) -> None:
        self._time = time
        self.boot_off = self.wall_off = self.mono_off = 0
        self.going = asyncio.Event()
        self.going.set()

    def wall(self) -> int:
        return self._time.wall() + self.wall_off

    def boot(self) -> int:
        return self._time.wall() + self.boot_off

    def mono(self) -> int:
        return self._time.wall() + self.mono_off

    async def sleep(self, ms: int) -> None:
        await self._time.sleep(ms)
        await self.going.wait()


# --- a process ---------------------------------------------------------------------------------
class Rule(NamedTuple):
    part: str
    act: Callable[[str], None]


class Wire:
    """One process's way to the store: answers take a turn of the loop; it can be cut, held, or listened to.

    `before` and `after` call once for the next commit whose label contains a part; `hold` keeps answers back.
    """

    def __init__(self, inner: Store, clock: ProcessClock) -> None:
        self._inner: Any = inner
        self.purge, self.forget = self._inner.purge, self._inner.forget  # attributes, so that it has Maintenance
        self.purge_ledgers = self._inner.purge_ledgers
        self.set_mapping, self.facts = self._inner.set_mapping, self._inner.facts
        self._clock = clock
        self.dead = False
        self.labels: list[str] = []
        self._before: list[Rule] = []
        self._after: list[Rule] = []
        self._held: dict[str, asyncio.Event] = {}
        self.away: list[str] = []  # of each, the next commit with it in its label is refused as Unavailable
        self.rejected: list[str] = []  # parts of labels: the store can never accept these commits
        self.rejected_once: list[str] = []
        self.lost: list[str] = []  # of each, the next such commit lands, and its answer is lost
        self.reads_fail = 0  # so many reads are refused as Unavailable
        self.lose_takes = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def before(self, part: str, act: Callable[[], Any]) -> None:
        self._before.append(Rule(part, lambda _: act()))

    def after(self, part: str, act: Callable[[], Any]) -> None:
        self._after.append(Rule(part, lambda _: act()))

    def hold(self, part: str) -> asyncio.Event:
        """Keep back the answers to commits whose label contains `part`, until the event is set."""
        self._held[part] = asyncio.Event()
        return self._held[part]

    def _hit(self, parts: list[str], label: str) -> bool:
        part = next((p for p in parts if p in label), None)
        if part is not None:
            parts.remove(part)
        return part is not None

    def _fire(self, rules: list[Rule], label: str) -> None:
        for rule in [r for r in rules if r.part in label]:
            rules.remove(rule)
            rule.act(label)

    def submit(self, commit: Commit, *, chain: Chain | None = None, linger: bool = False) -> "asyncio.Future[Done]":
        answer: asyncio.Future[Done] = asyncio.get_running_loop().create_future()
        self._fire(self._before, commit.label)
        if self.dead:
            return answer
        if self._hit(self.away, commit.label):
            inner = _failed(Unavailable("the store is away"), chain)
            landed = False
        elif any(part in commit.label for part in self.rejected) or self._hit(self.rejected_once, commit.label):
            inner = _failed(Rejected("run: 6000456 bytes in one row; the limit is 1048576"), chain)
            landed = False
        else:
            inner = self._inner.submit(commit, chain=chain, linger=linger)
            self.labels.append(commit.label)
            landed = True
        if inner.done():
            inner = self._landed(inner, commit.label, chain, was_sent=landed)
        gates = [gate for part, gate in self._held.items() if part in commit.label]
        asyncio.get_running_loop().create_task(self._deliver(inner, answer, gates, commit.label, chain))
        return answer

    def _landed(
        self, inner: "asyncio.Future[Done]", label: str, chain: Chain | None, *, was_sent: bool = True
    ) -> "asyncio.Future[Done]":
        """Return or raise the answer that the process gets for a commit."""
        if was_sent and inner.exception() is None and self._hit(self.lost, label):
            inner = _failed(Uncertain("the answer was lost"), chain)
        inner.exception()
        self._fire(self._after, label)
        return inner

    async def _deliver(
        self,
        inner: "asyncio.Future[Done]",
        answer: "asyncio.Future[Done]",
        gates: list[asyncio.Event],
        label: str,
        chain: Chain | None,
    ) -> None:
        if not inner.done():  # a store whose answers take their time
            await asyncio.wait([inner])
            inner = self._landed(inner, label, chain)
        for gate in gates:
            await gate.wait()
        await self._clock.going.wait()
        if self.dead or answer.done():
            return
        error = inner.exception()
        if error is None:
            answer.set_result(inner.result())
        else:
            answer.set_exception(error)
            answer.exception()

    async def commit(self, commit: Commit, *, chain: Chain | None = None) -> Done:
        return await self.submit(commit, chain=chain)

    def urgent_sync(self, commit: Commit) -> Done:
        if self.dead:
            raise Unavailable("dead")
        self._fire(self._before, commit.label)
        if self._hit(self.away, commit.label):
            raise Unavailable("the store is away")
        return self._inner.urgent_sync(commit)

    async def _turn(self) -> None:
        await asyncio.sleep(0)
        await self._clock.going.wait()
        if self.dead:
            await asyncio.get_running_loop().create_future()
        if self.reads_fail:
            self.reads_fail -= 1
            raise Unavailable("the store is away")

    async def take(self, lanes: Sequence[str], n: int, step: Any, **kwargs: Any) -> tuple[Run, ...]:
        await self._turn()
        taken = await self._inner.take(lanes, n, step, **kwargs)
        self._fire(self._after, "take" if taken else "took nothing")
        if taken and self.lose_takes:
            self.lose_takes = False
            raise Unavailable("the answer was lost")
        gates = [gate for part, gate in self._held.items() if part == "take"]
        for gate in gates if taken else []:
            await gate.wait()
        await self._turn()
        return taken

    async def run_rows(self, runs: Sequence[tuple[str, str]]) -> Any:
        await self._turn()
        return await self._inner.run_rows(runs)

    load, load_many, rows, page = Store.load, Store.load_many, Store.rows, Store.page

    async def query(self, query: Query[Any]) -> Any:
        if isinstance(query, LoadMany | Under | Owned | NextDue):
            await self._turn()
        return await self._inner.query(query)

    async def now(self) -> Any:
        await self._turn()
        return await self._inner.now()


def _failed(error: StoreError, chain: Chain | None) -> "asyncio.Future[Done]":
    if chain is not None:
        chain.broken = True
    future: asyncio.Future[Done] = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future


class Process:
    """Worker in a simulated process."""

    def __init__(
        self,
        store: Store,
        time: Time,
        name: str,
        workflows: Sequence[Workflow[Any]],
        live: Liveness | None,
        concurrency: int,
        notifier: Notifier | None = None,
        guest: Guest | None = None,
        errors: CallErrors | None = None,
    ) -> None:
        self.name = name
        self.clock = ProcessClock(time)
        self.wire = Wire(store, self.clock)
        self.worker = WorkerProcess(
            self.wire,
            workflows,
            worker=name,
            clock=self.clock,
            chance=lambda: 0.5,
            live=live,
            threads=False,
            concurrency=concurrency,
            notifier=notifier,
            guest=guest,
            errors=errors,
        )
        self.task = asyncio.get_running_loop().create_task(self.worker.run())

    def kill(self) -> None:
        """Stop all commits, answers and tasks of the process (SIGKILL)."""
        self.wire.dead = True
        self.clock.going.clear()

    def freeze(self) -> None:
        """Suspend the process: no answer reaches it and no sleep ends (SIGSTOP)."""
        self.clock.going.clear()

    def thaw(self) -> None:
        self.clock.going.set()

"""Connection of one process to the store, with lost calls, lost or late answers and stale lists.

It keeps the promises of the port: commits of a process land in their order, and a failed commit breaks its chain. A
commit in flight when the process dies may land or not.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from outlast.core.commit import Chain, Commit, Done, Instant
from outlast.core.rows.run_rows import Run
from outlast.errors import StoreError, Unavailable, Uncertain
from outlast.store.memory import MemoryStore
from outlast.store.port import RunRows, Store
from outlast.store.queries import Query
from tests.simulation.environment import Environment
from tests.simulation.loop import SECOND, Killed, Proc

MOST: Final = {"store_before": 0.08, "store_after": 0.08, "store_late": 0.08, "store_slow": 0.15, "list_old": 0.3}


class Wire:
    """Store as one process sees it."""

    def __init__(self, env: Environment, proc: Proc) -> None:
        self.url = "memory:"
        self.writer = f"writer-{proc.name}"
        self.skew = MemoryStore.skew
        self.env = env
        self.proc = proc
        self.away_until = 0
        self._inner = MemoryStore(env.core, self.writer)
        self._queue: deque[tuple[Commit, Chain | None, asyncio.Future[Done]]] = deque()
        self._lists: dict[Query[Any], Any] = {}
        self.mapping = self._inner.mapping
        self.facts = self._inner.facts
        self.on_change = self._inner.on_change
        self.close = self._inner.close
        self.purge = self._inner.purge
        self.purge_ledgers = self._inner.purge_ledgers
        self.forget = self._inner.forget

    def snapshot(self, run: tuple[str, str]) -> RunRows:
        """Return all rows of a run now, without faults."""
        rows = self._inner._run_rows(run, self.env.core.now())
        assert rows is not None
        return rows

    def _alive(self) -> None:
        if self.proc.dead:
            raise Killed

    def _reachable(self) -> None:
        self._alive()
        loop, dice = self.env.loop, self.env.dice
        if dice.storm and loop.now < self.away_until:
            raise Unavailable("the store is away")
        if dice.happens("store_before", MOST["store_before"]):
            raise Unavailable("lost on the way")

    async def _on_the_way_back(self, *, lost: bool = False) -> None:
        dice = self.env.dice
        if lost and dice.happens("store_after", MOST["store_after"]):
            raise Uncertain("it may have happened; the answer was lost")
        if dice.happens("store_late", MOST["store_late"]):
            await asyncio.sleep(dice.span(SECOND, 40 * SECOND) / SECOND)
        elif dice.rng.random() < dice.latency:
            await asyncio.sleep(dice.span(1, 300) / SECOND)
        self._alive()

    # --- writing -----------------------------------------------------------------------------------
    def submit(self, commit: Commit, *, chain: Chain | None = None, linger: bool = False) -> "asyncio.Future[Done]":
        answer: asyncio.Future[Done] = self.env.loop.create_future()
        dice = self.env.dice
        try:
            self._reachable()
        except StoreError as error:
            if chain is not None:
                chain.broken = True
            _refuse(answer, error)
            return answer
        if self._queue:
            self._queue.append((commit, chain, answer))
        elif dice.happens("store_slow", MOST["store_slow"]):
            self._queue.append((commit, chain, answer))
            self.env.later(dice.span(1, 30 * SECOND), self._pump)
        else:
            self._land(commit, chain, answer)
        return answer

    def _pump(self) -> None:
        """Land delayed commits in order."""
        while self._queue:
            commit, chain, answer = self._queue.popleft()
            try:
                self._land(commit, chain, answer)
            except Killed:  # the process died at a crash point of this commit: later ones are not sent
                self._queue.clear()

    def drop(self) -> None:
        """Drop the unsent commits of a dead process."""
        self._queue.clear()

    def _land(self, commit: Commit, chain: Chain | None, answer: "asyncio.Future[Done]") -> None:
        self.env.core.landing = self.proc
        inner = self._inner.submit(commit, chain=chain)
        dice = self.env.dice
        error = inner.exception()
        if error is None and dice.happens("store_after", MOST["store_after"]):
            error = Uncertain("it may have landed; the answer was lost")
            if chain is not None:
                chain.broken = True
        if dice.happens("store_late", MOST["store_late"]):
            wait = dice.span(SECOND, 40 * SECOND)
        else:
            wait = dice.span(1, 300) if dice.rng.random() < dice.latency else 0
        if wait:
            self.env.later(wait, _give, answer, error, None if error else inner.result())
        else:
            _give(answer, error, None if error else inner.result())

    async def commit(self, commit: Commit, *, chain: Chain | None = None) -> Done:
        done = await self.submit(commit, chain=chain)
        self._alive()
        return done

    def urgent_sync(self, commit: Commit) -> Done:
        self._reachable()
        self.env.core.landing = self.proc
        return self._inner.urgent_sync(commit)

    async def take(self, lanes: Sequence[str], n: int, step: Any, **kwargs: Any) -> tuple[Run, ...]:
        self._reachable()
        self.env.core.landing = self.proc
        taken = await self._inner.take(lanes, n, step, **kwargs)
        await self._on_the_way_back(lost=True)
        return taken

    async def set_mapping(self, mapping: Any, rearm: Any) -> Any:
        self._reachable()
        return await self._inner.set_mapping(mapping, rearm)

    def hasten(self) -> None:
        """Do nothing, because commits are delayed by the wire only."""

    # --- reading -----------------------------------------------------------------------------------
    load, load_many, rows, page = Store.load, Store.load_many, Store.rows, Store.page

    async def query(self, query: Query[Any]) -> Any:
        if not query.polls:
            return await self._read(lambda: self._inner.query(query))
        self._reachable()
        if query not in self._lists or not self.env.dice.happens("list_old", MOST["list_old"]):
            self._lists[query] = await self._inner.query(query)
        answer = self._lists[query]
        await self._on_the_way_back()
        return answer

    async def run_rows(self, runs: Sequence[tuple[str, str]]) -> tuple[RunRows | None, ...]:
        return await self._read(lambda: self._inner.run_rows(runs))

    async def now(self) -> Instant:
        return await self._read(self._inner.now)

    async def _read(self, read: Callable[[], Awaitable[Any]]) -> Any:
        self._reachable()
        answer = await read()
        await self._on_the_way_back()
        return answer


def _refuse(answer: "asyncio.Future[Done]", error: BaseException) -> None:
    answer.set_exception(error)
    answer.exception()  # read, because a refused commit without an awaiter is no error


def _give(answer: "asyncio.Future[Done]", error: BaseException | None, done: Done | None) -> None:
    if answer.done():
        return
    if error is not None:
        _refuse(answer, error)
    else:
        assert done is not None
        answer.set_result(done)

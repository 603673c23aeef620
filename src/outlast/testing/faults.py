"""A store that fails on schedule, around any other store: before a commit, after it, late, or with a stale list."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Any, TypeVar

from typing_extensions import override

from outlast.core.commit import Chain, Commit, Done, Instant, Mapping
from outlast.core.rows import AnyKind, Cursor, Key, Kind, R, Run
from outlast.errors import Stale, StoreError, Unavailable, Uncertain
from outlast.store.batch import CHAIN
from outlast.store.fair_queueing import NONE_HELD, HeldCounts
from outlast.store.port import Page, RunRows, Step, Store

T = TypeVar("T")


class FaultKind(Enum):
    """The fault that is injected into one call."""

    BEFORE = "the call does not reach the store and raises Unavailable"
    AFTER = "the store carries the call out, and the caller gets Uncertain"
    LATE = "the result comes late"
    OLD = "a list is returned as it was at the previous call"


Schedule = Callable[[str, Commit | None], FaultKind | None]


async def _at_once() -> None: ...


class FaultyStore(Store):
    """A store around `inner` that asks `schedule(method, commit)` before each call which fault to inject, if any.

    `late` is awaited before a late result. Takes, mapping changes and single reads fail before or after the call. Lists
    may be stale.
    """

    def __init__(self, inner: Store, schedule: Schedule, late: Callable[[], Awaitable[None]] = _at_once) -> None:
        self.url = inner.url
        self.writer = inner.writer
        self._inner = inner
        self._schedule = schedule
        self._late = late
        self._doomed: set[Chain] = set()  # chains with a lost result: later commits are refused
        self._lists: dict[Any, Any] = {}
        self._pending: set[asyncio.Task[None]] = set()

    # --- writing -------------------------------------------------------------------------
    @override
    def submit(self, commit: Commit, *, chain: Chain | None = None, linger: bool = False) -> "asyncio.Future[Done]":
        fault = self._schedule("submit", commit)
        outer: asyncio.Future[Done] = asyncio.get_running_loop().create_future()
        if chain is not None and chain in self._doomed:
            outer.set_exception(Stale(CHAIN))
        elif fault is FaultKind.BEFORE:
            if chain is not None:
                self._doomed.add(chain)
            outer.set_exception(Unavailable("lost on the way"))
        else:
            inner = self._inner.submit(commit, chain=chain, linger=linger)
            if fault is None:
                return inner
            if fault is FaultKind.AFTER and chain is not None:
                self._doomed.add(chain)
            task = asyncio.ensure_future(self._answer(inner, outer, chain, fault))
            self._pending.add(task)
            task.add_done_callback(self._pending.discard)
            return outer
        outer.exception()  # read it, so that asyncio does not log a refused commit that is not awaited
        if chain is not None:
            chain.broken = True
        return outer

    async def _answer(
        self, inner: "asyncio.Future[Done]", outer: "asyncio.Future[Done]", chain: Chain | None, fault: FaultKind
    ) -> None:
        try:
            done: Done | StoreError = await inner
        except StoreError as error:
            done = error
        if fault is FaultKind.LATE:
            await self._late()
        elif isinstance(done, Done):
            done = Uncertain("it may have landed; the answer was lost")
        if isinstance(done, StoreError) and chain is not None:
            chain.broken = True
        if outer.cancelled():
            return
        if isinstance(done, StoreError):
            outer.set_exception(done)
            outer.exception()  # marks it as retrieved: the caller need not await it
        else:
            outer.set_result(done)

    @override
    def hasten(self) -> None:
        self._inner.hasten()

    @override
    async def urgent(self, commit: Commit) -> Done:
        return await self._call("urgent", commit, lambda: self._inner.urgent(commit))

    @override
    def urgent_sync(self, commit: Commit) -> Done:
        fault = self._schedule("urgent", commit)
        if fault is FaultKind.BEFORE:
            raise Unavailable("lost on the way")
        done = self._inner.urgent_sync(commit)
        if fault is FaultKind.AFTER:
            raise Uncertain("it may have landed; the answer was lost")
        return done

    @override
    async def take(
        self, lanes: Sequence[str], n: int, step: Step, *, owners: Sequence[str] = (), held: HeldCounts = NONE_HELD
    ) -> tuple[Run, ...]:
        return await self._call("take", None, lambda: self._inner.take(lanes, n, step, owners=owners, held=held))

    @override
    async def set_mapping(self, mapping: Mapping, rearm: Callable[[Run, Mapping], int | None]) -> Mapping:
        return await self._call("set_mapping", None, lambda: self._inner.set_mapping(mapping, rearm))

    @override
    async def purge(self, before: int, n: int) -> int:
        return await self._call("purge", None, lambda: self._inner.purge(before, n))

    @override
    async def forget(self, n: int) -> int:
        return await self._call("forget", None, lambda: self._inner.forget(n))

    async def _call(self, name: str, commit: Commit | None, call: Callable[[], Awaitable[T]]) -> T:
        fault = self._schedule(name, commit)
        if fault is FaultKind.BEFORE:
            raise Unavailable("lost on the way")
        answer = await call()
        if fault is FaultKind.AFTER:
            raise Uncertain("it may have happened; the answer was lost")
        if fault is FaultKind.LATE:
            await self._late()
        return answer

    # --- reading: single rows fail or come late, lists may be stale ---
    @override
    async def load(self, kind: Kind[R], key: Key) -> R | None:
        return await self._call("load", None, lambda: self._inner.load(kind, key))

    @override
    async def load_many(self, kind: Kind[R], keys: Sequence[Key]) -> tuple[R | None, ...]:
        return await self._call("load_many", None, lambda: self._inner.load_many(kind, keys))

    @override
    async def rows(self, kind: Kind[R], prefix: Key, *, after: Key = (), limit: int = 10_000) -> tuple[R, ...]:
        return await self._call("rows", None, lambda: self._inner.rows(kind, prefix, after=after, limit=limit))

    @override
    async def in_order(self, kind: Kind[R], prefix: Key, *, after: int = 0, limit: int = 10_000) -> tuple[R, ...]:
        return await self._call("in_order", None, lambda: self._inner.in_order(kind, prefix, after=after, limit=limit))

    @override
    async def count(self, kind: AnyKind, prefixes: Sequence[Key]) -> tuple[int, ...]:
        return await self._call("count", None, lambda: self._inner.count(kind, prefixes))

    @override
    async def run_rows(self, runs: Sequence[tuple[str, str]]) -> tuple[RunRows | None, ...]:
        return await self._call("run_rows", None, lambda: self._inner.run_rows(runs))

    @override
    async def now(self) -> Instant:
        return await self._call("now", None, self._inner.now)

    @override
    async def page(
        self, kind: Kind[R], tenant: str, where: dict[str, str | int], *, cursor: str = "", limit: int = 50
    ) -> Page[R]:
        asked = (kind.name, tenant, tuple(where.items()), cursor, limit)
        page = self._inner.page
        return await self._list("page", asked, lambda: page(kind, tenant, where, cursor=cursor, limit=limit))

    @override
    async def tally(self, kind: AnyKind, tenant: str, column: str) -> dict[str, int]:
        return await self._list("tally", (kind.name, tenant, column), lambda: self._inner.tally(kind, tenant, column))

    @override
    async def owing(self, tenant: str, subscription: str, n: int) -> tuple[Cursor, ...]:
        return await self._call("owing", None, lambda: self._inner.owing(tenant, subscription, n))

    @override
    async def census(self, kind: AnyKind, columns: Sequence[str], *, filled: str = "") -> dict[tuple[str, ...], int]:
        asked = (kind.name, tuple(columns), filled)
        return await self._list("census", asked, lambda: self._inner.census(kind, columns, filled=filled))

    @override
    async def next_due(self, lanes: Sequence[str]) -> int | None:
        return await self._list("next_due", tuple(lanes), lambda: self._inner.next_due(lanes))

    @override
    async def queued(self, tenant: str, limit: int) -> tuple[Run, ...]:
        return await self._list("queue", (tenant, limit), lambda: self._inner.queued(tenant, limit))

    @override
    async def owned(self, owner: str) -> tuple[Run, ...]:
        return await self._list("owned", owner, lambda: self._inner.owned(owner))

    @override
    async def moving(self, tenant: str, since: int, limit: int) -> tuple[Run, ...]:
        return await self._list("moving", (tenant, since, limit), lambda: self._inner.moving(tenant, since, limit))

    async def _list(self, name: str, asked: object, call: Callable[[], Awaitable[T]]) -> T:
        fault = self._schedule(name, None)
        if fault is FaultKind.BEFORE:
            raise Unavailable("lost on the way")
        place = (name, asked)
        if fault is not FaultKind.OLD or place not in self._lists:
            self._lists[place] = await call()
        answer: T = self._lists[place]
        if fault is FaultKind.LATE:
            await self._late()
        return answer

    # --- methods that do not fail -------------------------------------------------------
    @override
    def mapping(self) -> Mapping:
        return self._inner.mapping()

    @override
    def facts(self) -> dict[str, str | int]:
        return self._inner.facts()

    @override
    def on_change(self, wake: Callable[[], None]) -> Callable[[], None]:
        return self._inner.on_change(wake)

    @override
    async def migrate(self) -> None:
        await self._inner.migrate()

    @override
    async def close(self) -> None:
        await self._inner.close()


__all__ = ["FaultKind", "FaultyStore"]

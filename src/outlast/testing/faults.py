"""A store that fails on schedule, around any other store: before a commit, after it, late, or with a stale list."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from enum import Enum
from typing import Any, Concatenate, ParamSpec, TypeVar

from typing_extensions import override

from outlast.core.commit import Chain, Commit, Done
from outlast.errors import Stale, StoreError, Unavailable, Uncertain
from outlast.store.batch import CHAIN
from outlast.store.port import Maintenance, Store
from outlast.store.queries import Query

T = TypeVar("T")
P = ParamSpec("P")


class FaultKind(Enum):
    """The fault that is injected into one call."""

    BEFORE = "the call does not reach the store and raises Unavailable"
    AFTER = "the store carries the call out, and the caller gets Uncertain"
    LATE = "the result comes late"
    OLD = "a list is returned as it was at the previous call"


Schedule = Callable[[str, Commit | None], FaultKind | None]


async def _at_once() -> None: ...


def failing(
    method: Callable[Concatenate[Any, P], Awaitable[T]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return the method of FaultyStore that calls this method of the inner store, under the scheduled fault."""
    name = method.__name__

    async def call(self: "FaultyStore", /, *args: P.args, **kwargs: P.kwargs) -> T:
        inner: Callable[P, Awaitable[T]] = getattr(self._inner, name)
        return await self._call(name, lambda: inner(*args, **kwargs))

    return call


def forwarding(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Return the method of FaultyStore that calls this method of the inner store, without faults."""

    def call(self: "FaultyStore", /, *args: P.args, **kwargs: P.kwargs) -> T:
        inner: Callable[P, T] = getattr(self._inner, method.__name__)
        return inner(*args, **kwargs)

    return call


class FaultyStore(Store, Maintenance):
    """A store around `inner` that asks `schedule(method, commit)` before each call which fault to inject, if any.

    `late` is awaited before a late result. `method` is the name of the port's method, or for a query the name of its
    class, such as "Load" or "Owned". Takes, mapping changes and reads fail before or after the call. Only a query that
    polls may be stale.
    """

    def __init__(self, inner: Store, schedule: Schedule, late: Callable[[], Awaitable[None]] = _at_once) -> None:
        self.url = inner.url
        self.writer = inner.writer
        self.skew = inner.skew
        self._inner = inner
        self._schedule = schedule
        self._late = late
        self._doomed: set[Chain] = set()  # chains with a lost result: later commits are refused
        self._lists: dict[Query[Any], Any] = {}
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
    def urgent_sync(self, commit: Commit) -> Done:
        fault = self._schedule("urgent", commit)
        if fault is FaultKind.BEFORE:
            raise Unavailable("lost on the way")
        done = self._inner.urgent_sync(commit)
        if fault is FaultKind.AFTER:
            raise Uncertain("it may have landed; the answer was lost")
        return done

    # --- reading: a query may fail or come late, and one that polls may be stale ---
    @override
    async def query(self, query: Query[T]) -> T:
        name = type(query).__name__
        if not query.polls:
            return await self._call(name, lambda: self._inner.query(query))
        fault = self._schedule(name, None)
        if fault is FaultKind.BEFORE:
            raise Unavailable("lost on the way")
        if fault is not FaultKind.OLD or query not in self._lists:
            self._lists[query] = await self._inner.query(query)
        answer: T = self._lists[query]
        if fault is FaultKind.LATE:
            await self._late()
        return answer

    async def _call(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        fault = self._schedule(name, None)
        if fault is FaultKind.BEFORE:
            raise Unavailable("lost on the way")
        answer = await call()
        if fault is FaultKind.AFTER:
            raise Uncertain("it may have happened; the answer was lost")
        if fault is FaultKind.LATE:
            await self._late()
        return answer

    # --- methods that only fail, and methods that do not fail -----------------------------
    take = failing(Store.take)
    run_rows = failing(Store.run_rows)
    now = failing(Store.now)
    set_mapping = failing(Maintenance.set_mapping)
    purge = failing(Maintenance.purge)
    purge_ledgers = failing(Maintenance.purge_ledgers)
    forget = failing(Maintenance.forget)

    hasten = forwarding(Store.hasten)
    mapping = forwarding(Store.mapping)
    facts = forwarding(Maintenance.facts)
    on_change = forwarding(Store.on_change)
    close = forwarding(Store.close)


__all__ = ["FaultKind", "FaultyStore"]

"""A lease is renewed while the event loop is alive: not longer, and not less long because a store is silent (S-5)."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sized
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import BaseModel

from outlast import Context, DidNotHappen, Happened, Unknown, Workflow, activity
from outlast.core.approvals import Actor
from outlast.core.commit import Commit
from outlast.core.durations import Liveness
from outlast.core.machine import LeaseStatus
from outlast.core.rows.run_rows import RUN, Run, is_over
from outlast.core.rows.store_rows import STORE, WORKER, Worker
from outlast.engine.worker import WorkerProcess
from outlast.errors import Unavailable, Uncertain
from outlast.runtime.local_worker import Serving, worker_of
from outlast.runtime.operations import Operations
from outlast.runtime.stores import open_store
from outlast.store.port import Store
from outlast.store.queries import CountBy


class Nothing(BaseModel):
    """A state."""


STALL_MS = 200
LIVE = Liveness(heartbeat_window=3_000, heartbeat_every=50, loop_stall_max=STALL_MS)
PATIENCE_S = 60
still = Workflow("still", state=Nothing)


@still.node(start=True)
async def stand(ctx: Context[Nothing]) -> None:
    """Return at once, because the node does no work."""


class Call(BaseModel):
    """A state that names what is called."""

    what: str


class Shop:
    """It acts once it is let, and can be asked what it did."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.asked: list[str] = []
        self.go = {"short": asyncio.Event(), "long": asyncio.Event(), "later": asyncio.Event()}

    async def act(self, what: str) -> str:
        self.asked.append(what)
        await self.go[what].wait()
        self.did.append(what)
        return what


def buying(shop: Shop) -> Workflow[Any]:
    """One call that can be reconciled."""
    flow = Workflow("buying", state=Call)

    @activity(key="buy/{what}", no_undo="a test")
    async def buy(what: str) -> str:
        return await shop.act(what)

    @buy.reconcile
    async def bought(what: str) -> Happened[str] | DidNotHappen | Unknown:
        return Happened(what) if what in shop.did else DidNotHappen()

    @flow.node(start=True)
    async def only(ctx: Context[Call]) -> None:
        await ctx.do(buy, ctx.state.what)

    return flow


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Store, WorkerProcess]]:
    """A worker on the system's clock, with its heartbeat in a thread."""
    store = await open_store("memory:")
    worker = worker_of(store, [still], live=LIVE)
    task = asyncio.create_task(worker.run())
    await when(lambda: renewals(store, worker), 2)
    try:
        yield store, worker
    finally:
        worker.drain()
        await task
        await store.close()


async def renewals(store: Store, worker: WorkerProcess) -> int:
    """How often its row was written."""
    rows = [row for row in await store.rows(WORKER, (STORE,)) if isinstance(row, Worker) and row.id == worker.id]
    return rows[0].version if rows else 0


async def when(count: Callable[[], Awaitable[int]], at_least: int) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while (n := await count()) < at_least:
        assert time.monotonic() < give_up, f"{n}, not {at_least}"
        await asyncio.sleep(0.01)


@pytest.mark.req("REC-3")
def test_a_read_that_is_not_answered_costs_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Housekeeping waits for a store that is silent; the event loop runs and reports it."""

    async def live() -> None:
        async with serving() as (store, worker):
            asked = asyncio.Event()
            silent = asyncio.Event()
            load = store.load

            async def silence(*args: Any) -> Any:
                asked.set()
                await silent.wait()
                return await load(*args)

            monkeypatch.setattr(store, "load", silence)
            try:
                await asked.wait()
                before = await renewals(store, worker)
                await when(lambda: renewals(store, worker), before + 4 * STALL_MS // LIVE.heartbeat_every)
            finally:
                silent.set()

    asyncio.run(live())


@pytest.mark.req("REC-3")
def test_a_blocked_event_loop_renews_no_lease() -> None:
    """Its runs are better served by a worker that executes them."""

    async def live() -> None:
        async with serving() as (store, worker):
            before = await renewals(store, worker)
            time.sleep(10 * STALL_MS / 1_000)  # noqa: ASYNC251 - the stall itself
            after = await renewals(store, worker)
            assert after - before <= 2 * STALL_MS // LIVE.heartbeat_every, "it was renewed all the while"
            await when(lambda: renewals(store, worker), after + 2)

    asyncio.run(live())


@pytest.mark.req("REC-3", "REC-5", "EFF-1")
def test_a_renewal_whose_answer_was_lost_repeats_no_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The renewal landed but its answer was lost, so the next one is refused and the process gets a new worker id.

    One call ends while the old worker drains. Another outlasts the grace and is settled by the successor.
    """

    async def live() -> None:
        shop = Shop()
        flow = buying(shop)
        times = Liveness(
            heartbeat_window=900, heartbeat_every=300, drain_grace=300, attempt_timeout=1_500, start_budget=200,
            settle_margin=100,
        )  # fmt: skip
        store = await open_store("memory:")
        process = Serving(store, lambda: worker_of(store, [flow], live=times))
        first = process.worker.id
        task = asyncio.create_task(process.run())
        ops = Operations(store, tenant="t", actor=Actor("me"), workflows={"buying": flow})
        for what in ("short", "long"):
            await ops.start_run("buying", {"what": what}, run_id=what)
        await when(lambda: count(shop.asked), 2)
        renew, lost = store.urgent_sync, threading.Event()

        def lose(commit: Commit) -> Any:
            done = renew(commit)
            if first in commit.label and not lost.is_set():
                lost.set()
                raise Uncertain("the answer was lost")
            return done

        monkeypatch.setattr(store, "urgent_sync", lose)
        await when(lambda: count("x" * process.worker.replaced or "x" * (process.worker.id != first)), 1)
        shop.go["short"].set()
        await when(lambda: count("x" * (process.worker.id != first)), 1)
        shop.go["long"].set()
        shop.go["later"].set()
        await ops.start_run("buying", {"what": "later"}, run_id="later")

        async def completed() -> int:
            return (await store.query(CountBy(RUN, "t", "status"))).get("completed", 0)

        await when(completed, 3)
        assert sorted(shop.did) == ["later", "long", "short"], "each once"
        (old,) = [row for row in await store.rows(WORKER, (STORE,)) if isinstance(row, Worker) and row.id == first]
        assert lost.is_set() and old.status is LeaseStatus.CLOSED and process.worker.id != first
        process.drain()
        await task
        await store.close()

    asyncio.run(live())


async def count(things: Sized) -> int:
    return len(things)


@pytest.mark.req("REC-3", "REC-5")
def test_a_renewal_in_progress_leaves_no_lease_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """The heartbeat's thread renews once more while the worker closes its row."""

    async def live() -> None:
        async with serving() as (store, worker):
            load, under_way = store.load, [worker._heartbeat.renew]

            async def found(kind: Any, key: Any) -> Any:
                row = await load(kind, key)
                if kind is WORKER and under_way:
                    assert under_way.pop()()
                return row

            worker._heartbeat.stop()  # the test renews in its place
            monkeypatch.setattr(store, "load", found)
            worker.drain()
            await when(lambda: closed(store, worker), 1)
            assert not under_way

    asyncio.run(live())


async def closed(store: Store, worker: WorkerProcess) -> int:
    rows = [row for row in await store.rows(WORKER, (STORE,)) if isinstance(row, Worker) and row.id == worker.id]
    return int(rows[0].status is LeaseStatus.CLOSED)


@pytest.mark.req("REC-3", "RT-5")
def test_draining_during_a_restart_stops_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM arrives between the end of the replaced worker and the beginning of its successor."""

    async def live() -> None:
        store = await open_store("memory:")
        process = Serving(store, lambda: worker_of(store, [still], live=LIVE))
        first, ended = process.worker, asyncio.Event()
        run, load = first.run, store.load

        async def to_its_end() -> None:
            await run()
            ended.set()

        async def told(*key: Any) -> Any:
            if ended.is_set():
                process.drain()
            return await load(*key)

        monkeypatch.setattr(first, "run", to_its_end)
        monkeypatch.setattr(store, "load", told)
        task = asyncio.create_task(process.run())
        await when(lambda: renewals(store, first), 2)
        first._on_lost()  # as its heartbeat does when it finds its row closed
        async with asyncio.timeout(PATIENCE_S):
            await task
        assert process.worker is first
        await store.close()

    asyncio.run(live())


@pytest.mark.req("REC-3", "RT-5")
def test_a_worker_waits_for_a_store_that_fails_right_after_it_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every read fails from the moment the worker has opened; it serves once they answer."""

    async def live() -> None:
        store = await open_store("memory:")
        process = Serving(store, lambda: worker_of(store, [still], live=LIVE))
        await process.open()
        failed: list[str] = []

        def away(name: str) -> Callable[..., Awaitable[Any]]:
            async def fail(*_: Any, **__: Any) -> Any:
                failed.append(name)
                raise Unavailable("the store is away")

            return fail

        for name in ("query", "run_rows", "now", "take"):
            monkeypatch.setattr(store, name, away(name))
        task = asyncio.create_task(process.run())
        await when(lambda: count(failed), 2)
        assert not task.done(), task.exception()
        monkeypatch.undo()
        ops = Operations(store, tenant="t", actor=Actor("me"), workflows={"still": still})
        await ops.start_run("still", {}, run_id="r1")
        await when(lambda: ended_runs(store), 1)
        process.drain()
        await task
        await store.close()

    asyncio.run(live())


async def ended_runs(store: Store) -> int:
    return len([row for row in await store.rows(RUN, ()) if isinstance(row, Run) and is_over(row)])

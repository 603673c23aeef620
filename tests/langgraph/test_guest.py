"""Threads of one worker, with slices that a script answers: order, capacity, repetition and errors."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver
from typing_extensions import override

from outlast.core.approvals import Actor
from outlast.core.durations import longest_claim
from outlast.core.rows.run_rows import RUN, Run
from outlast.core.slices import SliceEnd
from outlast.engine.guest import GuestAway
from outlast.errors import Unavailable
from outlast.langgraph import LangGraphGuest
from outlast.langgraph.langgraph_guest import config_of
from outlast.runtime.operations import Operations
from outlast.runtime.stores import open_store
from outlast.store.port import Store
from tests.langgraph.flows import LIVE, order

pytestmark = pytest.mark.req("RT-3")

WAITS = SliceEnd("waits", 1, "booking", "langgraph:order@1", "waiting", why="waits for signal packed")


class Saver(InMemorySaver):
    """Threads in memory, behind a connection that can break."""

    breaks = False

    @override
    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        if self.breaks:
            raise ConnectionError("connection refused")
        return await super().aget_tuple(config)


class Script:
    """A worker whose slices begin when the guest asks and end when the test says."""

    id = "w-script"
    live = LIVE
    claim_time = longest_claim(LIVE)
    lanes = ("langgraph:order@1",)

    def __init__(self, store: Store, saver: Saver | None = None, concurrency: int = 100) -> None:
        self.guest = LangGraphGuest(store, [order], saver, concurrency=concurrency)
        self.asked: list[str] = []
        self.seen: list[int | None] = []
        self.most = 0
        self._open: dict[str, asyncio.Future[SliceEnd]] = {}
        self._changed = asyncio.Condition()

    async def slice(self, tenant: str, run: str, *, nodes: int | None = None, seen: int | None = None) -> SliceEnd:
        async with self._changed:
            self.asked.append(run)
            self.seen.append(seen)
            self._open[run] = asyncio.get_running_loop().create_future()
            self.most = max(self.most, len(self._open))
            self._changed.notify_all()
        try:
            return await self._open[run]
        finally:
            del self._open[run]

    async def until(self, *asked: str) -> None:
        """Wait until slices of exactly these runs were asked for, in this order."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.asked) >= len(asked))
        assert self.asked == list(asked)

    def answer(self, run: str, end: SliceEnd | Exception = WAITS) -> None:
        """End the slice of a run."""
        if isinstance(end, Exception):
            self._open[run].set_exception(end)
        else:
            self._open[run].set_result(end)

    async def idle(self) -> None:
        """Wait until no thread executes."""
        while self.guest._threads:  # noqa: ASYNC110 - LangGraph has no notice for it
            await asyncio.sleep(0.001)


@asynccontextmanager
async def serving(script: Script) -> AsyncIterator[None]:
    task = asyncio.create_task(script.guest.serve(script))
    await asyncio.sleep(0)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def started(store: Store, *runs: str, scheduler: str = "langgraph", tenant: str = "default") -> list[Run]:
    ops = Operations(store, tenant=tenant, actor=Actor("bo"), workflows={order.name: order})
    for run in runs:
        await ops.start(order.name, {}, key=run, run_id=run, scheduler=scheduler)
    rows = [await store.load(RUN, (tenant, run)) for run in runs]
    return [row for row in rows if row is not None]


def with_memory(body: Callable[[Store], Any]) -> Callable[[], None]:
    """Run a test with a store in memory."""

    async def run() -> None:
        store = await open_store("memory:")
        async with asyncio.timeout(20):
            await body(store)
        await store.close()

    return lambda: asyncio.run(run())


async def threads(saver: InMemorySaver, runs: Sequence[Run]) -> list[str]:
    """Return the runs that have a thread."""
    return [run.run for run in runs if await saver.aget_tuple(config_of(run.tenant, run.run))]


@with_memory
async def test_a_wake_during_a_slice_leads_to_another_one(store: Store) -> None:
    [a], script = await started(store, "a"), Script(store)
    async with serving(script):
        await script.guest.wake([a])
        await script.until("a")
        await script.guest.wake([a])
        script.answer("a")
        await script.until("a", "a")
        script.answer("a")
        await script.idle()
    assert script.asked == ["a", "a"]


@with_memory
async def test_threads_are_as_many_as_the_worker_has_slots_and_no_tenant_takes_all(store: Store) -> None:
    script = Script(store, concurrency=2)
    many, [small] = await started(store, "a", "b", "c", "d"), await started(store, "z", tenant="small")
    await script.guest.wake([*many, small])  # it does not serve yet: nothing is lost
    async with serving(script):
        await script.until("a", "z")
        script.answer("a")
        await script.until("a", "z", "b")
        for run in "zb":
            script.answer(run)
        await script.until("a", "z", "b", "c", "d")
        for run in "cd":
            script.answer(run)
        await script.idle()
    assert script.most == 2


@with_memory
async def test_a_run_without_a_slot_is_asked_for_later_and_leaves_its_place_to_others(store: Store) -> None:
    [a, b], script = await started(store, "a", "b"), Script(store, concurrency=1)
    async with serving(script):
        await script.guest.wake([a, b])
        await script.until("a")
        script.answer("a", WAITS._replace(then="due", after_ms=50, why="no free slot"))
        await script.until("a", "b")
        script.answer("b")
        await script.until("a", "b", "a")
        script.answer("a")
        await script.idle()


@with_memory
async def test_a_run_of_another_engine_is_not_executed_and_loses_its_thread(store: Store) -> None:
    [a], saver = await started(store, "a"), Saver()
    script = Script(store, saver)
    async with serving(script):
        await script.guest.wake([a])
        await script.until("a")
        script.answer("a")
        await script.idle()
        assert await threads(saver, [a]) == ["a"]
        await Operations(store, tenant="default", actor=Actor("bo"), workflows={}).move_to("a", "outlast", force=True)
        await script.guest.wake([a])
        await script.idle()
        assert script.asked == ["a"]
        assert await threads(saver, [a]) == []


@with_memory
async def test_without_a_checkpointer_of_the_caller_no_thread_is_kept_while_its_run_waits(store: Store) -> None:
    [a], script = await started(store, "a"), Script(store)
    async with serving(script):
        await script.guest.wake([a])
        await script.until("a")
        script.answer("a")
        await script.idle()
    [graph] = script.guest.graphs.values()
    assert isinstance(graph.checkpointer, InMemorySaver)
    assert not graph.checkpointer.storage


@with_memory
async def test_a_checkpointer_that_raises_is_an_outage_until_a_thread_ends_well(store: Store) -> None:
    [a], saver = await started(store, "a"), Saver()
    script = Script(store, saver)
    async with serving(script):
        saver.breaks = True
        await script.guest.wake([a])
        await script.idle()
        with pytest.raises(GuestAway, match="its checkpointer raises ConnectionError: connection refused"):
            await script.guest.wake([])
        assert not script.asked
        saver.breaks = False
        await script.guest.wake([a])
        await script.until("a")
        script.answer("a")
        await script.idle()
        await script.guest.wake([])


@with_memory
async def test_a_store_that_is_away_is_no_outage_of_langgraph(store: Store) -> None:
    [a], saver = await started(store, "a"), Saver()
    script = Script(store, saver)
    async with serving(script):
        await script.guest.wake([a])
        await script.until("a")
        script.answer("a", Unavailable("the store is away", ""))
        await script.idle()
        saver.breaks = True
        await script.guest.wake([])
        saver.breaks = False
        await script.guest.wake([a])
        await script.until("a", "a")
        script.answer("a")
        await script.idle()


def test_a_thread_that_saw_more_than_the_store_says_so_in_its_next_slice() -> None:
    @with_memory
    async def body(store: Store) -> None:
        [a], script = await started(store, "a"), Script(store, Saver())
        async with serving(script):
            for version in (99, 1):  # of the row as the thread sees it
                await script.guest.wake([a])
                await script.until(*"aa"[: len(script.asked) + 1])
                script.answer("a", WAITS._replace(version=version))
                await script.idle()
            thread = await script.guest.graph(a).aget_state(config_of("default", "a"))
            assert thread.values["run_version"] == 1
            assert len(thread.interrupts) == 1
            assert script.seen == [a.version, 99]

    body()

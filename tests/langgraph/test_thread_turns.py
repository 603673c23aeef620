"""Writers of one thread in one process take turns, so that no write loses against one checkpoint after the other."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final

import pytest

from outlast.core.rows.graph_rows import GRAPH_WRITE
from outlast.langgraph import OutlastSaver
from outlast.runtime.stores import open_store
from outlast.runtime.thread_turns import ThreadTurns
from outlast.store.port import Store
from tests.langgraph.test_saver import FIRST, LOOP, checkpoint_of, config_of

pytestmark = pytest.mark.req("RT-3")
SLOWNESS: Final = ContextVar("slowness", default=1)
"""Turns of the loop that a read of the store takes in this task."""


def slowed(store: Any) -> None:
    """Let other tasks go on while a task reads, as with a database."""

    def slow(read: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def slowly(*args: Any, **options: Any) -> Any:
            for _ in range(SLOWNESS.get()):
                await asyncio.sleep(0)
            return await read(*args, **options)

        return slowly

    store.load_many, store.rows = slow(store.load_many), slow(store.rows)


async def a_slow_write_lands_beside_checkpoints(store: Store, ns: str = "") -> None:
    """Once a graph of 1,000 steps on a slow PostgreSQL failed: its writes met a newer version 30 times."""
    slowed(store)
    saver = OutlastSaver(store)

    async def put(n: int) -> None:
        made = checkpoint_of(f"c{n:03}", log=[n])
        parent = f"c{n - 1:03}" if n else ""
        await saver.aput(config_of("t", parent, ns), made, LOOP if n else FIRST, made["channel_versions"])

    async def write() -> None:
        SLOWNESS.set(50)
        await saver.aput_writes(config_of("t", "c000", ns), [("log", 0)], "task")

    await put(0)
    writing = asyncio.create_task(write())
    n = 0
    while not writing.done():
        n += 1
        await put(n)
    await writing
    assert len(await store.rows(GRAPH_WRITE, ("default", "t", ns))) == 1


@pytest.mark.parametrize("ns", ["", "sub:1"])
def test_a_slow_write_lands_beside_checkpoints(ns: str) -> None:
    async def main() -> None:
        store = await open_store("memory:")
        await a_slow_write_lands_beside_checkpoints(store, ns)
        await store.close()

    asyncio.run(main())


def test_writes_hold_turns_together_and_a_checkpoint_holds_one_alone() -> None:
    async def main() -> list[str]:
        turns, seen = ThreadTurns(), list[str]()

        async def hold(name: str, *, alone: bool) -> None:
            async with turns.take("t", alone=alone):
                seen.append(f"+{name}")
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                seen.append(f"-{name}")

        async with asyncio.TaskGroup() as holders:
            for name, alone in (("w1", False), ("w2", False), ("c1", True), ("w3", False), ("w4", False)):
                holders.create_task(hold(name, alone=alone))
        return seen

    assert asyncio.run(main()) == ["+w1", "+w2", "-w1", "-w2", "+c1", "-c1", "+w3", "+w4", "-w3", "-w4"]


@pytest.mark.parametrize("is_granted", [False, True])
def test_a_waiter_that_is_cancelled_holds_nobody_up(is_granted: bool) -> None:
    async def main() -> None:
        turns = ThreadTurns()

        async def hold() -> None:
            async with turns.take("t", alone=True):
                pass

        async with turns.take("t", alone=True):
            waits, after = asyncio.create_task(hold()), asyncio.create_task(hold())
            await asyncio.sleep(0)
            if not is_granted:
                waits.cancel()
        waits.cancel()  # its turn was granted, and it has not run since
        await asyncio.wait_for(after, 10)
        assert waits.cancelled()
        await asyncio.wait_for(hold(), 10)
        assert not turns.kept

    asyncio.run(main())

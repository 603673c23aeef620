"""A parent and its child on each pair of engines: the end of a child wakes a parent that another engine schedules."""

import asyncio
from pathlib import Path

import pytest
from pydantic import BaseModel

import outlast
from outlast import Context, workflow
from outlast.clocks import SystemClock
from outlast.core.durations import Liveness
from outlast.core.lanes import OWN
from outlast.runtime.local_worker import Serving, worker_of
from outlast.runtime.operations import Operations
from tests.guests import FakeEngine

LIVE = Liveness(heartbeat_window=900, heartbeat_every=300, drain_grace=5_000)
ENGINES = (OWN, "temporal", "langgraph")


class Word(BaseModel):
    text: str


@workflow(name="guest-child")
async def listens(ctx: Context) -> str:
    return (await ctx.receive("word", Word)).text


@workflow(name="guest-parent")
async def asks(ctx: Context, engine: str) -> str:
    return await ctx.run(listens, listens.arguments(), key="c", scheduler=engine)


@pytest.mark.req("RUN-13")
@pytest.mark.parametrize("of_child", ENGINES)
@pytest.mark.parametrize("of_parent", ENGINES)
def test_the_end_of_a_child_wakes_its_parent(tmp_path: Path, of_parent: str, of_child: str) -> None:
    """All workers are replaced while both runs wait."""

    async def go() -> None:
        engines = {name: FakeEngine(SystemClock(), name) for name in ENGINES if name != OWN}
        async with outlast.connect(f"sqlite:{tmp_path / 'o.db'}", workflows=[asks, listens]) as client:
            assert isinstance(client, Operations)
            store = client.store

            def process(name: str) -> Serving:
                guest = engines[name].guest() if name != OWN else None
                return Serving(store, lambda: worker_of(store, [asks, listens], live=LIVE, guest=guest))

            async def replaced(before: dict[str, tuple[Serving, asyncio.Task[None]]]) -> None:
                for serving, task in before.values():
                    serving.drain()
                    await task
                before.clear()
                for name in ENGINES:
                    serving = process(name)
                    before[name] = serving, asyncio.create_task(serving.run())

            workers: dict[str, tuple[Serving, asyncio.Task[None]]] = {}
            await replaced(workers)
            run = await client.start(asks, asks.arguments(engine=of_child), scheduler=of_parent)

            async def waits() -> str | None:
                found = await client.tree(run.id)
                (row,) = found.children or (None,)
                return row.run if row is not None and "word" in row.waiting_text else None

            child = await client.until(waits, within_s=20)
            assert child and (await client.run_summary(child)).scheduler == of_child
            await replaced(workers)
            await client.signal(child, "word", {"text": "hello"})
            assert await client.ended(run.id, within_s=20), await client.explain(run.id)
            assert await run.result() == "hello"
            for serving, task in workers.values():
                serving.drain()
                await task

    asyncio.run(go())

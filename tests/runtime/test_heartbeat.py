"""A lease is renewed while the event loop is alive: not longer, and not less long because a store is silent (S-5)."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import BaseModel

from outlast import Context, Workflow
from outlast.core.budget import Liveness
from outlast.core.rows import STORE, WORKER, Worker
from outlast.engine.worker import WorkerProcess
from outlast.runtime.open import open_store
from outlast.runtime.serve import worker_of
from outlast.store.port import Store


class Nothing(BaseModel):
    """A state."""


STALL_MS = 200
LIVE = Liveness(heartbeat_window=3_000, heartbeat_every=50, loop_stall_max=STALL_MS)
PATIENCE_S = 10
still = Workflow("still", state=Nothing)


@still.node(start=True)
async def stand(ctx: Context[Nothing]) -> None:
    """Nothing to do."""


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
        assert time.monotonic() < give_up, f"{n} renewals, not {at_least}"
        await asyncio.sleep(0.01)


@pytest.mark.req("REC-3")
def test_a_read_that_is_not_answered_costs_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Housekeeping waits for a store that is silent; the loop is alive all the same, and says so."""

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
def test_a_loop_that_stands_still_renews_nothing() -> None:
    """Its runs are better off with a worker that walks them."""

    async def live() -> None:
        async with serving() as (store, worker):
            before = await renewals(store, worker)
            time.sleep(10 * STALL_MS / 1_000)  # noqa: ASYNC251 - the stall itself
            after = await renewals(store, worker)
            assert after - before <= 2 * STALL_MS // LIVE.heartbeat_every, "it was renewed all the while"
            await when(lambda: renewals(store, worker), after + 2)

    asyncio.run(live())

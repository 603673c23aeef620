"""The database's time decides who holds a run: a worker with a wrong clock takes nothing (REC-6)."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pydantic import BaseModel

from outlast import Context, Workflow
from outlast.clocks import SystemClock
from outlast.core.durations import Liveness
from outlast.core.rows.run_rows import RUN, Run
from outlast.core.rows.store_rows import STORE, WORKER, Worker
from outlast.engine import commands
from outlast.runtime.local_worker import worker_of
from outlast.store.port import Store
from outlast.store.postgres.store import open_postgres

LIVE = Liveness(heartbeat_window=6_000, heartbeat_every=200, drain_grace=200)
LOOKS = 5  # of the skewed replica at the other's lease
PATIENCE_S = 60
HOUR_MS = 3_600_000


class Nothing(BaseModel):
    """An empty state."""


class Skewed(SystemClock):
    """Clocks of which the wall clock is two hours fast."""

    def wall(self) -> int:
        return super().wall() + 2 * HOUR_MS


still = Workflow("still", state=Nothing)


@still.node(start=True)
async def stand(ctx: Context[Nothing]) -> None:
    """Keep a node running as long as its worker holds the run."""
    await asyncio.sleep(3_600)  # outlast: ignore[OL303] a node that occupies its worker


async def when(holds: Callable[[], Awaitable[bool]]) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not await holds():
        assert time.monotonic() < give_up
        await asyncio.sleep(0.05)


async def _epoch_beside(skewed: Store, right: Store) -> int:
    """Return the epoch of a run held by a healthy worker, after a skewed one has checked its lease often."""
    holder, other = worker_of(right, [still], live=LIVE), worker_of(skewed, [still], live=LIVE, clock=Skewed())
    tasks = [asyncio.create_task(holder.run())]
    await commands.start(right, still, {}, tenant="t", actor="me", run="r")

    async def run() -> Run:
        row = await right.load(RUN, ("t", "r"))
        assert isinstance(row, Run)
        return row

    async def is_held() -> bool:
        return (await run()).owner == holder.id

    await when(is_held)
    tasks.append(asyncio.create_task(other.run()))

    async def looked() -> bool:
        rows = [row for row in await right.rows(WORKER, (STORE,)) if isinstance(row, Worker) and row.id == other.id]
        return (await run()).epoch > 1 or (bool(rows) and rows[0].version > LOOKS)

    await when(looked)
    epoch = (await run()).epoch
    for worker in (holder, other):
        worker.drain()
    await asyncio.gather(*tasks)
    return epoch


@pytest.mark.req("REC-6")
@pytest.mark.parametrize(
    ("clock", "skew", "epoch"),
    [(None, 0, 1), (Skewed(), 0, 2), (Skewed(), 3 * HOUR_MS, 1)],
    ids=["the server's", "its own", "its own, and leases are widened"],
)
def test_a_worker_with_a_wrong_clock_takes_nothing(url: str, clock: Any, skew: int, epoch: int) -> None:
    """The second case removes the safeguard: a worker that uses its own clock takes the run from its holder."""

    async def live() -> None:
        right = await open_postgres(url, writer="right")
        skewed = await open_postgres(url, writer="skewed", clock=clock)
        right.skew = skewed.skew = skew
        try:
            assert await _epoch_beside(skewed, right) == epoch
        finally:
            await skewed.close()
            await right.close()

    asyncio.run(live())

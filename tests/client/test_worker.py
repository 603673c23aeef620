"""A worker inside an application: it serves while the block runs, and gives back the runs that it holds."""

import asyncio
from pathlib import Path

import pytest

import outlast
from outlast import Client
from outlast.core.durations import Liveness
from outlast.errors import Conflict, NotFound, WaitTimeout
from tests.client import flows
from tests.client.conftest import PATIENCE

LIVE = Liveness(heartbeat_window=900, heartbeat_every=300, drain_grace=5_000)


async def serving(client: Client) -> list[str]:
    """Return the names of the workers that serve."""
    return [each.name for each in await client.workers() if each.serving]


@pytest.mark.req("RT-2")
def test_it_serves_while_the_block_runs(tmp_path: Path) -> None:
    async def go() -> None:
        async with outlast.connect(f"sqlite:{tmp_path / 'app.db'}") as client:
            with pytest.raises(NotFound):
                await client.start("greet", {"name": "ana"})
            early = await client.start(flows.greet, "ana")
            with pytest.raises(WaitTimeout, match="no worker serves greet@1") as unserved:
                await early.result("50ms")
            assert "outlast worker" in unserved.value.fix
            async with client.worker([flows.greet, flows.orders], concurrency=2, name="web", live=LIVE):
                assert await serving(client) == ["web"]
                (worker,) = await client.workers()
                assert worker.concurrency == 2
                assert (await early.result(PATIENCE)).letters == 10
                assert (await (await client.start("greet", {"name": "bo"})).result(PATIENCE))["letters"] == 9
                order = await client.start(flows.orders, {"supplier": "acme"})
            assert await serving(client) == []
            await order.signal("offer", {"cents": 5})
            assert (await order.status()).owner == "", "given back"
            async with client.worker([flows.orders], live=LIVE):
                await order.cancel("closing")
                assert await client.ended(order.id, within_s=20)

    asyncio.run(go())


@pytest.mark.req("RT-2")
def test_an_error_or_a_cancellation_of_the_block_drains_it(tmp_path: Path) -> None:
    async def go() -> None:
        async with outlast.connect(f"sqlite:{tmp_path / 'app.db'}") as client:
            with pytest.raises(ZeroDivisionError):
                async with client.worker([flows.greet], live=LIVE):
                    raise ZeroDivisionError
            assert await serving(client) == []
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2), client.worker([flows.greet], live=LIVE):
                    await asyncio.Event().wait()
            assert await serving(client) == []

    asyncio.run(go())


@pytest.mark.req("RT-2")
def test_a_worker_is_drained_from_elsewhere(tmp_path: Path) -> None:
    """It is shown as draining at once, stops at its next heartbeat, and the block goes on without it."""

    async def go() -> None:
        async with outlast.connect(f"sqlite:{tmp_path / 'app.db'}") as client:
            with pytest.raises(NotFound, match="no worker w-1"):
                await client.drain_worker("w-1", reason="a new machine")
            async with client.worker([flows.greet], live=LIVE):
                (worker,) = await client.workers()
                asked = await client.drain_worker(worker.worker, reason="a new machine")
                assert (asked.state, asked.drain_reason) == ("draining", "a new machine") and asked.drain_asked_at
                async with asyncio.timeout(20):
                    while await serving(client):  # noqa: ASYNC110 - another process has no event for it
                        await asyncio.sleep(0.05)
                run = await client.start("greet", {"name": "ana"})
            with pytest.raises(Conflict, match="it has stopped"):
                await client.drain_worker(worker.worker, reason="twice")
            async with client.worker([flows.greet], live=LIVE):
                assert (await run.result(PATIENCE))["letters"] == 10

    asyncio.run(go())

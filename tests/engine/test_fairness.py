"""Fairness between tenants: which runs a worker claims next, and with how many of its slots (S35)."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from outlast.clocks import SystemClock
from outlast.core.durations import KEPT_LOOK, Liveness
from outlast.engine import commands
from outlast.engine.worker import WorkerProcess
from outlast.flow import Context, Workflow
from outlast.store.memory import MemoryCore, MemoryStore
from outlast.store.port import Store
from outlast.store.sqlite.store import open_without_sync
from tests.engine.world import MINUTE, State, World, after, one_node

Ctx = Context[State]
BACKLOG = 5_000
PLACES = 10


@asynccontextmanager
async def opened(name: str, folder: Path) -> AsyncIterator[Store]:
    clock = SystemClock()
    store: Store = MemoryStore(MemoryCore(clock), "people")
    if name == "sqlite":
        store = await open_without_sync(folder / "store.db", writer="people", clock=clock)
    try:
        yield store
    finally:
        await store.close()


async def starts(store: Store, flow: Workflow[State], tenant: str, count: int) -> None:
    for at in range(0, count, 500):
        names = [f"r{n}" for n in range(at, min(at + 500, count))]
        await asyncio.gather(
            *(commands.start(store, flow, {}, tenant=tenant, actor="me", run=name) for name in names)
        )  # fmt: skip


@pytest.mark.req("RUN-5")
@pytest.mark.parametrize("name", ["memory", "sqlite"])
def test_a_run_behind_thousands_of_another_tenant_is_among_the_first(name: str, tmp_path: Path) -> None:
    """In the order of time it would be the last."""
    walked: list[str] = []
    seen = asyncio.Event()

    async def body(ctx: Ctx) -> None:
        walked.append(ctx.tenant)
        if ctx.tenant == "globex":
            seen.set()

    async def live() -> None:
        flow = one_node(body)
        async with opened(name, tmp_path) as store:
            await starts(store, flow, "acme", BACKLOG)
            await starts(store, flow, "globex", 1)
            worker = WorkerProcess(
                store, [flow], worker="wk", clock=SystemClock(), chance=lambda: 0.5, concurrency=PLACES
            )
            serving = asyncio.create_task(worker.run())
            await asyncio.wait([serving, asyncio.create_task(seen.wait())], return_when=asyncio.FIRST_COMPLETED)
            worker.drain()
            await serving

    asyncio.run(live())
    assert walked.index("globex") < PLACES, Counter(walked)


@pytest.mark.req("RUN-5")
async def test_a_freed_slot_goes_to_the_tenant_with_the_fewest_runs(world: World) -> None:
    """One tenant holds four slots: the other gets the next free one, and half in the end; none is taken away."""
    gates: dict[tuple[str, str], asyncio.Event] = {}

    async def body(ctx: Ctx) -> None:
        gate = gates[ctx.tenant, ctx.run_id] = asyncio.Event()
        await gate.wait()
        del gates[ctx.tenant, ctx.run_id]

    flow = one_node(body)
    for n in range(20):
        await world.start(flow, f"a{n:02}", tenant="acme")
    world.worker(flow, concurrency=4)
    await world.settle()
    assert list(gates) == [("acme", f"a{n:02}") for n in range(4)]
    for n in range(5):
        await world.start(flow, f"g{n}", tenant="globex")
    await world.settle()
    assert len(gates) == 4 and {tenant for tenant, _ in gates} == {"acme"}
    held = []
    for _ in range(6):
        gates[min(gates)].set()
        await world.settle()
        held.append(Counter(tenant for tenant, _ in gates)["globex"])
    assert held[:2] == [1, 2] and len(gates) == 4
    assert held[2:] == [2, 2, 2, 2], "what one gives back, one takes"


@pytest.mark.req("RUN-5")
async def test_a_reserved_slot_is_offered_to_a_run_that_becomes_due(world: World) -> None:
    """Though what is due for longest may not have it, and nothing else wakes the worker."""
    walked: list[str] = []
    stay = asyncio.Event()

    async def body(ctx: Ctx) -> None:
        if ctx.tenant == "acme":
            walked.append(ctx.run_id)
            await stay.wait()
        else:
            await ctx.sleep(after(milliseconds=500), name="nap")
            walked.append(ctx.run_id)

    flow = one_node(body)
    world.worker(flow, concurrency=20)
    await world.start(flow, "g", tenant="globex")
    for n in range(25):
        await world.start(flow, f"a{n:02}", tenant="acme")
    assert len(walked) == 18, "two places are kept"
    await world.pass_(500 + KEPT_LOOK)
    assert walked[18:] == ["g"]


@pytest.mark.req("RUN-5")
async def test_the_last_slots_are_reserved_for_tenants_below_their_share(world: World) -> None:
    """Not where one tenant alone is served; once another was, its next run has a place at once."""
    gates: dict[tuple[str, str], asyncio.Event] = {}

    async def body(ctx: Ctx) -> None:
        gate = gates[ctx.tenant, ctx.run_id] = asyncio.Event()
        await gate.wait()
        del gates[ctx.tenant, ctx.run_id]

    async def end(tenant: str) -> None:
        gates[min(key for key in gates if key[0] == tenant)].set()
        await world.settle()

    def held() -> Counter[str]:
        return Counter(tenant for tenant, _ in gates)

    flow = one_node(body)
    for n in range(60):
        await world.start(flow, f"a{n:02}", tenant="acme")
    world.worker(flow, concurrency=20, live=Liveness(attempt_timeout=10 * MINUTE))  # a budget beyond all that follows
    await world.settle()
    assert held() == {"acme": 20}, "a tenant that is alone has all of them"
    await world.start(flow, "g1", tenant="globex")
    await end("acme")
    assert held() == {"acme": 19, "globex": 1}
    await end("globex")
    assert held() == {"acme": 19}, "nothing is taken away"
    for left in (18, 18, 18):
        await end("acme")
        assert held() == {"acme": left}, "two of twenty stay free, and those that end are followed"
    for n in range(2, 5):
        await world.start(flow, f"g{n}", tenant="globex")
        assert held() == {"acme": 18, "globex": min(n - 1, 2)}, "at once, while there are any"
    await end("acme")
    assert held() == {"acme": 17, "globex": 3}
    await world.pass_(11 * MINUTE)
    while "globex" in held():
        await end("globex")
    await end("acme")
    assert held() == {"acme": 20}, "who has not been seen for ten minutes is not waited for"

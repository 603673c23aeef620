"""The awaits of a task are read from private fields of asyncio (S-16): they exist on this interpreter."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from outlast.engine.body_tasks import waits_forever
from outlast.flow import Context
from tests.engine.world import Go, State, World, one_node

pytestmark = pytest.mark.req("GATE-1", "RUN-2")
Ctx = Context[State]
Awaits = Callable[[asyncio.Future[None]], Coroutine[Any, Any, Any]]


async def alone(future: asyncio.Future[None]) -> None:
    await future


async def in_a_task(future: asyncio.Future[None]) -> None:
    await asyncio.create_task(alone(future))


async def in_a_gather(future: asyncio.Future[None]) -> None:
    await asyncio.gather(alone(future), alone(future))


async def in_a_gather_of_gathers(future: asyncio.Future[None]) -> None:
    await asyncio.gather(in_a_gather(future), asyncio.gather(alone(future)))


async def in_a_group(future: asyncio.Future[None]) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(alone(future))
        group.create_task(in_a_gather(future))


async def in_a_wait(future: asyncio.Future[None]) -> None:
    await asyncio.wait([asyncio.create_task(alone(future)) for _ in range(2)])


AWAITS: tuple[Awaits, ...] = (alone, in_a_task, in_a_gather, in_a_gather_of_gathers, in_a_group, in_a_wait)


async def looked_at(awaits: Awaits, other: asyncio.Future[None] | None = None) -> bool:
    """Return True if a task that awaits a future in this way, and the `other` one, is found to wait forever."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def body() -> None:
        if other is None:
            await awaits(future)
        else:
            await asyncio.gather(awaits(future), alone(other))

    task = asyncio.create_task(body())
    for _ in range(8):
        await asyncio.sleep(0)
    try:
        return waits_forever(task, lambda waiter: waiter is future)
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.mark.parametrize("awaits", AWAITS)
async def test_a_task_that_waits_forever_is_known_by_what_it_awaits(awaits: Awaits) -> None:
    """It fails on an interpreter without `Task._fut_waiter` or the `_children` of a gather."""
    assert await looked_at(awaits)


@pytest.mark.parametrize("awaits", AWAITS)
async def test_a_task_that_waits_for_something_else_too_may_continue(awaits: Awaits) -> None:
    assert not await looked_at(awaits, asyncio.get_running_loop().create_future())


@pytest.mark.parametrize("field", ["_fut_waiter", "_children"])
async def test_without_a_field_a_task_may_continue(monkeypatch: pytest.MonkeyPatch, field: str) -> None:
    """A field that is gone delays a park and never makes one too early."""

    def without(of: Any, name: str, default: Any = None) -> Any:
        return default if name == field else getattr(of, name, default)

    monkeypatch.setattr("outlast.engine.body_tasks.getattr", without, raising=False)
    assert not await looked_at(in_a_gather)


@pytest.mark.parametrize("how", ["gather", "group", "task"])
async def test_a_body_whose_tasks_all_wait_parks_without_the_grace(world: World, how: str) -> None:
    """No time passes, so the second that a foreign await gets is not used."""

    async def body(ctx: Ctx) -> None:
        waits = [ctx.receive("go", Go), ctx.sleep(timedelta(hours=2), name="long")]
        if how == "gather":
            await asyncio.gather(*waits)
        elif how == "task":
            first = asyncio.ensure_future(waits[0])
            await waits[1]
            await first
        else:
            async with asyncio.TaskGroup() as group:
                for each in waits:
                    group.create_task(each)

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    assert (world.status(), world.run().owner) == ("waiting", "")


async def test_a_body_that_waits_for_a_foreign_future_gets_the_grace(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        await asyncio.gather(ctx.receive("go", Go), asyncio.get_running_loop().create_future())

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    assert world.status() == "running"
    await world.pass_(1_100)
    assert world.status() == "waiting"

"""`Budget(children=…)`: how many runs a run, and the tree of a root, may start."""

import asyncio
from typing import Any

import pytest

from outlast import Budget, Context, Workflow, workflow
from outlast.core.usage import Amounts
from outlast.engine import commands
from outlast.store.queries import RunsBelow
from tests.engine.world import MINUTE, State, World
from tests.mutants import remove

pytestmark = pytest.mark.req("RUN-10", "RUN-13")
Ctx = Context[State]


@workflow
async def grandchild(ctx: Context, n: int) -> int:
    return n


@workflow
async def starts_more(ctx: Context, n: int, more: int) -> int:
    for each in range(more):
        await ctx.run(grandchild, grandchild.arguments(each), key=f"g{each}")
    return n


def starting(body: Any, children: int | None) -> Workflow[Any]:
    budget = None if children is None else Budget(children=children)
    flow: Workflow[Any] = Workflow("starting", state=State, budget=budget, when_empty="complete")

    @flow.node(start=True)
    async def only(ctx: Ctx) -> None:
        await body(ctx)

    return flow


async def give(world: World, run: str, children: int) -> None:
    await commands.raise_budget(
        world.store, tenant="t", run=run, amounts=Amounts(children=children), actor="ana", reason="worth it"
    )
    await world.pass_(2 * MINUTE)


async def below(world: World, run: str = "r1") -> int:
    return await world.store.query(RunsBelow("t", run, 1_000))


@pytest.mark.every_store
async def test_a_run_starts_as_many_as_its_budget_allows_and_goes_on_after_a_raise(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        for n in range(5):
            ctx.state.said.append(str(await ctx.run(grandchild, grandchild.arguments(n), key=f"k{n}")))

    flow = starting(body, 3)
    world.worker(flow, grandchild)
    await world.start(flow)
    assert await below(world) == 3 and world.reasons() == ["budget_exhausted"]
    assert "3 of 3 child runs" in world.run().attention[0].detail
    await give(world, "r1", 1)
    assert await below(world) == 4 and world.reasons() == ["budget_exhausted"]
    await give(world, "r1", 5)
    assert world.outcome()["said"] == ["0", "1", "2", "3", "4"] and await below(world) == 5


async def test_starts_at_once_do_not_pass_together(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        calls = (ctx.run(grandchild, grandchild.arguments(n), key=f"k{n}") for n in range(6))
        ctx.state.said += [str(each) for each in await asyncio.gather(*calls)]

    flow = starting(body, 2)
    world.worker(flow, grandchild)
    await world.start(flow)
    assert await below(world) == 2 and world.reasons() == ["budget_exhausted"]
    await give(world, "r1", 4)
    assert world.outcome()["said"] == [str(n) for n in range(6)]


async def test_without_the_count_starts_at_once_pass_together(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    remove("starts_not_counted", monkeypatch)
    with pytest.raises(AssertionError):
        await test_starts_at_once_do_not_pass_together(world)


@pytest.mark.every_store
async def test_the_budget_of_a_root_covers_the_runs_below_it(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        for n in range(2):
            await ctx.run(starts_more, starts_more.arguments(n, more=2), key=f"k{n}")

    flow = starting(body, 4)
    world.worker(flow, starts_more, grandchild)
    await world.start(flow)
    await world.pass_(MINUTE)
    assert await below(world) == 4 and world.reasons() == ["budget_exhausted"]
    assert world.waiting()[0][0] == "child"
    await give(world, "r1", 2)
    assert world.status() == "completed" and await below(world) == 6


async def test_a_child_with_a_budget_of_its_workflow_is_limited_alone(world: World) -> None:
    flow: Workflow[Any] = Workflow("limited", state=State, budget=Budget(children=1), when_empty="complete")

    @flow.node(start=True)
    async def only(ctx: Ctx) -> None:
        for n in range(2):
            await ctx.run(grandchild, grandchild.arguments(n), key=f"k{n}")

    async def body(ctx: Ctx) -> None:
        await ctx.run(grandchild, grandchild.arguments(9), key="other")
        await ctx.run(flow, State(), key="limited")

    root = starting(body, None)
    world.worker(root, flow, grandchild)
    await world.start(root)
    child = world.effect("limited").external_id
    assert world.reasons(child) == ["budget_exhausted"] and await below(world) == 3
    await give(world, child, 1)
    assert world.status() == "completed" and await below(world) == 4


async def test_a_budget_of_children_stops_no_call(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        await ctx.run(grandchild, grandchild.arguments(1), key="k")
        await ctx.sleep("1m")
        ctx.state.said.append("went on")

    flow = starting(body, 1)
    world.worker(flow, grandchild)
    await world.start(flow)
    await world.pass_(2 * MINUTE)
    assert world.outcome()["said"] == ["went on"]


async def test_a_map_starts_as_many_as_the_budget_allows(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        await ctx.map(grandchild, {f"k{n}": grandchild.arguments(n) for n in range(5)}, at_most=5)

    flow = starting(body, 2)
    world.worker(flow, grandchild)
    await world.start(flow)
    assert await below(world) == 2 and world.reasons() == ["budget_exhausted"]
    await give(world, "r1", 3)
    assert await below(world) == 5 and world.status() == "completed"

"""Children that have ended by the time that a node asks: `ctx.ended` (S-30)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from outlast import Context, Fail, workflow
from outlast.errors import Conflict, InvalidInput
from tests.engine.world import MINUTE, Go, State, World, one_node
from tests.mutants import remove

pytestmark = pytest.mark.req("RUN-13")
Ctx = Context[State]


@workflow
async def takes_minutes(ctx: Context, minutes: int) -> int:
    await ctx.sleep(f"{minutes}m")
    if minutes == 13:
        raise Fail("an unlucky number")
    return minutes


async def begun(ctx: Any, *minutes: int) -> list[Any]:
    return [await ctx.start(takes_minutes, takes_minutes.arguments(n), key=f"m{n}") for n in minutes]


@pytest.mark.every_store
async def test_each_question_gets_the_ends_until_then_in_their_order(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        living = await begun(ctx, 30, 10, 20)
        ctx.state.said.append(str(len(await ctx.ended(living))))
        await ctx.sleep("25m")
        ended = await ctx.ended(living, round=1)
        ctx.state.said += [each.key for each in ended]
        assert [await each.result() for each in ended] == [10, 20]
        last = await ctx.ended([each for each in living if each not in ended], wait=True, round=2)
        ctx.state.said += [each.key for each in last]

    flow = one_node(body)
    worker = world.worker(flow, takes_minutes)
    await world.start(flow)
    for _ in range(4):
        worker.kill()
        worker = world.worker(flow, takes_minutes)
        await world.pass_(10 * MINUTE)
    assert world.outcome()["said"] == ["0", "m10", "m20", "m30"]


async def test_a_re_run_gets_the_list_of_the_first_one(world: World) -> None:
    said: list[Any] = []

    async def body(ctx: Ctx) -> None:
        living = await begun(ctx, 10, 20)
        await ctx.sleep("15m")
        said.append([each.key for each in await ctx.ended(living)])
        await ctx.receive("go", Go)
        said.append([each.key for each in await ctx.ended(living, round=1)])

    flow = one_node(body)
    world.worker(flow, takes_minutes)
    await world.start(flow)
    await world.pass_(30 * MINUTE)
    await world.signal("go")
    assert world.status() == "completed"
    assert said[0] == said[-2] == ["m10"] and said[-1] == ["m10", "m20"], said


async def test_without_the_record_a_re_run_sees_more(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    remove("ended_children_not_recorded", monkeypatch)
    with pytest.raises(AssertionError):
        await test_a_re_run_gets_the_list_of_the_first_one(world)


async def test_a_wait_ends_with_the_first_end_also_a_failed_one(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        living = await begun(ctx, 30, 13)
        (first,) = await ctx.ended(living, wait=True)
        ctx.state.said.append(first.key)

    flow = one_node(body)
    world.worker(flow, takes_minutes)
    await world.start(flow)
    assert sorted(what for _, what in world.waiting()) == ["takes_minutes m13", "takes_minutes m30"]
    await world.pass_(35 * MINUTE)
    assert world.outcome()["said"] == ["m13"]


async def test_a_question_about_no_child_waits_for_none(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        ctx.state.said += [each.key for each in await ctx.ended([], wait=True)]

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    assert world.status() == "completed" and world.outcome()["said"] == []


async def _twice(ctx: Any, child: Any) -> None:
    await ctx.ended([child])
    await ctx.ended([child])


@pytest.mark.parametrize(
    ("ask", "error", "says"),
    [
        (lambda ctx, of: ctx.ended(["m1"]), InvalidInput, "handles of children"),
        (lambda ctx, of: ctx.ended([of, of]), InvalidInput, "each once"),
        (lambda ctx, of: ctx.ended([of], wait="yes"), InvalidInput, "wait"),
        (lambda ctx, of: _twice(ctx, of), Conflict, "round=n"),
    ],
)
async def test_a_wrong_question_says_what_to_write(
    world: World, ask: Callable[[Any, Any], Awaitable[Any]], error: type[Exception], says: str
) -> None:
    async def body(ctx: Ctx) -> None:
        (child,) = await begun(ctx, 1)
        try:
            await ask(ctx, child)
        except error as wrong:
            ctx.state.said.append(str(wrong))

    flow = one_node(body)
    world.worker(flow, takes_minutes)
    await world.start(flow)
    await world.pass_(2 * MINUTE)
    (text,) = world.outcome()["said"]
    assert says in text


async def test_a_wait_that_is_given_up_asks_a_person(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        living = await begun(ctx, 10)
        await asyncio.wait_for(ctx.ended(living, wait=True), 0.1)

    flow = one_node(body)
    world.worker(flow, takes_minutes)
    await world.start(flow)
    await world.pass_(MINUTE)
    assert world.reasons() == ["exception"] and "ctx.ended" in world.run().attention[0].detail

"""do_all: its members begin together, all settle, and refusals come as declared (S-16)."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from outlast.flow import Context, Perhaps, Refused, Retry, RetryLater, activity
from tests.engine.world import HOUR, SECOND, Acts, Receiver, State, World, one_node, write

Ctx = Context[State]


@pytest.mark.req("EFF-1", "EFF-2")
@pytest.mark.every_store
async def test_the_members_of_a_do_all_begin_together_and_all_settle(world: World) -> None:
    """One uncertain call ends the execution; the others of the do_all are made and recorded before it asks."""
    shop = Receiver(Acts(Perhaps("lost")))
    order = write(shop)

    async def body(ctx: Ctx) -> None:
        await ctx.do_all({i: order.plan(f"x{i}") for i in range(10)})

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    assert [e.status.value for e in world.effects()] == ["uncertain"] + ["done"] * 9
    assert world.reasons() == ["effect_uncertain"]


@pytest.mark.req("EFF-1")
async def test_refusals_of_a_do_all_come_as_values_or_as_the_first_refusal(world: World) -> None:
    """With refused="return" nothing is raised; without it the first of the plans' order is, after all have settled."""
    shop = Receiver("ok", Refused("no", "second"), "ok", Refused("no", "fourth"))
    order = write(shop)
    seen: list[Any] = []

    async def body(ctx: Ctx) -> None:
        plans = {i: order.plan(f"x{i}") for i in range(4)}
        answers = await ctx.do_all(plans, refused="return")
        seen.append([getattr(a, "detail", a) for a in answers.values()])
        await ctx.do_all(plans)

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    assert seen == [["ok", "second", "ok", "fourth"]]
    assert world.reasons() == ["exception"]
    assert "second" in world.attention()[0].detail


async def test_a_list_of_plans_yields_a_list_of_responses(world: World) -> None:
    shop = Receiver("ok", Refused("no", "second"), "ok")
    order = write(shop)
    seen: list[Any] = []

    async def body(ctx: Ctx) -> None:
        answers = await ctx.do_all([order.plan(f"x{i}") for i in range(3)], refused="return")
        seen.append([getattr(a, "detail", a) for a in answers])
        seen.append(await ctx.do_all([]))

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    assert seen == [["ok", "second", "ok"], []]


async def test_at_most_limits_the_calls_in_flight(world: World) -> None:
    under_way, largest = 0, 0

    @activity(key="slow/{n}", no_undo="a test")
    async def slow(n: int) -> int:
        nonlocal under_way, largest
        under_way += 1
        largest = max(largest, under_way)
        await asyncio.sleep(0.01)
        under_way -= 1
        return n

    seen: list[Any] = []

    async def body(ctx: Ctx) -> None:
        seen.append(await ctx.do_all([slow.plan(n) for n in range(7)], at_most=3))

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(SECOND)
    assert seen == [list(range(7))] and largest == 3


async def test_a_run_that_waits_for_one_of_several_calls_makes_the_others_later(world: World) -> None:
    """A call beyond `at_most` has not started when the node waits; the next re-run of the node makes it."""
    shop = Receiver("ok", RetryLater("later", after=timedelta(hours=1)), "ok", "ok", "ok")
    order = write(shop, retry=Retry(total_wait=timedelta(hours=2)))
    seen: list[Any] = []

    async def body(ctx: Ctx) -> None:
        seen.append(await ctx.do_all([order.plan(f"x{i}") for i in range(4)], at_most=1))

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    assert world.status() == "waiting" and len(shop.attempts) == 2
    await world.pass_(HOUR)
    assert seen == [["ok"] * 4]


@pytest.mark.parametrize("call", ["at_most=-1", "at_most=1.5", "a plan with arguments"])
async def test_impossible_arguments_are_refused(world: World, call: str) -> None:
    order = write(Receiver())

    async def body(ctx: Ctx) -> None:
        if call == "a plan with arguments":
            await ctx.do(order.plan("a"), "b")  # type: ignore[call-overload]
        else:
            await ctx.do_all([order.plan("a")], at_most=float(call.partition("=")[2]))  # type: ignore[call-overload]

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    assert world.reasons() == ["exception"] and world.effects() == []
    assert "OUT-103" in world.attention()[0].detail

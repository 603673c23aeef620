"""Open effects beside an uncertain one: all settle, or a person sees all of them at once."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from outlast.flow import Context, Perhaps, Unknown, resend
from tests.engine.process import Process
from tests.engine.world import MINUTE, QUIET, SECOND, Receiver, Slow, State, World, one_node, reading, write

Ctx = Context[State]
DAY = timedelta(days=1)


def two(first: Any, second: Any) -> Any:
    """Both are asked for together."""

    async def body(ctx: Ctx) -> None:
        ctx.state.said = list(await asyncio.gather(ctx.do(first, "a"), ctx.do(second, "b")))

    return one_node(body)


async def cut_off(world: World, flow: Any) -> Process:
    """Both calls are under way when their worker dies; another one takes over."""
    dead = world.worker(flow)
    await world.start(flow)
    assert [e.status.value for e in world.effects()] == ["intended"] * 2
    dead.kill()
    successor = world.worker(flow)
    await world.pass_(MINUTE)
    return successor


def statuses(world: World) -> dict[str, str]:
    return {e.key: e.status.value for e in world.effects()}


def uncertain_in_attention(world: World) -> list[str]:
    return sorted(a.key for a in world.attention() if a.reason.value == "effect_uncertain")


@pytest.mark.req("EFF-2", "GATE-3")
async def test_a_person_sees_two_uncertain_effects_of_a_run_at_once(world: World) -> None:
    flow = two(write(Receiver(Slow())), write(Receiver(Slow()), name="pay"))
    await cut_off(world, flow)
    assert statuses(world) == {"order/a": "uncertain", "pay/b": "uncertain"}
    assert uncertain_in_attention(world) == ["order/a", "pay/b"]
    assert world.verbs().count("attention") == 1, "one call for both"


@pytest.mark.req("EFF-2", "EFF-4")
async def test_a_sibling_that_may_be_repeated_is_repeated_before_the_person_is_called(world: World) -> None:
    other = Receiver(Slow())
    flow = two(write(Receiver(Slow())), write(other, name="pay", if_uncertain=resend(remembered_for=DAY)))
    await cut_off(world, flow)
    assert statuses(world) == {"order/a": "uncertain", "pay/b": "done"}
    assert uncertain_in_attention(world) == ["order/a"]


@pytest.mark.req("EFF-2", "EFF-3")
async def test_a_sibling_with_a_reconcile_settles_while_a_person_is_asked(world: World) -> None:
    other = Receiver(Slow())
    flow = two(write(Receiver(Slow())), write(other, name="pay", mode="reconcile"))
    await cut_off(world, flow)
    assert uncertain_in_attention(world) == ["order/a"], "at once"
    assert statuses(world)["pay/b"] == "intended", "a call may still land"
    await world.pass_(2 * QUIET)
    assert statuses(world) == {"order/a": "uncertain", "pay/b": "done"}
    assert uncertain_in_attention(world) == ["order/a"] and len(other.attempts) == 2


@pytest.mark.req("EFF-2", "EFF-3", "GATE-3")
async def test_an_uncertain_sibling_joins_the_reasons_while_a_person_is_asked(world: World) -> None:
    other = Receiver(Slow())
    other.tells = [Unknown("no record")] * 10
    flow = two(write(Receiver(Slow())), write(other, name="pay", mode="reconcile"))
    await cut_off(world, flow)
    await world.pass_(2 * QUIET)
    assert uncertain_in_attention(world) == ["order/a", "pay/b"]
    await world.resolve("order/a", "did_not_happen")
    assert world.reasons() == ["effect_uncertain"], "the other one still waits for its answer"


@pytest.mark.req("EFF-2", "GATE-3")
async def test_an_open_effect_that_the_new_execution_did_not_reach_settles_too(world: World) -> None:
    order, pay = write(Receiver(Slow())), write(Receiver(Slow()), name="pay")
    price = reading(lambda: 7)

    async def later(ctx: Ctx) -> str:
        await asyncio.sleep(0.5)
        said: str = await ctx.do(pay, "b")
        return said

    async def body(ctx: Ctx) -> None:
        await ctx.do(price, "p")
        await asyncio.gather(ctx.do(order, "a"), later(ctx))

    flow = one_node(body)
    dead = world.worker(flow)
    await world.start(flow)
    await world.pass_(SECOND)
    dead.kill()
    world.worker(flow)
    await world.pass_(MINUTE)
    assert uncertain_in_attention(world) == ["order/a", "pay/b"]


@pytest.mark.req("EFF-2", "EFF-4")
async def test_a_sibling_between_two_attempts_goes_on_to_its_outcome(world: World) -> None:
    """The first is in doubt while the second waits for a second attempt."""
    slow = Slow()
    slow.answer = Perhaps("lost")
    other = Receiver(Perhaps("lost"))
    flow = two(write(Receiver(slow)), write(other, name="pay", if_uncertain=resend(remembered_for=DAY)))
    world.worker(flow)
    await world.start(flow)
    slow.go.set()
    await world.pass_(10 * SECOND)
    assert statuses(world) == {"order/a": "uncertain", "pay/b": "done"}


@pytest.mark.req("EFF-2", "GATE-3")
async def test_a_node_that_raises_over_an_open_effect_calls_a_person_for_both(world: World) -> None:
    order = write(Receiver(Slow()))
    first = [True]

    async def body(ctx: Ctx) -> None:
        if first.pop() if first else False:
            await ctx.do(order, "a")
        raise ValueError("a bug of this version")

    flow = one_node(body)
    dead = world.worker(flow)
    await world.start(flow)
    dead.kill()
    world.worker(flow)
    await world.pass_(MINUTE)
    assert sorted(world.reasons()) == ["effect_uncertain", "exception"]
    assert statuses(world) == {"order/a": "uncertain"}


@pytest.mark.req("EFF-8", "GATE-3")
async def test_a_cancel_settles_every_open_effect_and_shows_all_uncertain_ones(world: World) -> None:
    first = write(Receiver(Slow()), undo=True)
    second = write(Receiver(Slow()), name="pay", undo=True)
    third = Receiver(Slow())
    looked_up = write(third, name="book", mode="reconcile", undo=True)

    async def body(ctx: Ctx) -> None:
        await asyncio.gather(ctx.do(first, "a"), ctx.do(second, "b"), ctx.do(looked_up, "c"))

    flow = one_node(body)
    dead = world.worker(flow)
    await world.start(flow)
    world.cancel_now()
    dead.kill()
    world.worker(flow)
    await world.pass_(MINUTE)
    assert uncertain_in_attention(world) == ["order/a", "pay/b"]
    await world.pass_(2 * QUIET)
    assert statuses(world)["book/c"] == "refused", "the receiver does not know it"

"""Open effects beside an uncertain one: all settle, or a person sees all of them at once."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from outlast.core.machine import Reason
from outlast.core.rows.limit_rows import PAUSE, Pause
from outlast.core.rows.run_columns import ATTENTION, Attention
from outlast.core.rows.run_rows import RUN
from outlast.flow import Context, DidNotHappen, Perhaps, RateLimit, Unknown, resend
from tests.engine.process import Process
from tests.engine.world import MINUTE, QUIET, SECOND, Acts, Receiver, Slow, State, World, one_node, reading, write

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
    """The first is uncertain while the second waits for a second attempt."""
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


# --- what else a flagged run waits for ---------------------------------------------------------------------
def lost_then_done(other: Receiver, **options: Any) -> Any:
    """Two writes: the first is uncertain, the second was lost and is made again after its settle time."""
    other.tells = [DidNotHappen()] * 3
    return two(write(Receiver(Acts(Perhaps("lost")))), write(other, name="pay", mode="reconcile", **options))


async def settle_time_passes(world: World, within: int = 2 * QUIET) -> None:
    assert uncertain_in_attention(world) == ["order/a"] and statuses(world)["pay/b"] == "intended"
    await world.pass_(within)
    assert statuses(world)["pay/b"] == "intended", "it waits for something else than its settle time"
    assert {kind for kind, _ in world.waiting()} > {"attention"}, "which is shown"


@pytest.mark.req("EFF-2", "GATE-3")
@pytest.mark.parametrize("key", ["activity/pay", "workflow/flow", "tenant"])
async def test_a_sibling_behind_a_pause_goes_on_when_it_is_resumed(world: World, key: str) -> None:
    other = Receiver(Perhaps("lost"))
    flow = lost_then_done(other)
    world.worker(flow)
    await world.start(flow)
    await world.hold(key)
    await settle_time_passes(world)
    assert await world.release(key) == 1
    await world.pass_(2 * SECOND)
    assert statuses(world) == {"order/a": "uncertain", "pay/b": "done"}
    assert uncertain_in_attention(world) == ["order/a"] and world.verbs().count("attention") == 1


@pytest.mark.req("EFF-2", "GATE-3")
async def test_a_sibling_behind_a_pause_looks_again_by_itself(world: World) -> None:
    """The commit that resumes found the run elsewhere: a timer finds that the pause is over."""
    other = Receiver(Perhaps("lost"))
    flow = lost_then_done(other)
    world.worker(flow)
    await world.start(flow)
    await world.hold("activity/pay")
    await settle_time_passes(world)
    (pause,) = world.core.rows.under(PAUSE, ())
    world.core.rows.put(PAUSE, (pause.tenant, pause.key), pause._replace(version=pause.version + 1, up=0))
    await world.pass_(2 * MINUTE)
    assert statuses(world) == {"order/a": "uncertain", "pay/b": "done"}


@pytest.mark.req("EFF-2", "GATE-3")
async def test_a_sibling_behind_a_breaker_goes_on_when_the_provider_answers(world: World) -> None:
    other = Receiver(Perhaps("lost"))
    flow = lost_then_done(other, provider="bank")
    world.worker(flow)
    await world.start(flow)
    now = world.time.wall()
    up = Pause("t", "provider/bank", 1, 1, "outlast", "away", now, "breaker", now + 3 * QUIET, 1)
    world.core.rows.put(PAUSE, ("t", "provider/bank"), up)
    await world.pass_(6 * SECOND)
    await settle_time_passes(world)
    await world.pass_(2 * QUIET)
    assert statuses(world) == {"order/a": "uncertain", "pay/b": "done"} and len(other.attempts) == 2


@pytest.mark.req("EFF-2", "GATE-3")
async def test_a_sibling_behind_a_rate_limit_goes_on_when_a_seat_is_free(world: World) -> None:
    other, slow = Receiver(Perhaps("lost")), Slow()
    limit = RateLimit(concurrent=1)
    flow = lost_then_done(other, limit=limit)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(QUIET - MINUTE)
    other.script = [slow]
    await world.start(flow, "r2")
    assert slow.begun.is_set(), "the one seat is taken"
    await settle_time_passes(world, MINUTE + 15 * SECOND)
    slow.go.set()
    await world.pass_(MINUTE)
    assert statuses(world) == {"order/a": "uncertain", "pay/b": "done"}


@pytest.mark.req("EFF-2", "GATE-3")
async def test_a_sibling_settles_while_a_budget_waits_for_a_person(world: World) -> None:
    """The budget stops new calls, not the question whether an earlier one happened."""
    other = Receiver(Perhaps("lost"))
    flow = lost_then_done(other)
    world.worker(flow)
    await world.start(flow)
    assert uncertain_in_attention(world) == ["order/a"] and statuses(world)["pay/b"] == "intended"
    row = world.run()
    budget = Attention(Reason.BUDGET_EXHAUSTED, row.attention[0].since, "used up", seen=row.inbox_seq)
    text = ATTENTION.encode([*row.attention, budget])
    world.core.rows.put(RUN, ("t", "r1"), row._replace(version=row.version, attention_text=text))
    await world.pass_(2 * QUIET)
    assert statuses(world) == {"order/a": "uncertain", "pay/b": "done"}
    assert world.reasons() == ["effect_uncertain", "budget_exhausted"]

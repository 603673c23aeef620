"""A key that counts in the whole run is found under the visit that recorded it, whatever the scope was then."""

from typing import Literal

import pytest

from outlast.flow import Context, Workflow
from tests.engine.world import MINUTE, QUIET, Receiver, Slow, State, World, write

Ctx = Context[State]


def rounds(shop: Receiver, once_per: Literal["visit", "run"], *, amount: int = 1) -> Workflow[State]:
    """Return a workflow whose node returns to itself, and makes the same call in each of its three visits."""
    order = write(shop, once_per=once_per)
    flow = Workflow("rounds", state=State)

    @flow.node(start=True, max_visits=5)
    async def again(ctx: Ctx) -> Literal["again"] | None:
        await ctx.do(order, "a", amount if ctx.visit > 1 else 1)
        before = await ctx.recorded(order.plan("a"))
        ctx.log("made in", str([each.made_in for each in before]))
        await ctx.sleep("1m")
        return "again" if ctx.visit < 3 else None

    return flow


@pytest.mark.req("EFF-1")
async def test_a_key_of_an_earlier_visit_is_found_after_its_scope_became_the_run(world: World) -> None:
    shop = Receiver()
    old = rounds(shop, "visit")
    first = world.worker(old)
    await world.start(old)
    await world.pass_(0)
    assert len(shop.did) == 1
    first.kill()
    world.worker(rounds(shop, "run"))
    await world.pass_(QUIET + 5 * MINUTE)
    assert [each.detail for each in world.attention()] == [] and world.status() == "completed"
    assert len(shop.did) == 1, "an upgrade in the middle of a run sent the call again"
    assert {e.visit for e in world.effects()} == {1}


@pytest.mark.req("EFF-1")
async def test_an_open_call_of_the_visit_is_settled_after_its_scope_became_the_run(world: World) -> None:
    """The call was sent, and the process died before its answer: the next one must not send it under another scope."""
    shop = Receiver(Slow(acts_first=True))
    old = rounds(shop, "visit")
    first = world.worker(old)
    await world.start(old)
    await world.pass_(0)
    first.kill()
    world.worker(rounds(shop, "run"))
    await world.pass_(QUIET + 5 * MINUTE)
    assert world.reasons() == ["effect_uncertain"] and len(shop.did) == 1


@pytest.mark.req("EFF-1", "EFF-9")
async def test_other_arguments_under_the_key_of_an_earlier_visit_are_a_contradiction(world: World) -> None:
    shop = Receiver()
    old = rounds(shop, "visit")
    first = world.worker(old)
    await world.start(old)
    await world.pass_(0)
    first.kill()
    world.worker(rounds(shop, "run", amount=2))
    await world.pass_(QUIET + 5 * MINUTE)
    assert world.reasons() == ["contradiction"] and len(shop.did) == 1


@pytest.mark.req("EFF-1")
@pytest.mark.parametrize("once_per", ["visit", "run"])
async def test_a_recorded_call_says_in_which_visit_it_was_made(world: World, once_per: Literal["visit", "run"]) -> None:
    shop = Receiver()
    flow = rounds(shop, once_per)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(5 * MINUTE)
    said = [e.data()["text"] for e in world.events() if e.data().get("key") == "made in"]
    assert said == (["[1]"] * 3 if once_per == "run" else ["[1]", "[1, 2]", "[1, 2, 3]"])

"""Many calls at once: the members of a do_all are begun together, all settle, and refusals come as asked (S-16)."""

from typing import Any

import pytest

from outlast.flow import Context, Perhaps, Refused
from tests.engine.world import Acts, Receiver, State, World, one_node, write

Ctx = Context[State]


@pytest.mark.req("EFF-1", "EFF-2")
@pytest.mark.every_store
async def test_the_members_of_a_do_all_are_begun_together_and_all_settle(world: World) -> None:
    """One doubt closes the walk; the others of the same do_all are made and recorded before a person is called."""
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

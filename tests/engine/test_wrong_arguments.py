"""A wrong call of a method of the context names the method as authors write it, and no function of the engine."""

from collections.abc import Callable
from typing import Any

import pytest

from outlast.flow import Context
from tests.engine.world import Receiver, State, World, one_node, write

Ctx = Context[State]
PLAN = write(Receiver()).plan("a")
CALLS: dict[str, Callable[[Any], Any]] = {
    "ctx.approval() missing 3 required": lambda ctx: ctx.approval(PLAN),
    "ctx.approval() missing 2 required": lambda ctx: ctx.first(ctx.approval(PLAN, summary="s"), ctx.sleep("1h")),
    "ctx.receive() missing 1 required": lambda ctx: ctx.first(ctx.receive("a"), ctx.sleep("1h")),
    "ctx.collect() got an unexpected keyword argument 'tiemout'": lambda ctx: ctx.collect("a", tiemout="1h"),
    "ctx.sleep() got an unexpected keyword argument 'untill'": lambda ctx: ctx.sleep(untill="1h"),
    "ctx.run() missing 1 required": lambda ctx: ctx.first(ctx.run(), ctx.sleep("1h")),
    "ctx.start() missing 1 required": lambda ctx: ctx.start(),
    "ctx.map() got an unexpected keyword argument 'most'": lambda ctx: ctx.map("m", {}, most=3),
    "ctx.do() missing 1 required": lambda ctx: ctx.do(),
    "ctx.do_all() got an unexpected keyword argument 'most'": lambda ctx: ctx.do_all([], most=3),
    "ctx.child() missing 1 required": lambda ctx: ctx.child(),
}


@pytest.mark.parametrize("says", CALLS)
async def test_a_wrong_call_names_the_method_of_the_context(world: World, says: str) -> None:
    async def body(ctx: Ctx) -> None:
        try:
            await CALLS[says](ctx)
        except TypeError as error:
            ctx.state.said.append(str(error))

    world.worker(flow := one_node(body))
    await world.start(flow)
    (text,) = world.outcome()["said"]
    assert says in text

"""Do as restatedev/examples does in flight_price_watcher.py, in our own words.

Shape: a loop that asks for a price, sleeps, and looks for a cancelling promise.
"""

import logging

from pydantic import BaseModel

from outlast import Context, Workflow, lookup


class Order(BaseModel):
    number: str = ""
    cents: int = 0
    status: str = ""
    items: list[str] = []


class Note(BaseModel):
    text: str = ""


flow = Workflow("ask-until-cheap", state=Order)


@lookup
async def price_now(number: str) -> int:
    return 1


@flow.node(start=True)
async def watch(ctx: Context[Order]) -> None:
    logging.info("watching %s", ctx.state.number)
    while await ctx.receive("stop", Note, timeout="0s") is None:
        if await ctx.do(price_now, ctx.state.number) <= ctx.state.cents:
            return
        await ctx.sleep("10m")

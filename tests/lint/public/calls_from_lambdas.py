"""Do as inngest/inngest-py does in parallel_steps.py, in our own words.

Shape: two steps that sleep inside, made by lambdas and run in parallel.
"""

import asyncio

from pydantic import BaseModel

from outlast import Context, Workflow, lookup


class Order(BaseModel):
    number: str = ""
    cents: int = 0
    status: str = ""
    items: list[str] = []


flow = Workflow("calls-from-lambdas", state=Order)


@lookup
async def price_in_euro(number: str) -> int:
    await asyncio.sleep(1)
    return 1


@lookup
async def price_in_franc(number: str) -> int:
    await asyncio.sleep(1)
    return 2


@flow.node(start=True)
async def compare(ctx: Context[Order]) -> None:
    asked = (lambda: ctx.do(price_in_euro, ctx.state.number), lambda: ctx.do(price_in_franc, ctx.state.number))
    ctx.state.cents = min(await asyncio.gather(*(ask() for ask in asked)))

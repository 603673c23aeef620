"""Do as hatchet-dev/hatchet does in worker.py, in our own words.

Shape: a sleep inside try, and CancelledError turned into a result.
"""

import asyncio
import time

from pydantic import BaseModel

from outlast import Context, Workflow


class Order(BaseModel):
    number: str = ""
    cents: int = 0
    status: str = ""
    items: list[str] = []


flow = Workflow("cancellation-swallowed", state=Order)


@flow.node(start=True)
async def rest(ctx: Context[Order]) -> None:
    try:
        began = time.time()
        await ctx.sleep("5m")
        ctx.state.cents = int(time.time() - began)
    except asyncio.CancelledError:
        ctx.state.status = "not rested"

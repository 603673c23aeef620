"""Do as temporalio/samples-python does in workflows.py, in our own words.

Shape: a loop of a call and asyncio.sleep for days, which is durable in Temporal only.
"""

import asyncio

from pydantic import BaseModel

from outlast import Context, Workflow, activity


class Order(BaseModel):
    number: str = ""
    cents: int = 0
    status: str = ""
    items: list[str] = []


flow = Workflow("mail-and-sleep-of-asyncio", state=Order)


@activity(key="dunning/{number}", no_undo="the shop keeps it")
async def dun(number: str, text: str) -> None: ...


@flow.node(start=True)
async def dun_for_ever(ctx: Context[Order]) -> None:
    while ctx.state.status != "paid":
        await ctx.do(dun, ctx.state.number, f"please pay {ctx.state.cents}")
        await asyncio.sleep(7 * 86_400)

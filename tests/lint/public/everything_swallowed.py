"""Do as hatchet-dev/hatchet does in worker.py, in our own words.

Shape: BaseException around a call, and asyncio.sleep in its handler.
"""

import asyncio
import time

from pydantic import BaseModel

from outlast import Context, Workflow, activity


class Order(BaseModel):
    number: str = ""
    cents: int = 0
    status: str = ""
    items: list[str] = []


flow = Workflow("everything-swallowed", state=Order)


@activity(key="scan/{number}", no_undo="the shop keeps it")
def scan(number: str) -> None:
    time.sleep(3)  # an activity may block


@flow.node(start=True)
async def try_to_scan(ctx: Context[Order]) -> None:
    try:
        await ctx.do(scan, ctx.state.number)
    except BaseException as error:
        ctx.state.status = str(error)
        await asyncio.sleep(10)
    ctx.state.items.append("scanned")

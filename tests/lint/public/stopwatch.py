"""Do as hatchet-dev/hatchet does in worker.py, in our own words.

Shape: the clock before and after a sleep and a call.
"""

import time

from pydantic import BaseModel

from outlast import Context, Workflow, activity


class Order(BaseModel):
    number: str = ""
    cents: int = 0
    status: str = ""
    items: list[str] = []


flow = Workflow("stopwatch", state=Order)


@activity(key="audit/{number}", no_undo="the shop keeps it")
async def audit(number: str) -> str:
    return "clean"


@flow.node(start=True)
async def measure(ctx: Context[Order]) -> None:
    began = time.time()
    await ctx.sleep("1m")
    waited = time.time() - began
    began = time.time()
    result = await ctx.do(audit, ctx.state.number)
    ctx.state.status = f"{result}: {waited:.0f} s + {time.time() - began:.0f} s"

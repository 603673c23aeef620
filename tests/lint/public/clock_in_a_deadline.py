"""Do as inngest/inngest-py does in two_steps_and_sleep.py, in our own words.

Shape: two steps, then a sleep until the clock plus some seconds.
"""

from datetime import datetime, timedelta

from pydantic import BaseModel

from outlast import Context, Workflow, activity


class Order(BaseModel):
    number: str = ""
    cents: int = 0
    status: str = ""
    items: list[str] = []


flow = Workflow("clock-in-a-deadline", state=Order)


@activity(key="remind/{number}", no_undo="the shop keeps it")
async def remind(number: str) -> str:
    return f"reminder of {number}"


@flow.node(start=True)
async def wait_and_remind(ctx: Context[Order]) -> None:
    await ctx.do(remind, ctx.state.number)
    await ctx.sleep(until=datetime.now() + timedelta(days=2))

"""Do as restatedev/examples does in greeter.py, in our own words.

Shape: an id of the context as the key of a step, then a sleep of a timedelta.
"""

from datetime import timedelta

from pydantic import BaseModel

from outlast import Context, Workflow, activity


class Order(BaseModel):
    number: str = ""
    cents: int = 0
    status: str = ""
    items: list[str] = []


flow = Workflow("id-of-the-context", state=Order)


@activity(key="offer/{offer}", no_undo="the shop keeps it")
async def send_offer(offer: str, number: str) -> None: ...


@flow.node(start=True)
async def offer(ctx: Context[Order]) -> None:
    number = str(ctx.uuid("offer"))
    await ctx.do(send_offer, offer=number, number=ctx.state.number)
    await ctx.sleep(timedelta(days=7))

"""Do as restatedev/examples does in app.py, in our own words.

Shape: a step as the condition of a loop that sleeps, then a write.
"""

from pydantic import BaseModel

from outlast import Context, Workflow, activity, lookup


class Order(BaseModel):
    number: str = ""
    cents: int = 0
    status: str = ""
    items: list[str] = []


flow = Workflow("ask-until-ready", state=Order)


@lookup
async def state_of(parcel: str) -> str:
    return "delivered"


@activity(key="close/{number}", no_undo="the shop keeps it")
async def close(number: str) -> None: ...


@flow.node(start=True)
async def follow(ctx: Context[Order]) -> None:
    while await ctx.do(state_of, parcel=ctx.state.number) != "delivered":
        await ctx.sleep("6h")
    await ctx.do(close, ctx.state.number)

"""A return: the money goes back once, for the parcel or out of goodwill."""

from typing import Literal

from pydantic import BaseModel

from outlast import Context, Workflow, activity


class Order(BaseModel):
    order: str
    cents: int
    refunded: int = 0


class Parcel(BaseModel):
    parcel: str


returns = Workflow("returns", state=Order)


@activity(key="refund/{order}/{why}", once_per="run", no_undo="the customer keeps the money")
async def refund(order: str, why: str, cents: int) -> str:
    return f"receipt-{order}"


@returns.node(start=True)
async def wait(ctx: Context[Order]) -> Literal["accept", "goodwill"]:
    parcel = await ctx.receive("returned", Parcel, timeout="14d")
    return "accept" if parcel is not None else "goodwill"


@returns.node
async def accept(ctx: Context[Order]) -> None:
    s = ctx.state
    await ctx.do(refund, s.order, "parcel", s.cents)
    s.refunded += s.cents


@returns.node
async def goodwill(ctx: Context[Order]) -> Literal["watch"]:
    s = ctx.state
    await ctx.do(refund, s.order, "goodwill", s.cents)
    s.refunded += s.cents
    return "watch"


@returns.node
async def watch(ctx: Context[Order]) -> Literal["accept"] | None:
    parcel = await ctx.receive("returned", Parcel, timeout="30d")
    if parcel is None or ctx.state.refunded:
        return None
    return "accept"

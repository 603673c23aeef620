"""An invoice of three lines: a line that the card refuses is not part of the total."""

from typing import Literal

from pydantic import BaseModel

from outlast import Context, Refused, Workflow, activity, resend


class Line(BaseModel):
    sku: str
    cents: int


class Invoice(BaseModel):
    order: str
    lines: list[Line] = [Line(sku="desk", cents=500), Line(sku="lamp", cents=70), Line(sku="pen", cents=3)]
    total: int = 0


invoices = Workflow("invoice", state=Invoice)


@activity(key="charge/{order}/{sku}", once_per="run", if_uncertain=resend(remembered_for="7d"), no_undo="by hand")
async def charge(order: str, sku: str, cents: int) -> str:
    return f"charge-{sku}"


@activity(key="post/{order}", once_per="run", no_undo="a letter cannot be unsent")
async def post(order: str, total: int) -> str:
    return f"letter-{order}"


@invoices.node(start=True)
async def bill(ctx: Context[Invoice]) -> Literal["send"]:
    s = ctx.state
    for line in s.lines:
        try:
            await ctx.do(charge, s.order, line.sku, line.cents)
        except Refused:
            continue
        s.total += line.cents
    return "send"


@invoices.node
async def send(ctx: Context[Invoice]) -> None:
    await ctx.do(post, ctx.state.order, ctx.state.total)

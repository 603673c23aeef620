"""A workflow whose run stops for the reason that its input names, and activities of several types."""

from typing import Literal

from pydantic import BaseModel

from outlast import Context, Retry, Workflow, activity
from outlast.flow import NotSent, Perhaps


class Case(BaseModel):
    kind: str
    said: str = ""


class Ticket(BaseModel):
    number: str
    cents: int = 0


@activity(key="text/{kind}", no_undo="a text is sent")
async def text(kind: str) -> str:
    raise Perhaps("the line broke")


@activity(key="nothing/{kind}", no_undo="a bell rang")
async def nothing(kind: str) -> None:
    raise Perhaps("the line broke")


@activity(key="ticket/{kind}", no_undo="a ticket is printed")
async def ticket(kind: str) -> Ticket:
    raise Perhaps("the line broke")


@activity(key="busy/{kind}", no_undo="nothing was sent", retry=Retry(attempts=1))
async def busy(kind: str) -> str:
    raise NotSent("the line is busy")


doubts = Workflow("doubt", state=Case)


@doubts.node(start=True, max_visits=2)
async def work(ctx: Context[Case]) -> Literal["work"] | None:
    kind = ctx.state.kind
    if kind == "text":
        ctx.state.said = await ctx.do(text, kind)
    elif kind == "nothing":
        ctx.state.said = str(await ctx.do(nothing, kind))
    elif kind == "ticket":
        ctx.state.said = (await ctx.do(ticket, kind)).number
    elif kind == "busy":
        ctx.state.said = await ctx.do(busy, kind)
    elif kind == "round":
        return "work"
    else:
        raise KeyError(kind)
    return None

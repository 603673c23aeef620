"""Do as restatedev/examples does in order_workflow.py, in our own words.

Shape: steps, a sleep and several named waits with a status between them.
"""

from datetime import timedelta

from pydantic import BaseModel

from outlast import Context, Workflow, activity


class Order(BaseModel):
    number: str = ""
    cents: int = 0
    status: str = ""
    items: list[str] = []


class Note(BaseModel):
    text: str = ""


flow = Workflow("states-between-waits", state=Order)


@activity(key="reserve/{number}", no_undo="the shop keeps it")
async def reserve(number: str) -> bool:
    return True


@activity(key="pack/{number}", no_undo="the shop keeps it")
async def pack(number: str) -> None: ...


@flow.node(start=True)
async def ship(ctx: Context[Order]) -> None:
    if not await ctx.do(reserve, ctx.state.number):
        ctx.state.status = "sold out"
        return
    await ctx.sleep(timedelta(minutes=ctx.state.cents))
    await ctx.do(pack, ctx.state.number)
    ctx.state.status = "packed"
    await ctx.receive("collected", Note)
    ctx.state.status = "on its way"
    await ctx.receive("arrived", Note)
    ctx.state.status = "there"

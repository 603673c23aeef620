"""Do as temporalio/samples-python does in hello_cancellation.py, in our own words.

Shape: a long call in try, and a cleaning call in finally, which docs/waiting.md allows.
"""

from pydantic import BaseModel

from outlast import Context, Workflow, activity


class Order(BaseModel):
    number: str = ""
    cents: int = 0
    status: str = ""
    items: list[str] = []


flow = Workflow("cleanup-in-finally", state=Order)


@activity(key="lease/{number}", timeout="15m", no_undo="the shop keeps it")
async def lease(number: str) -> None: ...


@activity(key="give-back/{number}", no_undo="the shop keeps it")
async def give_back(number: str) -> None: ...


@flow.node(start=True)
async def use(ctx: Context[Order]) -> None:
    try:
        await ctx.do(lease, ctx.state.number)
    finally:
        await ctx.do(give_back, ctx.state.number)

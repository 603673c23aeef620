"""Do as temporalio/samples-python does in record_processor_workflow.py, in our own words.

Shape: a random pause of the context in a helper, and a call under a condition.
"""

from datetime import timedelta

from pydantic import BaseModel

from outlast import Context, Workflow, activity


class Order(BaseModel):
    number: str = ""
    cents: int = 0
    status: str = ""
    items: list[str] = []


flow = Workflow("random-of-the-context", state=Order)


@activity(key="done/{number}", no_undo="the shop keeps it")
async def report(number: str) -> None: ...


async def linger(ctx: Context[Order]) -> None:
    await ctx.sleep(timedelta(minutes=ctx.random("minutes").randint(1, 9)))


@flow.node(start=True)
async def work(ctx: Context[Order]) -> None:
    await linger(ctx)
    if ctx.state.number:
        await ctx.do(report, ctx.state.number)

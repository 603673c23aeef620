"""Do as dbos-inc/agent-skills does in advanced-async.md, in our own words.

Shape: a sleep and a start that nothing awaits, the second one assigned.
"""

from pydantic import BaseModel

from outlast import Context, Workflow, activity


class Order(BaseModel):
    number: str = ""
    cents: int = 0
    status: str = ""
    items: list[str] = []


flow = Workflow("nothing-awaited", state=Order)


@activity(key="cancel/{number}", no_undo="the shop keeps it")
async def cancel(number: str) -> None: ...


@flow.node(start=True)
async def give_up(ctx: Context[Order]) -> None:
    ctx.sleep("1h")
    cancelled = ctx.do(cancel, ctx.state.number)

"""Do as restatedev/examples does in 0_durable_execution.py, in our own words.

Shape: a random id made in a step, used as the key of the next steps in a loop.
"""

import uuid

from pydantic import BaseModel

from outlast import Context, Workflow, activity, lookup


class Order(BaseModel):
    number: str = ""
    cents: int = 0
    status: str = ""
    items: list[str] = []


flow = Workflow("token-from-a-lookup", state=Order)


@lookup
def draw_number() -> str:
    return str(uuid.uuid4())


@activity(key="voucher/{voucher}", no_undo="the shop keeps it")
async def issue(voucher: str, number: str) -> None: ...


@activity(key="attach/{voucher}/{item}", no_undo="the shop keeps it")
async def attach(voucher: str, item: str) -> None: ...


@flow.node(start=True)
async def give_voucher(ctx: Context[Order]) -> None:
    voucher = await ctx.do(draw_number)
    await ctx.do(issue, voucher, ctx.state.number)
    for item in ctx.state.items:
        await ctx.do(attach, voucher, item)

"""Do as temporalio/sdk-python does in test_workflow.py, in our own words.

Shape: asyncio.wait around tasks of a list of a sleep, a call and a helper that waits.
"""

import asyncio

from pydantic import BaseModel

from outlast import Context, Workflow, activity


class Order(BaseModel):
    number: str = ""
    cents: int = 0
    status: str = ""
    items: list[str] = []


class Note(BaseModel):
    text: str = ""


flow = Workflow("wait-for-a-mixed-list", state=Order)


@activity(key="search/{number}", timeout="9m", no_undo="the shop keeps it")
async def search(number: str) -> None: ...


async def hear(ctx: Context[Order]) -> None:
    await ctx.receive("note", Note)


@flow.node(start=True)
async def whatever_ends(ctx: Context[Order]) -> None:
    several = [
        asyncio.sleep(600),
        ctx.do(search, ctx.state.number),
        hear(ctx),
    ]
    await asyncio.wait([asyncio.create_task(each) for each in several])

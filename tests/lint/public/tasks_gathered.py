"""Do as dbos-inc/agent-skills does in advanced-async.md, in our own words.

Shape: tasks of steps in a list, gathered with return_exceptions.
"""

import asyncio

from pydantic import BaseModel

from outlast import Context, Workflow, activity


class Order(BaseModel):
    number: str = ""
    cents: int = 0
    status: str = ""
    items: list[str] = []


flow = Workflow("tasks-gathered", state=Order)


@activity(key="invite/{supplier}", no_undo="the shop keeps it")
async def invite(supplier: str) -> str:
    return supplier


@flow.node(start=True)
async def tender(ctx: Context[Order]) -> None:
    letters = [asyncio.create_task(ctx.do(invite, item)) for item in ctx.state.items]
    answers = await asyncio.gather(*letters, return_exceptions=True)
    ctx.state.status = f"{len(answers)} letters"

"""Do as temporalio/samples-python does in workflows.py, in our own words.

Shape: one call for each row of a list, in a TaskGroup.
"""

import asyncio

from pydantic import BaseModel

from outlast import Context, Workflow, activity, lookup


class Order(BaseModel):
    number: str = ""
    cents: int = 0
    status: str = ""
    items: list[str] = []


flow = Workflow("group-of-calls", state=Order)


@lookup
async def parcels_of(number: str) -> list[str]:
    return [number]


@activity(key="weigh/{parcel}", timeout="1m", no_undo="the shop keeps it")
async def weigh(parcel: str) -> int:
    return 1


@flow.node(start=True)
async def total(ctx: Context[Order]) -> None:
    weighed = []
    async with asyncio.TaskGroup() as group:
        for parcel in await ctx.do(parcels_of, ctx.state.number):
            weighed.append(group.create_task(ctx.do(weigh, parcel)))
    ctx.state.cents = sum(each.result() for each in weighed)

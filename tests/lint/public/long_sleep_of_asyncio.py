"""Do as inngest/inngest-py does in functions.py, in our own words.

Shape: a function that only sleeps for hours with asyncio.
"""

import asyncio

from pydantic import BaseModel

from outlast import Context, Workflow


class Order(BaseModel):
    number: str = ""
    cents: int = 0
    status: str = ""
    items: list[str] = []


flow = Workflow("long-sleep-of-asyncio", state=Order)


@flow.node(start=True)
async def cool_down(ctx: Context[Order]) -> None:
    await asyncio.sleep(86_400)

"""Do as hatchet-dev/hatchet does in worker.py, in our own words.

Shape: a wait under a name of uuid4, between two readings of the clock.
"""

import time
from uuid import uuid4

from pydantic import BaseModel

from outlast import Context, Workflow


class Order(BaseModel):
    number: str = ""
    cents: int = 0
    status: str = ""
    items: list[str] = []


class Note(BaseModel):
    text: str = ""


flow = Workflow("wait-of-a-random-name", state=Order)


@flow.node(start=True)
async def hear(ctx: Context[Order]) -> None:
    began = time.time()
    note = await ctx.receive(uuid4().hex, Note, timeout="5m")
    ctx.state.status = f"{note} after {int(time.time() - began)} s"

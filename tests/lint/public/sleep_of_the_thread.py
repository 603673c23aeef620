"""Do as dbos-inc/dbos-demo-apps does in main.py, in our own words.

Shape: a workflow that only sleeps with time.sleep.
"""

import time

from pydantic import BaseModel

from outlast import Context, Workflow


class Order(BaseModel):
    number: str = ""
    cents: int = 0
    status: str = ""
    items: list[str] = []


flow = Workflow("sleep-of-the-thread", state=Order)


@flow.node(start=True)
async def pause(ctx: Context[Order]) -> None:
    time.sleep(ctx.state.cents)  # this is the mistake

"""Do as dbos-inc/dbos-demo-apps does in main.py, in our own words.

Shape: steps that draw random numbers and sleep, and messages about them.
"""

import random
from time import sleep

from pydantic import BaseModel

from outlast import Context, Workflow, activity


class Order(BaseModel):
    number: str = ""
    cents: int = 0
    status: str = ""
    items: list[str] = []


flow = Workflow("random-inside-activities", state=Order)


@activity(key="print/{number}", no_undo="the shop keeps it")
def print_label(number: str) -> float:
    if random.randint(0, 9) == 0:
        raise RuntimeError("the printer is out of paper")
    sleep(random.uniform(1, 2))  # an activity may block
    return 1.5


@activity(key="tell/{number}/{stage}", no_undo="the shop keeps it")
def tell(number: str, stage: str, text: str) -> None: ...


@flow.node(start=True)
async def label(ctx: Context[Order]) -> None:
    await ctx.do(tell, ctx.state.number, stage="start", text="the label is being printed")
    seconds = await ctx.do(print_label, ctx.state.number)
    await ctx.do(tell, ctx.state.number, stage="end", text=f"printed in {seconds:.2f} seconds")

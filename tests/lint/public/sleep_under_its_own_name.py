"""Do as PrefectHQ/prefect does in test_flow.py, in our own words.

Shape: a step, then sleep imported from time by name.
"""

from time import sleep

from pydantic import BaseModel

from outlast import Context, Workflow, activity


class Order(BaseModel):
    number: str = ""
    cents: int = 0
    status: str = ""
    items: list[str] = []


flow = Workflow("sleep-under-its-own-name", state=Order)


@activity(key="ring/{number}", no_undo="the shop keeps it")
def ring(number: str) -> None: ...


@flow.node(start=True)
async def ring_and_wait(ctx: Context[Order]) -> None:
    await ctx.do(ring, ctx.state.number)
    sleep(90)  # this is the mistake

"""Do as hatchet-dev/hatchet does in worker.py, in our own words.

Shape: prints before and after a sleep and a wait.
"""

from pydantic import BaseModel

from outlast import Context, Workflow


class Order(BaseModel):
    number: str = ""
    cents: int = 0
    status: str = ""
    items: list[str] = []


class Note(BaseModel):
    text: str = ""


flow = Workflow("waits-with-prints", state=Order)


@flow.node(start=True)
async def say(ctx: Context[Order]) -> None:
    print("the order rests")
    await ctx.sleep("5m")
    print("the order waits for a note")
    await ctx.receive("note", Note)
    print("a note came")

"""Do as temporalio/samples-python does in updatable_timer_lib.py, in our own words.

Shape: the clock of the context in a loop of waits with TimeoutError caught.
"""

from datetime import timedelta

from pydantic import BaseModel

from outlast import Context, Workflow


class Order(BaseModel):
    number: str = ""
    cents: int = 0
    status: str = ""
    items: list[str] = []


class Note(BaseModel):
    text: str = ""


flow = Workflow("timer-that-moves", state=Order)


@flow.node(start=True)
async def close_at_rest(ctx: Context[Order]) -> None:
    due = ctx.now() + timedelta(days=1)
    while (left := due - ctx.now()) > timedelta(0):
        try:
            note = await ctx.receive("note", Note, timeout=left)
        except TimeoutError:
            continue
        if note is not None:
            due += timedelta(hours=1)

"""Do as inngest/inngest-py does in wait_for_event.py, in our own words.

Shape: a wait with a deadline, and a step with its answer.
"""

from pydantic import BaseModel

from outlast import Context, Workflow, activity


class Order(BaseModel):
    number: str = ""
    cents: int = 0
    status: str = ""
    items: list[str] = []


class Note(BaseModel):
    text: str = ""


flow = Workflow("wait-then-call", state=Order)


@activity(key="file/{number}/{text}", no_undo="the shop keeps it")
def file_note(number: str, text: str) -> None: ...


@flow.node(start=True)
async def hear(ctx: Context[Order]) -> None:
    note = await ctx.receive("note", Note, timeout="2d")
    await ctx.do(file_note, ctx.state.number, note.text if note else "nothing came")

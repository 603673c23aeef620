"""Do as langchain-ai/langgraph does in functional_api.md, in our own words.

Shape: a file written in the body before a wait for a person.
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


flow = Workflow("file-in-the-body", state=Order)


@flow.node(start=True)
async def note_down(ctx: Context[Order]) -> None:
    with open("orders.txt", "a") as book:
        book.write(ctx.state.number)
    ctx.state.status = (await ctx.receive("seen", Note)).text

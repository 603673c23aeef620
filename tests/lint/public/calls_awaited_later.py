"""Do as restatedev/examples does in pdf_workflow.py, in our own words.

Shape: calls made in one comprehension and awaited in the next, and a pure helper.
"""

from pydantic import BaseModel

from outlast import Context, Workflow, activity, lookup


class Order(BaseModel):
    number: str = ""
    cents: int = 0
    status: str = ""
    items: list[str] = []


flow = Workflow("calls-awaited-later", state=Order)


def words(text: str) -> list[str]:
    return [each for line in text.splitlines() for each in line.split()]


@lookup
async def weight(item: str) -> int:
    return len(item)


@activity(key="label/{number}", no_undo="the shop keeps it")
async def label(number: str, grams: int) -> None: ...


@flow.node(start=True)
async def weigh(ctx: Context[Order]) -> None:
    asked = [ctx.do(weight, item) for item in words(ctx.state.status)]
    grams = [await each for each in asked]
    await ctx.do(label, ctx.state.number, sum(grams))

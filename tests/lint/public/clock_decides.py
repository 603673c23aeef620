"""Do as langchain-ai/langgraph does in functional_api.md, in our own words.

Shape: the clock decides which call is made before a wait for a person.
"""

import time

from pydantic import BaseModel

from outlast import Context, Workflow, activity


class Order(BaseModel):
    number: str = ""
    cents: int = 0
    status: str = ""
    items: list[str] = []


class Note(BaseModel):
    text: str = ""


flow = Workflow("clock-decides", state=Order)


@activity(key="post/{number}/{kind}", no_undo="the shop keeps it")
async def post(number: str, kind: str) -> None: ...


@flow.node(start=True)
async def choose(ctx: Context[Order]) -> None:
    age = time.time() - ctx.state.cents
    if age > 3600:
        await ctx.do(post, ctx.state.number, "express")
    else:
        await ctx.do(post, ctx.state.number, "letter")
    await ctx.receive("posted", Note)

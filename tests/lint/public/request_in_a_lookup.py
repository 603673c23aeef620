"""Do as dbos-inc/agent-skills does in step-basics.md, in our own words.

Shape: the same request in a step.
"""

import requests
from pydantic import BaseModel

from outlast import Context, Workflow, lookup


class Order(BaseModel):
    number: str = ""
    cents: int = 0
    status: str = ""
    items: list[str] = []


flow = Workflow("request-in-a-lookup", state=Order)


@lookup
def rate(currency: str) -> float:
    return float(requests.get("https://rates.example/today", timeout=10).json()[currency])


@flow.node(start=True)
async def convert(ctx: Context[Order]) -> None:
    ctx.state.cents = int(ctx.state.cents * await ctx.do(rate, "chf"))

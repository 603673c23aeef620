"""Do as dbos-inc/agent-skills does in step-basics.md, in our own words.

Shape: a request in the body, and the JSON of its response in the next line.
"""

import requests
from pydantic import BaseModel

from outlast import Context, Workflow


class Order(BaseModel):
    number: str = ""
    cents: int = 0
    status: str = ""
    items: list[str] = []


flow = Workflow("request-in-the-body", state=Order)


@flow.node(start=True)
async def convert(ctx: Context[Order]) -> None:
    rates = requests.get("https://rates.example/today", timeout=10)
    ctx.state.cents = int(ctx.state.cents * rates.json()["chf"])

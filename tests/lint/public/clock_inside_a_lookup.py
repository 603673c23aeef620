"""Do as dbos-inc/dbos-demo-apps does in main.py, in our own words.

Shape: the clock and a request inside a step, a write for each answer, and a log line.
"""

import logging
from datetime import UTC, datetime

import requests
from pydantic import BaseModel

from outlast import Context, Workflow, activity, lookup


class Order(BaseModel):
    number: str = ""
    cents: int = 0
    status: str = ""
    items: list[str] = []


flow = Workflow("clock-inside-a-lookup", state=Order)


@lookup
def open_complaints(shop: str) -> list[str]:
    today = datetime.now(UTC).date().isoformat()
    return [str(each) for each in requests.get(f"https://{shop}/complaints/{today}", timeout=10).json()]


@activity(key="answer/{complaint}", no_undo="the shop keeps it")
def answer(complaint: str) -> None: ...


@flow.node(start=True)
async def answer_all(ctx: Context[Order]) -> None:
    complaints = await ctx.do(open_complaints, "shop.example")
    for each in complaints:
        await ctx.do(answer, each)
    logging.info("%d answered at %s", len(complaints), ctx.now())

"""Do as PrefectHQ/prefect does in simple_web_scraper.py, in our own words.

Shape: the answer of one step as the argument of the next, in a loop.
"""

import requests
from pydantic import BaseModel

from outlast import Context, Workflow, lookup


class Order(BaseModel):
    number: str = ""
    cents: int = 0
    status: str = ""
    items: list[str] = []


flow = Workflow("call-inside-a-call", state=Order)


@lookup
def page(address: str) -> str:
    answer = requests.get(address, timeout=10)
    answer.raise_for_status()
    return answer.text


@lookup
def title(text: str) -> str:
    return text.partition("<title>")[2].partition("</title>")[0]


@flow.node(start=True)
async def titles(ctx: Context[Order]) -> None:
    for address in ctx.state.items:
        ctx.state.status += await ctx.do(title, await ctx.do(page, address)) or "no title"

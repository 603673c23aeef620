"""A tender that waits for the first of several: bids in rounds, a person or deadlines, a deadline beside a person."""

from typing import Literal

import httpx2
from pydantic import BaseModel

from outlast import Context, Workflow, activity, role, this_call
from outlast.testing import FakeReceivers

bank = FakeReceivers(env="FIRST_BANK_URL")
CLERKS = role("clerk")


class Bid(BaseModel):
    cents: int


class Tender(BaseModel):
    item: str
    bids: list[int] = []
    paid: str = ""
    late: str = ""


tenders = Workflow("first_tender", state=Tender)


@activity(key="pay/{item}", no_undo="paid is paid")
async def pay(item: str, cents: int) -> str:
    """Pay, at a bank that deduplicates."""
    async with httpx2.AsyncClient(base_url=bank.url, timeout=5) as http:
        reply = await http.post("/payments", json={}, headers={"Idempotency-Key": this_call().idempotency_key})
        return str(reply.raise_for_status().json()["id"])


@tenders.node(start=True)
async def bidding(ctx: Context[Tender]) -> Literal["paying"]:
    for n in range(4):
        found = await ctx.first(ctx.receive("bid", Bid, round=n), ctx.sleep("1h", round=n))
        if found[0] == 1:
            break
        ctx.state.bids.append(found[1].cents)
    return "paying"


@tenders.node
async def paying(ctx: Context[Tender]) -> Literal["closing"]:
    plan = pay.plan(ctx.state.item, min(ctx.state.bids))
    asked = ctx.approval(plan, summary="Pay the best bid", by=CLERKS, within="1d")
    match await ctx.first(asked, ctx.receive("stop", Bid), ctx.sleep("2h")):
        case 0, decision:
            ctx.state.paid = await ctx.do(decision.chosen)
        case 1, _:
            ctx.state.paid = "stopped"
        case 2, _:
            ctx.state.paid = "too late"
    return "closing"


@tenders.node
async def closing(ctx: Context[Tender]) -> None:
    plan = pay.plan(f"{ctx.state.item}-bonus", 1)
    found = await ctx.first(
        {
            "person": ctx.approval(plan, summary="Pay a bonus", by=CLERKS, within="1h", name="bonus"),
            "none": ctx.receive("objection", Bid, timeout="1h"),
        }
    )
    ctx.state.late = found[0]

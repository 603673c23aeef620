"""A workflow under test with one fake receiver."""

from datetime import timedelta

import httpx2
from pydantic import BaseModel

from outlast import Context, Workflow, activity, resend, this_call
from outlast.testing import FakeReceivers

shop = FakeReceivers(env="SHOP_URL")


class Order(BaseModel):
    order: str
    charge: str = ""


orders = Workflow("order-under-test", state=Order)


@activity(key="charge/{order}", if_uncertain=resend(remembered_for=timedelta(hours=24)), no_undo="a refund is another")
async def charge(order: str) -> str:
    """Charge the card for the order."""
    async with httpx2.AsyncClient(base_url=shop.url) as http:
        key = {"Idempotency-Key": this_call().idempotency_key}
        answer = await http.post("/charges", json={"order": order}, headers=key)
        return str(answer.raise_for_status().json()["id"])


@orders.node(start=True)
async def pay(ctx: Context[Order]) -> None:
    """Charge the card, in the only node."""
    ctx.state.charge = await ctx.do(charge, ctx.state.order)

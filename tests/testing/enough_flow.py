"""Sets of calls that end early: the code calls one of the others itself, and an approver is asked no more."""

from typing import Literal

import httpx2
from pydantic import BaseModel

from outlast import Allow, Context, NeedsApproval, Refused, Workflow, activity, resend, role, this_call
from outlast.flow import PolicyRequest, Verdict
from outlast.testing import FakeReceivers

market = FakeReceivers(env="ENOUGH_MARKET_URL")


def policy(request: PolicyRequest) -> Verdict:
    """Let a clerk decide about a reservation."""
    return NeedsApproval("dear", role("clerk"), "Reserve?") if request.activity == "enough_reserve" else Allow("free")


class Enquiry(BaseModel):
    item: str
    quotes: list[str] = []
    places: list[str] = []


enquiries = Workflow("enough_enquiry", state=Enquiry, policy=policy)


async def _post(path: str) -> str:
    async with httpx2.AsyncClient(base_url=market.url, timeout=5) as http:
        reply = await http.post(path, json={}, headers={"Idempotency-Key": this_call().idempotency_key})
        return str(reply.raise_for_status().json()["id"])


@activity(key="quote/{name}", no_undo="a quote binds nobody", name="enough_quote")
async def quote(name: str) -> str:
    """Ask a supplier, of which one is closed. If the answer is lost, a person says what became of it."""
    if name == "closed":
        raise Refused("closed", "no quotes today")
    return await _post("/quotes")


@activity(key="hold/{name}", no_undo="it lapses", name="enough_hold", if_uncertain=resend(remembered_for="1d"))
async def hold(name: str) -> str:
    """Hold a place, at a receiver that deduplicates."""
    return await _post("/holds")


@activity(key="reserve/{name}", no_undo="it lapses", name="enough_reserve")
async def reserve(name: str) -> str:
    """Reserve a place for good, once a clerk has approved."""
    return await _post("/reservations")


@enquiries.node(start=True)
async def asking(ctx: Context[Enquiry]) -> Literal["placing"]:
    names = ("ana", "closed", "bo", "cy", "di")
    done = await ctx.do_all({name: quote.plan(name) for name in names}, at_most=1, min_successful=2)
    kept = [f"{name} {status}" for name, status in done.statuses.items()]
    await ctx.do(quote, done.not_started[0])
    await ctx.sleep("1h")
    ctx.state.quotes = [*kept, "enough" if done.enough else "too few"]
    return "placing"


@enquiries.node
async def placing(ctx: Context[Enquiry]) -> None:
    plans = {"a": hold.plan("a"), "b": reserve.plan("b"), "c": hold.plan("c"), "d": hold.plan("d")}
    done = await ctx.do_all(plans, at_most=2, min_successful=2)
    ctx.state.places = [f"{name} {status}" for name, status in done.statuses.items()]

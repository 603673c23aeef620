"""A sale of three effects with their undos, the second after an approval. `SALE_VERSION` names the version to serve."""

import os
from typing import Any, Literal

import httpx2
from pydantic import BaseModel

from outlast import Context, DidNotHappen, Fail, Happened, Unknown, Workflow, activity, role, this_call

VERSION = int(os.environ.get("SALE_VERSION", "1"))


class Sale(BaseModel):
    """The offer, and how it ends."""

    ends: Literal["won", "lost"] = "won"
    asks: bool = False


sale = Workflow("sale", state=Sale, version=VERSION)


async def send(verb: str = "POST") -> str:
    """Send the call of this activity to the receiver, or ask for it."""
    async with httpx2.AsyncClient(trust_env=False, verify=False, timeout=60) as http:
        key = {"Idempotency-Key": this_call().idempotency_key}
        answer = await http.request(verb, os.environ["RECEIVER"], headers=key)
    if verb == "GET" and answer.status_code == 404:
        return ""
    answer.raise_for_status()
    return answer.text


async def found() -> Happened[str] | DidNotHappen | Unknown:
    """Ask the receiver whether it has the call."""
    text = await send("GET")
    return Happened(text) if text else DidNotHappen()


async def taken_back(done: str) -> Happened[str] | DidNotHappen | Unknown:
    """Ask the receiver whether it has the undo."""
    return await found()


@activity(key="deal", once_per="run")
async def open_deal() -> str:
    return await send()


@activity(key="proposal", once_per="run")
async def send_proposal() -> str:
    return await send()


@activity(key="follow-up", once_per="run")
async def plan_follow_up() -> str:
    return await send()


for each in (open_deal, send_proposal, plan_follow_up):

    @each.undo(reconcile=taken_back)
    async def take_back(done: str) -> str:
        return await send()

    each.reconcile(found)


if VERSION > 1:

    @sale.migrate(from_=1)
    def unchanged(old: dict[str, Any]) -> dict[str, Any]:
        return old


@sale.node(start=True)
async def deal(ctx: Context[Sale]) -> Literal["proposal"]:
    await ctx.do(open_deal)
    return "proposal"


@sale.node
async def proposal(ctx: Context[Sale]) -> Literal["follow_up"]:
    if ctx.state.asks:
        await ctx.approval(send_proposal.plan(), summary="send it?", by=role("lead"), within="96h")
    await ctx.do(send_proposal)
    if ctx.state.ends == "lost":
        raise Fail("the customer left")
    return "follow_up"


@sale.node
async def follow_up(ctx: Context[Sale]) -> None:
    if VERSION > 1:
        ctx.log("version", f"version {VERSION} of the code")
    await ctx.do(plan_follow_up)

"""A refund with every kind of step that a crash can interrupt: lookup, effects of each mode, waits, an approval."""

import os
from datetime import timedelta
from typing import Literal

from pydantic import BaseModel

from outlast import (
    Cancel,
    Context,
    DidNotHappen,
    Happened,
    Unknown,
    Workflow,
    activity,
    lookup,
    resend,
    role,
    this_call,
)

from . import receiver

SNEAK = "CRASH_SNEAK"
"""The environment variable that makes the node pay another amount than the approved one, as faulty code would."""


class Claim(BaseModel):
    order_id: str
    cents: int = 0
    reserved: str = ""
    told: str = ""
    logged: str = ""
    comment: str = ""
    paid: str = ""
    booked: str = ""


class Comment(BaseModel):
    text: str


refund = Workflow("refund", state=Claim, version=1, ceiling=timedelta(hours=168))


@lookup(key="price/{order_id}")
async def price(order_id: str) -> int:
    """Look up the price of the order."""
    return 4_200


@activity(key="reserve/{order_id}", no_undo="it lapses by itself")
async def reserve(order_id: str, cents: int) -> str:
    """Set the money aside. The bank can be asked about it."""
    return _receive("reserve", dedupes=False)


@reserve.reconcile
async def find_reserve(order_id: str, cents: int) -> Happened[str] | DidNotHappen | Unknown:
    """Ask the bank for the reservation."""
    said = receiver.ask(this_call().idempotency_key, _label())
    return Happened(said, external_id=said) if said else DidNotHappen()


@activity(key="tell/{order_id}", if_uncertain=resend(remembered_for=timedelta(hours=24)), no_undo="said is said")
async def tell_customer(order_id: str, text: str) -> str:
    """Write to the customer. The mail service deduplicates by key for a day."""
    return _receive("tell", dedupes=True)


@activity(key="log/{order_id}", if_uncertain=resend(remembered_for=timedelta(hours=24)), no_undo="a log is kept")
def log_claim(order_id: str) -> str:
    """Write a log line in a thread: a plain function."""
    return _receive("log", dedupes=True)


@activity(key="refund/{order_id}", once_per="run", no_undo="paid is paid")
async def pay_out(order_id: str, cents: int) -> str:
    """Pay, at a bank that neither deduplicates nor can be asked."""
    return _receive(f"pay-{cents}", dedupes=False)


@activity(key="book/{order_id}", no_undo="a correction is another booking")
async def book(order_id: str) -> str:
    """Book the refund, in a system that neither deduplicates nor can be asked."""
    return _receive("book", dedupes=False)


@refund.node(start=True, status="CHECKING")
async def check(ctx: Context[Claim]) -> Literal["wait"]:
    """Look up the price, set the money aside, then send two letters at once."""
    s = ctx.state
    s.cents = await ctx.do(price, s.order_id)
    s.reserved = await ctx.do(reserve, s.order_id, s.cents)
    ctx.log("reserved", "the money is set aside", cents=s.cents)
    letters = await ctx.do_all({"told": tell_customer.plan(s.order_id, "soon"), "log": log_claim.plan(s.order_id)})
    s.told, s.logged = letters["told"], letters["log"]
    return "wait"


@refund.node(status="WAITING")
async def wait(ctx: Context[Claim]) -> Literal["pay"]:
    """Sleep an hour, then wait for the customer's comment without a deadline."""
    await ctx.sleep(timedelta(hours=1), name="cool")
    ctx.state.comment = (await ctx.receive("comment", Comment)).text
    return "pay"


@refund.node(status="PENDING_APPROVAL")
async def pay(ctx: Context[Claim]) -> Literal["close"]:
    """Pay exactly the approved amount."""
    s = ctx.state
    plan = pay_out.plan(s.order_id, s.cents)
    decision = await ctx.approval(plan, summary=f"Refund {s.cents}", by=role("finance"), within=timedelta(hours=96))
    if not decision.approved:
        raise Cancel(decision.reason)
    s.paid = await ctx.do(pay_out, s.order_id, s.cents + int(os.environ.get(SNEAK, "0")))
    return "close"


@refund.node(status="CLOSING")
async def close(ctx: Context[Claim]) -> None:
    """Book the refund, the last node."""
    ctx.state.booked = await ctx.do(book, ctx.state.order_id)


def _receive(what: str, *, dedupes: bool) -> str:
    return receiver.receive(this_call().idempotency_key, _label(), what=what, dedupes=dedupes)


def _label() -> str:
    return f"{this_call().run_id} call {this_call().key}"

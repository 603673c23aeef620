"""A refund workflow with three nodes, used by the tests of the command line.

The environment steers the world it acts on: REFUND_DOUBT makes the payment end without an answer, REFUND_FAULT makes
the last node raise, REFUND_SLOW holds the first call up for so many seconds, REFUND_LOG names a file that records
every call.
"""

import asyncio
import os
from datetime import timedelta
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from outlast import Cancel, Context, Fail, Workflow, activity, resend, role, this_call
from outlast.flow import Perhaps


class Receipt(BaseModel):
    number: str


class Paid(BaseModel):
    by: str


class Refund(BaseModel):
    order_id: str
    cents: int
    receipt: Receipt | None = None
    told: str = ""


refunds = Workflow("refund", state=Refund, ceiling=timedelta(hours=168))


def _record(line: str) -> None:
    if log := os.environ.get("REFUND_LOG"):
        with Path(log).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")


@activity(key="check/{order_id}", no_undo="it only opens a file", if_uncertain=resend(remembered_for=timedelta(days=1)))
async def open_case(order_id: str) -> str:
    _record(f"open {order_id}")
    if tokens := os.environ.get("REFUND_TOKENS"):
        this_call().used(int(tokens), money="0.25")
    if slow := os.environ.get("REFUND_SLOW"):
        await asyncio.sleep(float(slow))
    return f"case-{order_id}"


@activity(key="refund/{order_id}", once_per="run")
async def issue_refund(order_id: str, cents: int) -> Receipt:
    _record(f"refund {order_id} {cents}")
    if os.environ.get("REFUND_DOUBT"):
        raise Perhaps("the bank hung up")
    return Receipt(number=f"R-{order_id}")


@issue_refund.undo
async def reverse(done: Receipt, order_id: str, cents: int) -> None:
    _record(f"reverse {done.number} {order_id} {cents}")


@refunds.node(start=True)
async def check(ctx: Context[Refund]) -> Literal["review"]:
    if ctx.state.cents <= 0:
        raise Fail("nothing to refund")
    await ctx.do(open_case, ctx.state.order_id)
    return "review"


@refunds.node
async def review(ctx: Context[Refund]) -> Literal["pay"]:
    s = ctx.state
    decision = await ctx.approval(
        issue_refund.plan(s.order_id, s.cents),
        summary=f"Refund {s.cents} cents of {s.order_id}",
        by=role("finance"),
        within=timedelta(hours=96),
        alternatives=[issue_refund.plan(s.order_id, s.cents // 2)],
    )
    if decision.chosen is None:
        raise Cancel(decision.reason)
    s.receipt = await ctx.do(decision.chosen)
    return "pay"


@refunds.node
async def pay(ctx: Context[Refund]) -> None:
    if os.environ.get("REFUND_FAULT"):
        raise RuntimeError("the printer is on fire")
    if ctx.state.order_id.startswith("wait"):
        paid = await ctx.receive("paid", Paid, timeout=timedelta(hours=24))
        ctx.state.told = paid.by if paid is not None else "nobody"

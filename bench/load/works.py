"""What is served under load: a refund that a person decides, and that is paid in the node behind the decision."""

from datetime import timedelta
from typing import Literal

from pydantic import BaseModel

from outlast import Cancel, Context, Workflow, activity, role

WITHIN = timedelta(hours=96)


class Refund(BaseModel):
    """The state of a measured run."""

    order_id: str
    cents: int
    receipt: str = ""


refunds = Workflow("bench-refund", state=Refund, outcome=lambda state: state.receipt)


@activity(key="refund/{order_id}", once_per="run", no_undo="a bench changes nothing")
async def refund(order_id: str, cents: int) -> str:
    """A write whose receiver is this process."""
    return f"receipt-{order_id}-{cents}"


@refunds.node(start=True)
async def review(ctx: Context[Refund]) -> Literal["pay"]:
    """Put it to a person; nothing holds the run meanwhile."""
    plan = refund.plan(ctx.state.order_id, ctx.state.cents)
    decision = await ctx.approval(plan, summary=f"Refund {ctx.state.cents}", by=role("finance"), within=WITHIN)
    if not decision.approved:
        raise Cancel(decision.reason)
    return "pay"


@refunds.node
async def pay(ctx: Context[Refund]) -> None:
    """The next node: the one that decisions are timed to."""
    ctx.state.receipt = await ctx.do(refund, ctx.state.order_id, ctx.state.cents)

"""The workflow under load: a refund with an approval, paid in the next node."""

from datetime import timedelta
from typing import Literal

from pydantic import BaseModel

from outlast import Cancel, Context, Workflow, activity, role

WITHIN = timedelta(hours=96)


class Refund(BaseModel):
    """State of a measured run."""

    order_id: str
    cents: int
    receipt: str = ""


refunds = Workflow("bench-refund", state=Refund, outcome=lambda state: state.receipt)


@activity(key="refund/{order_id}", once_per="run", no_undo="a bench changes nothing")
async def refund(order_id: str, cents: int) -> str:
    """Make an effect whose receiver is this process."""
    return f"receipt-{order_id}-{cents}"


@refunds.node(start=True)
async def review(ctx: Context[Refund]) -> Literal["pay"]:
    """Request an approval. The run is parked while it waits."""
    plan = refund.plan(ctx.state.order_id, ctx.state.cents)
    decision = await ctx.approval(plan, summary=f"Refund {ctx.state.cents}", by=role("finance"), within=WITHIN)
    if not decision.approved:
        raise Cancel(decision.reason)
    return "pay"


@refunds.node
async def pay(ctx: Context[Refund]) -> None:
    """Pay in the next node, to which decisions are timed."""
    ctx.state.receipt = await ctx.do(refund, ctx.state.order_id, ctx.state.cents)

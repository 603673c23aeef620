"""A payout that two people approve and may change, for tests of concurrent decisions."""

from datetime import timedelta
from pathlib import Path

from pydantic import BaseModel

from outlast import Cancel, Context, Workflow, activity, role


class Payout(BaseModel):
    order_id: str
    cents: int


payouts = Workflow("payout", state=Payout)


@activity(key="payout/{order_id}", no_undo="it is theirs")
def pay_out(order_id: str, cents: int) -> str:
    with Path("paid.log").open("a", encoding="utf-8") as file:
        file.write(f"{order_id} {cents}\n")
    return "paid"


@payouts.node(start=True)
async def review(ctx: Context[Payout]) -> None:
    decision = await ctx.approval(
        pay_out.plan(ctx.state.order_id, ctx.state.cents),
        summary="A payout",
        by=role("finance"),
        within=timedelta(hours=1),
        quorum=2,
        editable=("cents",),
    )
    if decision.chosen is None:
        raise Cancel(decision.reason)
    await ctx.do(decision.chosen)

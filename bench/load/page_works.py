"""Workflows behind the pages of the web UI: refunds, a large run, and two whose runs need a person."""

from datetime import timedelta

from pydantic import BaseModel

from bench.load.large_run import tours
from bench.load.works import refunds
from outlast import Context, Workflow, activity

WORKFLOWS = [refunds, tours]


class Payout(BaseModel):
    """State of a run that needs a person."""

    order_id: str
    cents: int


payouts = Workflow("bench-payout", state=Payout)
audits = Workflow("bench-audit", state=Payout)


@activity(
    key="payout/{order_id}", once_per="run", no_undo="a bench changes nothing", timeout=timedelta(seconds=5)
)  # fmt: skip
async def pay_out(order_id: str, cents: int) -> str:
    """Lose the connection after the call was sent, so that its outcome is uncertain."""
    raise ConnectionResetError(f"no answer to the payout of {cents} for {order_id}")


@payouts.node(start=True)
async def pay(ctx: Context[Payout]) -> None:
    """Make a call whose outcome a person decides."""
    await ctx.do(pay_out, ctx.state.order_id, ctx.state.cents)


@audits.node(start=True)
async def audit(ctx: Context[Payout]) -> None:
    """Fail with an error of the author's code."""
    raise LookupError(f"no account of {ctx.state.order_id}")

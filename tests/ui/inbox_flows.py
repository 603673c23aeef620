"""Refunds with main arguments, for the tests of the inbox."""

from datetime import timedelta

from pydantic import BaseModel

from outlast import Amount, Cancel, Context, Workflow, activity, role


class InboxRefund(BaseModel):
    n: int
    cents: int = 99900
    customer: str = "hooli"
    receipt: str = ""


inbox_refunds = Workflow("inbox_refund", state=InboxRefund, outcome=lambda state: state.receipt)


@activity(
    key="inbox-refund/{order}",
    once_per="run",
    no_undo="the customer keeps it",
    show=(Amount("cents", currency="currency"), "to {customer}"),
)
async def inbox_pay(order: str, cents: int, currency: str, customer: str) -> str:
    return f"receipt-{order}"


@inbox_refunds.node(start=True)
async def inbox_ask(ctx: Context[InboxRefund]) -> None:
    state = ctx.state
    plan = inbox_pay.plan(f"A-{state.n}", state.cents, "EUR", state.customer)
    decision = await ctx.approval(
        plan, summary=f"Refund for {state.customer}", by=role("finance"), within=timedelta(hours=4 + state.n),
        risk="low", editable=["cents", "customer"], again=2,
    )  # fmt: skip
    if not decision.approved:
        raise Cancel("refused")
    state.receipt = await ctx.do(decision.chosen)

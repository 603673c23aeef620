"""The workflow of these applications: a refund that a person of finance approves."""

from outlast import Cancel, Context, activity, role, workflow


@activity(key="refund/{order}", once_per="run", no_undo="the customer keeps the money")
async def issue_refund(order: str, cents: int) -> str:
    return f"receipt-{order}"  # call your bank here


@workflow(key="refund/{order}")
async def refund(ctx: Context, order: str, cents: int) -> str:
    plan = issue_refund.plan(order, cents)
    decision = await ctx.approval(plan, summary=f"Refund {cents} for {order}?", by=role("finance"), within="96h")
    if not decision.approved:
        raise Cancel(f"{decision.by}: {decision.reason}")
    return await ctx.do(plan)

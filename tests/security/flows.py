"""Workflows under attack: a payment with an approval, and an endless wait."""

from datetime import timedelta

from pydantic import BaseModel

from outlast import Cancel, Context, Workflow, activity, role, workflow

PAID: list[str] = []


class Payment(BaseModel):
    order: str
    cents: int
    within_ms: int
    quorum: int
    said: str = ""


payments = Workflow("payment", state=Payment, outcome=lambda state: state.said)


@activity(key="security-pay/{order}", once_per="run", no_undo="it is gone")
async def pay(order: str, cents: int) -> str:
    PAID.append(order)
    return f"paid {order}"


@payments.node(start=True)
async def review(ctx: Context[Payment]) -> None:
    state = ctx.state
    decision = await ctx.approval(
        pay.plan(state.order, state.cents), summary=f"Pay {state.order}", by=role("finance"),
        within=timedelta(milliseconds=state.within_ms), not_requester=True, quorum=state.quorum,
        alternatives=[pay.plan(f"{state.order}-half", state.cents // 2)],
    )  # fmt: skip
    if not decision.approved:
        raise Cancel(decision.reason)
    ctx.state.said = await ctx.do(decision.chosen)


@workflow
async def nested(ctx: Context, order: str, below: int) -> str:
    """Pay once approved, so many runs below the first one."""
    if below:
        given = nested.arguments(order, below - 1)
        return await ctx.run(nested, given, key="next", no_undo="it is gone")
    plan = pay.plan(order, 1)
    decision = await ctx.approval(plan, summary=f"Pay {order}", by=role("finance"), within="1h", not_requester=True)
    return await ctx.do(decision.chosen) if decision.approved else decision.reason


class Listener(BaseModel):
    heard: str = ""


listeners = Workflow("listener", state=Listener)


class Said(BaseModel):
    text: str


@listeners.node(start=True)
async def listen(ctx: Context[Listener]) -> None:
    ctx.state.heard = (await ctx.receive("said", Said)).text

"""Workflows for the tests of the service: a refund with an approval, and a job without."""

from datetime import timedelta
from typing import Literal

from pydantic import BaseModel

from outlast import Cancel, Context, Workflow, activity, role
from outlast.flow import Perhaps


class Refund(BaseModel):
    order_id: str
    cents: int
    receipt: str = ""


refunds = Workflow("refund", state=Refund, outcome=lambda state: state.receipt)


@activity(key="service-refund/{order_id}", once_per="run", no_undo="the customer keeps the money")
async def pay_back(order_id: str, cents: int) -> str:
    return f"receipt-{order_id}-{cents}"


@refunds.node(start=True)
async def review(ctx: Context[Refund]) -> Literal["pay"]:
    plan = pay_back.plan(ctx.state.order_id, ctx.state.cents)
    decision = await ctx.approval(
        plan, summary=f"Refund {ctx.state.cents}", by=role("finance"), within=timedelta(hours=96), again=True,
        editable=["cents"],
    )  # fmt: skip
    if not decision.approved:
        raise Cancel(f"{decision.by}: {decision.reason}")
    ctx.state.receipt = await ctx.do(decision.chosen)
    return "pay"


@refunds.node
async def pay(ctx: Context[Refund]) -> None:
    ctx.log("paid", f"receipt {ctx.state.receipt}")


class Job(BaseModel):
    rounds: int
    done: int = 0


jobs = Workflow("job", state=Job)


@jobs.node(start=True, max_visits=1000)
async def work(ctx: Context[Job]) -> Literal["work"] | None:
    ctx.state.done += 1
    return "work" if ctx.state.done < ctx.state.rounds else None


class Wish(BaseModel):
    text: str


wishes = Workflow("wish", state=Wish)


class Said(BaseModel):
    text: str


@wishes.node(start=True)
async def hear(ctx: Context[Wish]) -> None:
    said = await ctx.receive("said", Said)
    ctx.state.text = said.text


class Vault(BaseModel):
    password: str
    opened: int = 0
    kept: int = 0


vaults = Workflow("vault", state=Vault)


@vaults.node(start=True)
async def unlock(ctx: Context[Vault]) -> Literal["keep"]:
    ctx.state.opened += 1
    return "keep"


@vaults.node
async def keep(ctx: Context[Vault]) -> None:
    ctx.state.kept += 1
    await ctx.receive("close", Said)


class Order(BaseModel):
    number: str


orders = Workflow("order", state=Order, key="order/{number}")


@orders.node(start=True, end="PLACED")
async def place(ctx: Context[Order]) -> None: ...


class Call(BaseModel):
    order: str
    said: str = ""


calls = Workflow("call", state=Call)


@activity(key="service-ring/{order}", once_per="run", no_undo="it rang")
async def ring(order: str) -> str:
    raise Perhaps("the line broke")


@calls.node(start=True)
async def dial(ctx: Context[Call]) -> None:
    if ctx.state.order == "broken":
        raise RuntimeError("no line")
    ctx.state.said = await ctx.do(ring, ctx.state.order)

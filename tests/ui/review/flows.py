"""Workflows of a shop on a bad night: failures of five causes, uncertain payments, approvals, long graphs, an agent."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, Literal

from pydantic import BaseModel

from outlast import Amount, Context, Workflow, activity, role
from outlast.agent import ModelAnswer, ModelRequest, Price, ScriptedModel, ToolCall, agent_workflow
from outlast.flow import Perhaps, Refused, lookup

REGIONS: Final = tuple(f"region {n}" for n in range(14))
NODES: Final = (60, 75)
PARALLEL: Final = 200


class Order(BaseModel):
    number: int
    customer: str
    region: str = ""
    fault: Literal["", "key", "zero", "card", "json", "arabic"] = ""
    receipt: str = ""


former = Workflow("order-fulfilment", version=1, state=Order, attributes={"customer": "customer"})
"""The version before the one that fails."""


@former.node(start=True)
async def shipped(ctx: Context[Order]) -> None:
    ctx.state.receipt = "by hand"


fulfilment = Workflow(
    "order-fulfilment", version=2, state=Order, objective=lambda order: f"order {order.number}",
    attributes={"customer": "customer"},
)  # fmt: skip


@activity(key="review-charge/{number}", once_per="run", no_undo="the money is refunded by hand")
async def charge_card(number: int, customer: str, cents: int) -> str:
    return f"receipt-{number}"


@fulfilment.node(start=True)
async def price(ctx: Context[Order]) -> Literal["charge"]:
    prices: dict[str, int] = {}
    if ctx.state.fault == "key":
        return str(prices[f"no price list for {ctx.state.region}"])  # type: ignore[return-value]
    if ctx.state.fault == "zero":
        return str(ctx.state.number // 0)  # type: ignore[return-value]
    return "charge"


@fulfilment.node
async def charge(ctx: Context[Order]) -> None:
    fault, number = ctx.state.fault, ctx.state.number
    if fault == "card":
        raise ValueError(f"card_declined: the bank declined charge {number} of '{ctx.state.customer}'")
    if fault == "json":
        raise TypeError(f'unexpected answer {{"order": {number}, "id": "{number:08x}"}} from /v2/orders/{number}')
    if fault == "arabic":
        raise RuntimeError(f"تعذر حجز الطلب {number}")
    ctx.state.receipt = await ctx.do(charge_card, number, ctx.state.customer, number * 100)


class Payout(BaseModel):
    seller: str
    cents: int


payouts = Workflow("payout", state=Payout)


@activity(key="review-payout/{seller}", once_per="run", no_undo="it is booked")
async def pay_out(seller: str, cents: int) -> str:
    if not seller.startswith("lost"):
        return f"payout-{seller}"
    raise Perhaps("the bank closed the connection after the request")


@payouts.node(start=True)
async def pay(ctx: Context[Payout]) -> None:
    await ctx.do(pay_out, ctx.state.seller, ctx.state.cents)


class Refund(BaseModel):
    customer: str
    cents: int
    why: str = ""
    receipt: str = ""


refunds = Workflow("refund", state=Refund, objective=lambda asked: f"refund to {asked.customer}")


@activity(
    key="review-refund/{customer}", once_per="run", no_undo="the customer keeps the money",
    show=(Amount("cents", currency="EUR"), "to {customer}"),
)  # fmt: skip
async def issue_refund(customer: str, cents: int, why: str) -> str:
    return f"receipt-{customer}-{cents}"


@refunds.node(start=True)
async def ask(ctx: Context[Refund]) -> None:
    asked = ctx.state
    decision = await ctx.approval(
        issue_refund.plan(asked.customer, asked.cents, asked.why),
        summary=f"Refund {asked.cents / 100:,.2f} EUR to {asked.customer}", by=role("finance"),
        within=timedelta(hours=96), again=True, editable=["cents"], risk="high" if asked.cents > 50_000 else "",
    )  # fmt: skip
    asked.receipt = await ctx.do(decision.chosen) if decision.approved else "rejected"


class Import(BaseModel):
    parts: int
    done: int = 0


imports = Workflow("slow-import", state=Import)


@activity(key="review-part/{n}", once_per="run", no_undo="a part is read")
async def import_part(n: int) -> int:
    if n % 50 == 49:
        raise Refused("broken", f"part {n} is not readable")
    return n


@imports.node(start=True)
async def fetch(ctx: Context[Import]) -> None:
    plans = {f"part/{n}": import_part.plan(n) for n in range(ctx.state.parts)}
    found = await ctx.do_all(plans, tolerated_failures=ctx.state.parts)
    ctx.state.done += len(found.completed)
    await ctx.receive("again", Payout)


class Steps(BaseModel):
    stop_at: int
    n: int = 0


def pipeline(nodes: int) -> Workflow[Any]:
    """Return a workflow of so many nodes in one chain. A run waits in the node `stop_at`."""
    made = Workflow(f"pipeline-{nodes}", state=Steps)

    def step(n: int) -> Callable[[Context[Steps]], Any]:
        async def node(ctx: Context[Steps]) -> Any:
            ctx.state.n = n
            if n == ctx.state.stop_at:
                await ctx.receive("go-on", Payout)
            return following or None

        following = f"step_{n + 1}" if n + 1 < nodes else ""
        node.__name__ = node.__qualname__ = f"step_{n}"
        node.__annotations__ = {"ctx": Context[Steps], "return": Literal[following] if following else None}
        return node

    for n in range(nodes):
        made.node(start=n == 0)(step(n))
    return made


# --- an agent ---------------------------------------------------------------------------------------
MODEL: Final = "stand-in-1"


@lookup
async def read_log(service: str) -> str:
    """Read the last lines of the log of a service."""
    return f"{service}: connection pool exhausted (200 of 200); <script>alert(1)</script>"


@activity(key="review-restart/{service}", once_per="run", no_undo="a restart cannot be taken back")
async def restart(service: str) -> str:
    """Restart a service."""
    if service == "search":
        raise Refused("deploy_freeze", "a deploy freeze is in force until Monday")
    return f"{service} restarted"


def answer(request: ModelRequest) -> ModelAnswer:
    """Read the log, restart the service, and report the result."""
    told = [message.text for message in request.messages if message.role == "tool"]
    if len(told) == 0:
        text, tool = "The alert names the service search. I read its log first.", "read_log"
    elif len(told) == 1:
        text, tool = "The pool is exhausted. I restart search.", "restart"
    else:
        text, tool = f"Search was not restarted: {told[-1]}", ""
    calls = (ToolCall(id=f"c{len(told)}", tool=tool, arguments={"service": "search"}),) if tool else ()
    return ModelAnswer(text=text, calls=calls, model=MODEL, input_tokens=812 + 64 * len(told), output_tokens=64)


incidents = agent_workflow(
    "incident", model=ScriptedModel(answer, name=MODEL, price=Price(1.25, 10)), tools=(read_log, restart),
    instructions="You keep the services of a shop running.",
)  # fmt: skip

ALL: Final = (former, fulfilment, payouts, refunds, imports, *map(pipeline, NODES), incidents)

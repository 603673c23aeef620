# type: ignore
# The line above keeps this file out of ordinary runs; test_typing.py checks a copy without it.
"""Planted mistakes: every line marked E must be an error for mypy and for pyright, and no other line."""

from typing import Literal

from right import Desk, Order, Purchase, Start, Ticket, ask, desk, find_asked, place, purchase, refund

import outlast
from outlast import Context, DidNotHappen, Happened, Plan, Workflow, activity, workflow


@purchase.node
async def another_target(ctx: Context[Purchase]) -> Literal["x"]:
    return "y"  # E 1: not a declared target


@purchase.node  # E 2: the state of another workflow
async def another_state(ctx: Context[Desk]) -> None: ...


@purchase.node(status="CALLS")
async def calls(ctx: Context[Purchase]) -> None:
    await ctx.do(ask, "a", "1")  # E 3: text where a number belongs
    await ctx.do(ask, "a")  # E 4: an argument is missing
    await ctx.do(ask, "a", turn=2)
    order: Order = await ctx.do(ask, "a", 1)  # E 5: a ticket is no order
    place.plan("s", "o")  # E 6: an argument is missing in a plan
    ctx.do(ask, order.order_id, 1)  # E 7: not awaited # outlast: ignore[OL305] checkers name it
    plan: Plan[Ticket] = place.plan("s", "o", 1)  # E 8: the plan of another answer
    await ctx.do(plan)
    await find_asked("a", 1)


@purchase.node  # E 9: a node that is not async
def not_async(ctx: Context[Purchase]) -> Literal["ordering"]:
    return "ordering"


@activity(key="other/{a}")
async def other(a: str) -> Ticket:
    raise NotImplementedError


@other.reconcile  # E 10: other parameters than its activity
async def find_other(b: int) -> Happened[Ticket] | DidNotHappen:
    return DidNotHappen()


@other.undo  # E 11: the response of another activity
async def undo_other(done: Order, a: str) -> None: ...


@activity()  # E 12: a write without a key
async def keyless(a: str) -> None: ...


@purchase.node(status="NUMBER")  # E 13: leads to a number
async def number(ctx: Context[Purchase]) -> int:
    return 1


# --- inputs, outcomes and clients --------------------------------------------------------------
def other_outcome(state: Desk) -> Order:
    raise NotImplementedError


Workflow("other-outcome", state=Purchase, outcome=other_outcome)  # E 14: the outcome of another state
Workflow("no-model", state=Purchase, input=str)  # E 15: an input that is no model
purchase.encode_input(Desk(goal="x"))  # E 16: the input of another workflow


async def clients(ctx: Context) -> None:
    async with outlast.connect("memory:") as client:
        await client.start(purchase, Purchase(category="x", suppliers=[]))  # E 17: the state, where `input=` is Start
        await client.start(purchase)  # E 18: no input
        await client.start(purchase, Start(category="x"), idempotency_key="k")  # E 19: no such option
        bought = await client.start(purchase, Start(category="x"))
        order: Order = await bought.result()  # E 20: the outcome may be None
        done: Order = await (await client.start(desk, Desk(goal="x"))).result()  # E 21: the outcome is the state
        await client.start("desk", 5)  # E 22: an input that is no object
        client.start(desk, Desk(goal=order.order_id))  # E 23: not awaited
        await client.start(refund, done.order_id, "42")  # E 24: text where a number belongs
        await client.start(refund, "A-1")  # E 25: an argument is missing
        await client.start(refund, "A-1", 42, note="late")  # E 26: no such parameter
        await client.start(refund, "A-1", 42, "late")  # E 27: `why` is given by name
        paid: str = await (await client.start(refund, "A-1", 42)).result()  # E 28: the outcome is a ticket
        later: Order = await client.get(refund, paid).result()  # E 29: the outcome is a ticket
        await client.start(refund, refund.arguments(later.order_id), key="k")  # E 30: an argument is missing
        await refund(ctx, 7, 42)  # E 31: a number where text belongs
        await client.start(refund, "A-1", 42)


def synchronous_client() -> None:
    with outlast.connect_sync("memory:") as client:
        client.start(refund, "A-1", cents="42")  # E 32: text where a number belongs
        paid: Order = client.start(refund, "A-1", cents=42).result()  # E 33: the outcome is a ticket
        client.start(purchase, Desk(goal=paid.order_id))  # E 34: the input of another workflow


@workflow  # E 35: a workflow that is not async
def plain(ctx: Context, order: str) -> str:
    return order


@workflow  # E 36: no context
async def without_context(order: str) -> str:
    return order


@workflow(when_empty="ignore")  # E 37: no such choice
async def unknown_choice(ctx: Context) -> None: ...


@purchase.node(within=96)  # E 38: a number where a duration belongs
async def within_what(ctx: Context[Purchase]) -> None:
    orders: list[Order] = await ctx.do_all([ask.plan("a", 1)], at_most=3)  # E 39: a list of tickets
    del orders


Workflow("keyed", state=Desk, input=Order, key=5)  # E 40: a key is text or a function
Workflow("mistyped", state=Desk, versions=2)  # E 41: no option has this name


@workflow(versions=2)  # E 42: no option has this name
async def mistyped(ctx: Context) -> None: ...

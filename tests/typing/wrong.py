# type: ignore
# The line above keeps this file out of ordinary runs; test_typing.py checks a copy without it.
"""Planted mistakes: every line marked E must be an error for mypy and for pyright, and no other line."""

from typing import Literal

from right import Desk, Order, Purchase, Ticket, ask, find_asked, place, purchase

from outlast import Context, DidNotHappen, Happened, Plan, activity


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
    ctx.do(ask, order.order_id, 1)  # E 7: not awaited
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

"""A workflow whose recorded runs are evaluated: a model, writes of each scope, a signal, a wait and an undo.

`Code` has the places that a test changes, as an author would between the run and its evaluation. `ACTED` has each call
whose function was called.
"""

from typing import Any, Literal

from pydantic import BaseModel

from outlast import Context, Fail, Refused, Workflow, activity, lookup, role

ACTED: list[str] = []


class Code:
    """The parts of the code that a test changes."""

    prompt = "What is {order} worth?"
    key = "A"
    more = 0
    part = "desk"
    mails = 1
    fails = False
    asks = False


class Order(BaseModel):
    """State of the workflow; `token` is a secret by its name."""

    order: str
    token: str = ""
    cents: int = 0
    notes: list[str] = []


class Note(BaseModel):
    """A signal."""

    text: str


flow = Workflow("evaluated-order", state=Order)


@lookup
async def worth(prompt: str) -> int:
    """Stand for a model: a longer prompt gets a higher answer."""
    ACTED.append(f"worth {prompt}")
    return 100 * len(prompt)


@activity(key="reserve/{order}/{part}", once_per="run")
async def reserve(order: str, part: str, token: str) -> str:
    """Reserve, with an undo."""
    ACTED.append(f"reserve {order}")
    return f"reserved-{order}"


@reserve.undo
async def release(done: str, order: str, part: str, token: str) -> None:
    """Undo a reservation."""
    ACTED.append(f"release {order}")


@activity(key="insure/{order}", once_per="tenant", no_undo="a year is paid")
async def insure(order: str) -> str:
    """Insure, once for all runs."""
    ACTED.append(f"insure {order}")
    return f"insured-{order}"


@activity(key="charge/{order}/{part}", no_undo="a refund is another call")
async def charge(order: str, part: str, cents: int) -> str:
    """Charge."""
    ACTED.append(f"charge {cents}")
    return f"receipt-{order}"


@activity(key="mail/{order}/{n}", no_undo="a mail cannot be unsent")
async def mail(order: str, n: int, text: str) -> str:
    """Send a mail, unless there is no address."""
    ACTED.append(f"mail {n}")
    raise Refused("no_address", f"{order} has no address")


@flow.node(start=True)
async def plan(ctx: Context[Order]) -> Literal["pay"]:
    """Ask the model, then reserve and insure."""
    s = ctx.state
    s.cents = await ctx.do(worth, Code.prompt.format(order=s.order))
    await ctx.do(reserve, s.order, Code.key, s.token)
    await ctx.do(insure, s.order)
    note = await ctx.receive("note", Note, timeout="24h")
    s.notes.append(note.text if note is not None else "no note")
    return "pay"


@flow.node
async def pay(ctx: Context[Order]) -> Literal["tell"]:
    """Charge, after an approval if the code asks for one."""
    s = ctx.state
    call = charge.plan(s.order, Code.part, s.cents + Code.more)
    if Code.asks:
        decision = await ctx.approval(call, summary="Charge?", by=role("lead"), within="96h")
        if not decision.approved:
            raise Fail(decision.reason)
    s.notes.append(await ctx.do(call))
    return "tell"


@flow.node
async def tell(ctx: Context[Order]) -> None:
    """Send mails half a day later."""
    await ctx.sleep("12h")
    for n in range(Code.mails):
        try:
            await ctx.do(mail, ctx.state.order, n, ctx.state.notes[0])
        except Refused as refused:
            ctx.state.notes.append(refused.code)
    if Code.fails:
        raise Fail("no stock")


def given(order: str = "A-1") -> dict[str, Any]:
    """Return the input of a run."""
    return {"order": order, "token": "sk-live-0123456789abcdef"}

"""A workflow whose runs are recorded and played again: lookups, each kind of activity, people, signals and an undo.

`Code` has the places that a test changes, as an author would between the run and its test.
"""

from typing import Any, Literal

from pydantic import BaseModel

from outlast import Context, DidNotHappen, Fail, Happened, Refused, Unknown, Workflow, activity, lookup, resend, role


class Code:
    """The parts of the code that a test changes."""

    prompt = "Which price has {order}?"
    cents = 4_200
    key = "A"
    mails = 1
    asks = True
    label = "paid"
    token = "sk-live-0123456789abcdef"


class Order(BaseModel):
    """State of the workflow; `token` is a secret by its name."""

    order: str
    token: str = ""
    cents: int = 0
    receipt: str = ""
    due: str = ""
    notes: list[str] = []


class Note(BaseModel):
    """A signal."""

    text: str


flow = Workflow("recorded-order", state=Order)


@lookup
async def price_of(prompt: str, order: str, token: str) -> int:
    """Stand for a model."""
    return 4_200


@lookup
async def broken(order: str) -> int:
    """Fail, so that the node goes on without an answer."""
    raise ValueError(f"no stock of {order}")


@activity(key="reserve/{order}/{part}", once_per="run")
async def reserve(order: str, part: str) -> str:
    """Reserve, with an undo."""
    return f"reserved-{order}"


@reserve.undo
async def release(done: str, order: str, part: str) -> None:
    """Undo a reservation."""


@activity(key="charge/{order}/{token}", if_uncertain=resend(remembered_for="24h"), no_undo="a refund is another call")
async def charge(order: str, token: str, cents: int, at: str) -> str:
    """Charge, at a receiver that deduplicates."""
    return f"receipt of {order} with {token}"


@activity(key="mail/{order}/{n}", no_undo="a mail cannot be unsent")
async def mail(order: str, n: int) -> str:
    """Send a mail."""
    if order == "refused":
        raise Refused("no_address", f"{order} has no address")
    return "x" * 1_000


@mail.reconcile
async def find_mail(order: str, n: int) -> Happened[str] | DidNotHappen | Unknown:
    """Find a mail."""
    return DidNotHappen()


@flow.node(start=True)
async def plan(ctx: Context[Order]) -> Literal["pay"]:
    """Look up and reserve."""
    s = ctx.state
    s.cents = await ctx.do(price_of, Code.prompt.format(order=s.order), s.order, s.token)
    try:
        await ctx.do(broken, s.order)
    except ValueError as error:
        s.notes.append(str(error))
    await ctx.do(reserve, s.order, Code.key)
    note = await ctx.receive("note", Note, timeout="24h")
    s.notes.append(note.text if note is not None else "no note")
    return "pay"


@flow.node
async def pay(ctx: Context[Order]) -> Literal["tell"]:
    """Charge after the approval of two people."""
    s = ctx.state
    s.due = ctx.now().isoformat()
    call = charge.plan(s.order, s.token, s.cents + Code.cents - 4_200, s.due)
    if Code.asks:
        decision = await ctx.approval(call, summary=f"Charge {s.cents}?", by=role("lead"), within="96h", quorum=2)
        if not decision.approved:
            raise Fail(decision.reason)
    s.receipt = await ctx.do(call)
    return "tell"


@flow.node
async def tell(ctx: Context[Order]) -> None:
    """Send mails."""
    await ctx.sleep("12h")
    for n in range(Code.mails):
        try:
            await ctx.do(mail, ctx.state.order, n)
        except Refused as refused:
            ctx.state.notes.append(refused.code)
    ctx.state.notes.append(Code.label)


def given(order: str = "A-1") -> dict[str, Any]:
    """Return the input of a run."""
    return {"order": order, "token": Code.token}

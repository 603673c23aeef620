"""Workflows for the tests of clients: of one function, with a signal, with an approval, and ones that end badly."""

from typing import Literal

from pydantic import BaseModel

from outlast import Budget, Cancel, ChildFailed, Context, Fail, Workflow, activity, lookup, role, this_call, workflow
from outlast.flow import Perhaps


class Greeting(BaseModel):
    text: str
    letters: int


@workflow(end="GREETED")
async def greet(ctx: Context, name: str, times: int = 1) -> Greeting:
    text = f"hello {name} " * times
    await ctx.emit({"text": text}, key=name)
    return Greeting(text=text, letters=len(text))


@lookup(name="client-ask", durable=True)
async def ask(question: str) -> str:
    this_call().used(tokens=60, money="0.5", model="m-1")
    return question.upper()


@workflow(budget=Budget(tokens=50, calls=9))
async def thrift(ctx: Context, first: str, second: str) -> str:
    return await ctx.do(ask, first) + await ctx.do(ask, second)


class Offer(BaseModel):
    cents: int


class Order(BaseModel):
    supplier: str
    cents: int = 0
    receipt: str = ""


orders = Workflow("order", state=Order, objective="Order from {supplier} for {cents} cents")


@activity(key="client-place/{supplier}", once_per="run", no_undo="a placed order is binding")
async def place(supplier: str, cents: int) -> str:
    return f"{supplier} confirms {cents}"


@activity(key="client-reserve/{supplier}", once_per="run")
async def client_reserve(supplier: str) -> str:
    return f"shelf of {supplier}"


@client_reserve.undo
async def client_free(done: str, supplier: str) -> None: ...


@orders.node(start=True)
async def wait_for_offer(ctx: Context[Order]) -> Literal["decide"]:
    await ctx.do(client_reserve, ctx.state.supplier)
    offer = await ctx.receive("offer", Offer)
    ctx.state.cents = offer.cents
    return "decide"


@orders.node(status="TO_DECIDE")
async def decide(ctx: Context[Order]) -> None:
    plan = place.plan(ctx.state.supplier, ctx.state.cents)
    decision = await ctx.approval(
        plan, summary=f"Order for {ctx.state.cents}", by=role("buyer"), within="4d", again=True, editable=["cents"]
    )
    if not decision.approved:
        raise Cancel(decision.reason)
    ctx.state.receipt = await ctx.do(decision.chosen)


class Trouble(BaseModel):
    kind: str


troubles = Workflow("trouble", state=Trouble)


@activity(key="client-ring/{kind}", once_per="run", no_undo="it rang")
async def ring(kind: str) -> str:
    raise Perhaps("the line broke")


broken = {"on": True}
"""The node fails while this is on, so that `continue` can mend a run."""


@troubles.node(start=True)
async def trouble(ctx: Context[Trouble]) -> None:
    match ctx.state.kind:
        case "fails":
            raise Fail("the supplier is gone")
        case "error":
            if broken["on"]:
                raise RuntimeError("no line")
        case "uncertain":
            await ctx.do(ring, ctx.state.kind)


class Slow(BaseModel):
    pass


delays = Workflow("delay", state=Slow, ceiling="100ms")


@delays.node(start=True)
async def delay(ctx: Context[Slow]) -> None:
    await ctx.receive("arrived", Slow)


class Go(BaseModel):
    text: str


@workflow
async def narrate(ctx: Context) -> str:
    """Stream a text once a signal has come."""
    said = (await ctx.receive("go", Go)).text
    for word in said.split():
        ctx.stream(f"{word} ")
    return said


@workflow
async def herald(ctx: Context, name: str) -> int:
    """Greet through a child run."""
    return (await ctx.run(greet, greet.arguments(name), key="greeting")).letters


@workflow
async def listener(ctx: Context, name: str) -> str:
    """Start a child that waits for a signal."""
    try:
        return await ctx.run(narrate, narrate.arguments(), key=name)
    except ChildFailed as failed:
        return f"{failed.code}: {failed.detail}"


ALL = (greet, thrift, orders, troubles, delays, narrate, herald, listener)

"""A purchase and an agent loop that strict type checkers find clean, and whose types they know."""

import asyncio
from datetime import datetime, timedelta
from typing import Any, Literal, assert_type
from uuid import UUID

import httpx2
from pydantic import BaseModel

import outlast
import outlast.http
from outlast import (
    Allow,
    Budget,
    Cancel,
    ChildHandle,
    Context,
    Decision,
    Deny,
    DidNotHappen,
    Fail,
    FanOut,
    Happened,
    NeedsApproval,
    Plan,
    Refusal,
    Refused,
    Retry,
    RetryLater,
    Unknown,
    Workflow,
    activity,
    lookup,
    resend,
    role,
    this_call,
    workflow,
)
from outlast.agent import AgentWorkflow, Message, Proposal, SubAgent, TypedAnswer, agent_workflow, propose
from outlast.flow import Activity, FunctionWorkflow, PolicyRequest, Verdict
from outlast.runtime.run_handle import RunHandle
from outlast.testing import AppFactory


class Ticket(BaseModel):
    message_id: str


class Offer(BaseModel):
    offer_id: str
    supplier_id: str
    cents: int
    open: bool = True


class Order(BaseModel):
    order_id: str


class Purchase(BaseModel):
    category: str
    suppliers: list[str]
    offers: list[Offer] = []
    declined: dict[str, str] = {}
    winner: Offer | None = None
    order_id: str | None = None


class Start(BaseModel):
    category: str
    suppliers: list[str] = []


def guard(request: PolicyRequest) -> Verdict:
    cents = request.arguments.get("cents", 0)
    if not isinstance(cents, int) or request.moment.year < 2000:
        return Deny("amounts-are-numbers", "cents")
    if cents > 1_000_000:
        return NeedsApproval("large-order", role("finance") | role("lead") & role("buyer"), within=timedelta(hours=24))
    return Allow("small-order")


def outcome(state: Purchase) -> Order | None:
    return Order(order_id=state.order_id) if state.order_id else None


purchase = Workflow(
    "purchase", state=Purchase, version=2, ceiling=timedelta(hours=96), outcome=outcome, policy=guard, input=Start
)
assert_type(purchase, Workflow[Purchase, Start, Order | None])
assert_type(purchase.decode_outcome({"order_id": "1"}), Order | None)


@activity(key="ask/{supplier_id}/{turn}", no_undo="a mail cannot be unsent", retry=Retry(attempts=5))
async def ask(supplier_id: str, turn: int) -> Ticket:
    call = this_call()
    assert_type(call.deadline, datetime)
    if call.attempt == 1:
        raise RetryLater("warming up", after="2s")
    return Ticket(message_id=call.idempotency_key)


@ask.reconcile
async def find_asked(supplier_id: str, turn: int) -> Happened[Ticket] | DidNotHappen | Unknown:
    return Happened(Ticket(message_id=f"{supplier_id}-{turn}"), external_id="m-1")


@activity(key="order/{supplier_id}/{offer_id}", once_per="run", timeout="20s")
async def place(supplier_id: str, offer_id: str, cents: int) -> Order:
    if cents <= 0:
        raise Refused("amount", "not above zero")
    return Order(order_id="1")


@place.reconcile(settle_time=timedelta(minutes=10))
async def find_order(supplier_id: str, offer_id: str, cents: int) -> Happened[Order] | DidNotHappen:
    return DidNotHappen()


@place.undo
async def cancel_order(done: Order, supplier_id: str, offer_id: str, cents: int) -> None: ...


@activity(key="hold/{offer_id}")
async def hold(offer_id: str) -> Ticket:
    return Ticket(message_id=offer_id)


async def find_released(done: Ticket, offer_id: str) -> Happened[None] | DidNotHappen | Unknown:
    return Happened(None) if done.message_id else Unknown(offer_id)


@hold.undo(if_uncertain=resend(remembered_for=timedelta(hours=1)), retry=Retry(attempts=5), reconcile=find_released)
async def release(done: Ticket, offer_id: str) -> None: ...


@activity(key="archive/{path}", if_uncertain=resend(remembered_for=timedelta(days=365)), no_undo="harmless")
def archive(path: str) -> int:
    return len(path)


@lookup(key="class/{category}", durable=True)
def classify(category: str) -> str:
    return category.upper()


@purchase.node(start=True, status="ASKING", within="5d")
async def asking(ctx: Context[Purchase]) -> Literal["deciding"]:
    s = assert_type(ctx.state, Purchase)
    assert_type(await ctx.do(classify, s.category), str)
    asked = await ctx.do_all({name: ask.plan(name, 1) for name in s.suppliers}, refused="return")
    assert_type(asked, dict[str, Ticket | Refusal])
    assert_type(await ctx.do_all({n: ask.plan("a", n) for n in (2, 3)}), dict[int, Ticket])
    assert_type(await ctx.do_all([ask.plan("a", n) for n in (4, 5)], at_most=3), list[Ticket])
    some = await ctx.do_all({n: ask.plan("a", n) for n in (2, 3)}, min_successful=1)
    assert_type(some, FanOut[int, Ticket])
    assert_type(await some.values(), dict[int, Ticket])
    assert_type(await some.errors(), dict[int, Exception])
    assert_type([key for key, status in some.statuses.items() if status == "failed"], list[int])
    assert_type(await ctx.do_all([ask.plan("a", 4)], tolerated_failures=0), FanOut[int, Ticket])
    async for _, ticket in some:
        assert_type(ticket, Ticket)
    tickets = await ctx.do_all([ask.plan("a", n) for n in (6, 7)], at_most=3, refused="return")
    assert_type(tickets, list[Ticket | Refusal])
    s.declined |= {name: answer.detail for name, answer in asked.items() if isinstance(answer, Refusal)}
    s.offers += assert_type(
        await ctx.collect("offer", Offer, until=ctx.entered_at + timedelta(days=1), limit=3), list[Offer]
    )
    assert_type(await ctx.receive("go", Start), Start)
    assert_type(await ctx.receive("stop", Start, timeout=timedelta(hours=1)), Start | None)
    await ctx.sleep(timedelta(minutes=5), name="cool-off")
    match await ctx.first(ctx.receive("bid", Start), ctx.sleep("1h"), ctx.receive("late", Start, timeout="1h")):
        case 0, bid:
            assert_type(bid, Start)
        case 1, nothing:
            assert_type(nothing, None)
        case 2, late:
            assert_type(late, Start | None)
    assert_type(await ctx.first({"a": ctx.receive("a", Start), "b": ctx.receive("b", Start)}), tuple[str, Start])
    ctx.log("asked", "all suppliers were asked", count=len(asked), names=["a"])
    if not s.offers:
        raise Fail("nobody answered")
    return "deciding"


def order_for(offer: Offer) -> Plan[Order]:
    return place.plan(offer.supplier_id, offer.offer_id, offer.cents)


@purchase.node(status="PENDING_APPROVAL", max_visits=2)
async def deciding(ctx: Context[Purchase]) -> Literal["ordering", "asking"] | None:
    plans = [order_for(offer) for offer in ctx.state.offers]
    decision = await ctx.approval(
        plans[0],
        summary="Order",
        by=role("buyer"),
        within=timedelta(hours=96),
        valid_for=timedelta(hours=2),
        name="award",
        alternatives=plans[1:],
        again=True,
        not_requester=True,
        quorum=2,
        editable=("cents",),
        risk="high",
    )
    assert_type(decision, Decision[Order])
    assert_type(decision.chosen, Plan[Order] | None)
    if decision.outcome == "again":
        return "asking"
    if not decision.approved or decision.chosen is None:
        raise Cancel(decision.reason)
    assert_type(await ctx.do(decision.chosen), Order)
    assert_type(ctx.now(), datetime)
    assert_type(ctx.uuid("x"), UUID)
    assert_type(ctx.random("x"), float)
    return "ordering" if decision.chosen == plans[0] else None


@purchase.node
async def ordering(ctx: Context[Purchase]) -> None:
    offer = ctx.state.offers[0]
    try:
        order = await ctx.do(place, offer.supplier_id, offer.offer_id, cents=offer.cents)
    except Refused as error:
        raise Fail(assert_type(error.code, str)) from error
    ctx.state.order_id = assert_type(order, Order).order_id
    assert_type(await ctx.do(archive, "x"), int)
    assert_type(await ctx.do(archive.plan("x"), proposed=True), int)
    asked = await ctx.do_all([archive.plan("x")], refused="return", proposed=True)
    assert_type(asked, list[int | Refusal])


# --- a small agent loop: a node that names itself, with a maximum --------------------------
class Desk(BaseModel):
    goal: str
    steps: int = 0
    notes: list[str] = []


desk = Workflow("desk", state=Desk)


def test_desk(outlast_app: AppFactory) -> None:
    run = outlast_app(desk).start(desk, {})
    assert_type(run.state, Desk)


assert_type(desk, Workflow[Desk])
desk_of_goals = Workflow("desk-of-goals", state=Desk, outcome=lambda state: len(state.goal))
assert_type(desk_of_goals, Workflow[Desk, Desk, int])
assert_type(Workflow("desk-started", state=Purchase, input=Start), Workflow[Purchase, Start])


@lookup
def price(sku: str) -> int:
    return len(sku)


@lookup
async def stock(sku: str) -> int:
    return len(sku)


@lookup(durable=True)
async def think(goal: str, step: int, notes: list[str]) -> Literal["search", "done"]:
    return "done"


@desk.node(start=True, max_visits=50)
async def work(ctx: Context[Desk]) -> Literal["work"] | None:
    s = ctx.state
    assert_type(await ctx.do(price, s.goal) + await ctx.do(stock, s.goal), int)
    tool = assert_type(await ctx.do(think, s.goal, s.steps, s.notes), Literal["search", "done"])
    s.steps += 1
    return None if tool == "done" else "work"


# --- an agent workflow: the type of its outcome -------------------------------------------------
answers = agent_workflow("answers", tools=[stock], model="openai:gpt-5")
assert_type(answers, AgentWorkflow[str])
assert_type(agent_workflow("orders", result=Order, budget=Budget(tokens=5)), AgentWorkflow[Order])
assert_type(answers.decode_outcome("x"), str)
lead = agent_workflow(
    "lead", agents=[answers, SubAgent(purchase, background=True, no_undo="kept")], model="openai:gpt-5"
)
assert_type(lead, AgentWorkflow[str])


async def tells_its_parent(ctx: Context[Desk]) -> None:
    if ctx.parent is not None:
        await ctx.parent.signal("said", Order(order_id="x"), id="said-1")
    assert_type(await ctx.ended([ctx.child("a")], wait=True), list[ChildHandle[Any]])


async def typed_answers(ctx: Context[Desk], asked: list[Message]) -> None:
    assert_type(await propose(ctx, "openai:gpt-5", asked), Proposal)
    found = assert_type(await propose(ctx, "openai:gpt-5", asked, result=Order), TypedAnswer[Order])
    assert_type(found.result, Order)
    assert_type(await propose(ctx, "openai:gpt-5", asked, result=Order, tools=[stock]), TypedAnswer[Order] | Proposal)


# --- calls over HTTP, and what a call knows of itself -----------------------------------------
shop = outlast.http.AsyncClient(base_url="https://shop.example", timeout=5)
desk_shop = outlast.http.Client()


@activity(key="fetch/{sku}", no_undo="nothing to take back")
async def fetch(sku: str) -> int:
    response = assert_type(await shop.post("/orders", json={"sku": sku}), httpx2.Response)
    this_call().set_external_id(response.headers["Location"])
    assert_type(this_call().seconds_left(), float)
    return len(assert_type(outlast.http.checked(desk_shop.get("/")), httpx2.Response).content)


@fetch.reconcile
async def find_fetched(sku: str) -> Happened[int] | DidNotHappen | Unknown:
    for late in this_call().evidence:
        assert_type((late.status, late.epoch, late.at), tuple[str, int, datetime])
    return DidNotHappen() if this_call().reconciling else Unknown("")


# --- a bare call, for unit tests; and what may be asked of any activity --------------------
async def bare() -> None:
    assert_type(await place("s", "o", 1), Order)
    assert_type(await archive("x"), int)


def walked(ctx: Context[Purchase], desk_ctx: Context[Desk]) -> None:
    assert_type(asyncio.run(asking(ctx)), Literal["deciding"])
    assert_type(asyncio.run(work(desk_ctx)), Literal["work"] | None)


def every_one() -> list[Activity[..., Any]]:
    return [ask, place, archive, classify, think]


# --- workflows of one function, and the client ------------------------------------------------
@workflow
async def refund(ctx: Context, order: str, cents: int, *, why: str = "") -> Ticket:
    assert_type(ctx.state, Any)
    return await ctx.do(hold, order)


@workflow(name="refund.later", version=2, key="later/{order}", ceiling=timedelta(hours=1))
async def later(ctx: Context[Any], order: str) -> None:
    await ctx.sleep("12h")
    assert_type(await refund(ctx, order, 1), Ticket)


async def clients() -> None:
    async with outlast.connect("memory:", actor="ana") as client:
        run = assert_type(await client.start(refund, "A-1", cents=4200, why="late"), RunHandle[Ticket])
        assert_type((await run.result(timeout="10m")).message_id, str)
        assert_type(await client.start(refund, refund.arguments("A-1", 42), key="k"), RunHandle[Ticket])
        bought = await client.start(purchase, Start(category="x"), key="k", run_id="r", correlation_id="c")
        assert_type(await bought.result(), Order | None)
        assert_type(await (await client.start(purchase, {"category": "x"})).result(), Order | None)
        assert_type(await (await client.start(desk, Desk(goal="x"))).result(), Desk)
        assert_type(await client.start("desk", {"goal": "x"}), RunHandle[Any])
        assert_type(await client.get(refund, "run-1").result("1s"), Ticket)
        assert_type(client.get("run-1"), RunHandle[Any])
        async with client.worker([refund, later, purchase, desk]):
            await client.start(later, "A-1")


def synchronous_client() -> None:
    with outlast.connect_sync("memory:") as client, client.worker([refund, purchase]):
        assert_type(client.start(refund, "A-1", 42).result("10m"), Ticket)
        assert_type(client.start(purchase, Start(category="x"), key="k").result(), Order | None)


def every_workflow() -> list[Workflow[Any, Any, Any]]:
    by_name: dict[str, Workflow[Any]] = {each.name: each for each in (refund, later)}
    one: FunctionWorkflow[..., Ticket] = refund
    return [purchase, desk, one, *by_name.values()]

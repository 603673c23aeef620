"""The fixture `outlast_app`: virtual time, decisions, signals and calls of a test."""

from datetime import timedelta
from typing import Literal

import httpx2
import pytest
from pydantic import BaseModel

from outlast import Cancel, Context, RetryLater, Workflow, activity, role, this_call
from outlast.errors import NotFound
from outlast.testing import FakeReceivers
from outlast.testing.virtual_runtime import AppFactory


class Order(BaseModel):
    supplier: str
    number: str = ""


class Night(BaseModel):
    calm: bool


orders = Workflow("order-in-time", state=Order, outcome=lambda state: state.number)


@activity(key="order/{supplier}", once_per="run", no_undo="the supplier has to be called")
async def place(supplier: str) -> str:
    if supplier == "busy" and this_call().attempt < 3:
        raise RetryLater("later", after=timedelta(seconds=20))
    return f"{supplier}-1"


@orders.node(start=True)
async def wait(ctx: Context[Order]) -> Literal["buy"]:
    await ctx.sleep(timedelta(hours=12), name="night")
    night = await ctx.receive("calm", Night)
    if not night.calm:
        raise Cancel("a rough night")
    return "buy"


@orders.node
async def buy(ctx: Context[Order]) -> None:
    plan = place.plan(ctx.state.supplier)
    decision = await ctx.approval(plan, summary="Place it?", by=role("lead"), within=timedelta(hours=96))
    ctx.state.number = await ctx.do(plan) if decision.approved else decision.reason


@pytest.mark.req("TEST-2")
@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_ninety_six_hours_pass_at_once(outlast_app: AppFactory, store: Literal["memory", "sqlite"]) -> None:
    app = outlast_app(orders, store=store)
    run = app.start(orders, {"supplier": "acme"})
    app.clock.skip("11h")
    assert run.waiting_for == ["timer night"]
    app.clock.skip("1h")
    assert run.waiting_for == ["signal calm"]
    run.signal("calm", Night(calm=True))
    app.clock.skip("95h")
    assert run.node == "buy" and run.attention == []
    run.approve()
    assert (run.status, run.outcome) == ("completed", "acme-1")


@pytest.mark.req("TEST-2")
def test_an_approval_without_a_decision(outlast_app: AppFactory) -> None:
    app = outlast_app(orders)
    run = app.start(orders, Order(supplier="acme").model_dump(include={"supplier"}))
    app.clock.skip("12h")
    run.signal("calm", {"calm": True})
    app.clock.skip("96h")
    assert run.attention == ["approval_timeout"]
    app.clock.skip("7d")
    assert run.status == "cancelled"


@pytest.mark.req("TEST-2")
@pytest.mark.parametrize("time", ["12d", "52w", timedelta(days=3_000)])
def test_weeks_and_years_pass_at_once(outlast_app: AppFactory, time: str | timedelta) -> None:
    """More than 1,000,000,000 ms, 11.6 days, were refused once."""
    app = outlast_app(orders)
    run = app.start(orders, {"supplier": "acme"})
    app.clock.skip(time)
    assert run.waiting_for == ["signal calm"]


@pytest.mark.req("TEST-2")
def test_a_rejection_and_a_run_that_ends_itself(outlast_app: AppFactory) -> None:
    app = outlast_app(orders)
    one, two = (app.start(orders, {"supplier": "acme"}) for _ in range(2))
    app.clock.skip(timedelta(hours=12))
    one.signal("calm", {"calm": True})
    two.signal("calm", {"calm": False})
    one.reject("too dear")
    assert (one.outcome, two.status, two.now.reason) == ("too dear", "cancelled", "a rough night")
    with pytest.raises(NotFound, match="no approval of"):
        one.approve()


@pytest.mark.req("TEST-2")
def test_real_time_passes_for_retries(outlast_app: AppFactory) -> None:
    app = outlast_app(orders)
    run = app.start(orders, {"supplier": "busy"})
    app.clock.skip("12h")
    run.signal("calm", {"calm": True})
    run.approve()
    assert run.waiting_for[0].startswith("retry ")
    app.clock.advance("20s")
    app.clock.advance("20s")
    assert run.outcome == "busy-1"


calls = Workflow("calls-a-receiver", state=Order)


@activity(key="call/{supplier}", no_undo="said is said")
def call(supplier: str) -> str:
    with httpx2.Client(base_url=FakeReceivers().url) as http:
        answer = http.post("/calls", headers={"Idempotency-Key": this_call().idempotency_key})
        return str(answer.raise_for_status().json()["id"])


@calls.node(start=True)
async def only(ctx: Context[Order]) -> None:
    ctx.state.number = await ctx.do(call, ctx.state.supplier)


def test_an_activity_in_a_thread_calls_a_real_receiver(outlast_app: AppFactory, receivers: FakeReceivers) -> None:
    run = outlast_app(calls).start(calls, {"supplier": "acme"})
    assert isinstance(run.state, Order) and run.state.number == run.outcome["number"] != ""
    assert receivers.executed("call/acme") == 1

"""Workflows of one function over a real store: waits, approvals, results, undo, and a crash at every point."""

from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from outlast import Cancel, Context, Fail, Refused, activity, resend, role, workflow
from outlast.errors import Conflict, InvalidInput
from outlast.testing import PendingQuestion, approve, every_crash, node
from outlast.testing.answers import ScriptedAnswer
from outlast.testing.campaign import RunEnd
from outlast.testing.virtual_runtime import App, AppFactory, AppRun
from outlast.upkeep.deploy_check import check

DAY = timedelta(hours=24)
booked: list[str] = []
paid: list[str] = []


class Offer(BaseModel):
    cents: int


class Night(BaseModel):
    day: int


class Booking(BaseModel):
    seat: str
    receipt: str
    by: str


@activity(key="seat/{traveller}", if_uncertain=resend(remembered_for=DAY))
async def book(traveller: str) -> str:
    booked.append(traveller)
    return f"seat of {traveller}"


@book.undo
async def release(done: str, traveller: str) -> None:
    booked.remove(traveller)


@activity(key="pay/{traveller}", once_per="run", if_uncertain=resend(remembered_for=DAY), no_undo="the money is gone")
async def pay(traveller: str, cents: int) -> str:
    if cents > 1_000_000:
        raise Refused("limit", "too much")
    paid.append(traveller)
    return f"receipt of {traveller} for {cents}"


@workflow(name="trip-of-one-function")
async def trip(ctx: Context, traveller: str, *, nights: int = 2, notes: list[str] | None = None) -> Booking:
    """Book, wait for an offer, ask a person, pay."""
    (notes := notes if notes is not None else []).append("seen")
    seat = await ctx.do(book, traveller)
    await ctx.sleep("12h")
    offer = await ctx.receive("offer", Offer, timeout="24h")
    if offer is None:
        raise Cancel("no offer")
    decision = await ctx.approval(
        pay.plan(traveller, offer.cents), summary=f"Pay for {traveller}", by=role("lead"), within="96h", quorum=2
    )
    if decision.chosen is None:
        raise Fail(decision.reason)
    receipt = await ctx.do(decision.chosen)
    for day in range(nights):
        await ctx.emit(Night(day=day), key=f"night/{day}")
    assert len(notes) == 1, "each execution begins with the arguments of the start"
    return Booking(seat=seat, receipt=receipt, by=" and ".join(decision.approvers))


@pytest.fixture
def app(outlast_app: AppFactory) -> App:
    booked.clear()
    paid.clear()
    return outlast_app(trip, store="sqlite")


def with_offer(app: App, cents: int = 42) -> AppRun[Any]:
    """A run that has its offer and waits for a person."""
    run = app.start(trip, {"traveller": "ana", "notes": []})
    app.clock.skip("12h")
    run.signal("offer", Offer(cents=cents))
    return run


@pytest.mark.req("RUN-1")
def test_a_run_waits_asks_pays_and_returns_its_value(app: App) -> None:
    run = app.start(trip, {"traveller": "ana", "notes": []})
    assert (run.node, run.waiting_for) == ("trip-of-one-function", ["timer sleep"])
    app.clock.skip("12h")
    assert run.waiting_for == ["signal offer"] and paid == []
    run.signal("offer", Offer(cents=42))
    run.approve(by="bea")
    with pytest.raises(Conflict, match="bea"):
        run.approve(by="bea")
    assert paid == [], "two different people have to approve"
    run.approve()
    assert run.status == "completed"
    done = Booking(seat="seat of ana", receipt="receipt of ana for 42", by="bea and local-2")
    assert trip.decode_outcome(run.outcome) == done
    assert (booked, paid, run.now.results) == (["ana"], ["ana"], 2)
    assert run.state.model_dump() == {"traveller": "ana", "nights": 2, "notes": ["seen"]}, (
        "the arguments; no return value"
    )


@pytest.mark.req("EFF-6")
def test_a_run_that_ends_itself_is_undone(app: App) -> None:
    late, rejected = app.start(trip, {"traveller": "bea"}), with_offer(app)
    assert booked == ["bea", "ana"]
    rejected.reject("too dear")
    assert (rejected.status, rejected.now.reason, booked) == ("failed", "too dear", ["bea"])
    app.clock.skip("24h")
    assert (late.status, late.now.reason, booked, paid) == ("cancelled", "no offer", [], [])


def test_a_refused_call_calls_a_person(app: App) -> None:
    run = with_offer(app, 2_000_000)
    run.approve()
    run.approve()
    assert run.attention == ["exception"] and paid == []


def test_a_second_start_with_a_key_is_the_same_run(app: App) -> None:
    one = app.start(trip, {"traveller": "ana"}, key="k")
    assert app.start(trip, {"traveller": "ana", "nights": 2}, key="k").id == one.id, "a default may be given"
    with pytest.raises(Conflict, match="another input"):
        app.start(trip, {"traveller": "bea"}, key="k")
    with pytest.raises(InvalidInput, match="traveler: is not known"):
        app.start(trip, {"traveler": "bea"})


@workflow
async def ask(ctx: Context, what: str) -> str:
    await ctx.receive("answer", Offer)
    return "not a node"


def test_a_waiting_run_fits_its_code_and_misses_a_removed_parameter(outlast_app: AppFactory) -> None:
    app = outlast_app(ask)
    app.start(ask, ask.arguments("why"))
    report = app.do(check(app.store, [ask]))
    assert (report.looked_at, report.verdicts) == (1, ()), "the returned text names no node"

    @workflow(name="ask")
    async def shorter(ctx: Context) -> str:
        await ctx.receive("answer", Offer)
        return ""

    (verdict,) = app.do(check(app.store, [shorter])).verdicts
    assert "its state holds what" in verdict.why


def test_one_visit_can_be_tested_alone() -> None:
    result = node(trip, trip.arguments("ana", notes=[]), answers={book: "s", pay: "r"}, decide=answers)
    assert (result.status, result.outcome) == ("completed", {"seat": "s", "receipt": "r", "by": "local and local-2"})
    assert [call.key for call in result.called] == ["seat/ana", "pay/ana"]


def answers(asked: PendingQuestion) -> ScriptedAnswer | Offer:
    return approve() if asked.kind == "approval" else Offer(cents=42)


@pytest.mark.req("TEST-1", "RUN-1")
@every_crash(trip, trip.arguments("ana", notes=[]), decide=answers, cases=12)
def test_no_crash_repeats_a_call_or_changes_the_outcome(end: RunEnd) -> None:
    assert end.outcome == {"seat": "seat of ana", "receipt": "receipt of ana for 42", "by": "ann and ann-2"}

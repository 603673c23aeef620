"""Results of a single node over answers in memory, and their equality with a real run."""

from datetime import timedelta
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from examples import refund as example
from outlast import Cancel, Context, Fail, Refused, Workflow, activity, lookup, role
from outlast.errors import Conflict, InvalidInput, Misplaced, NotFound
from outlast.testing import PendingQuestion, approve, approve_all, node, reject
from outlast.testing.virtual_runtime import AppFactory


class Claim(BaseModel):
    order: str
    cents: int = 0
    paid: str = ""
    notes: list[str] = []


class Note(BaseModel):
    text: str


claims = Workflow("claims-alone", state=Claim)


@lookup(key="price/{order}")
async def price(order: str) -> int:
    return 4_200


@activity(key="pay/{order}", once_per="run", no_undo="paid is paid")
async def pay(order: str, cents: int) -> str:
    return f"paid-{cents}"


@claims.node(start=True, max_visits=9)
async def check(ctx: Context[Claim]) -> Literal["settle", "check"]:
    s = ctx.state
    s.cents = await ctx.do(price, s.order)
    ctx.log("price", f"it cost {s.cents}")
    if s.cents == 0:
        return "check"
    if s.cents > 1_000_000:
        raise Fail("nobody pays that")
    return "settle"


@claims.node
async def settle(ctx: Context[Claim]) -> None:
    s = ctx.state
    await ctx.sleep(timedelta(hours=96), name="cool")
    note = await ctx.receive("note", Note, timeout=timedelta(hours=1))
    s.notes.append(note.text if note else "nothing was said")
    plan = pay.plan(s.order, s.cents)
    decision = await ctx.approval(plan, summary=f"Pay {s.cents}", by=role("finance"), within=timedelta(hours=96))
    if not decision.approved:
        raise Cancel(decision.reason)
    s.paid = await ctx.do(plan)


def claim(**more: Any) -> Claim:
    return Claim(order="o-1", **more)


def test_the_result_has_the_next_node_and_the_state() -> None:
    walked = node(check, claim(), answers={price: 700})
    assert (walked.next, walked.state.cents, walked.log) == ("settle", 700, ("it cost 700",))
    assert node(check, claim(), answers={price: 0}).next == "check"
    failed = node(check, claim(), answers={"price": 2_000_000})
    assert (failed.next, failed.status, failed.reason) == (None, "failed", "nobody pays that")


def test_waits_end_at_once_and_decide_answers() -> None:
    said = {"note": Note(text="broken")}
    walked = node(
        settle,
        claim(cents=5),
        answers={pay: lambda order, cents: f"{order}:{cents}"},
        decide=lambda asked: said.get(asked.name) if asked.kind == "signal" else approve(),
    )
    assert walked.state.paid == "o-1:5" and walked.state.notes == ["broken"] and walked.status == "completed"
    assert [(a.kind, a.name) for a in walked.asked] == [("signal", "note"), ("approval", "pay")]
    assert [(c.activity, c.key, c.arguments) for c in walked.called] == [
        ("pay", "pay/o-1", {"order": "o-1", "cents": 5})
    ]


def test_a_rejection_and_no_answer() -> None:
    no = node(settle, claim(cents=5), decide=lambda asked: reject("no") if asked.kind == "approval" else None)
    assert (no.status, no.reason, no.called) == ("cancelled", "no", ())
    silent = node(settle, claim(cents=5))
    assert silent.waiting_for[0].startswith("approval ") and silent.state.notes == []
    assert silent.asked[-1].summary == "Pay 5"


def test_an_exception_of_an_activity_reaches_the_node() -> None:
    with pytest.raises(Refused, match="closed: for good"):
        node(settle, claim(), answers={"pay/o-1": Refused("closed", "for good")}, decide=approve_all)


def test_a_call_without_an_answer_raises_lookup_error() -> None:
    with pytest.raises(LookupError, match="price was called as price/o-1 and has no answer"):
        node(check, claim())


def test_other_functions_and_other_states_are_refused() -> None:
    async def other(ctx: Context[Claim]) -> None: ...

    with pytest.raises(NotFound, match="is no node"):
        node(other, claim())
    with pytest.raises(InvalidInput):
        node(check, Note(text="x"))  # type: ignore[type-var]


misuses = Workflow("misuses-alone", state=Claim)


@misuses.node(start=True)
async def twice(ctx: Context[Claim]) -> Literal["bare"]:
    await ctx.sleep(timedelta(hours=1), name="a")
    await ctx.sleep(timedelta(hours=1), name="a")
    return "bare"


@misuses.node
async def bare(ctx: Context[Claim]) -> Literal["lost"]:
    await pay("o-1", 1)
    return "lost"


@misuses.node
async def lost(ctx: Context[Claim]) -> None:
    await ctx.do(pay, "o-1", 1)
    await ctx.do(pay, "o-1", 2)


def test_misuse_is_refused_as_in_production(outlast_app: AppFactory) -> None:
    with pytest.raises(Conflict, match="twice in one visit"):
        node(twice, claim())
    with pytest.raises(Misplaced, match="called directly"):
        node(bare, claim())
    walked = node(lost, claim(), answers={pay: "x"})
    real = outlast_app(misuses)
    assert walked.attention == ("contradiction",)
    run = real.start(misuses, {"order": "o-1"})
    real.clock.skip("1h")
    assert run.attention == ["exception"] and "twice in one visit" in run.now.attention[0].detail


def approve_in_order(asked: PendingQuestion) -> Any:
    return approve("in order") if asked.kind == "approval" else Note(text="hm")


def test_node_by_node_equals_a_real_run(outlast_app: AppFactory) -> None:
    """Compare state, log, calls and end of the claims workflow, node by node and as a run."""
    real_app = outlast_app(claims)
    run = real_app.start(claims, {"order": "o-1"})
    real_app.clock.skip("96h")
    run.signal("note", Note(text="hm"))
    run.approve()
    at, state, called = "check", claim(), []
    while at:
        walked = node(claims.nodes[at].fn, state, answers={price: 4_200, pay: "paid-4200"}, decide=approve_in_order)
        called += [c.key for c in walked.called]
        at, state = walked.next or "", walked.state
    assert state.model_dump() == run.outcome == {"order": "o-1", "cents": 4_200, "paid": "paid-4200", "notes": ["hm"]}
    assert (walked.status, called) == (run.status, ["price/o-1", "pay/o-1"])


def test_the_example_gives_equal_results_alone_and_as_a_run(outlast_app: AppFactory) -> None:
    given = example.refund.arguments("A-2", 42_000)
    run = outlast_app(example.refund).start(example.refund, given)
    alone = node(example.refund, given)
    ((asked,), (waits,)) = alone.waiting_for, run.waiting_for
    assert asked.partition("«")[2] == waits.partition("«")[2] and alone.asked[0].summary in waits
    run.approve()
    assert run.status == "waiting", "two people have to approve"
    run.approve()
    paid = node(example.refund, given, answers={example.issue_refund: "receipt-A-2"}, decide=approve_all)
    assert (paid.outcome, paid.status) == (run.outcome, run.status) == ("receipt-A-2", "completed")
    assert paid.log == ("approved by local and local-2",)

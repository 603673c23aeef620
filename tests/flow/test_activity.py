"""Activities, plans and nodes as authors meet them in unit tests, and as the engine reads them."""

import asyncio
import pickle
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Literal, cast
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from outlast import Context, Plan, Refused, Workflow, activity, lookup, this_call
from outlast.core.codec import canonical, digest
from outlast.errors import DefinitionError, InvalidInput, LimitExceeded, Misplaced, NotFound, NotStorable
from outlast.flow import Call
from outlast.flow.calls import current_call, executing_node


class Lane(StrEnum):
    FAST = "fast"


class Line(BaseModel):
    sku: str
    cents: int


class State(BaseModel):
    order_id: str = "o-1"
    receipt: str = ""


@activity(key="pay/{order_id}/{turn}", no_undo="a test")
async def pay(order_id: str, turn: int = 1) -> str:
    return f"{order_id}-{turn}"


@activity(key="ship/{lane}", no_undo="a test", timeout=timedelta(seconds=5))
def ship(lane: Lane, *, lines: list[Line], at: datetime) -> Line | None:
    return lines[0] if lines else None


@lookup
async def price(sku: str, lines: list[Line]) -> int:
    return len(lines)


shop = Workflow("activity-shop", state=State)


@shop.node(start=True)
async def paying(ctx: Context[State]) -> Literal["shipping"]:
    ctx.state.receipt = await ctx.do(pay, ctx.state.order_id, 2)
    return "shipping"


@shop.node
async def shipping(ctx: Context[State]) -> None: ...


AT = datetime(2026, 1, 1, tzinfo=UTC)
CALL = Call("pay/o/1", "t:r:1:pay/o/1", "t", "r", 1, AT)


# --- without a store (S-25) ----------------------------------------------------------------
class Fake(Context[State]):
    """A context for a unit test, with only the methods that the node uses."""

    def __init__(self) -> None:
        self.state = State()
        self.done: list[tuple[Any, ...]] = []

    async def do(self, activity: Any, /, *args: Any, **kwargs: Any) -> Any:
        self.done.append((activity.name, *args))
        return await activity(*args, **kwargs)


def test_a_node_is_awaited_with_a_fake_context() -> None:
    ctx = Fake()
    assert asyncio.run(cast(Any, paying)(ctx)) == "shipping"
    assert ctx.done == [("pay", "o-1", 2)]
    assert ctx.state.receipt == "o-1-2"


def test_activities_are_called_outside_of_a_run() -> None:
    assert asyncio.run(pay("o", 3)) == "o-3"
    assert asyncio.run(ship(Lane.FAST, lines=[Line(sku="a", cents=1)], at=AT)) == Line(sku="a", cents=1)


def test_inside_a_node_the_bare_call_is_refused_with_the_line_to_write() -> None:
    token = executing_node.set('node "paying" of activity-shop')
    try:
        with pytest.raises(Misplaced) as error:
            asyncio.run(pay("o"))
        assert 'pay() was called directly inside node "paying"' in error.value.what
        assert error.value.fix == "write: await ctx.do(pay, …)"
        inner = current_call.set(CALL)  # a helper of the call now made
        assert asyncio.run(pay("o")) == "o-1"
        current_call.reset(inner)
    finally:
        executing_node.reset(token)


def test_this_call_answers_only_inside_a_call() -> None:
    with pytest.raises(Misplaced, match="outside of a call"):
        this_call()
    token = current_call.set(CALL)
    try:
        assert this_call().idempotency_key == "t:r:1:pay/o/1"
        assert this_call().deadline == AT
    finally:
        current_call.reset(token)


# --- plans ---------------------------------------------------------------------------------
@pytest.mark.req("EFF-1")
def test_a_plan_names_its_call_by_business_identity() -> None:
    plan = pay.plan("o/1")
    assert (plan.activity, plan.key, plan.arguments) == ("pay", "pay/o%2F1/1", b'{"order_id":"o/1","turn":1}')
    assert plan == pay.plan("o/1", 1) == pay.plan(turn=1, order_id="o/1") == pay.plan(order_id="o/1")
    assert hash(plan) == hash(pay.plan("o/1", 1))
    assert plan != pay.plan("o/1", 2)
    with pytest.raises(AttributeError):
        plan.key = "x"  # type: ignore[misc]


WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(['"', "\\", "a/b", "%s", "ä"])


@given(WORDS, st.integers(), WORDS)
def test_a_bound_call_has_the_key_and_the_digest_of_its_parts(order_id: str, turn: int, sku: str) -> None:
    """The quick form gives the bytes of the form that first wrote them: recorded digests are compared with it."""
    bound = pay.bind((order_id, turn), {})
    assert bound.key == f"pay/{quote(order_id, safe='')}/{turn}"
    assert bound.args_bytes == canonical({"order_id": order_id, "turn": turn})
    assert bound.digest == digest("pay", bound.key, bound.args_bytes)
    assert bound.args == (order_id, turn) and bound.kwargs == {}
    asked = price.bind((sku, [Line(sku=sku, cents=turn)]), {})
    assert asked.args_bytes == canonical({"sku": sku, "lines": [{"sku": sku, "cents": turn}]})
    assert asked.key == f"price/{digest('price', asked.args_bytes)[:32]}"
    assert asked.digest == digest("price", asked.key, asked.args_bytes)
    shipped = ship.bind((Lane.FAST,), {"lines": [], "at": AT})
    assert shipped.key == "ship/fast" and shipped.kwargs == {"lines": [], "at": AT}


@pytest.mark.req("EFF-1")
def test_the_same_key_with_another_request_has_another_digest() -> None:
    @activity(key="mail/{to}", no_undo="a mail")
    async def mail(to: str, text: str) -> None: ...

    one, two = mail.plan("ana", "yes"), mail.plan("ana", "no")
    assert one.key == two.key
    assert one != two
    assert mail.bind(("ana", "yes"), {}).digest == one.digest != two.digest


@pytest.mark.req("GATE-9")
def test_an_approval_covers_tenant_run_activity_key_and_arguments() -> None:
    digests = {
        plan.approval_digest(tenant, run)
        for plan in (pay.plan("a"), pay.plan("a", 2), pay.plan("b"))
        for tenant in ("t", "u")
        for run in ("r", "s")
    }
    assert len(digests) == 12
    plan = pay.plan("a")
    again: Plan[str] = Plan(plan.activity, plan.key, plan.arguments, plan.digest)
    assert again.approval_digest("t", "r") == plan.approval_digest("t", "r")


def test_a_call_uses_the_recorded_arguments() -> None:
    lines = [Line(sku="a", cents=1)]
    bound = ship.bind((Lane.FAST,), {"lines": lines, "at": AT})
    lines[0].cents = 2
    lines.clear()
    assert bound.key == "ship/fast"
    assert bound.args == (Lane.FAST,)
    assert bound.kwargs == {"lines": [Line(sku="a", cents=1)], "at": AT}
    assert ship.load_args(bound.args_bytes) == (bound.args, bound.kwargs)
    assert bound.digest == ship.plan(Lane.FAST, lines=[Line(sku="a", cents=1)], at=AT).digest


def test_a_lookup_without_a_key_is_named_by_its_arguments() -> None:
    one, two = price.plan("a", []), price.plan("a", [Line(sku="a", cents=1)])
    assert one.key.startswith("price/")
    assert one.key != two.key
    assert price.plan("a", []) == one
    assert price.kind == "lookup"
    price.check()


def test_arguments_that_do_not_fit_are_refused_at_once() -> None:
    wrong: Any = pay
    with pytest.raises(InvalidInput) as error:
        wrong.plan(1, "x")
    assert [path for path, _ in error.value.problems] == ["order_id", "turn"]
    assert "tests/flow/test_activity.py" in str(error.value)
    with pytest.raises(TypeError, match=r"pay\(\): missing a required argument: 'order_id'"):
        wrong.plan()
    with pytest.raises(TypeError, match="too many positional"):
        wrong.plan("a", 1, 2)
    with pytest.raises(LimitExceeded, match="500 bytes"):
        pay.plan("x" * 600)
    with pytest.raises(LimitExceeded, match="the arguments of"):
        price.plan("x" * 300_000, [])


def test_arguments_with_nan_are_refused() -> None:
    @lookup
    async def weigh(grams: float, more: Any) -> None: ...

    for args in ((float("nan"), 1), (1.0, {"a": float("inf")})):
        with pytest.raises(NotStorable, match="which JSON cannot say"):
            weigh.plan(*args)


def test_attributes_that_the_engine_reads() -> None:
    assert (pay.is_async, ship.is_async) == (True, False)
    assert (pay.timeout, ship.timeout) == (None, timedelta(seconds=5))
    assert (pay.kind, pay.once_per, pay.mode, pay.retry.attempts) == ("write", "visit", "ask_person", 3)
    assert pay.retry.total_wait == timedelta(seconds=60)
    assert ship.response_codec.load(b'{"sku":"a","cents":1}') == Line(sku="a", cents=1)
    assert ship.response_codec.dump(None) == b"null"


def test_an_activity_is_found_by_the_name_in_a_stored_plan() -> None:
    assert shop.activity("pay") is pay
    with pytest.raises(NotFound, match='no activity "unheard"'):
        shop.activity("unheard")

    def declare() -> Any:
        @lookup(name="only-here")
        async def elsewhere() -> None: ...

        return elsewhere

    declare()
    latest = declare()  # the same lines again, as by a reload
    assert shop.activity("only-here") is latest

    @lookup(name="only-here")
    async def another() -> None: ...

    with pytest.raises(DefinitionError, match="is declared more than once") as error:
        shop.activity("only-here")
    assert error.value.why.count("test_activity.py:") == 2
    assert another.name == "only-here"


def test_two_activities_of_one_name_in_one_workflow_do_not_load() -> None:
    @lookup(name="pay")
    async def other_pay() -> None: ...

    double = Workflow("double", state=State)

    @double.node(start=True)
    async def only(ctx: Context[State]) -> None:
        await ctx.do(other_pay)

    with pytest.raises(DefinitionError, match='activity "pay" is declared more than once') as error:
        double.validate()
    assert 'name="mail.send"' in error.value.fix


def test_exceptions_of_authors_survive_pickling() -> None:
    refused = pickle.loads(pickle.dumps(Refused("closed", "no more")))
    assert (refused.code, refused.detail, str(refused)) == ("closed", "no more", "closed: no more")

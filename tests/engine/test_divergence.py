"""A re-run that asks for other keys than the executions before it sends nothing (EFF-9, S-27)."""

import asyncio
import itertools
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Literal

import pytest

from outlast.core.machine import Choice, Reason
from outlast.core.version_move import request_move
from outlast.engine.held_run import HeldRun
from outlast.errors import Conflict, DefinitionError, InvalidInput
from outlast.flow import (
    Allow,
    Context,
    NeedsApproval,
    PolicyRequest,
    Refused,
    RetryLater,
    Workflow,
    activity,
    lookup,
    role,
)
from tests.engine.world import HOUR, MINUTE, QUIET, SECOND, Go, Receiver, State, World, one_node, write

Ctx = Context[State]


@pytest.fixture
def other() -> Iterator[int]:
    """Return what a clock or uuid4 gives: another number each time."""
    return itertools.count(1)


def sent(shop: Receiver) -> list[str]:
    """Return the keys of the calls that a receiver got, without tenant, run and visit."""
    return [key.split(":", 3)[3] for key in shop.did]


async def answer(world: World, choice: Choice, text: str = "checked") -> None:
    await world.answer(Reason.NODE_DIVERGED, choice, text=text)


# --- calls ---------------------------------------------------------------------------------------
@pytest.mark.req("EFF-9")
@pytest.mark.parametrize("scope", ["visit", "run", "tenant"])
async def test_a_key_made_of_a_clock_is_held_and_a_person_is_asked(
    world: World, other: Iterator[int], scope: Any
) -> None:
    """The everyday mistake, without a crash: a wait executes the node again, and its key is another one."""
    shop = Receiver()
    order = write(shop, once_per=scope)

    async def body(ctx: Ctx) -> None:
        await ctx.do(order, f"at-{next(other)}")
        await ctx.sleep("1m")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(2 * MINUTE)
    assert sent(shop) == ["order/at-1"]
    assert world.reasons() == ["node_diverged"]
    (entry,) = world.attention()
    for part in ("order/at-2", "order/at-1", "tests/engine/test_divergence.py:", "Nothing was sent", "ctx.uuid"):
        assert part in entry.detail, part
    assert entry.missing == ("order?order/at-1",)


@pytest.mark.req("EFF-9")
async def test_no_policy_approval_or_intent_follows_from_a_held_call(world: World, other: Iterator[int]) -> None:
    shop, asked = Receiver(), [0]
    order = write(shop)

    def judge(request: PolicyRequest) -> Allow:
        asked[0] += 1
        return Allow()

    async def body(ctx: Ctx) -> None:
        await ctx.do(order, f"at-{next(other)}")
        await ctx.sleep("1m")

    flow = one_node(body, policy=judge)
    world.worker(flow)
    await world.start(flow)
    before = asked[0]
    await world.pass_(2 * MINUTE)
    assert (asked[0], len(world.effects())) == (before, 1)
    assert world.reasons() == ["node_diverged"]


@pytest.mark.req("EFF-9")
async def test_new_keys_beside_recorded_ones_are_held_until_those_are_asked_for(world: World) -> None:
    """A gather in another order, and a new member first: each recorded call is asked for, so the new one is made."""
    shop = Receiver()
    order, stock = write(shop), write(shop, name="stock")
    walks: list[int] = []

    async def body(ctx: Ctx) -> None:
        walks.append(1)
        names = ["a", "b"] if len(walks) == 1 else ["new", "b", "a"]
        await asyncio.gather(*(ctx.do(order, name) for name in names))
        await ctx.sleep("1m", name="first")
        await ctx.do_all([stock.plan(name) for name in names], at_most=1)
        await ctx.sleep("1m")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(3 * MINUTE)
    assert (world.status(), world.reasons()) == ("completed", [])
    assert sorted(sent(shop)) == [f"{name}/{what}" for name in ("order", "stock") for what in ("a", "b", "new")]


@pytest.mark.req("EFF-9")
async def test_a_held_call_begins_in_the_turn_of_the_last_missing_key(world: World) -> None:
    """Across branches: the recorded key is asked for by another task, after a call of another activity."""
    shop = Receiver()
    order, stock = write(shop), write(shop, name="stock")
    walks: list[int] = []

    async def body(ctx: Ctx) -> None:
        walks.append(1)

        async def recorded() -> None:
            await ctx.do(stock, f"s{len(walks)}" if len(walks) == 1 else "s1")
            await ctx.do(order, "a")

        if len(walks) == 1:
            await recorded()
        else:
            await asyncio.gather(ctx.do(order, "new"), recorded())
        await ctx.sleep("1m")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(2 * MINUTE)
    assert (world.status(), sent(shop)) == ("completed", ["stock/s1", "order/a", "order/new"])


@pytest.mark.req("EFF-9")
async def test_a_recorded_call_that_a_returning_node_leaves_out_calls_a_person(world: World) -> None:
    shop = Receiver()
    order = write(shop)
    walks: list[int] = []

    async def body(ctx: Ctx) -> None:
        walks.append(1)
        if len(walks) == 1:
            await ctx.do(order, "a")
        await ctx.sleep("1m")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(2 * MINUTE)
    assert world.reasons() == ["node_diverged"]
    assert "order order/a" in world.attention()[0].detail


@pytest.mark.req("EFF-9", "CKP-2")
async def test_a_bound_wait_and_a_used_approval_must_be_asked_for_again(world: World) -> None:
    shop = Receiver()
    order = write(shop)
    walks: list[int] = []

    async def body(ctx: Ctx) -> None:
        walks.append(1)
        if len(walks) < 4:
            await ctx.receive("go", Go)
            made = await ctx.approval(order.plan("a"), summary="a", by=role("boss"), within="1h")
            await ctx.do(made.chosen)
            await ctx.sleep("1m")
        else:
            await ctx.do(order, "a")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.signal("go")
    await world.decide(world.pending())
    await world.pass_(2 * MINUTE)
    (entry,) = world.attention()
    assert entry.missing == ("?approval?order", "?wait?go", "?wait?sleep")
    assert "approval order, wait go" in entry.detail


@pytest.mark.req("EFF-9")
@pytest.mark.parametrize("scope", ["visit", "run"])
async def test_a_paid_lookup_under_another_key_is_not_paid_again(
    world: World, other: Iterator[int], scope: Any
) -> None:
    paid: list[str] = []

    @lookup(key="ask/{text}", name="ask", durable=True, once_per=scope)
    async def ask(text: str) -> str:
        paid.append(text)
        return text

    async def body(ctx: Ctx) -> None:
        await ctx.do(ask, f"q{next(other)}")
        await ctx.sleep("1m")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(2 * MINUTE)
    assert paid == ["q1"] and world.reasons() == ["node_diverged"]


@pytest.mark.req("EFF-9")
async def test_an_effect_once_per_run_of_an_earlier_visit_need_not_be_asked_for(world: World) -> None:
    """Only what this visit recorded counts: the node returns itself, and each visit makes its own call."""
    shop = Receiver()
    order = write(shop, once_per="run")

    flow = Workflow("rounds", state=State)

    @flow.node(start=True, max_visits=5)
    async def again(ctx: Ctx) -> Literal["again"] | None:
        await ctx.do(order, f"v{ctx.visit}")
        await ctx.sleep("1m")
        return "again" if ctx.visit < 4 else None

    world.worker(flow)
    await world.start(flow)
    await world.pass_(5 * MINUTE)
    assert (world.status(), world.reasons(), len(sent(shop))) == ("completed", [], 4)


@pytest.mark.req("EFF-9")
async def test_a_thread_that_still_works_is_waited_for(world: World) -> None:
    """A task waits for something that is not the engine's, so the held call waits, too."""
    shop = Receiver()
    order = write(shop)
    walks: list[int] = []
    go = asyncio.Event()

    async def body(ctx: Ctx) -> None:
        walks.append(1)

        async def slow() -> None:
            if len(walks) > 1:
                await go.wait()
            await ctx.do(order, "a")

        if len(walks) == 1:
            await slow()
        else:
            await asyncio.gather(ctx.do(order, "new"), slow())
        await ctx.sleep("1m")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(2 * MINUTE)
    assert (sent(shop), world.reasons(), world.status()) == (["order/a"], [], "running")
    go.set()
    await world.pass_(2 * MINUTE)
    assert (world.status(), sent(shop)) == ("completed", ["order/a", "order/new"])


def waiting_for_another(order: Any) -> Workflow[State]:
    """Return a workflow whose second execution holds a call beside an await that is not the engine's."""
    walks: list[int] = []

    async def body(ctx: Ctx) -> None:
        walks.append(1)
        if len(walks) > 1:
            await asyncio.gather(ctx.do(order, "new"), asyncio.Event().wait())
        await ctx.do(order, "a")
        await ctx.sleep("1m")

    return one_node(body)


@pytest.mark.req("EFF-9")
async def test_a_foreign_await_without_end_calls_a_person_at_half_of_the_claim(world: World) -> None:
    shop = Receiver()
    order = write(shop)
    flow = waiting_for_another(order)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(MINUTE + 290 * SECOND)
    assert world.reasons() == []
    await world.pass_(20 * SECOND)
    assert world.reasons() == ["node_diverged"] and sent(shop) == ["order/a"]


@pytest.mark.req("EFF-9", "RUN-2")
@pytest.mark.parametrize("end", ["cancel", "drain", "pause"])
async def test_a_cancel_a_drain_and_a_pause_end_a_held_call_at_once(world: World, end: str) -> None:
    """Although a task of the body waits for something that is not the engine's."""
    shop = Receiver()
    order = write(shop)
    flow = waiting_for_another(order)
    process = world.worker(flow)
    await world.start(flow)
    await world.pass_(70 * SECOND)
    assert world.status() == "running"
    if end == "cancel":
        await world.cancel()
        await world.pass_(3 * SECOND)
        assert world.status() == "cancelled"
    elif end == "drain":
        process.worker.drain()
        await world.pass_(3 * SECOND)
        assert (world.status(), world.run().owner) == ("queued", "")
    else:
        await world.hold("workflow/flow")
        await world.pass_(10 * SECOND)
        assert world.waiting() == [("pause", "workflow/flow: an outage")]
    assert (world.reasons(), sent(shop), len(world.effects())) == ([], ["order/a"], 1)


@pytest.mark.req("EFF-9")
async def test_a_branch_that_goes_on_behind_a_caught_refusal_is_no_divergence(world: World) -> None:
    """The refusal came after the other branch's call; from the ledger it comes first, and the body returns early."""
    shop = Receiver()
    order = write(shop)
    walks: list[int] = []
    go = asyncio.Event()

    @activity(key="no/{n}", name="no", no_undo="a test")
    async def no(n: int) -> None:
        await asyncio.sleep(5)
        raise Refused("sold_out", "no")

    async def body(ctx: Ctx) -> None:
        walks.append(1)

        async def branch() -> None:
            await asyncio.sleep(1)
            await ctx.do(order, "a")

        async def after(word: str) -> None:
            await ctx.receive(word, Go)

        try:
            await asyncio.gather(ctx.do(no, 1), branch())
        except Refused:
            if len(walks) == 1:
                await after("go")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(10 * SECOND)
    assert sent(shop) == ["order/a"]
    go.set()
    await world.signal("go")
    await world.pass_(10 * SECOND)
    (entry,) = world.attention()
    assert entry.missing == ("?wait?go",), "the branch has asked for its call after the body returned"


# --- answers ---------------------------------------------------------------------------------------
@pytest.mark.req("EFF-9")
@pytest.mark.parametrize("waits", [False, True])
async def test_accept_makes_the_held_call_and_the_next_unknown_key_asks_again(
    world: World, other: Iterator[int], waits: bool
) -> None:
    shop = Receiver()
    order = write(shop)

    async def body(ctx: Ctx) -> None:
        await ctx.do(order, f"at-{next(other)}")
        await ctx.sleep("1m")
        if waits:
            await ctx.sleep("1m", name="second")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(2 * MINUTE)
    with pytest.raises(InvalidInput, match="accept needs a reason"):
        await answer(world, Choice.ACCEPT, " ")
    await answer(world, Choice.ACCEPT, "the deploy changed the key")
    await world.pass_(2 * MINUTE)
    assert sent(shop) == ["order/at-1", "order/at-3"]
    assert world.reasons() == (["node_diverged"] if waits else [])


@pytest.mark.req("EFF-9")
async def test_continue_executes_the_corrected_code(world: World, other: Iterator[int]) -> None:
    shop = Receiver()
    order = write(shop)
    wrong = True

    async def body(ctx: Ctx) -> None:
        await ctx.do(order, f"at-{next(other)}" if wrong else "at-1")
        await ctx.sleep("1m")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(2 * MINUTE)
    assert world.reasons() == ["node_diverged"]
    wrong = False
    await answer(world, Choice.CONTINUE)
    await world.pass_(2 * MINUTE)
    assert (world.status(), sent(shop)) == ("completed", ["order/at-1"])


@pytest.mark.req("EFF-9", "EFF-2")
async def test_an_open_effect_among_the_missing_settles_before_accept(world: World) -> None:
    """The receiver is asked while the person is; a call that may have happened cannot be accepted away."""
    shop = Receiver(ConnectionResetError())
    order = write(shop)  # uncertain at once
    walks: list[int] = []

    async def body(ctx: Ctx) -> None:
        walks.append(1)
        if len(walks) == 1:
            await asyncio.gather(ctx.do(order, "a"), ctx.do(order, "b"))
        await ctx.do(order, "c")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    assert world.reasons() == ["effect_uncertain"]
    await world.pass_(QUIET)
    await world.resolve("order/a", "did_not_happen")
    await world.pass_(SECOND)
    assert world.reasons() == ["node_diverged"]
    (entry,) = world.attention()
    assert "did not happen, so the path of the node has changed" in entry.detail


@pytest.mark.req("EFF-9", "EFF-2")
async def test_accept_is_not_offered_while_a_missing_call_is_uncertain(world: World) -> None:
    """Its worker died in the call. The outcome is asked for first, then the new key may be accepted."""
    sent: list[str] = []
    walks: list[int] = []

    @activity(key="act/{what}", name="act", no_undo="a test")
    async def act(what: str) -> str:
        sent.append(what)
        if what == "a":
            await asyncio.Event().wait()
        return what

    async def body(ctx: Ctx) -> None:
        walks.append(1)
        await ctx.do(act, "a" if len(walks) == 1 else "b")

    flow = one_node(body)
    process = world.worker(flow)
    await world.start(flow)
    process.kill()
    await world.pass_(MINUTE)
    world.worker(flow)
    await world.pass_(QUIET)
    assert sorted(world.reasons()) == ["effect_uncertain", "node_diverged"] and sent == ["a"]
    (entry,) = [each for each in world.attention() if each.reason is Reason.NODE_DIVERGED]
    assert Choice.ACCEPT not in entry.choices(world.attention()) and Choice.ACCEPT in entry.choices()
    with pytest.raises(Conflict, match="may have happened"):
        await answer(world, Choice.ACCEPT, "the key is right")
    await world.resolve("act/a", "happened", response=b'"a"')
    await answer(world, Choice.ACCEPT, "the key is right")
    await world.pass_(SECOND)
    assert (world.status(), sent) == ("completed", ["a", "b"])


@pytest.mark.req("EFF-9")
async def test_an_effect_that_was_not_sent_is_refused_when_it_is_accepted_away(world: World) -> None:
    shop = Receiver(RetryLater("busy", after=timedelta(seconds=30)))
    order = write(shop)
    walks: list[int] = []

    async def body(ctx: Ctx) -> None:
        walks.append(1)
        if len(walks) == 1:
            await ctx.do(order, "a")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(30 * SECOND)
    assert world.reasons() == ["node_diverged"]
    await answer(world, Choice.ACCEPT, "the code does not order any more")
    await world.pass_(SECOND)
    assert (world.status(), sent(shop)) == ("completed", [])
    assert (world.effect("order/a").status.value, world.effect("order/a").code) == ("refused", "dropped")


# --- approvals -----------------------------------------------------------------------------------------
@pytest.mark.req("EFF-9", "GATE-9")
async def test_a_plan_that_differs_each_time_stops_after_the_decision(world: World, other: Iterator[int]) -> None:
    shop = Receiver()
    order = write(shop)

    async def body(ctx: Ctx) -> None:
        made = await ctx.approval(order.plan(f"p{next(other)}"), summary="a", by=role("boss"), within="96h")
        await ctx.do(made.chosen)

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.decide(world.pending())
    await world.pass_(SECOND)
    assert world.reasons() == ["node_diverged"] and sent(shop) == []
    (entry,) = world.attention()
    assert "order/p2" in entry.detail and "order/p1" in entry.detail and "approved by" in entry.detail
    assert 'was "p1" and is "p2"' in entry.detail
    assert [a.status.value for a in world.approvals()] == ["approved"], "no approver was asked again"


@pytest.mark.req("EFF-9", "GATE-9")
async def test_a_pending_plan_is_replaced_once_and_then_a_person_is_asked(world: World, other: Iterator[int]) -> None:
    shop = Receiver()
    order = write(shop)

    async def body(ctx: Ctx) -> None:
        plan = order.plan(f"p{next(other)}")
        await asyncio.gather(
            ctx.approval(plan, summary="a", by=role("boss"), within="96h"), ctx.sleep("1m"), ctx.sleep("2m", name="b")
        )

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(90 * SECOND)
    assert world.reasons() == [] and [a.status.value for a in world.approvals()] == ["withdrawn", "pending"]
    await world.pass_(60 * SECOND)
    assert world.reasons() == ["node_diverged"]
    assert len(world.approvals()) == 2
    await answer(world, Choice.ACCEPT, "the third plan is right")
    await world.pass_(HOUR)
    assert world.reasons() == ["node_diverged"], "the fourth plan was not accepted"


@pytest.mark.req("EFF-9", "GATE-9")
@pytest.mark.parametrize("asker", ["node", "policy"])
async def test_an_approval_under_another_name_each_time_asks_the_approvers_once(
    world: World, other: Iterator[int], asker: str
) -> None:
    """Its name or the call's key differs, so no plan is replaced. The approvers would be asked without end."""
    shop = Receiver()
    order = write(shop)

    async def body(ctx: Ctx) -> None:
        n = next(other)
        if asker == "policy":
            await ctx.do(order, f"at-{n}")
        else:
            name = f"for-{n}"
            made = await ctx.approval(order.plan("a"), summary="a", by=role("boss"), within="96h", name=name)
            await ctx.do(made.chosen)

    def judge(request: PolicyRequest) -> Any:
        return NeedsApproval("large", role("boss")) if asker == "policy" else Allow()

    flow = one_node(body, policy=judge)
    world.worker(flow)
    await world.start(flow)
    await world.decide(world.pending())
    await world.pass_(SECOND)
    assert [a.status.value for a in world.approvals()] == ["approved"] and sent(shop) == []
    (entry,) = world.attention()
    assert entry.reason is Reason.NODE_DIVERGED and "tests/engine/test_divergence.py:" in entry.detail
    assert entry.missing == ("order?order/at-1" if asker == "policy" else "?approval?for-1",)
    await answer(world, Choice.ACCEPT, "the second one is right")
    assert [a.status.value for a in world.approvals()] == ["approved", "pending"]
    await world.decide(world.pending())
    assert world.reasons() == ["node_diverged"], "the next unknown name asks again"


@pytest.mark.req("EFF-9", "GATE-9")
@pytest.mark.parametrize("asker", ["node", "policy"])
async def test_pending_requests_under_other_names_are_two_at_most(
    world: World, other: Iterator[int], asker: str
) -> None:
    shop = Receiver()
    order = write(shop)

    async def body(ctx: Ctx) -> None:
        n = next(other)
        plan, name = order.plan(f"p{n}"), f"for-{n}"
        asks = ctx.do(plan) if asker == "policy" else ctx.approval(
            plan, summary="a", by=role("boss"), within="96h", name=name
        )  # fmt: skip
        await asyncio.gather(asks, ctx.sleep("1m"), ctx.sleep("2m", name="b"), ctx.sleep("3m", name="c"))

    def judge(request: PolicyRequest) -> Any:
        return NeedsApproval("large", role("boss")) if asker == "policy" else Allow()

    flow = one_node(body, policy=judge)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(10 * MINUTE)
    assert (len(world.approvals()), world.reasons()) == (2, ["node_diverged"])


@pytest.mark.req("EFF-9", "GATE-9")
@pytest.mark.parametrize("asker", ["node", "policy"])
async def test_approvals_of_one_activity_beside_and_after_each_other_raise_no_alarm(world: World, asker: str) -> None:
    """Each execution asks for those before, in whatever order people decide them."""
    shop = Receiver()
    order = write(shop)

    async def body(ctx: Ctx) -> None:
        async def one(what: str) -> None:
            if asker == "policy":
                await ctx.do(order, what)
                return
            made = await ctx.approval(order.plan(what), summary=what, by=role("boss"), within="96h", name=what)
            await ctx.do(made.chosen)

        await asyncio.gather(*map(one, "abc"))
        await one("d")
        await one("e")
        await ctx.sleep("1m")

    def judge(request: PolicyRequest) -> Any:
        return NeedsApproval("large", role("boss")) if asker == "policy" else Allow()

    flow = one_node(body, policy=judge)
    world.worker(flow)
    await world.start(flow)
    for _ in "abcde":
        *_, last = [a for a in world.approvals() if a.status.value == "pending"]
        await world.decide(last)
        await world.pass_(SECOND)
    await world.pass_(MINUTE)
    assert (world.status(), world.reasons(), len(sent(shop))) == ("completed", [], 5)


# --- waits -----------------------------------------------------------------------------------------------
@pytest.mark.req("EFF-9", "GATE-1")
@pytest.mark.parametrize("kind", ["sleep", "receive", "collect", "signalled"])
async def test_a_wait_under_another_name_each_time_stops_at_the_third(
    world: World, other: Iterator[int], kind: str
) -> None:
    """The node would never return, and no one would notice."""

    async def body(ctx: Ctx) -> None:
        name = f"at-{next(other)}"
        if kind == "sleep":
            await ctx.sleep("1m", name=name)
        elif kind == "collect":
            await ctx.collect(name, Go, timeout="1m")
        else:
            await ctx.receive(name, Go, timeout=None if kind == "signalled" else "1m")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    if kind == "signalled":
        for n in (1, 2, 3):
            await world.signal(f"at-{n}")
    await world.pass_(10 * MINUTE)
    assert world.reasons() == ["node_diverged"]
    (entry,) = world.attention()
    assert entry.missing == ("?wait?at-1", "?wait?at-2")
    assert "tests/engine/test_divergence.py:" in entry.detail and "wait at-1, wait at-2" in entry.detail
    await answer(world, Choice.ACCEPT, "the name is right now")
    await world.pass_(10 * MINUTE)
    assert world.reasons() == ([] if kind == "signalled" else ["node_diverged"]), "the next two names ask again"


@pytest.mark.req("EFF-9", "GATE-1")
async def test_a_new_wait_in_front_of_answered_ones_raises_no_alarm(world: World) -> None:
    walks: list[int] = []

    async def body(ctx: Ctx) -> None:
        walks.append(1)
        if len(walks) > 2:
            await ctx.sleep("1m", name="new")
        await ctx.sleep("1m", name="a")
        await asyncio.gather(ctx.receive("go", Go, timeout="2m"), ctx.sleep("3m", name="b"))
        await ctx.sleep("1m", name="c")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(20 * MINUTE)
    assert (world.status(), world.reasons()) == ("completed", [])


@pytest.mark.req("EFF-9", "GATE-9")
async def test_an_accepted_plan_is_put_to_the_approvers(world: World) -> None:
    """The plan that was approved stays unused; the one that a person accepted is asked for, and made."""
    shop, wanted = Receiver(), ["p1"]
    order = write(shop)

    async def body(ctx: Ctx) -> None:
        made = await ctx.approval(order.plan(wanted[-1]), summary="a", by=role("boss"), within="96h")
        await ctx.do(made.chosen)

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    wanted.append("p2")
    await world.decide(world.pending())
    await world.pass_(SECOND)
    assert world.reasons() == ["node_diverged"]
    await answer(world, Choice.ACCEPT, "the second plan is right")
    await world.pass_(SECOND)
    assert world.reasons() == [] and world.pending().plans[0].key == "order/p2"
    await world.decide(world.pending())
    await world.pass_(SECOND)
    assert (world.status(), sent(shop)) == ("completed", ["order/p2"])


async def test_accept_is_not_offered_for_other_reasons(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        raise ValueError("no")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    with pytest.raises(Conflict, match="does not offer accept"):
        await world.answer(Reason.EXCEPTION, Choice.ACCEPT)


# --- errors of lookups ---------------------------------------------------------------------------------
class Local(KeyError):
    """Error of an author, with a class that another process can import."""


@pytest.mark.req("EFF-9", "CKP-2")
@pytest.mark.parametrize("durable", [False, True])
async def test_a_caught_error_of_a_lookup_is_the_same_in_each_execution(world: World, durable: bool) -> None:
    """The first answer was an error, and the body went on without it: so it does after a wait."""
    shop, asked = Receiver(), []
    order = write(shop)

    @lookup(durable=durable)
    async def page(of: str) -> str:
        asked.append(of)
        if len(asked) == 1:
            raise Local("no such page")
        return "found"

    async def body(ctx: Ctx) -> None:
        try:
            said = await ctx.do(page, "a")
        except Local as error:
            said = f"none {error.args[0]}"
        await ctx.do(order, said)
        await ctx.sleep("1m")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(2 * MINUTE)
    assert (world.status(), asked, sent(shop)) == ("completed", ["a"], ["order/none%20no%20such%20page"])


@pytest.mark.req("EFF-9")
async def test_an_error_that_ended_the_body_is_asked_for_again(world: World) -> None:
    """Also one that a concurrent branch has recorded: `continue` after the exception drops it."""
    shop, asked = Receiver(), []
    order = write(shop)

    @lookup
    async def page(of: str) -> str:
        asked.append(of)
        if len(asked) == 1:
            raise ValueError("a bug")
        return "found"

    async def body(ctx: Ctx) -> None:
        async def beside() -> None:
            await asyncio.sleep(1)
            await ctx.do(order, "a")

        async with asyncio.TaskGroup() as group:
            task = group.create_task(beside())
            try:
                await ctx.do(page, "a")
            finally:
                await asyncio.sleep(3)
            await task

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(10 * SECOND)
    assert world.reasons() == ["exception"] and sent(shop) == ["order/a"]
    await world.go_on()
    await world.pass_(10 * SECOND)
    assert (world.status(), asked) == ("completed", ["a", "a"])


# --- deploys ---------------------------------------------------------------------------------------------
def mailing(version: int, order: Any, mail: Any = None, *, dropped: Any = ()) -> Workflow[State]:
    """Return a version of a workflow whose node orders, sends mail if `mail` is given, and waits."""
    flow = Workflow("mailing", state=State, version=version)
    if version > 1:
        flow.migrate(from_=1, dropped=dropped)(lambda old: old)

    @flow.node(start=True)
    async def only(ctx: Ctx) -> None:
        await ctx.do(order, "a")
        if mail is not None:
            await ctx.do(mail, "a")
        await ctx.receive("go", Go)

    return flow.validate()


@pytest.mark.req("EFF-9", "RUN-8")
@pytest.mark.parametrize("declared", [True, False])
async def test_a_migration_names_the_activities_that_it_drops(world: World, declared: bool) -> None:
    """A moved run stays in its visit, so a call that the new version lacks asks a person unless it is named."""
    shop = Receiver()
    order, mail = write(shop), write(shop, name="mail")
    world.worker(mailing(1, order, mail))
    await world.start(mailing(1, order, mail))
    await world.off_duty()
    await world.pass_(MINUTE)
    world.worker(mailing(2, order, dropped=["mail"] if declared else []))
    await world.pass_(MINUTE)
    await world.signal("go")
    await world.pass_(SECOND)
    assert world.run().lane == "mailing@2" and sent(shop) == ["order/a", "mail/a"]
    if declared:
        assert (world.status(), world.reasons()) == ("completed", [])
    else:
        assert world.reasons() == ["node_diverged"] and world.attention()[0].missing == ("mail?mail/a",)


@pytest.mark.parametrize("wrong", ["mail", 3, [1], [""], None])
def test_dropped_is_a_list_of_names(wrong: Any) -> None:
    with pytest.raises(DefinitionError, match="dropped="):
        mailing(2, write(Receiver()), dropped=wrong)


@pytest.mark.req("EFF-9", "RUN-8")
async def test_a_person_who_moves_a_run_to_another_node_drops_what_it_recorded(world: World) -> None:
    shop = Receiver()
    order = write(shop)

    def version(n: int) -> Workflow[State]:
        flow = Workflow("moving", state=State, version=n)

        async def first(ctx: Ctx) -> None:
            await ctx.do(order, "a")
            await ctx.receive("go", Go)

        async def second(ctx: Ctx) -> None:
            await ctx.do(order, f"b{next(other)}")
            await ctx.sleep("1m")

        flow.node(start=True)(first if n == 1 else second)
        return flow.validate()

    other = itertools.count(1)
    world.worker(version(1))
    await world.start(version(1))
    await world.off_duty()
    await world.pass_(MINUTE)
    world.worker(version(2))
    await world.pass_(MINUTE)
    said = request_move(world.run(), Reason.STRANDED_VERSION, 2, "second", actor="op", text="it is second now")
    await world.store.commit(said)
    await world.pass_(5 * SECOND)
    assert sent(shop) == ["order/a", "order/b1"], "the call of the first node holds nothing"
    await world.pass_(2 * MINUTE)
    assert world.reasons() == ["node_diverged"], "calls of the second node count"
    assert world.attention()[0].missing == ("order?order/b1",)


@pytest.mark.req("EFF-9")
async def test_the_answer_of_another_run_that_was_used_must_be_asked_for_again(world: World) -> None:
    """Shared in the tenant: a re-run under another key would act for this run although it has an answer."""
    shop = Receiver()
    order = write(shop, once_per="tenant")
    keys = iter(["a", "b", "c"])

    async def makes(ctx: Ctx) -> None:
        await ctx.do(order, "a")

    async def uses(ctx: Ctx) -> None:
        await ctx.do(order, next(keys))
        await ctx.sleep("1m")

    maker, user = one_node(makes, name="maker"), one_node(uses, name="user")
    world.worker(maker, user)
    await world.start(maker, "r0")
    await world.start(user, "r1")
    await world.pass_(2 * MINUTE)
    assert sent(shop) == ["order/a"] and world.reasons() == ["node_diverged"]
    assert world.attention()[0].missing == ("order?order/a",)


# --- cost ----------------------------------------------------------------------------------------
@pytest.mark.req("EFF-9")
async def test_a_first_execution_does_not_look_through_the_rows_of_other_visits(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    order, looked = write(Receiver()), list[int]()
    missing_calls = HeldRun.missing_calls

    def noted(held: HeldRun, paid: Any) -> Any:
        looked.append(held.run.visit)
        return missing_calls(held, paid)

    monkeypatch.setattr(HeldRun, "missing_calls", noted)
    flow = Workflow("often", state=State)

    @flow.node(start=True, max_visits=20)
    async def again(ctx: Ctx) -> Literal["again"] | None:
        await ctx.do(order, "a")
        if ctx.visit == 20:
            await ctx.sleep("1m")
        return "again" if ctx.visit < 20 else None

    world.worker(flow)
    await world.start(flow)
    await world.pass_(2 * MINUTE)
    assert (world.status(), looked) == ("completed", [20])


# --- a held call that its body cancels ------------------------------------------------------------------------
@pytest.mark.parametrize("end", ["raises", "returns", "goes on"])
async def test_a_held_call_that_is_cancelled_is_flagged_unless_the_body_raises(
    world: World, other: Iterator[int], end: str
) -> None:
    """A task group cancels a held call if its sibling fails: then the sibling's error is the news."""
    shop, beside = Receiver(), Receiver()
    order, look = write(shop), write(beside, name="beside")

    async def fails(ctx: Ctx) -> None:
        await ctx.do(look, "once")
        raise ValueError("the sibling failed")

    async def body(ctx: Ctx) -> None:
        if (n := next(other)) == 1:
            await ctx.do(order, f"at-{n}")
            await ctx.sleep("1m")
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(ctx.do(order, f"at-{n}"))
                group.create_task(fails(ctx))
        except* ValueError:
            if end == "raises":
                raise
        if end == "goes on":
            await ctx.do(order, "at-1")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(2 * MINUTE)
    assert sent(shop) == ["order/at-1"]
    assert world.reasons() == ["exception" if end == "raises" else "node_diverged"]
    (entry,) = world.attention()
    assert ("the sibling failed" if end == "raises" else "order/at-2") in entry.detail

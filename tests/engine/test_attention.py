"""Attention: a person gets all the facts, and the run continues where it stopped (RUN-2)."""

import asyncio
from datetime import timedelta
from typing import Literal

import pytest

from outlast.errors import Conflict
from outlast.flow import Cancel, Context, Fail, NotSent, Perhaps, Refused, Workflow, resend
from tests.engine.world import MINUTE, QUIET, Acts, Go, Receiver, Slow, State, World, one_node, ordering, write

Ctx = Context[State]


@pytest.mark.req("RUN-2", "EFF-1")
async def test_an_unexpected_exception_keeps_node_and_visit_and_shows_its_traceback(world: World) -> None:
    """After the fix, `continue` resumes the same visit; its effects are not repeated."""
    shop = Receiver()
    order = write(shop)
    bug = [True]

    async def body(ctx: Ctx) -> None:
        ctx.state.said = [await ctx.do(order, "a")]
        if bug:
            raise ZeroDivisionError("of the author")
        ctx.state.said.append(await ctx.do(order, "b"))

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    (attention,) = world.attention()
    assert (attention.reason.value, world.run().visit, world.run().node) == ("exception", 1, "only")
    assert "ZeroDivisionError: of the author" in attention.detail
    assert "in body" in attention.detail
    bug.clear()
    await world.go_on()
    assert world.outcome()["said"] == ["did order/a", "did order/b"]
    assert len(shop.did) == 2


@pytest.mark.req("RUN-2")
@pytest.mark.parametrize("text", ["x" * 3_000_000, "half a pair \ud800", "a NUL \0 in it"], ids=["huge", "pair", "nul"])
@pytest.mark.parametrize("kind", [ValueError, Fail, Cancel])
async def test_any_message_of_an_exception_reaches_a_person(world: World, kind: type[Exception], text: str) -> None:
    """No length and no characters of a message keep a run from being flagged or ended (F8)."""

    async def body(ctx: Ctx) -> None:
        raise kind(text)

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(MINUTE)
    if kind is ValueError:
        assert world.reasons() == ["exception"]
        assert "ValueError" in world.attention()[0].detail
    else:
        assert world.status() == {Fail: "failed", Cancel: "cancelled"}[kind]
        assert world.last_event()["reason"].startswith(text[:5])


@pytest.mark.req("RUN-2")
async def test_a_signal_does_not_execute_a_run_in_attention(world: World) -> None:
    """Only an answer to the question does; the message is kept for the next execution."""
    walks: list[int] = []

    async def body(ctx: Ctx) -> None:
        walks.append(1)
        if len(walks) == 1:
            raise ValueError("first walk")
        ctx.state.said = [(await ctx.receive("go", Go)).word]

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.signal("go", word="kept")
    assert (len(walks), world.status(), world.reasons()) == (1, "waiting", ["exception"])
    await world.go_on()
    assert world.outcome()["said"] == ["kept"]


@pytest.mark.req("RUN-2")
async def test_an_answered_reason_is_not_shown_again(world: World) -> None:
    """An exception was continued; the uncertain effect that follows is the only entry."""
    shop = Receiver(Acts(Perhaps("lost")))
    order = write(shop)
    walks: list[int] = []

    async def body(ctx: Ctx) -> None:
        walks.append(1)
        if len(walks) == 1:
            raise ValueError("first walk")
        ctx.state.said = [await ctx.do(order, "a")]

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.go_on()
    assert world.reasons() == ["effect_uncertain"]
    await world.resolve("order/a", "happened", response=b'"seen"')
    assert world.outcome()["said"] == ["seen"]


@pytest.mark.req("RUN-1", "RUN-2")
async def test_one_visit_more_is_granted_by_continue(world: World) -> None:
    """A loop beyond its maximum is attention; each `continue` grants exactly one more."""
    flow = Workflow("loop", state=State)

    @flow.node(start=True, max_visits=2)
    async def again(ctx: Ctx) -> Literal["again"] | None:
        ctx.state.n += 1
        return "again" if ctx.state.n < 4 else None

    world.worker(flow)
    await world.start(flow)
    assert (world.reasons(), world.run().visit) == (["visits_exhausted"], 2)
    await world.go_on()
    assert (world.reasons(), world.run().visit) == (["visits_exhausted"], 3)
    await world.go_on()
    assert world.outcome()["n"] == 4


@pytest.mark.req("RUN-1")
async def test_a_transition_that_is_not_declared_is_attention(world: World) -> None:
    """A value the annotation does not name moves nothing."""
    flow = Workflow("wrong", state=State)

    @flow.node(start=True)
    async def one(ctx: Ctx) -> Literal["two"]:
        return "three"  # type: ignore[return-value]

    @flow.node
    async def two(ctx: Ctx) -> None:
        return None

    world.worker(flow)
    await world.start(flow)
    assert (world.reasons(), world.run().node) == (["exception"], "one")
    assert "'three'" in world.attention()[0].detail


# --- uncertain effects ---------------------------------------------------------------------------------
@pytest.mark.req("EFF-2", "EFF-3", "FAIL-2")
@pytest.mark.parametrize("verb", ["happened", "did_not_happen", "give_up"])
async def test_a_person_resolves_an_uncertain_effect_once(world: World, verb: str) -> None:
    """It happened, with this response · it did not, do it · give up: the run goes on to the same end."""
    shop = Receiver(Perhaps("lost"))
    order = write(shop)

    async def body(ctx: Ctx) -> None:
        try:
            ctx.state.said = [await ctx.do(order, "a")]
        except Refused as failed:
            ctx.state.said = [failed.code]

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(QUIET)
    await world.resolve("order/a", verb, response=b'"did order/a"' if verb == "happened" else None)
    assert world.outcome()["said"] == ["given_up" if verb == "give_up" else "did order/a"]
    assert len(shop.attempts) == (2 if verb == "did_not_happen" else 1)
    with pytest.raises(Conflict, match="not uncertain"):
        await world.resolve("order/a", "give_up")


@pytest.mark.req("EFF-3")
async def test_it_did_not_happen_is_too_early_while_a_call_could_still_land(world: World) -> None:
    """Judged by the store's clock: refused until settle_after, accepted from then on."""
    shop = Receiver(Perhaps("lost"))
    flow = ordering(write(shop), "a")
    world.worker(flow)
    await world.start(flow)
    await world.pass_(world.effect("order/a").settle_after - world.time.wall() - 1)
    with pytest.raises(Conflict, match="too early"):
        await world.resolve("order/a", "did_not_happen")
    assert world.effect("order/a").status.value == "uncertain"
    await world.pass_(1)
    await world.resolve("order/a", "did_not_happen")
    assert world.status() == "completed"


@pytest.mark.req("EFF-2")
async def test_continue_does_not_answer_an_uncertain_effect(world: World) -> None:
    """An uncertain effect has other answers; the error names the command."""
    flow = ordering(write(Receiver(Perhaps("lost"))), "a")
    world.worker(flow)
    await world.start(flow)
    with pytest.raises(Conflict, match="effect_uncertain"):
        await world.go_on()


@pytest.mark.req("EFF-2")
async def test_two_uncertain_effects_are_two_entries_with_an_answer_each(world: World) -> None:
    """The run goes on when both are."""
    shop = Receiver(Acts(Perhaps("lost")), Acts(Perhaps("lost")))
    order = write(shop)

    async def body(ctx: Ctx) -> None:
        await asyncio.gather(ctx.do(order, "a"), ctx.do(order, "b"))

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    assert sorted(a.key for a in world.attention()) == ["order/a", "order/b"]
    await world.resolve("order/a", "happened", response=b'"x"')
    assert world.status() == "waiting"
    await world.resolve("order/b", "happened", response=b'"x"')
    assert world.status() == "completed"


# --- ends ------------------------------------------------------------------------------------------------
@pytest.mark.req("RUN-2")
@pytest.mark.parametrize(("kind", "end"), [(Fail, "failed"), (Cancel, "cancelled")])
async def test_a_node_ends_its_run_and_names_effects_not_undone(world: World, kind: type[Exception], end: str) -> None:
    """`Fail` and `Cancel`; done effects without an undo are listed with the reason, latest first."""
    shop = Receiver()
    order, mail = write(shop), write(shop, name="mail", undo=True)

    async def body(ctx: Ctx) -> None:
        await ctx.do(order, "a")
        await ctx.do(mail, "m")
        await ctx.do(order, "b")
        raise kind("enough")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    assert (world.status(), world.run().owner, world.run().due_at) == (end, "ended", None)
    stands = world.last_event()["not_undone"]
    assert stands == ["order order/b: a test undoes nothing", "order order/a: a test undoes nothing"]
    assert world.last_event()["reason"] == "enough"


@pytest.mark.req("EFF-2", "EFF-8")
async def test_a_failing_run_settles_open_effects_before_it_ends(world: World) -> None:
    """The sibling failed while a call was in flight: its outcome is awaited, and a person resolves it first."""
    slow = Slow(Perhaps("lost"))
    shop = Receiver(slow)
    order = write(shop)

    async def body(ctx: Ctx) -> None:
        task = asyncio.ensure_future(ctx.do(order, "a"))
        await slow.begun.wait()
        if not task.done():
            raise Fail("a sibling failed")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    assert world.status() == "running"
    slow.go.set()
    await world.settle()
    assert (world.status(), world.reasons()) == ("waiting", ["effect_uncertain"])


@pytest.mark.req("RUN-2")
async def test_a_run_returns_the_value_of_its_outcome_function(world: World) -> None:
    """The default is its last state; an error in the function is attention, and the run has not ended."""

    async def body(ctx: Ctx) -> None:
        ctx.state.n = 7

    good = one_node(body, name="good", outcome=lambda state: {"seven": state.n})
    bad = one_node(body, name="bad", outcome=lambda state: 1 / 0)
    world.worker(good, bad)
    await world.start(good, "g")
    await world.start(bad, "b")
    assert world.outcome("g") == {"seven": 7}
    assert (world.status("b"), world.reasons("b")) == ("waiting", ["exception"])


@pytest.mark.req("EFF-4")
async def test_a_reopened_effect_gets_an_attempt_even_if_all_were_used(world: World) -> None:
    """`did not happen` after the last attempt: one more call, and an uncertain outcome asks again."""
    shop = Receiver(*[Acts(Perhaps("lost"))] * 2, NotSent("x"), NotSent("x"))
    flow = ordering(write(shop, if_uncertain=resend(remembered_for=timedelta(minutes=3, seconds=2))), "a")
    world.worker(flow)
    await world.start(flow)
    await world.pass_(QUIET + 10_000)
    assert world.reasons() == ["effect_uncertain"]
    before = len(shop.attempts)
    await world.resolve("order/a", "did_not_happen")
    assert len(shop.attempts) == before + 1

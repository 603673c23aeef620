"""Inbox: no message is lost, a run that has ended accepts none, and a cancel is obeyed (S-1)."""

from datetime import timedelta

import pytest
from pydantic import BaseModel

from outlast.engine import commands
from outlast.errors import Conflict, InvalidInput, LimitExceeded, NotFound, NotStorable
from outlast.flow import Context, Perhaps, RetryLater, Workflow
from tests.engine.world import (
    MINUTE,
    QUIET,
    SECOND,
    Acts,
    Go,
    Receiver,
    Slow,
    State,
    World,
    one_node,
    ordering,
    write,
)

Ctx = Context[State]


async def hears(ctx: Ctx) -> None:
    """Workflow that waits for one signal."""
    ctx.state.said = [(await ctx.receive("go", Go)).word]


@pytest.mark.req("RUN-3", "CKP-2")
@pytest.mark.parametrize("verb", ["park", "open_wait"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.every_store
async def test_a_message_sent_while_the_run_parks_is_read(world: World, verb: str, when: str) -> None:
    """A park names the inbox number it has read, and is refused if it has changed."""
    flow = one_node(hears)
    process = world.worker(flow)
    getattr(process.wire, when)(f"r1 {verb}", lambda: world.signal_now("go", word="heard"))
    await world.start(flow)
    assert world.outcome()["said"] == ["heard"]


@pytest.mark.req("RUN-3")
async def test_a_fast_sender_cannot_keep_a_run_from_parking(world: World) -> None:
    """Notes that answer nothing the run waits for: the verb is repeated with the new number, the node is not."""
    walks: list[int] = []

    async def body(ctx: Ctx) -> None:
        walks.append(1)
        await ctx.receive("go", Go)

    flow = one_node(body)
    process = world.worker(flow)
    left = 30

    def noise() -> None:
        nonlocal left
        if left:
            left -= 1
            world.signal_now("noise")
            process.wire.before("r1 park", noise)

    process.wire.before("r1 park", noise)
    await world.start(flow)
    assert world.status() == "waiting"
    assert len(walks) <= 2
    await world.signal("go", word="x")
    assert world.status() == "completed"


@pytest.mark.req("RUN-3")
async def test_a_run_does_not_end_over_an_accepted_cancel(world: World) -> None:
    """The end names the last message: a cancel accepted before the end is carried out, a later one is refused."""
    flow = ordering(write(Receiver()), "a")
    process = world.worker(flow)
    process.wire.before("complete", world.cancel_now)
    await world.start(flow)
    assert world.status() == "cancelled"
    with pytest.raises(Conflict, match="ended"):
        await world.cancel()
    with pytest.raises(Conflict, match="ended"):
        await world.signal("go")


@pytest.mark.req("RUN-4")
async def test_a_signal_with_an_id_is_left_once(world: World) -> None:
    """The second call returns False and adds nothing."""
    flow = one_node(hears)
    await world.start(flow)
    assert await world.signal("go", signal_id="s1", word="a") is True
    assert await world.signal("go", signal_id="s1", word="b") is False
    world.worker(flow)
    await world.settle()
    assert world.outcome()["said"] == ["a"]
    assert len(world.messages()) == 1


# --- cancel ------------------------------------------------------------------------------------------
@pytest.mark.req("EFF-8", "RUN-2")
@pytest.mark.every_store
async def test_a_waiting_run_is_cancelled_at_once(world: World) -> None:
    """Its last event has the person and the reason."""
    flow = one_node(hears)
    world.worker(flow)
    await world.start(flow)
    await world.cancel()
    assert world.status() == "cancelled"
    assert world.last_event()["reason"] == "cancelled by me: no longer needed"


@pytest.mark.req("EFF-8", "FAIL-7")
async def test_a_cancel_inside_a_call_waits_for_its_outcome(world: World) -> None:
    """The call is not abandoned; its answer is recorded, nothing forward begins after it, and it is undone."""
    slow = Slow()
    shop = Receiver(slow)
    flow = ordering(write(shop, undo=True), "a", "b")
    world.worker(flow)
    await world.start(flow)
    await world.cancel()
    assert world.status() == "running"
    slow.go.set()
    await world.settle()
    assert world.status() == "cancelled"
    assert world.effect("order/a").status.value == "undone"
    assert shop.did == ["t:r1:1:order/a", "t:r1:1:undo/order/a"]
    assert world.last_event()["not_undone"] == []


@pytest.mark.req("EFF-8")
async def test_a_cancel_learnt_from_the_answer_to_an_intent_stops_the_call(world: World) -> None:
    """The answer to every commit has the last message's number: the holder knows of the cancel before it sends."""
    shop = Receiver()
    flow = ordering(write(shop), "a")
    process = world.worker(flow)
    process.wire.before("intend order/a", world.cancel_now)
    await world.start(flow)
    assert shop.attempts == []
    assert world.status() == "cancelled"
    assert world.effect("order/a").status.value == "refused"


@pytest.mark.req("EFF-8", "EFF-2")
@pytest.mark.parametrize(("mode", "acted"), [("reconcile", True), ("reconcile", False), ("ask", True)])
async def test_a_cancel_settles_effects_left_open_by_a_dead_worker(world: World, mode: str, acted: bool) -> None:
    """Reconciled, or answered by a person; never called again; then undone."""
    slow = Slow(acts_first=acted)
    shop = Receiver(slow)
    flow = ordering(write(shop, mode=mode, undo=True), "a")
    first = world.worker(flow)
    await world.start(flow)
    assert slow.begun.is_set()
    first.kill()
    await world.cancel()
    world.worker(flow)
    await world.pass_(QUIET + 30 * SECOND)
    if mode == "ask":
        assert len(shop.attempts) == 1
        assert (world.status(), world.reasons()) == ("compensating", ["effect_uncertain"])
        await world.resolve("order/a", "happened", response=b'"seen"')
    assert world.status() == "cancelled"
    assert len(shop.attempts) == 1 + acted
    assert shop.given == ([] if not acted else ["seen"] if mode == "ask" else ["did order/a"])


@pytest.mark.req("EFF-8")
async def test_a_cancel_while_a_call_waits_for_its_next_attempt_ends_the_run(world: World) -> None:
    """Nothing happened at the last attempt, so nothing is owed to it."""
    shop = Receiver(RetryLater("busy", after=timedelta(seconds=30)))
    flow = ordering(write(shop), "a")
    world.worker(flow)
    await world.start(flow)
    await world.cancel()
    assert world.status() == "cancelled"
    assert world.effect("order/a").status.value == "refused"


@pytest.mark.req("EFF-8", "EFF-3")
async def test_a_cancel_waits_for_the_settle_time_of_an_uncertain_effect(world: World) -> None:
    """Not found within the settle time is no proof for an ending either, nor is an answer to a question asked in it."""
    shop = Receiver(Perhaps("lost"))
    flow = ordering(write(shop, mode="reconcile"), "a")
    world.worker(flow)
    await world.start(flow)
    await world.cancel()
    assert (world.status(), len(shop.attempts)) == ("recovering", 1)
    await world.pass_(QUIET)
    assert world.status() == "cancelled"
    assert len(shop.attempts) == 1


@pytest.mark.req("EFF-8")
async def test_a_cancel_of_a_run_in_attention_waits_for_the_uncertain_effect(world: World) -> None:
    """It ends once a person has resolved the effect."""
    shop = Receiver(Acts(Perhaps("lost")))
    flow = ordering(write(shop), "a")
    world.worker(flow)
    await world.start(flow)
    await world.cancel()
    assert world.reasons() == ["effect_uncertain"]
    await world.pass_(QUIET)
    await world.resolve("order/a", "did_not_happen")
    assert world.status() == "cancelled"
    assert len(shop.attempts) == 1


@pytest.mark.req("RUN-4")
async def test_starting_again_is_the_same_run_and_with_another_input_refused(world: World) -> None:
    """The same key means the same run; nothing is merged."""

    class Order(BaseModel):
        item: str

    flow = Workflow("orders", state=Order)

    @flow.node(start=True)
    async def only(ctx: Context[Order]) -> None:
        return None

    async def start(item: str, run: str) -> commands.StartedRun:
        return await commands.start(world.store, flow, {"item": item}, tenant="t", actor="me", run=run, key="k1")

    assert await start("pen", "r1") == ("r1", True)
    assert await start("pen", "r2") == ("r1", False)
    with pytest.raises(Conflict):
        await start("ink", "r3")
    await world.pass_(MINUTE)


@pytest.mark.req("RUN-5")
async def test_tenants_with_runs_of_one_name_do_not_meet(world: World) -> None:
    """The tenant leads every key: effects, idempotency keys, signals, cancels and start keys are its own."""
    shop = Receiver()
    order = write(shop)

    async def body(ctx: Ctx) -> None:
        ctx.state.said = [await ctx.do(order, "a")]
        await ctx.receive("go", Go)

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow, tenant="t")
    await world.start(flow, tenant="u")
    assert sorted(shop.did) == ["t:r1:1:order/a", "u:r1:1:order/a"]
    await world.signal("go")
    assert (world.run().status.value, world.run(tenant="u").status.value) == ("completed", "waiting")
    with pytest.raises(NotFound):
        await commands.signal(world.store, tenant="v", run="r1", name="go", payload={}, actor="me")
    with pytest.raises(NotFound):
        await commands.cancel(world.store, tenant="v", run="r1", actor="me", reason="not mine")


@pytest.mark.parametrize(
    ("text", "error"), [("x" * 70_000, LimitExceeded), ("\ud800", InvalidInput)], ids=["long", "pair"]
)
async def test_texts_of_operators_are_bounded_on_entry(world: World, text: str, error: type[Exception]) -> None:
    """A reason or a payload no store could hold is refused in the caller's words, not as a fault of the store."""
    flow = one_node(hears)
    await world.start(flow)
    with pytest.raises(error):
        await commands.cancel(world.store, tenant="t", run="r1", actor="me", reason=text)
    with pytest.raises((error, NotStorable)):
        await world.signal("go", word=text)
    assert world.messages() == []

"""Operators: pauses, answers by reason, and nodes that are gone (S-21, S-23)."""

import asyncio
import json
from typing import Literal

import pytest

from outlast.engine import known_pauses as pauses
from outlast.engine.known_pauses import pause_key
from outlast.errors import Conflict, InvalidInput, NotFound
from outlast.flow import Context, NotSent, Refused, Retry, Workflow
from tests.engine.world import MINUTE, SECOND, Go, Receiver, Slow, State, World, one_node, ordering, write

Ctx = Context[State]


# --- stop signs ---------------------------------------------------------------------------------------------
@pytest.mark.req("RUN-9")
@pytest.mark.parametrize("key", ["activity/order", "workflow/flow", "tenant"])
async def test_a_pause_stops_intents_and_runs_wait_visibly(world: World, key: str) -> None:
    """One release makes all of them due, and each does its work once."""
    shop = Receiver()
    flow = ordering(write(shop), "a")
    world.worker(flow)
    await world.hold(key)
    for i in range(3):
        await world.start(flow, f"r{i}")
    await world.pass_(5 * MINUTE)
    assert [world.waiting(f"r{i}") for i in range(3)] == [[("pause", f"{key}: an outage")]] * 3
    assert (shop.attempts, world.effects("r0")) == ([], [])
    assert await world.release(key) == 3
    assert [world.status(f"r{i}") for i in range(3)] == ["completed"] * 3
    assert len(shop.did) == len(shop.attempts) == 3


@pytest.mark.req("RUN-9")
async def test_a_pause_stops_its_subject_only(world: World) -> None:
    """Another activity, another workflow, another tenant go on."""
    shop = Receiver()
    flow, other = ordering(write(shop), "a"), ordering(write(shop, name="mail"), "m", name="other")
    world.worker(flow, other)
    await world.hold("activity/order")
    await world.start(other, "r2")
    await world.start(flow, tenant="another")
    assert world.status("r2") == world.run(tenant="another").status.value == "completed"
    await world.release("activity/order")
    await world.hold("workflow/flow")
    await world.start(other, "r3")
    assert world.status("r3") == "completed"


@pytest.mark.req("EFF-2")
@pytest.mark.parametrize("answer", ["answers", "breaks"])
async def test_an_effect_in_flight_finishes_and_no_further_attempt_begins(world: World, answer: str) -> None:
    slow = Slow(None if answer == "answers" else NotSent("refused"))
    shop = Receiver(slow)
    flow = ordering(write(shop), "a", "b")
    world.worker(flow)
    await world.start(flow)
    await world.hold("activity/order")
    slow.go.set()
    await world.pass_(MINUTE)
    assert (len(shop.attempts), world.waiting()[0][0]) == (1, "pause")
    assert world.effect("order/a").status.value == ("done" if answer == "answers" else "intended")
    await world.release("activity/order")
    await world.pass_(MINUTE)
    assert (world.status(), len(shop.did)) == ("completed", 2)


@pytest.mark.req("RUN-9")
async def test_a_run_that_parked_after_the_resume_checks_again_within_a_minute(world: World) -> None:
    """It had read the pause before, and parks after the resume has woken the waiting runs."""
    flow = ordering(write(Receiver()), "a")
    process = world.worker(flow)
    await world.hold("tenant")

    def released() -> None:
        world._now(pauses.resume(world.store, "t", "tenant", actor="op"))

    process.wire.before("r1 park", released)
    await world.start(flow)
    assert world.waiting()[0][0] == "pause"
    await world.pass_(MINUTE)
    assert world.status() == "completed"


@pytest.mark.req("RUN-9")
async def test_a_worker_reads_a_cached_pause_again(world: World) -> None:
    """Between two heartbeats: the cached pause alone stops no run."""
    flow = ordering(write(Receiver()), "a")
    world.worker(flow)
    await world.hold("tenant")
    await world.start(flow)
    await world.release("tenant")
    assert world.status() == "completed"


@pytest.mark.req("RUN-9")
async def test_a_pause_needs_a_reason_and_is_set_and_ended_once(world: World) -> None:
    await world.hold("tenant")
    with pytest.raises(Conflict, match="paused already"):
        await world.hold("tenant")
    await world.release("tenant")
    with pytest.raises(NotFound, match="not paused"):
        await world.release("tenant")
    await world.hold("tenant")
    await world.release("tenant")


@pytest.mark.req("RUN-6", "RUN-9")
async def test_a_run_that_ends_while_its_tenant_is_resumed_is_no_error(world: World) -> None:
    """Waking a run that has just ended, or been taken, is no error."""
    flow = ordering(write(Receiver()), "a")
    world.worker(flow)
    await world.hold("tenant")
    for i in range(200):
        await world.start(flow, f"r{i}")
    await world.cancel("r7")
    assert await world.release("tenant") == 199
    await world.pass_(SECOND)
    assert {world.status(f"r{i}") for i in range(200)} == {"completed", "cancelled"}


@pytest.mark.req("EFF-8")
async def test_a_paused_run_can_be_cancelled(world: World) -> None:
    flow = ordering(write(Receiver()), "a")
    world.worker(flow)
    await world.hold("workflow/flow")
    await world.start(flow)
    await world.cancel()
    assert world.status() == "cancelled"


# --- answers by reason -----------------------------------------------------------------------------------------
def exhausting(shop: Receiver, *what: str) -> Workflow[State]:
    """Workflow whose calls have one attempt; a call that was given up is handled."""
    order = write(shop, retry=Retry(attempts=1))

    async def body(ctx: Ctx) -> None:
        plans = {each: order.plan(each) for each in what}
        answers = await ctx.do_all(plans, refused="return")
        codes = {each: getattr(answer, "code", "done") for each, answer in answers.items()}
        if "retries_exhausted" in codes.values():
            for each in what:
                await ctx.do(order, each) if codes[each] == "retries_exhausted" else None
        ctx.state.said = [f"{each} {code}" for each, code in codes.items()]

    return one_node(body)


@pytest.mark.req("EFF-4", "RUN-2")
@pytest.mark.parametrize("choice", ["retry", "give_up", "cancel"])
async def test_attempts_used_up_are_answered_in_three_ways(world: World, choice: str) -> None:
    """Retry calls once more; a call given up is an answer the node may handle; cancel ends the run."""
    shop = Receiver(NotSent("down"))
    flow = exhausting(shop, "a")
    world.worker(flow)
    await world.start(flow)
    assert world.reasons() == ["retries_exhausted"]
    await world.answer("retries_exhausted", choice)
    if choice == "cancel":
        assert world.status() == "cancelled"
        return
    assert world.outcome()["said"] == [{"retry": "a done", "give_up": "a given_up"}[choice]]
    assert len(shop.attempts) == {"retry": 2, "give_up": 1}[choice]


@pytest.mark.req("EFF-4", "RUN-2")
async def test_an_answer_names_its_effect_and_counts_once(world: World) -> None:
    """Two calls used up their attempts: each gets an answer, and a second answer is refused with the first."""
    shop = Receiver(NotSent("down"), NotSent("down"))
    order = write(shop, retry=Retry(attempts=1))

    async def body(ctx: Ctx) -> None:
        async def handled(what: str) -> None:
            try:
                ctx.state.said.append(await ctx.do(order, what))
            except Refused as failed:
                if failed.code != "given_up":
                    raise
                ctx.state.said.append(f"without {what}")

        results = await asyncio.gather(handled("a"), handled("b"), return_exceptions=True)
        errors = [r for r in results if isinstance(r, Exception)]
        if errors:
            raise ExceptionGroup("both", errors)

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    assert world.reasons() == ["retries_exhausted"] * 2
    await world.answer("retries_exhausted", "give_up", key="order/a")
    assert (world.status(), [a.key for a in world.attention()]) == ("waiting", ["order/b"])
    with pytest.raises(Conflict, match="not flagged retries_exhausted order/a"):
        await world.answer("retries_exhausted", "retry", key="order/a")
    await world.answer("retries_exhausted", "retry", key="order/b")
    assert sorted(world.outcome()["said"]) == ["did order/b", "without a"]


@pytest.mark.req("EFF-4")
async def test_the_second_of_two_answers_is_refused_with_the_first(world: World) -> None:
    flow = exhausting(Receiver(NotSent("down")), "a")
    process = world.worker(flow)
    await world.start(flow)
    process.freeze()
    await world.answer("retries_exhausted", "give_up")
    with pytest.raises(Conflict, match="answered before"):
        await world.answer("retries_exhausted", "retry")
    process.thaw()
    await world.pass_(MINUTE)
    assert world.outcome()["said"] == ["a given_up"]


@pytest.mark.req("RUN-2")
@pytest.mark.parametrize(("choice", "end"), [("fail", "failed"), ("cancel", "cancelled")])
async def test_a_person_ends_a_run_that_broke(world: World, choice: str, end: str) -> None:
    async def body(ctx: Ctx) -> None:
        raise ValueError("a mistake")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.answer("exception", choice)
    assert world.status() == end
    assert "looked into it" in world.last_event()["reason"]
    with pytest.raises(Conflict, match="has ended"):
        await world.answer("exception", "continue")


@pytest.mark.req("RUN-2")
async def test_an_answer_that_is_not_offered_is_refused(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        raise ValueError("a mistake")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    with pytest.raises(Conflict, match="not flagged poisoned"):
        await world.answer("poisoned", "continue")
    with pytest.raises(Conflict, match="does not offer extend"):
        await world.answer("exception", "extend", by_ms=1)


@pytest.mark.req("RUN-1", "RUN-2")
@pytest.mark.parametrize("choice", ["one_more", "fail", "cancel"])
async def test_a_node_entered_too_often_is_answered_in_three_ways(world: World, choice: str) -> None:
    """One more is exactly one, and it outlasts a death before the move it allows."""
    flow = Workflow("loop", state=State)

    @flow.node(start=True, max_visits=2)
    async def again(ctx: Ctx) -> Literal["again"] | None:
        ctx.state.n += 1
        return "again"

    process = world.worker(flow.validate())
    await world.start(flow)
    assert (world.reasons(), world.run().visit) == (["visits_exhausted"], 2)
    process.wire.before("advance", process.kill)
    await world.answer("visits_exhausted", choice)
    world.worker(flow)
    await world.pass_(MINUTE)
    want = {"one_more": ("waiting", 3), "fail": ("failed", 2), "cancel": ("cancelled", 2)}
    assert (world.status(), world.run().visit) == want[choice]
    assert world.reasons() == (["visits_exhausted"] if choice == "one_more" else [])


@pytest.mark.req("RUN-1", "RUN-2")
async def test_one_more_survives_a_pause_and_is_logged_once(world: World) -> None:
    flow = Workflow("loop", state=State)

    @flow.node(start=True, max_visits=1)
    async def again(ctx: Ctx) -> Literal["again"] | None:
        return "again"

    world.worker(flow.validate())
    await world.start(flow)
    await world.hold("workflow/loop")
    await world.answer("visits_exhausted", "one_more")
    await world.pass_(3 * MINUTE)
    assert world.waiting()[0][0] == "pause"
    await world.release("workflow/loop")
    assert (world.run().visit, world.reasons()) == (2, ["visits_exhausted"])
    told = [json.loads(e.body)["data"]["answers"] for e in world.events() if e.type.endswith("answered")]
    assert told == [[{"reason": "visits_exhausted", "choice": "one_more", "by": "op", "text": "looked into it"}]]


# --- nodes that are gone ------------------------------------------------------------------------------------------
def whole() -> Workflow[State]:
    """The workflow as it was, and will be again."""
    flow = Workflow("flow", state=State)

    @flow.node(start=True)
    async def one(ctx: Ctx) -> Literal["two"]:
        return "two"

    @flow.node
    async def two(ctx: Ctx) -> None:
        await ctx.receive("go", Go)

    return flow.validate()


def cut() -> Workflow[State]:
    """A deployment that lost a node."""
    flow = Workflow("flow", state=State)

    @flow.node(start=True)
    async def one(ctx: Ctx) -> None:
        return None

    return flow.validate()


@pytest.mark.req("RUN-8")
async def test_a_node_that_is_gone_is_continued_by_a_worker_that_has_it_again(world: World) -> None:
    """Nothing is lost or guessed: the run keeps its place, with a sentence, until a deployment has the node."""
    process = world.worker(whole())
    await world.start(whole())
    process.worker.drain()
    await world.settle()
    lacking = world.worker(cut())
    await world.signal("go")
    assert (world.reasons(), world.run().node) == (["node_gone"], "two")
    assert "has no node two any more" in world.attention()[0].detail
    await world.answer("node_gone", "move")
    assert world.reasons() == ["node_gone"], "this worker has it still not"
    lacking.worker.drain()
    await world.settle()
    world.worker(whole())
    await world.answer("node_gone", "move")
    assert (world.status(), world.reasons()) == ("completed", [])


@pytest.mark.req("RUN-2")
def test_these_tests_know_each_pause(world: World) -> None:
    assert [pause_key("tenant"), pause_key("activity", "a"), pause_key("workflow", "w")] == [
        "tenant",
        "activity/a",
        "workflow/w",
    ]
    for what in (("tenant", "x"), ("activity", ""), ("node", "n")):
        with pytest.raises(InvalidInput):
            pause_key(*what)

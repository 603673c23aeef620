"""A store that is away, or whose answer was lost: nothing is repeated or lost, and no person is called."""

import asyncio
from datetime import timedelta
from typing import Any, Literal

import pytest

from outlast.flow import Context, Workflow, role
from tests.engine.world import (
    MINUTE,
    QUIET,
    SECOND,
    Go,
    Receiver,
    Slow,
    State,
    World,
    one_node,
    ordering,
    reading,
    write,
)

Ctx = Context[State]
LABELS = [
    "claim",
    "admit",
    "log began",
    "intend order/a",
    "record order/a",
    "intend order/b",
    "remember",
    "open_wait go",
    "bind go",
    "ask",
    "park one#1",
    "advance one#1",
    "park two#2",
    "complete two#2",
]


def whole(shop: Receiver) -> Workflow[State]:
    """A run that speaks every verb of an untroubled life."""
    order, price = write(shop, mode="reconcile"), reading(lambda: 7, key="price/{what}")
    flow = Workflow("whole", state=State)

    @flow.node(start=True)
    async def one(ctx: Ctx) -> Literal["two"]:
        ctx.log("began", "it began")
        ctx.state.said = [await ctx.do(order, "a"), await ctx.do(price, "p")]
        await ctx.receive("go", Go)
        return "two"

    @flow.node
    async def two(ctx: Ctx) -> None:
        plan = order.plan("b")
        decision = await ctx.approval(plan, summary="b", by=role("boss"), within=timedelta(hours=20))
        assert decision.chosen
        ctx.state.said.append(await ctx.do(decision.chosen))

    return flow.validate()


@pytest.mark.req("RUN-3", "CKP-1", "EFF-1", "REC-1")
@pytest.mark.parametrize("fault", ["away", "lost", "both"])
@pytest.mark.parametrize("label", LABELS)
async def test_a_failed_commit_or_a_lost_answer_changes_nothing_for_the_run(
    world: World, label: str, fault: str
) -> None:
    """At every verb of its life: the same end, each effect once, in one history without a gap."""
    world.add_slots("t", 1)
    shop = Receiver()
    flow = whole(shop)
    process = world.worker(flow)
    if fault != "lost":
        process.wire.away.append(label)
    if fault != "away":
        process.wire.lost.append(label)
    await world.start(flow)
    await world.pass_(QUIET + MINUTE)
    await world.signal("go")
    await world.pass_(QUIET + MINUTE)
    await world.decide(world.pending())
    await world.pass_(QUIET + MINUTE)
    assert (world.status(), world.reasons()) == ("completed", [])
    assert world.outcome()["said"] == ["did order/a", "7", "did order/b"]
    assert sorted(shop.did) == ["t:r1:1:order/a", "t:r1:2:order/b"]
    assert [e.seq for e in world.events()] == list(range(1, len(world.events()) + 1))
    assert world.verbs().count("logged") == 1
    assert [s.holder for s in world.slots()] == [""]


@pytest.mark.req("RUN-3", "RUN-2")
@pytest.mark.parametrize("n", range(1, 12))
async def test_reads_that_fail_never_reach_the_author(world: World, n: int) -> None:
    """The n-th read of the store fails: the run takes a little longer, no person is called."""
    shop = Receiver()
    flow = whole(shop)
    process = world.worker(flow)
    await world.settle()
    calls = iter(range(1, 1000))
    plain = process.wire._turn

    async def turn() -> None:
        if next(calls) == n:
            process.wire.reads_fail += 1
        await plain()

    process.wire._turn = turn  # type: ignore[method-assign]
    await world.start(flow)
    await world.pass_(MINUTE)
    await world.signal("go")
    await world.pass_(MINUTE)
    await world.decide(world.pending())
    await world.pass_(MINUTE)
    assert (world.status(), world.reasons()) == ("completed", [])
    assert len(shop.did) == 2


@pytest.mark.req("EFF-1", "CKP-2")
async def test_a_refused_memo_loses_no_answer_of_an_effect(world: World) -> None:
    """Two lookups collide under one key: the one is a contradiction; the write beside them stays recorded."""
    slow = Slow()
    shop = Receiver(slow)
    order = write(shop)
    one, two = reading(lambda: 1, name="one", key="same/{what}"), reading(lambda: 2, name="two", key="same/{what}")

    async def body(ctx: Ctx) -> None:
        task = asyncio.ensure_future(ctx.do(order, "x"))
        await slow.begun.wait()
        await asyncio.gather(ctx.do(one, "a"), ctx.do(two, "a"))
        await task

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    slow.go.set()
    await world.pass_(MINUTE)
    assert world.reasons() == ["contradiction"]
    assert world.effect("order/x").status.value == "done"
    assert len(shop.attempts) == 1


@pytest.mark.req("RUN-2")
async def test_a_state_too_large_to_be_stored_calls_a_person(world: World) -> None:
    """The node did its work, but its state cannot be stored. A person is called; the effects stay."""
    shop = Receiver()
    order = write(shop)
    large = [True]

    async def body(ctx: Ctx) -> None:
        await ctx.do(order, "a")
        ctx.state.said = ["x" * 300_000] if large else ["small"]

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    assert world.reasons() == ["exception"]
    large.clear()
    await world.go_on()
    assert world.outcome()["said"] == ["small"]
    assert len(shop.did) == 1


@pytest.mark.req("EFF-1", "RUN-3")
@pytest.mark.parametrize("seed", range(6))
async def test_many_workers_many_runs_and_a_store_that_fails_now_and_then(world: World, seed: int) -> None:
    """Deterministic trouble for twenty runs and three workers: every run ends, every effect once."""
    shop = Receiver()
    order = write(shop, mode="reconcile")
    flow = ordering(order, "a", "b", "c")
    flaws: list[Any] = ["intend", "record", "complete", "park", "settle", "claim"]
    for i in range(3):
        process = world.worker(flow)
        for j in range(12):
            where = process.wire.away if (i + j + seed) % 2 else process.wire.lost
            where.append(flaws[(i * 7 + j * 5 + seed) % len(flaws)])
    for i in range(20):
        await world.start(flow, f"r{i}")
    world.processes[seed % 3].kill()
    await world.pass_(3 * QUIET)
    assert {world.status(f"r{i}") for i in range(20)} == {"completed"}
    assert len(shop.did) == len(set(shop.did)) == 60
    await world.pass_(SECOND)

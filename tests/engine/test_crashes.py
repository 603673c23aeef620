"""A crash before or after any commit, and another during its recovery: the same end, each effect once."""

from datetime import timedelta
from typing import Literal

import pytest

from outlast.flow import Context, Perhaps, RetryLater, Workflow, role
from tests.engine.world import MINUTE, QUIET, Acts, Go, Receiver, State, World, reading, write

Ctx = Context[State]
PLACES = [
    "claim",
    "admit",
    "intend order/a",
    "record order/a",
    "intend order/b",
    "defer order/b",
    "settle order/c",
    "remember",
    "retry one#1",
    "await_settle one#1",
    "intend order/c",
    "open_wait go",
    "park one#1",
    "bind go",
    "advance one#1",
    "ask",
    "park two#2",
    "intend order/d",
    "record order/d",
    "complete two#2",
]
DEATHS = [(when, place) for place in PLACES for when in ("before", "after")]


def rich(shop: Receiver) -> Workflow[State]:
    """Two nodes: a plain call, one lost on its way, one that waits and whose answer is lost, a lookup, people."""
    order, price = write(shop, mode="reconcile"), reading(lambda: 7, key="price/{what}", durable=True)
    flow = Workflow("rich", state=State)

    @flow.node(start=True)
    async def one(ctx: Ctx) -> Literal["two"]:
        for each in "abc":
            ctx.state.said.append(await ctx.do(order, each))
        ctx.state.said.append(await ctx.do(price, "p"))
        await ctx.receive("go", Go)
        return "two"

    @flow.node
    async def two(ctx: Ctx) -> None:
        plan = order.plan("d")
        decision = await ctx.approval(plan, summary="d", by=role("boss"), within=timedelta(hours=20))
        assert decision.chosen
        ctx.state.said.append(await ctx.do(decision.chosen))

    return flow.validate()


async def people_answer(world: World) -> None:
    """The signal and the decision come as soon as they are waited for."""
    await world.pass_(2 * QUIET)
    if ("signal", "go") in world.waiting() and not world.messages():
        await world.signal("go")
        await world.pass_(QUIET)
    for approval in world.approvals():
        if approval.status.value == "pending":
            await world.decide(approval)
            await world.pass_(QUIET)


async def live_through(world: World, deaths: list[tuple[str, str]]) -> list[bool]:
    """One worker for each death, and one that lives. Answers which deaths came to pass."""
    world.add_slots("t", 1)
    wait = RetryLater("busy", after=timedelta(seconds=30))
    shop = Receiver("did order/a", Perhaps("lost"), "did order/b", wait, Acts(Perhaps("its answer was lost")))
    flow = rich(shop)
    await world.start(flow)
    died: list[bool] = []
    for when, place in deaths:
        process = world.worker(flow)
        if place == "claim":
            process.wire.after("take", process.kill)  # the store claims by itself: its answer is lost with the process
        else:
            getattr(process.wire, when)(place, process.kill)
        await people_answer(world)
        died.append(process.wire.dead)
        process.kill()
    world.worker(flow)
    await people_answer(world)
    await people_answer(world)
    await world.pass_(MINUTE)
    assert (world.status(), world.reasons()) == ("completed", [])
    assert world.outcome()["said"] == ["did order/a", "did order/b", "did order/c", "7", "did order/d"]
    assert sorted(shop.did) == ["t:r1:1:order/a", "t:r1:1:order/b", "t:r1:1:order/c", "t:r1:2:order/d"]
    assert [e.seq for e in world.events()] == list(range(1, len(world.events()) + 1))
    assert [s.holder for s in world.slots()] == [""]
    return died


@pytest.mark.req("REC-1", "CKP-2", "EFF-1", "EFF-2", "FAIL-3", "FAIL-4", "FAIL-8", "RUN-3")
@pytest.mark.parametrize("death", DEATHS, ids=lambda d: f"{d[0]}-{d[1]}".replace(" ", "-"))
async def test_a_death_at_any_commit(world: World, death: tuple[str, str]) -> None:
    """The worker dies; another one takes over once the lease has run out."""
    assert await live_through(world, [death]) == [True]


@pytest.mark.req("REC-1", "CKP-2", "EFF-1", "EFF-2", "FAIL-11")
@pytest.mark.parametrize("i", range(0, len(DEATHS) ** 2, 53))
async def test_a_second_death_during_the_recovery(world: World, i: int) -> None:
    """A sample of all pairs; the step is prime to their number, so each place is met."""
    await live_through(world, [DEATHS[i // len(DEATHS)], DEATHS[i % len(DEATHS)]])

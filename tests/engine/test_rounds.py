"""Reject and run another round: exactly one new visit, despite any crash (FAIL-10, FAIL-5, S-20)."""

from datetime import timedelta
from typing import Any, Literal

import pytest

from outlast.errors import Conflict
from outlast.flow import Cancel, Context, Workflow, role
from tests.engine.world import MINUTE, QUIET, SECOND, Receiver, State, World, write

Ctx = Context[State]
BOTH = ("invite/a", "invite/b")
PLACES = [
    "take",
    "advance decide#2",
    "intend invite/a",
    "record invite/a",
    "intend invite/b",
    "record invite/b",
    "advance bids#3",
    "ask",
    "park decide#4",
]
POINTS = [(how, when, place) for place in PLACES for when in ("before", "after") for how in ("kill", "freeze")]


def rounds(shop: Receiver) -> Workflow[State]:
    """Invites two suppliers, asks a person; one more round may be had."""
    invite, award = write(shop, name="invite", mode="reconcile"), write(shop, name="award", mode="reconcile")
    flow = Workflow("rounds", state=State)

    @flow.node(start=True, max_visits=2)
    async def bids(ctx: Ctx) -> Literal["decide"]:
        for each in "ab":
            ctx.state.said.append(f"{ctx.state.n}: {await ctx.do(invite, each)}")
        return "decide"

    @flow.node
    async def decide(ctx: Ctx) -> Literal["bids"] | None:
        plan, first = award.plan("a"), ctx.state.n == 0
        decision = await ctx.approval(plan, summary="a", by=role("boss"), within=timedelta(hours=96), again=first)
        if decision.outcome == "again":
            ctx.state.n += 1
            return "bids"
        if not decision.chosen:
            raise Cancel(decision.reason)
        ctx.state.said.append(await ctx.do(decision.chosen))
        return None

    return flow.validate()


async def cycle(world: World, flow: Workflow[State], *points: tuple[str, str, str]) -> list[Any]:
    """Play the first round and "again", with one worker for each point at which it dies or is suspended."""
    first = world.worker(flow)
    await world.start(flow)
    first.worker.drain()
    await world.settle()
    await world.decide(world.pending(), again=True)
    hurt = []
    for how, when, place in points:
        process = world.worker(flow)
        rule = process.wire.after if place == "take" else getattr(process.wire, when)
        rule(place, getattr(process, how))
        await world.pass_(QUIET + MINUTE)
        hurt.append(process)
    world.worker(flow)
    await world.pass_(2 * QUIET)
    for process in hurt:
        process.thaw()
    await world.pass_(QUIET)
    return hurt


def check(world: World, shop: Receiver) -> None:
    """One new visit of each node, its work done once, the request asked once, nothing of the first round repeated."""
    run = world.run()
    assert (run.node, run.visit, run.visits, world.reasons()) == ("decide", 4, {"bids": 2, "decide": 2}, [])
    assert shop.did == [f"t:r1:{visit}:{key}" for visit in (1, 3) for key in BOTH]
    assert sorted((a.visit, a.status.value) for a in world.approvals()) == [(2, "again"), (4, "pending")]
    assert [e.seq for e in world.events()] == list(range(1, len(world.events()) + 1))


@pytest.mark.req("FAIL-10", "EFF-1", "CKP-2", "RUN-3", "APP-1")
@pytest.mark.parametrize("point", POINTS, ids=lambda p: "-".join(p).replace(" ", "-"))
async def test_recovery_overlaps_the_cycle_back(world: World, point: tuple[str, str, str]) -> None:
    """The holder dies, or is suspended and wakes after its replacement, at each point of the new round."""
    shop = Receiver()
    flow = rounds(shop)
    (process,) = await cycle(world, flow, point)
    assert process.wire.dead or process.worker._services.lease.lost or point[0] == "freeze"
    check(world, shop)
    await world.decide(world.pending())
    assert (world.status(), shop.did[-1]) == ("completed", "t:r1:4:award/a")


@pytest.mark.req("FAIL-10", "FAIL-11")
@pytest.mark.parametrize("i", range(0, len(POINTS) ** 2, 37))
async def test_recovery_of_a_recovery_overlaps_the_cycle_back(world: World, i: int) -> None:
    shop = Receiver()
    flow = rounds(shop)
    await cycle(world, flow, POINTS[i // len(POINTS)], POINTS[i % len(POINTS)])
    check(world, shop)


@pytest.mark.req("APP-1", "GATE-9")
async def test_there_is_no_third_round(world: World) -> None:
    """The second request does not offer it: every request for it is refused, and a rejection ends the run."""
    shop = Receiver()
    flow = rounds(shop)
    await cycle(world, flow)
    check(world, shop)
    with pytest.raises(Conflict, match="does not offer another round"):
        await world.decide(world.pending(), again=True)
    await world.decide(world.pending(), approve=False)
    assert (world.status(), len(shop.did)) == ("cancelled", 4)


@pytest.mark.req("GATE-9")
async def test_of_many_answers_again_is_one_and_counts_once(world: World) -> None:
    shop = Receiver()
    flow = rounds(shop)
    process = world.worker(flow)
    await world.start(flow)
    approval = world.pending()
    process.freeze()
    await world.decide(approval, again=True, by="first")
    for given in ({"again": True}, {"approve": True}, {"approve": False}):
        with pytest.raises(Conflict, match="first again it"):
            await world.decide(approval, **given)
    process.thaw()
    await world.pass_(MINUTE)
    check(world, shop)


@pytest.mark.req("FAIL-5", "GATE-3")
@pytest.mark.parametrize("given", [{"approve": True}, {"approve": False}, {"again": True}])
async def test_an_answer_after_the_expiry_is_always_refused(world: World, given: dict[str, bool]) -> None:
    """The store's clock decides, whether or not a worker has recorded the expiry."""
    shop = Receiver()
    flow = rounds(shop)
    world.worker(flow)
    await world.start(flow)
    approval = world.pending()
    await world.off_duty()
    await world.pass_(approval.within_until - world.time.wall())
    with pytest.raises(Conflict, match="has expired"):
        await world.decide(approval, **given)
    assert (world.approvals()[0].status.value, world.run().visit) == ("pending", 2)
    world.worker(flow)
    await world.pass_(SECOND)
    with pytest.raises(Conflict, match=r"expired"):
        await world.decide(world.approvals()[0], **given)
    assert (world.reasons(), world.run().visit, len(shop.did)) == (["approval_timeout"], 2, 2)

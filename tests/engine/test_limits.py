"""One visit makes a bounded number of calls: a step loop is a node that returns itself (S-13)."""

import asyncio
from datetime import timedelta
from typing import Literal

import pytest

from outlast.core.limits import CALLS_PER_VISIT_MAX, LOG_ENTRIES_MAX, PLANS_PER_APPROVAL_MAX
from outlast.flow import Context, Fail, Workflow, role
from tests.engine.world import Go, Receiver, State, World, one_node, write

Ctx = Context[State]
AN_HOUR = timedelta(hours=1)


async def test_a_visit_that_asks_for_too_many_calls_calls_a_person(world: World) -> None:
    """Calls answered from the ledger count too, so each execution of the visit ends at the same call."""
    shop = Receiver()
    act = write(shop)

    async def body(ctx: Ctx) -> None:
        for n in range(CALLS_PER_VISIT_MAX):
            await ctx.do(act, f"a{n}")
            await ctx.do(act, f"a{n}")  # the same call is counted once
            if n == 5:
                await ctx.receive("go", Go)

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.signal("go")
    assert (world.status(), world.reasons()) == ("waiting", ["exception"])
    assert len(shop.did) == CALLS_PER_VISIT_MAX - 1  # the wait is one of them
    (attention,) = world.attention()
    assert f"more than {CALLS_PER_VISIT_MAX} calls in one visit" in attention.detail
    assert "a node that returns itself" in attention.detail
    await world.go_on()
    assert (world.reasons(), len(shop.did)) == (["exception"], CALLS_PER_VISIT_MAX - 1)


async def test_of_too_many_plans_at_once_none_begins(world: World) -> None:
    shop = Receiver()
    act = write(shop)

    async def body(ctx: Ctx) -> None:
        await ctx.do_all({n: act.plan(f"a{n}") for n in range(CALLS_PER_VISIT_MAX + 1)})

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    assert (world.reasons(), len(shop.did)) == (["exception"], 0)


async def test_a_node_that_returns_itself_makes_any_number_of_calls(world: World) -> None:
    shop = Receiver()
    act = write(shop)
    loop = Workflow("loop", state=State)

    @loop.node(start=True, max_visits=5)
    async def step(ctx: Ctx) -> Literal["step"] | None:
        for n in range(CALLS_PER_VISIT_MAX // 2):
            await ctx.do(act, f"a{ctx.state.n}-{n}")
        ctx.state.n += 1
        return "step" if ctx.state.n < 3 else None

    world.worker(loop)
    await world.start(loop)
    assert (world.status(), len(shop.did)) == ("completed", CALLS_PER_VISIT_MAX // 2 * 3)


async def test_an_approval_offers_so_many_plans_and_no_more(world: World) -> None:
    """The requested plan counts. With too many the author gets an error and no approver is asked."""
    shop = Receiver()
    act = write(shop)

    def asking(n: int) -> Workflow[State]:
        async def body(ctx: Ctx) -> None:
            plans = [act.plan(f"a{i}") for i in range(n)]
            await ctx.approval(
                plans[0], summary="?", by=role("boss"), within=timedelta(hours=1), alternatives=plans[1:]
            )

        return one_node(body, name=f"offers-{n}")

    most, more = asking(PLANS_PER_APPROVAL_MAX), asking(PLANS_PER_APPROVAL_MAX + 1)
    world.worker(most, more)
    await world.start(most)
    assert len(world.approvals()) == 1 and world.reasons() == []
    await world.start(more, "r2")
    assert world.approvals("r2") == []
    (attention,) = world.attention("r2")
    assert f"offers {PLANS_PER_APPROVAL_MAX + 1} plans" in attention.detail


@pytest.mark.req("RUN-3")
async def test_a_run_with_more_entries_and_approvals_than_a_commit_holds_ends(world: World) -> None:
    """All entries are in the history before the end, and no approval stays open after it."""
    order = write(Receiver())

    async def body(ctx: Ctx) -> None:
        plans = [order.plan(f"k{n}") for n in range(25)]
        waits = [
            asyncio.ensure_future(ctx.approval(p, name=p.key, summary="?", by=role("boss"), within=AN_HOUR))
            for p in plans
        ]
        await ctx.do(order, "a")
        for n in range(LOG_ENTRIES_MAX):
            ctx.log(f"line-{n}", "a line")
        for wait in waits:
            wait.cancel()
        raise Fail("enough")  # a body that returned over open waits would call a person

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    assert (world.status(), world.reasons()) == ("failed", [])
    assert [row.status.value for row in world.approvals()] == ["withdrawn"] * 25
    kinds = [event.kind for event in world.events()]
    assert kinds.count("run.logged") == LOG_ENTRIES_MAX and kinds[-1].startswith("workflow.")


@pytest.mark.req("GATE-2")
async def test_a_cancel_withdraws_more_approvals_than_a_commit_holds(world: World) -> None:
    order = write(Receiver())

    async def body(ctx: Ctx) -> None:
        plans = [order.plan(f"k{n}") for n in range(120)]
        await asyncio.gather(
            *(ctx.approval(plan, name=plan.key, summary="?", by=role("boss"), within=AN_HOUR) for plan in plans)
        )

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    assert len(world.approvals()) == 120
    await world.cancel()
    assert world.status() == "cancelled"
    assert {row.status.value for row in world.approvals()} == {"withdrawn"}

"""Node executions: the values they observe, when they end, and where their result comes from (S-13, S-16)."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, Literal

import pytest

from outlast.flow import Context, RetryLater, Workflow
from tests.engine.world import (
    MINUTE,
    SECOND,
    Go,
    Receiver,
    Slow,
    State,
    World,
    one_node,
    reading,
    write,
)

Ctx = Context[State]


@pytest.mark.req("CKP-1", "CKP-2")
async def test_a_node_observes_the_same_in_every_execution_of_a_visit(world: World) -> None:
    """The state is decoded again; time, ids and random numbers are those of the visit."""
    seen: list[tuple[Any, ...]] = []

    async def body(ctx: Ctx) -> None:
        ctx.state.n += 1
        ctx.state.said.append("once")
        seen.append((ctx.state.n, list(ctx.state.said), ctx.now(), ctx.visit, ctx.uuid("a"), ctx.random("a")))
        await ctx.sleep(timedelta(minutes=1), name="a-while")
        await ctx.receive("go", Go)

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(MINUTE)
    await world.signal("go")
    assert len(seen) == 3
    assert len(set(map(repr, seen))) == 1
    assert world.outcome() == {"n": 1, "said": ["once"]}


@pytest.mark.req("CKP-1", "RUN-2")
@pytest.mark.every_store
async def test_one_checkpoint_for_each_node_and_none_in_the_middle(world: World) -> None:
    """The snapshot is written by the advance alone; waits, retries and crashes keep the one before."""
    flow = Workflow("three", state=State)

    @flow.node(start=True)
    async def one(ctx: Ctx) -> Literal["two"]:
        ctx.state.n = 1
        await ctx.receive("go", Go)
        return "two"

    @flow.node(status="HALFWAY")
    async def two(ctx: Ctx) -> Literal["three"]:
        ctx.state.n += 1
        return "three"

    @flow.node
    async def three(ctx: Ctx) -> None:
        ctx.state.n += 1

    world.worker(flow)
    await world.start(flow)
    snapshots = lambda: [(e.node, e.snapshot) for e in world.events() if e.snapshot is not None]  # noqa: E731
    assert snapshots() == [("one", b'{"n":0,"said":[]}')]
    await world.signal("go")
    assert [node for node, _ in snapshots()] == ["one", "two", "three", "three"]
    assert world.outcome()["n"] == 3
    assert [e.seq for e in world.events()] == list(range(1, len(world.events()) + 1))
    assert world.run().version == len(world.events())


# --- bodies that do what they like with a parked wait ------------------------------------------------
async def swallowed_by_gather(ctx: Ctx) -> None:
    await asyncio.gather(ctx.receive("go", Go), return_exceptions=True)


async def returned_from_finally(ctx: Ctx) -> None:
    try:
        await ctx.receive("go", Go)
    finally:
        return  # noqa: B012 - what an author might write


async def swallows_every_cancellation(ctx: Ctx) -> None:
    task = asyncio.ensure_future(ctx.receive("go", Go))
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            continue


async def in_a_task_group(ctx: Ctx) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(ctx.receive("go", Go))


async def raises_something_else(ctx: Ctx) -> None:
    try:
        await ctx.receive("go", Go)
    except BaseException:
        raise ValueError("not what happened") from None


@pytest.mark.req("CKP-1", "GATE-1")
@pytest.mark.parametrize(
    "body",
    [
        swallowed_by_gather,
        returned_from_finally,
        swallows_every_cancellation,
        in_a_task_group,
        raises_something_else,
    ],
    ids=lambda body: body.__name__,
)
async def test_a_parked_wait_parks_the_run_despite_its_body(
    world: World, body: Callable[[Ctx], Awaitable[None]]
) -> None:
    """The verdict is never what the body returned or raised after it parked; the signal then ends the run."""
    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(3 * SECOND)
    assert (world.status(), world.run().owner, world.reasons()) == ("waiting", "", [])
    await world.signal("go")
    await world.pass_(3 * SECOND)
    assert world.status() == "completed"


@pytest.mark.req("CKP-1", "EFF-1")
@pytest.mark.parametrize("how", ["finally", "timeout", "except", "forgotten"])
async def test_nothing_begins_once_an_execution_is_closing(world: World, how: str) -> None:
    """A fallback in `finally`, after a timeout of the wait, or in a task left behind begins no effect."""
    shop = Receiver()
    order = write(shop)

    async def body(ctx: Ctx) -> None:
        if how == "finally":
            try:
                await ctx.receive("go", Go)
            finally:
                await ctx.do(order, "fallback")
        elif how == "except":
            try:
                await ctx.receive("go", Go)
            except asyncio.CancelledError:
                await ctx.do(order, "fallback")
        elif how == "timeout":
            slow = asyncio.ensure_future(ctx.do(order, "slow"))
            try:
                async with timers[0](1):
                    await ctx.receive("go", Go)
            except TimeoutError:
                await ctx.do(order, "fallback")
            await slow
        else:
            asyncio.ensure_future(late(ctx))  # noqa: RUF006 - the mistake that is tried here
            await ctx.receive("go", Go)

    async def late(ctx: Ctx) -> None:
        try:
            await ctx.receive("other", Go)
        except asyncio.CancelledError:
            pass
        await ctx.do(order, "fallback")

    timers = [asyncio.timeout]  # not shown by the source, where it is refused
    if how == "timeout":
        slow = Slow()
        shop.script.append(slow)
    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(3 * SECOND)
    if how == "timeout":
        slow.go.set()
        await world.settle()
    assert [e.key for e in world.effects() if "fallback" in e.key] == []
    assert world.status() == "waiting"


@pytest.mark.req("EFF-1")
@pytest.mark.parametrize("how", ["timeout", "group"])
async def test_a_call_whose_awaiter_is_cancelled_settles_and_the_node_runs_again(world: World, how: str) -> None:
    """The call runs on to its outcome, is recorded, and the next execution finds it; no fallback is used."""
    slow = Slow()
    shop = Receiver(slow)
    order = write(shop)
    walks: list[int] = []

    async def body(ctx: Ctx) -> None:
        walks.append(1)
        if how == "timeout":
            try:
                async with asyncio.timeout(2):
                    ctx.state.said = [await ctx.do(order, "a")]
            except TimeoutError:
                ctx.state.said = [await ctx.do(order, "fallback")]
        else:
            async with asyncio.TaskGroup() as group:
                task = group.create_task(ctx.do(order, "a"))
                await asyncio.sleep(2)
                if not task.done():
                    raise ValueError("the sibling failed")
                ctx.state.said = [task.result()]

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(5 * SECOND)
    assert shop.did == []
    slow.go.set()
    await world.settle()
    await world.pass_(3 * SECOND)
    assert world.outcome()["said"] == ["did order/a"]
    assert (len(shop.did), len(walks)) == (1, 2)


@pytest.mark.req("EFF-1", "RUN-2")
@pytest.mark.parametrize("what", ["call", "retry", "lookup"])
async def test_an_awaiter_that_always_gives_up_causes_no_loop(world: World, what: str) -> None:
    """A timeout of 0 around each kind of ctx call: done, parked or shown to a person; no endless re-run."""
    shop = Receiver(*([RetryLater("busy", after=timedelta(seconds=20))] if what == "retry" else []))
    order, price = write(shop), reading(lambda: 1 / 0)

    async def body(ctx: Ctx) -> None:
        try:
            async with asyncio.timeout(0):
                await ctx.do(price if what == "lookup" else order, "a")
        except TimeoutError:
            ctx.state.said = ["fallback"]

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(MINUTE)
    if what == "approval":
        await world.decide(world.pending())
    if what == "lookup":  # it does not wait, so it fails before the timeout
        assert world.reasons() == ["exception"]
        assert "ZeroDivisionError" in world.attention()[0].detail
    else:
        assert (world.status(), world.outcome()["said"]) == ("completed", [])
        assert len(shop.did) == 1


@pytest.mark.req("EFF-1")
async def test_a_forgotten_task_that_acts_is_settled_before_the_node_ends(world: World) -> None:
    """A call in flight without await is recorded before the result; a later one never starts."""
    slow = Slow()
    shop = Receiver(slow)
    order = write(shop)

    async def late(ctx: Ctx) -> None:
        await ctx.do(order, "a")
        await ctx.do(order, "b")

    async def body(ctx: Ctx) -> None:
        ctx.state.n = 1
        asyncio.ensure_future(late(ctx))  # noqa: RUF006 - the mistake that is tried here
        await slow.begun.wait()

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    assert world.status() == "running"
    slow.go.set()
    await world.settle()
    await world.pass_(2 * SECOND)
    assert world.status() == "completed"
    assert [(e.key, e.status.value) for e in world.effects()] == [("order/a", "done")]


@pytest.mark.req("EFF-1")
@pytest.mark.parametrize("how", ["gather", "nested", "task", "group", "group in task", "slow lookup"])
async def test_a_parked_wait_does_not_stop_its_siblings(world: World, how: str) -> None:
    """gather(wait, X then Y): both are done before the run parks, however the author nests his tasks."""
    shop = Receiver()
    order = write(shop)
    price = reading(lambda: 1)

    async def both(ctx: Ctx) -> None:
        if how == "nested":
            await asyncio.gather(ctx.do(order, "x"))
            await asyncio.gather(ctx.do(order, "y"))
        elif how.startswith("group"):
            async with asyncio.TaskGroup() as group:
                group.create_task(ctx.do(order, "x"))
            async with asyncio.TaskGroup() as group:
                group.create_task(ctx.do(order, "y"))
        else:
            await ctx.do(order, "x")
            if how == "slow lookup":
                await ctx.do(price, "p")
            await ctx.do(order, "y")

    async def body(ctx: Ctx) -> None:
        if how in ("task", "group in task"):
            task = asyncio.ensure_future(both(ctx))
            await ctx.receive("go", Go)
            await task
        else:
            await asyncio.gather(ctx.receive("go", Go), both(ctx))

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(2 * SECOND)
    assert [key.rsplit(":", 1)[1] for key in shop.did] == ["order/x", "order/y"]
    assert world.status() == "waiting"
    await world.signal("go")
    assert world.status() == "completed"


@pytest.mark.req("GATE-1", "RUN-2")
@pytest.mark.parametrize("pause", [0, 0.3])
async def test_a_sibling_with_recorded_answers_only_does_not_prevent_the_park(world: World, pause: float) -> None:
    """A ctx call answered from the ledger while the runner looks whether all is at rest must make it look again."""
    shop = Receiver()
    order = write(shop)

    async def hits(ctx: Ctx) -> None:
        for each in "xyz":
            await asyncio.sleep(pause)
            await ctx.do(order, each)

    async def body(ctx: Ctx) -> None:
        await asyncio.gather(ctx.receive("go", Go), ctx.receive("stop", Go), hits(ctx))

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(5 * SECOND)
    assert world.status() == "waiting"
    await world.signal("go")  # a second walk, in which x, y and z are hits
    await world.pass_(5 * SECOND)
    assert (world.status(), world.run().owner) == ("waiting", "")
    await world.signal("stop")
    await world.pass_(5 * SECOND)
    assert world.status() == "completed"


@pytest.mark.req("CKP-1", "EFF-1")
async def test_an_advance_over_an_open_effect_that_was_not_asked_for_is_refused(world: World) -> None:
    """An earlier execution began it, this one makes other calls: node_diverged, and the effect stays open."""
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
    assert "order order/a" in world.attention()[0].detail
    assert world.effect("order/a").status.value == "intended"


@pytest.mark.req("EFF-1")
async def test_an_abandoned_body_cannot_act_when_the_node_runs_again(world: World) -> None:
    """It swallowed every cancellation; its later calls never resolve and commit nothing."""
    shop = Receiver()
    order = write(shop)
    wake = asyncio.Event()
    behind: list[str] = []

    async def body(ctx: Ctx) -> None:
        if not behind:
            behind.append("begun")
            task = asyncio.ensure_future(ctx.receive("go", Go))
            while not wake.is_set():
                try:
                    await wake.wait()
                except asyncio.CancelledError:
                    pass
            behind.append("acts")
            await ctx.do(order, "a")
            behind.append("acted")
            await task
        await ctx.receive("go", Go)

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(5 * SECOND)
    assert world.status() == "waiting"
    wake.set()
    await world.settle()
    assert behind == ["begun", "acts"]
    assert shop.attempts == []

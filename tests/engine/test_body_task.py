"""Timeouts, groups, cancellations and context variables of a body end at its task (S-13, S-16, decision 0068)."""

import asyncio
import logging
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, Literal

import pytest

from outlast.errors import Misplaced
from outlast.flow import Context, Refused, Retry, Workflow, activity, lookup, this_call
from tests.engine.world import SECOND, Go, Receiver, Slow, State, World, one_node, reading, write

Ctx = Context[State]
colour: ContextVar[str] = ContextVar("colour", default="none")


def two_nodes(first: Any, second: Any) -> Workflow[State]:
    flow = Workflow("two", state=State, when_empty="complete")

    @flow.node(start=True)
    async def one(ctx: Ctx) -> Literal["two"]:
        await first(ctx)
        return "two"

    @flow.node
    async def two(ctx: Ctx) -> None:
        await second(ctx)

    return flow.validate()


@pytest.mark.req("CKP-1")
async def test_context_variables_of_a_node_are_not_visible_in_the_next(world: World) -> None:
    order = write(Receiver())
    seen: list[str] = []

    async def first(ctx: Ctx) -> None:
        colour.set("red")
        await ctx.do(order, "a")
        seen.append(colour.get())

    async def second(ctx: Ctx) -> None:
        seen.append(colour.get())

    world.worker(two_nodes(first, second))
    await world.start(two_nodes(first, second))
    assert (world.status(), seen) == ("completed", ["red", "none"])


@pytest.mark.parametrize("how", ["own", "swallowed", "before the end", "group"])
async def test_cancellations_of_a_body_do_not_outlive_it(world: World, how: str) -> None:
    """The next node has its own timeouts, and no cancellation to come."""
    seen: list[str] = []

    async def first(ctx: Ctx) -> None:
        task = asyncio.current_task()
        assert task is not None
        if how == "group":
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(ctx.do(reading(lambda: 1 / 0), "a"))
                    await asyncio.sleep(60)
            except ExceptionGroup:
                return
        task.cancel()
        if how == "swallowed":
            with pytest.raises(asyncio.CancelledError):
                await asyncio.sleep(1)
        elif how == "own":
            await asyncio.sleep(1)

    async def second(ctx: Ctx) -> None:
        try:
            async with asyncio.timeout(1):
                await asyncio.sleep(2)
        except TimeoutError:
            seen.append("timeout")

    flow = two_nodes(first, second)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(5 * SECOND)
    if how in ("swallowed", "group"):
        assert (world.status(), seen) == ("completed", ["timeout"])
    else:
        assert world.reasons() == ["exception"] and "cancelled from within" in world.attention()[0].detail
        assert world.run().owner == ""


async def test_a_timeout_of_the_body_ends_only_what_it_encloses(world: World) -> None:
    order = write(Receiver())

    async def body(ctx: Ctx) -> None:
        for name in "ab":
            try:
                async with asyncio.timeout(1):
                    await asyncio.sleep(5)
            except TimeoutError:
                ctx.state.said.append(await ctx.do(order, name))
        try:
            await asyncio.wait_for(asyncio.sleep(5), 1)
        except TimeoutError:
            ctx.state.n = 1

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(10 * SECOND)
    assert world.outcome() == {"n": 1, "said": ["did order/a", "did order/b"]}


@pytest.mark.req("EFF-1")
async def test_a_timeout_inside_an_activity_and_one_around_its_call_end_their_own_part(world: World) -> None:
    ended: list[str] = []

    @activity(key="act/{what}", name="act", no_undo="a test")
    async def act(what: str) -> str:
        try:
            async with asyncio.timeout(1):
                await asyncio.sleep(60)
        except TimeoutError:
            ended.append("inside")
        await asyncio.sleep(2)
        return what

    async def body(ctx: Ctx) -> None:
        try:
            ctx.state.said = [await asyncio.wait_for(ctx.do(act, "a"), 2)]
        except TimeoutError:
            ctx.state.said = ["fallback"]

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(10 * SECOND)
    assert ended == ["inside"], "the awaiter's timeout does not reach the call, which settles"
    assert (world.status(), world.outcome()["said"]) == ("completed", ["a"])


@pytest.mark.req("EFF-1")
async def test_a_failing_sibling_in_a_group_leaves_the_call_beside_it_to_settle(world: World) -> None:
    slow = Slow()
    shop = Receiver(slow)
    order = write(shop)

    async def fails() -> None:
        await asyncio.sleep(1)
        raise ValueError("the sibling failed")

    async def body(ctx: Ctx) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fails())
            ctx.state.said = [await ctx.do(order, "a")]

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(2 * SECOND)
    assert world.status() == "running", "the call has not settled"
    slow.go.set()
    await world.settle()
    assert world.effect("order/a").status.value == "done" and shop.did and len(shop.attempts) == 1
    await world.pass_(5 * SECOND)
    assert world.reasons() == ["exception"] and "the sibling failed" in world.attention()[0].detail


@pytest.mark.req("GATE-1", "RUN-2")
async def test_a_body_that_waits_for_a_stubborn_task_is_left_behind_with_its_timeouts(world: World) -> None:
    """No cancellation brings the body back; the run parks, and the body's timeout hits nothing else."""
    ended = asyncio.Event()

    async def stubborn() -> None:
        while not ended.is_set():
            try:
                await ended.wait()
            except asyncio.CancelledError:
                pass

    async def body(ctx: Ctx) -> None:
        if not ctx.state.n and not behind:
            behind.append(asyncio.current_task())
            parked = asyncio.ensure_future(ctx.receive("go", Go))
            async with asyncio.timeout(5):
                await asyncio.ensure_future(stubborn())
            assert parked
        await ctx.receive("go", Go)
        await ctx.do(order, "a")

    behind: list[Any] = []
    shop = Receiver()
    order = write(shop)
    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    try:
        await world.pass_(4 * SECOND)
        assert (world.status(), world.run().owner) == ("waiting", "") and not behind[0].done()
        await world.signal("go")
        await world.pass_(10 * SECOND)
        assert world.status() == "completed" and len(shop.did) == 1
    finally:
        ended.set()
    await world.settle()
    assert len(shop.attempts) == 1


async def test_a_run_goes_on_after_bodies_that_were_watched(world: World) -> None:
    order = write(Receiver())
    rounds: list[int] = []

    async def first(ctx: Ctx) -> None:
        rounds.append(1)
        try:
            async with asyncio.timeout(1):
                await ctx.do(order, "a")
                await ctx.do(slow, "s")
        except TimeoutError:
            pass

    @activity(key="slow/{what}", name="slow", no_undo="a test")
    async def slow(what: str) -> str:
        await asyncio.sleep(3)
        return what

    async def second(ctx: Ctx) -> None:
        async with asyncio.timeout(5):
            ctx.state.said = [await ctx.do(slow, "t")]

    flow = two_nodes(first, second)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(20 * SECOND)
    assert (world.status(), len(rounds)) == ("completed", 2)
    assert world.outcome()["said"] == ["t"]


@pytest.mark.parametrize("within", ["body", "lookup"])
async def test_the_end_of_the_event_loop_calls_no_person(
    world: World, caplog: pytest.LogCaptureFixture, within: str
) -> None:
    """All tasks are cancelled at once. That is no failure of the node, and no lookup begins again."""
    made: list[int] = []

    @lookup(key="page/{n}")
    async def page(n: int) -> int:
        made.append(n)
        await asyncio.sleep(60)
        return n

    async def body(ctx: Ctx) -> None:
        if within == "lookup":
            await ctx.do(page, 1)
        await asyncio.sleep(60)

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    with caplog.at_level(logging.ERROR):
        await world.settle()
    assert world.reasons() == [] and world.run().owner != ""
    assert made == ([1] if within == "lookup" else [])


@pytest.mark.req("REC-2")
async def test_an_executor_given_up_in_a_body_leaves_the_body_behind(world: World) -> None:
    """The worker cancels the executor only; the body is not interrupted by it."""
    seen: list[str] = []

    async def body(ctx: Ctx) -> None:
        try:
            await asyncio.sleep(60)
            seen.append("slept")
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    flow = one_node(body)
    process = world.worker(flow)
    await world.start(flow)
    (task,) = process.worker._executors._tasks
    assert task.cancel() and not task.done()
    await world.settle()
    assert task.cancelled() and process.worker.held == 0
    assert not task.cancel()
    await world.pass_(61 * SECOND)
    assert seen == ["slept"]


# --- lookups in the task of their awaiter --------------------------------------------------------------------
@pytest.mark.req("EFF-1")
@pytest.mark.parametrize("how", ["timeout", "sibling", "group"])
async def test_a_lookup_whose_awaiter_is_cancelled_settles_and_the_node_runs_again(world: World, how: str) -> None:
    """It is made again in a task, so that the next execution finds its value."""
    made: list[str] = []

    @lookup(key="page/{n}")
    async def page(n: int) -> int:
        made.append("begun")
        await asyncio.sleep(3)
        return n

    async def fails() -> None:
        await asyncio.sleep(1)
        if len(made) == 1:
            raise ValueError("the sibling failed")

    async def body(ctx: Ctx) -> None:
        try:
            if how == "timeout":
                async with asyncio.timeout(1):
                    ctx.state.n = await ctx.do(page, 7)
                return
            if how == "group":
                async with asyncio.TaskGroup() as group:
                    group.create_task(fails())
                    ctx.state.n = await ctx.do(page, 7)
                return
            first = asyncio.ensure_future(ctx.do(page, 7))
            await asyncio.sleep(0)
            second = asyncio.ensure_future(ctx.do(page, 7))
            await asyncio.sleep(1)
            if not first.done():
                first.cancel()
            ctx.state.n = await second
        except TimeoutError:
            ctx.state.n = -1

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(10 * SECOND)
    assert (world.status(), world.outcome()["n"]) == ("completed", 7)
    assert made == ["begun", "begun"] and world.reasons() == []


async def test_lookups_that_one_timeout_cancels_all_settle_before_the_node_runs_again(world: World) -> None:
    made: list[int] = []
    executions: list[int] = []

    @lookup(key="page/{n}")
    async def page(n: int) -> int:
        made.append(n)
        await asyncio.sleep(3)
        return n

    async def body(ctx: Ctx) -> None:
        executions.append(1)
        async with asyncio.timeout(1):
            ctx.state.n = sum(await asyncio.gather(*(ctx.do(page, n) for n in (1, 2, 3))))

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(10 * SECOND)
    assert (world.status(), world.outcome()["n"], len(executions)) == ("completed", 6, 2)
    assert sorted(made) == [1, 1, 2, 2, 3, 3]


async def test_two_awaiters_of_a_lookup_share_it(world: World) -> None:
    made: list[int] = []

    @lookup(key="page/{n}")
    async def page(n: int) -> int:
        made.append(n)
        await asyncio.sleep(1)
        if n == 2:
            raise ValueError("no such page")
        return n

    async def body(ctx: Ctx) -> None:
        ctx.state.n = sum(await asyncio.gather(ctx.do(page, 1), ctx.do(page, 1), ctx.do(page, 1)))
        failed = await asyncio.gather(ctx.do(page, 2), ctx.do(page, 2), return_exceptions=True)
        ctx.state.said = [str(each) for each in failed]

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(10 * SECOND)
    assert world.outcome() == {"n": 3, "said": ["no such page"] * 2} and made == [1, 2]


async def test_a_lookup_has_a_context_of_its_own(world: World) -> None:
    """Its variables and its call are not visible in the body, which cannot call an activity by its bare name."""
    keys: list[str] = []

    @lookup(key="page/{n}")
    async def page(n: int) -> int:
        colour.set("red")
        keys.append(this_call().key)
        await asyncio.sleep(1)
        assert colour.get() == "red" and this_call().seconds_left() > 100
        return n

    async def body(ctx: Ctx) -> None:
        colour.set("blue")
        ctx.state.n = await ctx.do(page, 1)
        ctx.state.said = [colour.get()]
        with pytest.raises(Misplaced):
            this_call()
        with pytest.raises(Misplaced):
            await page(1)

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(2 * SECOND)
    assert world.outcome() == {"n": 1, "said": ["blue"]} and len(keys) == 1


async def test_a_lookup_has_its_timeout_beside_that_of_the_body(world: World) -> None:
    """The engine's timeout ends the lookup; the body's own goes on around both attempts of it."""

    @lookup(key="page/{n}", timeout="2s", retry=Retry(attempts=2, first=timedelta(seconds=1)))
    async def page(n: int) -> int:
        await asyncio.sleep(60)
        return n

    async def body(ctx: Ctx) -> None:
        async with asyncio.timeout(30):
            try:
                await ctx.do(page, 1)
            except TimeoutError:
                ctx.state.said = ["too slow"]
        try:
            async with asyncio.timeout(1):
                await asyncio.sleep(2)
        except TimeoutError:
            ctx.state.n = 1

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(20 * SECOND)
    assert world.outcome() == {"n": 1, "said": ["too slow"]}


# --- one timer for all timeouts -----------------------------------------------------------------------------
async def test_a_timeout_is_never_early_and_hardly_late(world: World) -> None:
    ended: dict[str, int] = {}

    def slow(seconds: float) -> Any:
        @activity(key="act/{what}", name=f"act{seconds}", timeout=timedelta(seconds=seconds), no_undo="a test")
        async def act(what: str) -> str:
            begun = world.time.wall()
            try:
                await asyncio.sleep(1_000)
            finally:
                ended[what] = world.time.wall() - begun
            return what

        return act

    acts = {f"{seconds}": slow(seconds) for seconds in (5, 1, 3, 1.005)}

    async def body(ctx: Ctx) -> None:
        await ctx.do_all({name: act.plan(name) for name, act in acts.items()}, refused="return")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(10 * SECOND)
    for name, ms in ended.items():
        assert 0 <= ms - float(name) * SECOND <= 20, name
    assert len(ended) == 4 and world.reasons() == ["effect_uncertain"] * 4


async def test_an_error_of_an_activity_at_its_timeout_is_its_error(world: World) -> None:
    """An activity that answers its cancellation with a refusal is refused; nothing of the cancellation is left."""

    @activity(key="act", name="act", timeout=timedelta(seconds=1), no_undo="a test")
    async def act() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise Refused("closed") from None
        return ""

    async def body(ctx: Ctx) -> None:
        try:
            await ctx.do(act)
        except Refused as refused:
            ctx.state.said = [refused.code]

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(2 * SECOND)
    assert world.outcome()["said"] == ["closed"]

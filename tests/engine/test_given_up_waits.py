"""Waits that the body does not await to their end: a person is called with file and line (S-16, docs/waiting.md)."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from outlast.flow import Cancel, Context, Fail, Refused, RetryLater, role
from tests.engine.world import HOUR, SECOND, Go, Receiver, State, World, one_node, write

Ctx = Context[State]
HERE = "tests/engine/test_given_up_waits.py"
shop = Receiver()
order = write(shop, name="given_up_order")


@pytest.fixture(autouse=True)
def new_shop() -> None:
    shop.__init__()  # type: ignore[misc]


def go(ctx: Ctx) -> Any:
    return ctx.receive("go", Go)


def asks(ctx: Ctx) -> Any:
    return ctx.approval(order.plan("a"), summary="a", by=role("boss"), within=timedelta(hours=96))


async def in_wait_for(ctx: Ctx) -> None:
    try:
        await asyncio.wait_for(go(ctx), 0.1)
    except TimeoutError:
        await ctx.do(order, "late")


async def in_a_long_wait_for(ctx: Ctx) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(go(ctx), 3600)
    await ctx.do(order, "late")


async def in_wait_for_of_a_helper(ctx: Ctx) -> None:
    async def both() -> None:
        await asyncio.gather(go(ctx), ctx.sleep("1h"))

    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(both(), 3600)
    await ctx.do(order, "late")


async def in_wait_for_of_a_group(ctx: Ctx) -> None:
    async def group() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(go(ctx))

    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(group(), 3600)
    await ctx.do(order, "late")


async def in_a_short_timeout(ctx: Ctx) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0):
            await go(ctx)
    await ctx.do(order, "late")


async def in_an_approval_with_a_timeout(ctx: Ctx) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0):
            await asks(ctx)
    await ctx.do(order, "late")


async def the_first_of_two(ctx: Ctx) -> None:
    waits = {asyncio.create_task(go(ctx)), asyncio.create_task(ctx.sleep("1h"))}
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    await ctx.do(order, "late")


async def the_first_of_an_approval_and_a_signal(ctx: Ctx) -> None:
    waits = {asyncio.create_task(asks(ctx)), asyncio.create_task(go(ctx))}
    _, left = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for each in left:
        each.cancel()


async def the_first_of_gathers(ctx: Ctx) -> None:
    waits = {asyncio.gather(go(ctx), ctx.sleep("1h")), asyncio.create_task(asyncio.sleep(3600))}
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)


async def all_in_wait(ctx: Ctx) -> None:
    await asyncio.wait({asyncio.create_task(go(ctx)), asyncio.create_task(ctx.sleep("1h"))})


async def never_awaited_to_its_end(ctx: Ctx) -> None:
    task = asyncio.create_task(go(ctx))
    await asyncio.sleep(0)
    await ctx.do(order, "early")
    assert not task.done()


async def cancelled_and_gone_on(ctx: Ctx) -> None:
    task = asyncio.create_task(go(ctx))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    await ctx.do(order, "late")


async def cancelled_and_gone_on_at_once(ctx: Ctx) -> None:
    task = asyncio.create_task(go(ctx))
    await asyncio.sleep(0)
    task.cancel()
    await ctx.do(order, "late")


async def cancelled_at_the_end(ctx: Ctx) -> None:
    task = asyncio.create_task(asks(ctx))
    await asyncio.sleep(0)
    task.cancel()


async def an_approval_cancelled_after_it_was_requested(ctx: Ctx) -> None:
    """The body still has another await, so the run has not parked when the timer fires."""
    both = asyncio.gather(asks(ctx), asyncio.sleep(0.5))
    asyncio.get_running_loop().call_later(0.1, both.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await both
    await ctx.do(order, "late")


async def an_approval_beside_a_failure_that_is_caught(ctx: Ctx) -> None:
    async def fails() -> None:
        await asyncio.sleep(0.1)
        raise ValueError("no")

    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(asks(ctx))
            tasks.create_task(fails())
    except* ValueError:
        await ctx.do(order, "late")


async def shielded_in_wait_for(ctx: Ctx) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(go(ctx)), 3600)
    await ctx.do(order, "late")


async def in_a_task_that_has_not_begun(ctx: Ctx) -> None:
    ctx.state.said.append(str(asyncio.create_task(asks(ctx))))


async def late_and_failed(ctx: Ctx) -> None:
    try:
        await asyncio.wait_for(go(ctx), 0.1)
    except TimeoutError:
        raise Fail("no answer in time") from None


async def cancelled_by_a_timer(ctx: Ctx) -> None:
    task = asyncio.create_task(go(ctx))
    asyncio.get_running_loop().call_later(0.1, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(task, asyncio.sleep(0.5))
    raise Cancel("no answer in time")


async def an_uncaught_timeout(ctx: Ctx) -> None:
    async with asyncio.timeout(0):
        await go(ctx)


GIVEN_UP: dict[Callable[[Ctx], Awaitable[None]], str] = {
    in_wait_for: "was cancelled",
    in_a_long_wait_for: "is inside asyncio.wait",
    in_wait_for_of_a_helper: "is inside asyncio.wait",
    in_wait_for_of_a_group: "is inside asyncio.wait",
    in_a_short_timeout: "was cancelled",
    in_an_approval_with_a_timeout: "was cancelled",
    the_first_of_two: "is inside asyncio.wait",
    the_first_of_an_approval_and_a_signal: "is inside asyncio.wait",
    the_first_of_gathers: "is inside asyncio.wait",
    all_in_wait: "is inside asyncio.wait",
    never_awaited_to_its_end: "was still open",
    cancelled_and_gone_on: "was cancelled",
    cancelled_and_gone_on_at_once: "was cancelled",
    cancelled_at_the_end: "was still open",
    an_approval_cancelled_after_it_was_requested: "was cancelled",
    an_approval_beside_a_failure_that_is_caught: "was cancelled",
    shielded_in_wait_for: "is inside asyncio.wait",
    in_a_task_that_has_not_begun: "was still open",
    late_and_failed: "was cancelled",
    cancelled_by_a_timer: "was cancelled",
    an_uncaught_timeout: "was cancelled",
}


@pytest.mark.req("GATE-1")
@pytest.mark.parametrize("body", GIVEN_UP, ids=lambda body: body.__name__)
async def test_a_wait_that_the_body_gives_up_calls_a_person_with_its_line(
    world: World, body: Callable[[Ctx], Awaitable[None]]
) -> None:
    """Before the result of the node counts, and before the body acts on the first of the waits."""
    hidden = [body]  # not shown by the source, so found while the node runs
    flow = one_node(lambda ctx: hidden[0](ctx))
    world.worker(flow)
    await world.start(flow)
    await world.pass_(3 * SECOND)
    assert (world.status(), world.run().owner, world.reasons()) == ("waiting", "", ["exception"])
    detail = world.attention()[0].detail
    line = (asks if "ctx.approval" in detail else go).__code__.co_firstlineno + 1
    assert f"{HERE}:{line} {GIVEN_UP[body]}" in detail and "timeout=" in detail
    assert [e.key for e in world.effects() if e.key.endswith("late")] == [] and not [a for a in shop.did if "late" in a]


async def the_group_of_a_failed_sibling(ctx: Ctx) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(go(ctx))
        await ctx.do(order, "refused")


async def a_gather_beside_a_failure(ctx: Ctx) -> None:
    await asyncio.gather(go(ctx), ctx.do(order, "refused"))


async def cancelled_in_finally(ctx: Ctx) -> None:
    task = asyncio.create_task(go(ctx))
    try:
        await ctx.do(order, "refused")
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def failed_after_a_refusal(ctx: Ctx) -> None:
    task = asyncio.create_task(asks(ctx))
    try:
        await ctx.do(order, "refused")
    except Refused:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise Fail("refused") from None


async def failed_at_once_after_a_refusal(ctx: Ctx) -> None:
    task = asyncio.create_task(go(ctx))
    try:
        await ctx.do(order, "refused")
    except Refused:
        task.cancel()
        raise Fail("refused") from None


@pytest.mark.req("GATE-1")
@pytest.mark.parametrize(
    "body",
    [
        the_group_of_a_failed_sibling,
        a_gather_beside_a_failure,
        cancelled_in_finally,
        failed_after_a_refusal,
        failed_at_once_after_a_refusal,
    ],
    ids=lambda body: body.__name__,
)
async def test_a_body_that_ends_with_an_exception_gives_up_no_wait(
    world: World, body: Callable[[Ctx], Awaitable[None]]
) -> None:
    """Its exception is the result at once: no later execution asks for more."""
    shop.script.append(Refused("no", "not here"))
    hidden = [body]
    flow = one_node(lambda ctx: hidden[0](ctx))
    world.worker(flow)
    await world.start(flow)
    await world.pass_(3 * SECOND)
    if body.__name__.startswith("failed"):
        assert (world.status(), world.reasons()) == ("failed", [])
    else:
        assert world.reasons() == ["exception"] and "not here" in world.attention()[0].detail
        assert not world.attention()[0].detail.startswith("OUT-")


async def test_a_call_that_waits_is_waited_for_although_the_body_raised(world: World) -> None:
    """Only waits that the body declared are dropped: a retry goes on before the exception counts."""
    order = write(Receiver(RetryLater("busy", after=timedelta(seconds=30))))

    async def raises() -> None:
        await asyncio.sleep(1)
        raise ValueError("a bug")

    async def body(ctx: Ctx) -> None:
        await asyncio.gather(ctx.do(order, "a"), raises())

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(2 * SECOND)
    assert (world.waiting()[0][0], world.reasons()) == ("retry", [])
    await world.pass_(60 * SECOND)
    assert [e.status.value for e in world.effects()] == ["done"] and world.reasons() == ["exception"]


async def test_a_timeout_that_never_fires_has_no_effect(world: World) -> None:
    """It is not seen in a helper that is not read. The run parks at once, and the signal ends the wait."""

    async def body(ctx: Ctx) -> None:
        with contextlib.suppress(TimeoutError):
            async with hidden[0](0.1):
                await go(ctx)
                await ctx.do(order, "signal")
                return
        await ctx.do(order, "late")

    hidden = [asyncio.timeout]
    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(HOUR)
    assert world.waiting() == [("signal", "go")] and world.reasons() == []
    await world.signal("go")
    await world.pass_(SECOND)
    assert world.status() == "completed" and [e.key for e in world.effects()] == ["given_up_order/signal"]


async def test_asyncio_around_calls_is_not_flagged(world: World) -> None:
    """Their deadlines are the process's own, and a call settles in any case."""
    order = write(Receiver())

    async def body(ctx: Ctx) -> None:
        tasks = [asyncio.create_task(ctx.do(order, name)) for name in "ab"]
        done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for each in asyncio.as_completed([*done, *left]):
            ctx.state.said.append(await each)
        await asyncio.wait_for(ctx.do(order, "c"), 60)
        await asyncio.gather(go(ctx), ctx.sleep("1h"))

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.signal("go")
    await world.pass_(HOUR + SECOND)
    assert (world.status(), len(world.effects()), world.reasons()) == ("completed", 3, [])


async def test_the_run_continues_once_the_wait_has_its_own_deadline(world: World) -> None:
    bodies: list[Any] = [in_a_long_wait_for]
    flow = one_node(lambda ctx: bodies[0](ctx))
    world.worker(flow)
    await world.start(flow)
    await world.pass_(3 * SECOND)
    assert world.reasons() == ["exception"]

    async def corrected(ctx: Ctx) -> None:
        if await ctx.receive("go", Go, timeout="1h") is None:
            await ctx.do(order, "late")

    bodies[0] = corrected
    await world.go_on()
    assert (world.status(), world.reasons()) == ("waiting", [])
    await world.signal("go")
    assert world.status() == "completed" and shop.did == []

"""Context calls without await: a person is called with file and line, instead of a silent success."""

import asyncio
import contextlib
import logging
import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from outlast.flow import Context, Fail, Refused, Workflow, activity, lookup
from outlast.flow.approval_rule import role
from tests.engine.world import HOUR, Go, Receiver, World, write

Ctx = Context[Go]
HERE = "tests/engine/test_forgotten_await.py"
order = write(Receiver(), name="forgotten_order")


@lookup(key="forgotten/{n}")
async def page(n: int) -> int:
    return n


FORGOTTEN: dict[str, Callable[[Ctx], Any]] = {
    "do": lambda ctx: ctx.do(order, "a"),
    "do a lookup": lambda ctx: ctx.do(page, 1),
    "do of a plan": lambda ctx: ctx.do(order.plan("a")),
    "do_all": lambda ctx: ctx.do_all({"a": order.plan("a")}),
    "approval": lambda ctx: ctx.approval(order.plan("a"), summary="a", by=role("boss"), within=timedelta(hours=1)),
    "allowed": lambda ctx: ctx.allowed([order]),
    "check": lambda ctx: ctx.check(order.plan("a")),
    "sleep": lambda ctx: ctx.sleep(timedelta(hours=1), name="night"),
    "receive": lambda ctx: ctx.receive("go", Go),
    "collect": lambda ctx: ctx.collect("bids", Go, timeout=timedelta(hours=1)),
    "emit": lambda ctx: ctx.emit({"n": 1}, key="1"),
}


@pytest.mark.parametrize("call", FORGOTTEN)
async def test_a_call_that_was_never_awaited_calls_a_person_with_file_and_line(world: World, call: str) -> None:
    flow = Workflow("forgotten", state=Go)

    @flow.node(start=True)
    async def only(ctx: Ctx) -> None:
        FORGOTTEN[call](ctx)

    world.worker(flow)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Python's own warning is not shown besides
        await world.start(flow)
    assert world.status() == "waiting" and world.reasons() == ["exception"] and world.effects() == []
    line = FORGOTTEN[call].__code__.co_firstlineno
    assert f"ctx.{call.partition(' ')[0]} at {HERE}:{line} was never awaited" in world.attention()[0].detail


async def test_a_node_that_fails_its_run_on_purpose_does_not_hide_it(world: World) -> None:
    flow = Workflow("failing", state=Go)

    @flow.node(start=True)
    async def only(ctx: Ctx) -> None:
        ctx.do(order, "a")
        raise Fail("nothing to be had")

    world.worker(flow)
    await world.start(flow)
    assert world.reasons() == ["exception"] and "never awaited" in world.attention()[0].detail


async def test_an_error_that_follows_from_it_says_so(world: World) -> None:
    flow = Workflow("follows", state=Go)

    @flow.node(start=True)
    async def only(ctx: Ctx) -> None:
        answer: Any = ctx.do(order, "a")
        return answer.total

    world.worker(flow)
    await world.start(flow)
    detail = world.attention()[0].detail
    assert "AttributeError" in detail and "ctx.do at" in detail and "was never awaited" in detail


async def test_the_run_continues_once_the_code_awaits_it(world: World) -> None:
    flow, awaits = Workflow("mended", state=Go), [False]

    @flow.node(start=True)
    async def only(ctx: Ctx) -> None:
        call = ctx.do(order, "a")
        if awaits[0]:
            await call

    world.worker(flow)
    await world.start(flow)
    assert world.effects() == []
    awaits[0] = True
    await world.go_on()
    assert world.status() == "completed" and [e.key for e in world.effects()] == ["forgotten_order/a"]


async def test_calls_that_are_awaited_late_or_closed_raise_no_alarm(world: World) -> None:
    """Made before a wait and awaited after it; closed by the node; made by a branch that does not run."""
    flow = Workflow("late", state=Go)

    @flow.node(start=True)
    async def only(ctx: Ctx) -> None:
        calls = [ctx.do(order, each) for each in "abc"]
        never = (ctx.do(order, each) for each in "xyz")
        await ctx.sleep(timedelta(hours=1), name="night")
        calls.pop().close()
        await asyncio.gather(*calls)
        if not calls:
            ctx.do(order, "d")
        del never

    world.worker(flow)
    await world.start(flow)
    assert world.status() == "waiting" and world.reasons() == []
    await world.pass_(HOUR)
    keys = sorted(e.key for e in world.effects())
    assert (world.status(), keys) == ("completed", ["forgotten_order/a", "forgotten_order/b"])


async def test_many_awaited_calls_are_not_kept(world: World) -> None:
    flow, kept = Workflow("many", state=Go), [0]

    @flow.node(start=True)
    async def only(ctx: Ctx) -> None:
        for i in range(2_000):
            await ctx.emit(i, key=f"{i}")
            kept[0] = max(kept[0], len(vars(ctx)["_asked"]))
        ctx.emit(0, key="forgotten")

    world.worker(flow)
    await world.start(flow)
    assert world.reasons() == ["exception"] and kept[0] <= 100


# --- tasks that the node left behind ------------------------------------------------------------------------
@pytest.mark.parametrize("how", ["gather", "task"])
async def test_tasks_that_were_not_awaited_and_made_no_call_call_a_person(world: World, how: str) -> None:
    flow, tasks = Workflow("left", state=Go), []

    @flow.node(start=True)
    async def only(ctx: Ctx) -> None:
        if how == "gather":
            tasks.append(asyncio.gather(ctx.do(order, "a"), ctx.do(order, "b")))
        else:
            tasks.append(asyncio.create_task(ctx.do(order, "a")))

    world.worker(flow)
    await world.start(flow)
    assert world.reasons() == ["exception"] and world.effects() == []
    line = only.__code__.co_firstlineno + (3 if how == "gather" else 5)
    assert f"ctx.do at {HERE}:{line}" in world.attention()[0].detail
    tasks[0].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_calls_beside_one_that_was_refused_raise_no_alarm(world: World) -> None:
    """The node takes another way at the first refusal, before the call beside it has started."""
    flow = Workflow("beside", state=Go)

    @activity(key="no", no_undo="nothing to undo")
    async def refused() -> str:
        raise Refused("no")

    @flow.node(start=True)
    async def only(ctx: Ctx) -> None:
        with contextlib.suppress(Refused):
            await ctx.do(refused)
        try:
            await asyncio.gather(ctx.do(refused), ctx.do(order, "a"))
        except Refused:
            raise Fail("refused") from None

    world.worker(flow)
    await world.start(flow)
    assert (world.status(), world.reasons()) == ("failed", [])


async def test_a_call_after_its_node_has_ended_is_logged_and_not_made(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    flow, tasks = Workflow("much_later", state=Go), []

    @flow.node(start=True)
    async def only(ctx: Ctx) -> None:
        async def helper() -> None:
            await asyncio.sleep(60)
            await ctx.do(order, "a")

        tasks.append(asyncio.create_task(helper()))

    world.worker(flow)
    with caplog.at_level(logging.WARNING, "outlast.engine"):
        await world.start(flow)
        await world.pass_(61_000)
    assert world.status() == "completed" and world.effects() == []
    assert "ctx.do at tests/engine/test_forgotten_await.py:" in caplog.text

"""A parked run: its log entries are in its history, and nothing of it stays in memory."""

import asyncio
import logging
from datetime import timedelta

import pytest

from outlast.flow import Context
from tests.engine.world import Go, Receiver, State, World, one_node, write

Ctx = Context[State]


@pytest.mark.req("RUN-2")
async def test_a_log_entry_is_written_once_and_must_be_storable(world: World) -> None:
    """A repeated log entry adds nothing; one that is no JSON is refused in the author's code, at its line."""
    lines: list[str] = []

    async def body(ctx: Ctx) -> None:
        ctx.log("first", "it began", n=1)
        try:
            ctx.log("bad", "an object", thing=object())  # type: ignore[arg-type]
        except Exception as error:  # shown below
            lines.append(type(error).__name__)
        await ctx.receive("go", Go)
        ctx.log("second", "it went on")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.signal("go")
    assert world.status() == "completed"
    assert set(lines) == {"NotStorable"}
    assert world.verbs().count("logged") == 2


@pytest.mark.req("GATE-1", "RUN-2")
async def test_the_runner_leaves_no_task_behind(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """After the run has parked nothing of it is left in memory: no task, no timer (GATE-1's tear-down)."""
    shop = Receiver()
    order = write(shop)

    async def body(ctx: Ctx) -> None:
        await ctx.do(order, "a")
        await asyncio.gather(ctx.receive("go", Go), ctx.sleep(timedelta(hours=2), name="long"))

    flow = one_node(body)
    process = world.worker(flow)
    await world.settle()
    before = len(asyncio.all_tasks())
    with caplog.at_level(logging.WARNING):
        await world.start(flow)
    assert process.worker.held == 0
    assert len(asyncio.all_tasks()) == before
    assert caplog.records == []

"""A wait or an approval of more than 100 years is refused where it is written; stored ones keep their timers."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from outlast.core import durations
from outlast.core.approvals import Actor
from outlast.core.durations import FAR
from outlast.flow import Context, role
from outlast.runtime.operations import Operations
from tests.engine.world import MINUTE, SECOND, Go, Receiver, State, World, one_node, write
from tests.removals import replace

Ctx = Context[State]
NEVER = datetime.max.replace(tzinfo=UTC)
order = write(Receiver())


def asks(ctx: Ctx, **given: Any) -> Awaitable[Any]:
    return ctx.approval(order.plan("a"), summary="a", by=role("boss"), **given)


WAITS: dict[str, Callable[[Ctx], Awaitable[Any]]] = {
    "sleep": lambda ctx: ctx.sleep("36526d", name="w"),
    "sleep until": lambda ctx: ctx.sleep(until=NEVER, name="w"),
    "a timedelta": lambda ctx: ctx.sleep(timedelta.max, name="w"),
    "receive": lambda ctx: ctx.receive("w", Go, timeout="9999999d"),
    "receive until": lambda ctx: ctx.receive("w", Go, until=NEVER),
    "collect": lambda ctx: ctx.collect("w", Go, timeout="36526d"),
    "collect until": lambda ctx: ctx.collect("w", Go, until=NEVER),
    "approval within": lambda ctx: asks(ctx, within="36526d", name="w"),
    "approval valid for": lambda ctx: asks(ctx, within="96h", valid_for=timedelta.max, name="w"),
}


@pytest.mark.req("CKP-8")
@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
async def test_a_wait_of_more_than_100_years_is_refused_and_not_written(
    world: World, wait: Callable[[Ctx], Awaitable[Any]]
) -> None:
    async def body(ctx: Ctx) -> None:
        await wait(ctx)

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    assert world.reasons() == ["exception"] and world.waits() == world.approvals() == []
    (entry,) = world.attention()
    assert "the limit is 100 years" in entry.detail and "leave the timeout out" in entry.detail, entry.detail


async def test_a_wait_of_100_years_is_written(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        await ctx.sleep("36525d", name="w")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    (wait,) = world.waits()
    assert wait.deadline - wait.since == FAR and world.reasons() == []


@pytest.mark.req("CKP-8", "CKP-2")
@pytest.mark.parametrize("name", ["sleep", "sleep until", "receive", "approval within"])
async def test_a_stored_wait_of_more_than_100_years_keeps_its_timer_and_is_listed(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """An earlier version wrote it. It hid all runs of its tenant in every list."""

    async def body(ctx: Ctx) -> None:
        await WAITS[name](ctx)

    flow = one_node(body)
    replace(monkeypatch, durations.check_near, lambda what, given, ms: None)
    world.worker(flow)
    await world.start(flow)
    monkeypatch.undo()
    stored = [each.deadline for each in world.waits()] or [world.pending().within_until]
    await world.signal("other")  # its node runs again, and does not judge the wait that it has
    await world.pass_(MINUTE + SECOND)
    assert world.reasons() == [] and world.status() == "waiting"
    assert stored == ([each.deadline for each in world.waits()] or [world.pending().within_until])
    assert stored[0] > FAR and stored[0] in [timer.at for timer in world.run().timers]
    operations = Operations(world.store, tenant="t", actor=Actor("ana", person=True), workflows={})
    listed = await operations.runs()
    assert [each.run for each in listed.runs] == ["r1"]

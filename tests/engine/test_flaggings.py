"""Flaggings: a row for each time at which a run begins to need a person, in the commit that says so."""

from datetime import timedelta
from typing import Literal

from outlast import Context, Workflow
from outlast.core.causes import causes_in
from outlast.core.durations import HOUR, MINUTE
from outlast.core.rows.run_rows import EVENT, FLAGGING, Flagging, Floor
from outlast.core.window import is_past_flagging
from outlast.insight.run_reads import run_page
from outlast.insight.tenant_rows import TenantRows
from outlast.operations.run_operations import ListRuns
from outlast.upkeep.fsck_checks import flaggings_kept
from tests.engine.world import State, World, one_node


async def flaggings(world: World, run: str = "r1") -> tuple[Flagging, ...]:
    return await world.store.rows(FLAGGING, ("t", run))


async def _fails(ctx: Context[State]) -> None:
    raise ValueError("no such order")


async def test_each_flagging_has_a_row_of_its_event(world: World) -> None:
    flow = one_node(_fails, name="flagged-twice")
    world.worker(flow)
    await world.start(flow)
    (first,) = await flaggings(world)
    (entry,) = world.run().attention
    assert (first.at, first.causes, first.workflow, first.lane) == (
        world.run().flagged_at,
        world.run().causes,
        "flagged-twice",
        "flagged-twice@1",
    )
    found = [
        await run_page(TenantRows(world.store, "t"), ListRuns(q=text)) for text in ("no SUCH order", "no such run")
    ]
    assert [[item.run for item in page.runs] for page in found] == [["r1"], []]
    event = await world.store.load(EVENT, ("t", "r1", first.seq))
    assert event is not None and event.kind == "run.attention"
    assert [name.cause for name in causes_in(first.causes)] == [entry.cause]
    assert not [*flaggings_kept(world.run(), [first])] and [*flaggings_kept(world.run(), [])]
    await world.pass_(MINUTE)
    await world.answer("exception", "continue")
    again = await flaggings(world)
    assert [row.causes for row in again] == [first.causes] * 2 and again[1].at >= first.at + MINUTE
    await world.answer("exception", "cancel")
    assert world.status() == "cancelled" and await flaggings(world) == again


async def test_a_ceiling_that_stops_nothing_is_a_flagging(world: World) -> None:
    async def waits(ctx: Context[State]) -> None:
        await ctx.sleep("3h")

    flow = one_node(waits, name="flagged-late", ceiling=timedelta(hours=1))
    world.worker(flow)
    await world.start(flow)
    assert await flaggings(world) == ()
    await world.pass_(2 * HOUR)
    assert world.reasons() == ["total_timeout"]
    (row,) = await flaggings(world)
    assert (row.at, row.causes) == (world.run().flagged_at, world.run().causes)
    await world.pass_(2 * HOUR)
    assert world.status() == "completed" and await flaggings(world) == (row,)


async def test_a_step_that_flags_nothing_writes_no_row(world: World) -> None:
    async def quiet(ctx: Context[State]) -> None:
        ctx.state.n += 1

    flow = one_node(quiet, name="flagged-never")
    world.worker(flow)
    await world.start(flow)
    assert world.status() == "completed" and not world.core.rows.under(FLAGGING, ())


async def test_flaggings_behind_the_window_go(world: World) -> None:
    flow, failed = Workflow("flagged-window", state=State, history=3, undo="window"), list[int]()

    @flow.node(start=True)
    async def turn(ctx: Context[State]) -> Literal["turn"] | None:
        ctx.state.n += 1
        if ctx.state.n in (2, 60) and ctx.state.n not in failed:
            failed.append(ctx.state.n)
            raise ValueError("once")
        return "turn" if ctx.state.n < 61 else None

    world.worker(flow.validate())
    await world.start(flow)
    (first,) = await flaggings(world)
    await world.answer("exception", "continue")
    (second,) = await flaggings(world)
    assert second.seq > first.seq + 20 and not [*flaggings_kept(world.run(), [second])]


async def test_a_flagging_that_nobody_has_answered_stays_behind_the_window(world: World) -> None:
    """The run can go on beside it, as after its ceiling, and its bar must stay."""
    flow = one_node(_fails, name="flagged-open")
    world.worker(flow)
    await world.start(flow)
    (row,) = await flaggings(world)
    run, floor = world.run(), Floor("t", "r1", 1, row.seq + 1, "", 1, 1, "", 1, 0)
    assert not is_past_flagging(row, run, floor)
    assert is_past_flagging(row._replace(at=row.at - 1), run, floor)
    assert is_past_flagging(row, run._replace(flagged_at=0), floor)
    assert not is_past_flagging(row, run._replace(flagged_at=0), floor._replace(seq=row.seq))

"""Deadlines in business days: of waits, approvals, nodes and runs (RUN-11).

The virtual clock begins on Thursday, 1 January 2026 at 01:00 in Berlin, a holiday. Epiphany is Tuesday, 6 January.
"""

from collections.abc import Awaitable, Callable
from datetime import date, datetime
from typing import Any, Literal
from zoneinfo import ZoneInfo

import pytest

from outlast.core.approvals import Actor
from outlast.core.business_days import BusinessDays
from outlast.core.kept_deadlines import WITHIN
from outlast.core.rows.effect_rows import MEMO
from outlast.errors import InvalidInput
from outlast.flow import Context, NeedsApproval, PolicyRequest, Verdict, Workflow, business_days, role
from outlast.runtime.operations import Operations
from tests.engine.world import HOUR, MINUTE, SECOND, Go, Receiver, State, World, one_node, write

pytestmark = pytest.mark.req("RUN-11")
Ctx = Context[State]
BERLIN = ZoneInfo("Europe/Berlin")
IN_FIVE_DAYS = "2026-01-12T01:00:00+01:00"
SKIPPED = "Thu 1 Jan, Sat 3 Jan, Sun 4 Jan, Tue 6 Jan, Sat 10 Jan, Sun 11 Jan"


class Table:
    """Holidays that change while runs wait."""

    def __init__(self) -> None:
        self.days = {date(2026, 1, 1), date(2026, 1, 6)}
        self.asked = 0

    def __contains__(self, day: object) -> bool:
        self.asked += 1
        return day in self.days


def days(n: int, table: Table | None = None, **options: Any) -> BusinessDays:
    return business_days(n, zone="Europe/Berlin", holidays=table or Table(), **options)


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=BERLIN).timestamp() * 1000)


def local(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, BERLIN).isoformat()


async def until(world: World, text: str, *workflows: Workflow[Any]) -> None:
    """Let time pass until a wall time of Berlin, and serve the workflows from then on."""
    await world.off_duty()
    await world.pass_(at(text) - world.time.wall())
    if workflows:
        world.worker(*workflows)
        await world.pass_(SECOND)


def operations(world: World, *workflows: Any) -> Operations:
    known = {workflow.lane: workflow for workflow in workflows}
    return Operations(world.store, tenant="t", actor=Actor("ana", person=True), workflows=known)


async def explained(world: World) -> dict[str, str]:
    found = await operations(world).explain("r1")
    return {"sentence": found.sentence, **found.facts}


# --- waits ---------------------------------------------------------------------------------
WAITS: dict[str, Callable[[Ctx, BusinessDays], Awaitable[Any]]] = {
    "sleep until": lambda ctx, term: ctx.sleep(until=term, name="w"),
    "receive timeout": lambda ctx, term: ctx.receive("w", Go, timeout=term),
    "receive until": lambda ctx, term: ctx.receive("w", Go, until=term),
    "collect timeout": lambda ctx, term: ctx.collect("w", Go, timeout=term),
    "collect until": lambda ctx, term: ctx.collect("w", Go, until=term),
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
async def test_a_wait_ends_on_the_business_day_and_explain_names_the_skipped_days(
    world: World, wait: Callable[[Ctx, BusinessDays], Awaitable[Any]]
) -> None:
    async def body(ctx: Ctx) -> None:
        await wait(ctx, days(5))

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    (row,) = world.waits()
    assert local(row.deadline) == IN_FIVE_DAYS
    facts = await explained(world)
    assert facts["due"] == f"Monday 12 January 2026 01:00 Europe/Berlin; skipped {SKIPPED}"
    assert "until Monday 12 January 2026 01:00 Europe/Berlin" in facts["sentence"]
    await until(world, "2026-01-12T00:59:57", flow)
    assert world.status() == "waiting"
    await world.pass_(2 * SECOND)
    assert world.status() == "completed"


async def test_a_changed_holiday_table_moves_no_wait_that_was_requested(world: World) -> None:
    table = Table()

    async def body(ctx: Ctx) -> None:
        await ctx.receive("w", Go, timeout=days(5, table))
        await ctx.sleep(until=days(1, table), name="later")

    flow = one_node(body, ceiling="90d")
    world.worker(flow)
    await world.start(flow)
    asked = table.asked
    table.days |= {date(2026, 1, 12), date(2026, 1, 13)}
    await world.signal("other")  # the node runs again with the new table
    assert table.asked == asked, "the table is asked once, at the first request"
    await until(world, "2026-01-12T01:00:00", flow)
    (first, later) = sorted(world.waits(), key=lambda each: each.since)
    assert local(first.deadline) == IN_FIVE_DAYS and world.reasons() == []
    assert local(later.deadline)[:10] == "2026-01-15", "a later wait uses the new table: Wednesday, then one day"


async def test_a_wait_ends_at_the_instant_that_a_letter_stated(world: World) -> None:
    """The wait is requested after the letter was sent; here a night and a weekend lie between."""
    stated: list[str] = []

    async def body(ctx: Ctx) -> None:
        term = days(3)
        stated.append(term.ends(ctx.now()).isoformat())
        await ctx.receive("sent", Go)
        await ctx.receive("w", Go, until=term.since(ctx.now()))

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await until(world, "2026-01-03T12:00:00", flow)
    await world.signal("sent")
    assert [local(each.deadline) for each in world.waits() if each.name == "w"] == ["2026-01-08T01:00:00+01:00"]
    assert set(stated) == {"2026-01-08T01:00:00+01:00"}
    assert (await explained(world))["due"].endswith("skipped Thu 1 Jan, Sat 3 Jan, Sun 4 Jan, Tue 6 Jan")


async def test_an_early_signal_ends_a_wait_in_business_days(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        got = await ctx.receive("w", Go, timeout=days(5))
        ctx.state.said.append(got.word if got is not None else "late")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.signal("w", word="early")
    assert world.outcome()["said"] == ["early"]


async def test_a_changed_term_is_no_divergence(world: World) -> None:
    """New code has a wait in hours where the first execution had business days."""

    def version(**given: Any) -> Workflow[State]:
        async def body(ctx: Ctx) -> None:
            await ctx.receive("w", Go, **given)

        return one_node(body, ceiling="90d")

    first, second = version(timeout=days(5)), version(timeout="3h")
    world.worker(first)
    await world.start(first)
    await world.off_duty()
    world.worker(second)
    await world.signal("other")
    assert world.reasons() == [] and [local(each.deadline) for each in world.waits()] == [IN_FIVE_DAYS]


@pytest.mark.parametrize(
    ("begins", "ends"),
    [("2026-03-27T15:00:00", "2026-03-30T15:00:00+02:00"), ("2026-10-23T15:00:00", "2026-10-26T15:00:00+01:00")],
)
async def test_a_wait_keeps_its_wall_time_over_both_changes_of_the_clock(world: World, begins: str, ends: str) -> None:
    async def body(ctx: Ctx) -> None:
        await ctx.sleep(until=days(1))

    flow = one_node(body)
    await world.pass_(at(begins) - world.time.wall())
    world.worker(flow)
    await world.start(flow)
    (wait,) = world.waits()
    assert local(wait.deadline) == ends
    await until(world, ends[:19], flow)
    assert world.status() == "completed"


# --- nodes ---------------------------------------------------------------------------------
async def test_the_deadline_of_a_node_is_one_instant_for_all_its_waits(world: World) -> None:
    table = Table()
    flow = Workflow("visit", state=State)

    @flow.node(start=True, within=days(2, table))
    async def only(ctx: Ctx) -> None:
        await ctx.receive("first", Go, timeout="90d")
        await ctx.receive("second", Go, timeout="90d")

    world.worker(flow)
    await world.start(flow)
    (first,) = world.waits()
    assert local(first.deadline) == "2026-01-07T01:00:00+01:00"
    assert (await explained(world))["due"].startswith("Wednesday 7 January 2026 01:00 Europe/Berlin; skipped Thu 1 Jan")
    table.days |= {date(2026, 1, 5), date(2026, 1, 7)}
    await world.off_duty()
    world.worker(flow)
    await world.signal("first")
    assert [local(each.deadline) for each in world.waits()] == ["2026-01-07T01:00:00+01:00"] * 2
    assert world.core.rows.get(MEMO, ("t", "r1", 1, WITHIN)) is not None
    await until(world, "2026-01-07T01:00:00", flow)
    assert world.status() == "completed" and world.reasons() == []


async def test_a_node_deadline_ends_a_wait_of_more_business_days(world: World) -> None:
    flow = Workflow("visit", state=State)

    @flow.node(start=True, within="24h")
    async def only(ctx: Ctx) -> None:
        await ctx.receive("first", Go, timeout=days(5))

    world.worker(flow)
    await world.start(flow)
    (wait,) = world.waits()
    assert wait.deadline - wait.since == 24 * HOUR and wait.due is None
    assert "due" not in await explained(world)


# --- ceilings ------------------------------------------------------------------------------
async def test_the_ceiling_of_a_run_is_a_business_day(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        await ctx.receive("w", Go)

    flow = one_node(body, ceiling=days(5))
    world.worker(flow)
    await world.start(flow)
    assert local(world.run().ceiling_at) == IN_FIVE_DAYS
    assert (await explained(world))["ceiling"] == f"Monday 12 January 2026 01:00 Europe/Berlin; skipped {SKIPPED}"
    await until(world, "2026-01-12T00:59:00", flow)
    assert world.reasons() == []
    await world.pass_(2 * MINUTE)
    assert world.reasons() == ["total_timeout"]
    assert "ceiling" not in await explained(world), "it is disarmed"


async def test_a_node_raises_the_ceiling_once(world: World) -> None:
    table = Table()
    flow = Workflow("raising", state=State, ceiling="24h")

    @flow.node(start=True)
    async def first(ctx: Ctx) -> Literal["second"]:
        return "second"

    @flow.node(ceiling=days(5, table), max_visits=5)
    async def second(ctx: Ctx) -> Literal["second"] | None:
        await ctx.receive("w", Go)
        return "second" if ctx.visit < 3 else None

    world.worker(flow)
    await world.start(flow)
    assert local(world.run().ceiling_at) == IN_FIVE_DAYS
    assert SKIPPED in (await explained(world))["ceiling"]
    table.days.add(date(2026, 1, 12))
    await world.signal("w")
    assert world.run().visit == 3
    assert local(world.run().ceiling_at) == IN_FIVE_DAYS, "entered again, the node keeps its ceiling"


async def test_the_later_one_of_two_ceilings_applies_from_the_start(world: World) -> None:
    flow = Workflow("two", state=State, ceiling=days(5))

    @flow.node(start=True, ceiling="30d")
    async def only(ctx: Ctx) -> None:
        await ctx.receive("w", Go)

    world.worker(flow)
    await world.start(flow)
    assert world.run().ceiling_at - world.run().created_at == 30 * 24 * HOUR
    assert "ceiling" not in await explained(world)


# --- approvals -----------------------------------------------------------------------------
def asking(receiver: Receiver, **terms: Any) -> Any:
    order = write(receiver)

    async def body(ctx: Ctx) -> None:
        decision = await ctx.approval(order.plan("a"), summary="Buy", by=role("boss"), **terms)
        if decision.chosen is not None:
            await ctx.do(decision.chosen)

    return one_node(body, ceiling="90d")


async def test_an_approval_over_a_weekend_is_due_on_the_business_day(world: World) -> None:
    flow = asking(Receiver(), within=days(1))
    await until(world, "2026-01-02T14:59:59", flow)  # Friday
    await world.start(flow)
    asked = world.pending()
    assert local(asked.within_until) == "2026-01-05T15:00:00+01:00"
    facts = await explained(world)
    assert facts["due"] == "Monday 5 January 2026 15:00 Europe/Berlin; skipped Sat 3 Jan, Sun 4 Jan"
    view = await operations(world, flow).approval(asked.id)
    assert view.due == facts["due"]
    await until(world, "2026-01-05T14:59:00", flow)
    assert world.reasons() == []
    await world.pass_(2 * MINUTE)
    assert world.reasons() == ["approval_timeout"]


async def test_an_approval_may_be_used_for_business_days_from_its_decision(world: World) -> None:
    """The decision is recorded by a process that has not the author's holidays."""
    receiver, table = Receiver(), Table()
    flow = asking(receiver, within="240h", valid_for=days(2, table))
    await until(world, "2026-01-02T14:59:59", flow)
    await world.start(flow)
    asked = world.pending()
    assert (await operations(world, flow).approval(asked.id)).valid_days == "2 business days in Europe/Berlin"
    await world.off_duty()
    table.days.clear()  # the holidays of the request count
    await until(world, "2026-01-04T12:00:00")  # decided on Sunday: counted from Monday, over Epiphany
    decided = await world.decide(asked)
    assert local(decided.valid_until) == "2026-01-08T12:00:00+01:00"
    world.worker(flow)
    await world.pass_(SECOND)
    assert world.status() == "completed" and len(receiver.did) == 1


async def test_an_approval_that_was_not_used_in_its_business_days_is_requested_again(world: World) -> None:
    receiver = Receiver()
    flow = asking(receiver, within="240h", valid_for=days(1))
    await until(world, "2026-01-02T14:59:59", flow)
    await world.start(flow)
    await world.off_duty()
    decided = await world.decide(world.pending())
    assert local(decided.valid_until) == "2026-01-05T15:00:00+01:00"
    await until(world, "2026-01-05T15:00:01", flow)
    assert not receiver.did and len(world.approvals()) == 2


async def test_a_policy_asks_for_an_approval_within_business_days(world: World) -> None:
    def rules(request: PolicyRequest) -> Verdict:
        return NeedsApproval("large", by=role("boss"), within=days(3))

    order = write(Receiver())

    async def body(ctx: Ctx) -> None:
        await ctx.check(order.plan("a"))
        await ctx.do(order.plan("a"))

    flow = one_node(body, policy=rules)
    world.worker(flow)
    await world.start(flow)
    asked = world.pending()
    assert local(asked.within_until) == "2026-01-08T01:00:00+01:00" and world.reasons() == []
    await world.decide(asked)
    assert world.status() == "completed"


async def test_a_recorded_verdict_has_its_business_days_and_holidays(world: World) -> None:
    def rules(request: PolicyRequest) -> Verdict:
        return NeedsApproval("large", by=role("boss"), within=days(5))

    order = write(Receiver())
    seen: list[Any] = []

    async def body(ctx: Ctx) -> None:
        verdict = await ctx.check(order.plan("a"))
        assert isinstance(verdict, NeedsApproval)
        seen.append(verdict.within)
        await ctx.sleep("1h")

    flow = one_node(body, policy=rules)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(HOUR)
    assert len(seen) == 2, "the node was executed twice"
    assert [local(each.due(at("2026-01-01T01:00:00")).ms) for each in seen] == [IN_FIVE_DAYS] * 2


# --- other places ------------------------------------------------------------------------------
async def test_business_days_are_refused_in_other_places(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        term: Any = days(1)
        await ctx.sleep(term)

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    (entry,) = world.attention()
    assert "within=, timeout=, until=, valid_for= and ceiling=" in entry.detail
    with pytest.raises(InvalidInput, match="within=, timeout=, until="):
        await operations(world).extend("r1", by=days(1), reason="more time")  # type: ignore[arg-type]


async def test_a_container_that_raises_calls_a_person(world: World) -> None:
    class Broken:
        def __contains__(self, day: object) -> bool:
            raise RuntimeError("no table of 2026")

    async def body(ctx: Ctx) -> None:
        await ctx.sleep(until=business_days(1, zone="Europe/Berlin", holidays=Broken()))

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    assert world.reasons() == ["exception"] and "no table of 2026" in world.attention()[0].detail
    with pytest.raises(InvalidInput, match="no table of 2026"):
        await world.start(
            one_node(body, name="other", ceiling=business_days(1, zone="Europe/Berlin", holidays=Broken())), "r2"
        )

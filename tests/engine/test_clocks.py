"""Timers: approvals without a decision, total timeouts, extensions, and alerts about them (GATE-3…5, S-3, S-21)."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal

import pytest

from outlast.core.commit import Mapping
from outlast.core.durations import DAY, HOUR, NOTICE_TIMEOUT
from outlast.core.rows.run_columns import Attention
from outlast.core.rows.run_rows import Run
from outlast.core.run_transition import rearmed
from outlast.engine.alerts import Alerts
from outlast.errors import Conflict, InvalidInput
from outlast.flow import Context, Perhaps, RetryLater, Workflow, role
from tests.engine.world import MINUTE, SECOND, Acts, Go, Receiver, State, World, one_node, write

Ctx = Context[State]
STALE = "approval_stale_7day_limit_exceeded"


def negotiation(shop: Receiver, **options: Any) -> Workflow[State]:
    """Asks a person, under the source's 96 hours, and does what was approved."""
    order = write(shop)

    async def body(ctx: Ctx) -> None:
        plan = order.plan("a")
        decision = await ctx.approval(
            plan, summary="Order a", by=role("boss"), within=timedelta(hours=96), valid_for=timedelta(hours=2)
        )
        ctx.state.said.append(decision.outcome)
        if decision.chosen:
            ctx.state.said.append(await ctx.do(decision.chosen))

    return one_node(body, name="negotiation", **options)


def waiting(**options: Any) -> Workflow[State]:
    """Waits for a signal without end."""

    async def body(ctx: Ctx) -> None:
        ctx.state.said = [(await ctx.receive("go", Go)).word]

    return one_node(body, name="negotiation", **options)


async def begun(world: World, flow: Workflow[State]) -> int:
    """A run that waits; answers the instant of its start."""
    world.worker(flow)
    await world.start(flow)
    assert world.status() == "waiting"
    return world.run().created_at


def flags(world: World, trigger: str = "") -> int:
    """How often a person was called."""
    found = [e for e in world.events() if e.type.endswith("attention")]
    return sum(trigger.encode() in e.body for e in found)


# --- approvals ---------------------------------------------------------------------------------------------
@pytest.mark.req("GATE-3", "FAIL-5")
async def test_96_hours_then_a_person_then_7_days_then_cancelled(world: World) -> None:
    """To the second; never decided by itself; a late decision is refused with a sentence, before and after the end."""
    shop = Receiver()
    flow = negotiation(shop, ceiling=timedelta(days=60))
    start = await begun(world, flow)
    approval = world.pending()
    await world.nights(flow, until=start + 96 * HOUR - SECOND)
    assert (world.reasons(), world.approvals()[0].status.value) == ([], "pending")
    await world.pass_(SECOND)
    (entry,) = world.attention()
    assert (entry.reason.value, entry.since, entry.trigger) == (
        "approval_timeout",
        start + 96 * HOUR,
        "approval_timeout",
    )
    assert (world.status(), world.approvals()[0].status.value) == ("waiting", "expired")
    with pytest.raises(Conflict, match="has expired"):
        await world.decide(approval)
    await world.nights(flow, until=start + 96 * HOUR + 7 * DAY - SECOND)
    assert (world.status(), world.reasons()) == ("waiting", ["approval_timeout"])
    await world.pass_(SECOND)
    assert (world.status(), world.last_event()["reason"]) == ("cancelled", STALE)
    with pytest.raises(Conflict):
        await world.decide(approval)
    assert (shop.attempts, flags(world)) == ([], 1)


@pytest.mark.req("GATE-3", "GATE-9")
async def test_asked_again_it_is_another_request_with_its_own_96_hours(world: World) -> None:
    """At the last moment: the week ends with the answer, and the new request counts from its own asking."""
    shop = Receiver()
    flow = negotiation(shop, ceiling=timedelta(days=60))
    start = await begun(world, flow)
    await world.nights(flow, until=start + 96 * HOUR + 7 * DAY - SECOND)
    first = world.approvals()[0]
    await world.answer("approval_timeout", "ask_again")
    second = world.pending()
    asked = second.asked_at
    assert (world.reasons(), second.id != first.id) == ([], True)
    assert second.within_until == asked + 96 * HOUR
    await world.nights(flow, until=asked + 96 * HOUR - SECOND)
    assert (world.status(), world.reasons()) == ("waiting", [])
    await world.pass_(SECOND)
    assert world.reasons() == ["approval_timeout"]
    await world.answer("approval_timeout", "ask_again")
    with pytest.raises(Conflict):
        await world.decide(first)
    await world.decide(world.pending())
    assert world.outcome()["said"] == ["approved", "did order/a"]


@pytest.mark.req("GATE-3")
@pytest.mark.parametrize("place", ["before ask", "after ask", "after take"])
async def test_ask_again_survives_the_crash_of_its_holder(world: World, place: str) -> None:
    """The answer stays in the inbox until an execution has requested the approval again."""
    flow = negotiation(Receiver(), ceiling=timedelta(days=60))
    start = await begun(world, flow)
    process = await world.nights(flow, until=start + 96 * HOUR)
    when, at = place.split()
    getattr(process.wire, when)(at, process.kill)
    await world.answer("approval_timeout", "ask_again")
    world.worker(flow)
    await world.pass_(MINUTE)
    assert (world.reasons(), len(world.approvals())) == ([], 2)
    assert world.pending().status.value == "pending"


@pytest.mark.req("GATE-3")
async def test_ask_again_survives_a_pause(world: World) -> None:
    """Answered in time, paused beyond the week, resumed: it is requested again, not cancelled."""
    flow = negotiation(Receiver(), ceiling=timedelta(days=60))
    start = await begun(world, flow)
    await world.nights(flow, until=start + 96 * HOUR + 7 * DAY - MINUTE)
    await world.hold("tenant")
    await world.answer("approval_timeout", "ask_again")
    assert world.waiting()[0][0] == "pause"
    await world.pass_(5 * MINUTE)
    assert await world.release("tenant") == 1
    await world.pass_(SECOND)
    assert world.pending().asked_at > start + 96 * HOUR + 7 * DAY


@pytest.mark.req("GATE-3", "GATE-4")
async def test_each_reason_has_its_own_clock_and_only_the_approval_s_goes_stale(world: World) -> None:
    """Flagged at 50 h for its age, at 96 h for its approval; more time counts at once; the week counts from 96 h."""
    flow = negotiation(Receiver(), ceiling=timedelta(hours=50))
    start = await begun(world, flow)
    await world.nights(flow, until=start + 96 * HOUR)
    assert sorted(world.reasons()) == ["approval_timeout", "total_timeout"]
    with pytest.raises(Conflict, match="continue does not answer approval_timeout"):
        await world.go_on()
    await world.answer("total_timeout", "extend", by_ms=10 * HOUR)
    assert (world.reasons(), world.run().ceiling_at - world.time.wall()) == (["approval_timeout"], 10 * HOUR)
    await world.nights(flow, until=start + 96 * HOUR + 7 * DAY - SECOND)
    assert (world.status(), sorted(world.reasons())) == ("waiting", ["approval_timeout", "total_timeout"])
    await world.pass_(SECOND)
    assert (world.status(), world.last_event()["reason"]) == ("cancelled", STALE)


@pytest.mark.req("GATE-3", "EFF-2")
async def test_a_stale_run_with_an_uncertain_effect_waits_for_its_answer(world: World) -> None:
    """It cannot end while an effect is uncertain; after the answer it ends for the reason it had."""
    shop = Receiver(RetryLater("busy", after=timedelta(seconds=30)), Acts(Perhaps("lost")))
    order, mail = write(shop), write(shop, name="mail")

    async def body(ctx: Ctx) -> None:
        plan = order.plan("b")
        asked = ctx.approval(plan, summary="b", by=role("boss"), within=timedelta(seconds=30))
        await asyncio.gather(ctx.do(mail, "a"), asked)

    flow = one_node(body, ceiling=timedelta(days=60))
    start = await begun(world, flow)
    await world.pass_(MINUTE)
    assert sorted(world.reasons()) == ["approval_timeout", "effect_uncertain"]
    await world.nights(flow, until=start + 7 * DAY + MINUTE)
    assert (world.status(), sorted(world.reasons())) == ("waiting", ["approval_timeout", "effect_uncertain"])
    await world.resolve("mail/a", "happened", response=b'"x"')
    assert (world.status(), world.last_event()["reason"]) == ("cancelled", STALE)


# --- ceilings ------------------------------------------------------------------------------------------------
@pytest.mark.req("GATE-4")
async def test_168_hours_flag_once_under_the_trigger_s_name_and_never_kill(world: World) -> None:
    """To the second; the run goes on as before, and no later look flags it again."""
    flow = waiting()
    start = await begun(world, flow)
    await world.nights(flow, until=start + 168 * HOUR - SECOND)
    assert world.reasons() == []
    await world.pass_(SECOND)
    (entry,) = world.attention()
    assert (entry.reason.value, entry.trigger) == ("total_timeout", "negotiation_total_timeout")
    assert (entry.since, world.run().ceiling_at) == (start + 168 * HOUR, 0)
    assert (world.status(), world.waiting()) == ("waiting", [("signal", "go")])
    await world.signal("another")
    await world.nights(flow, until=start + 60 * DAY)
    assert (world.status(), flags(world), flags(world, "negotiation_total_timeout")) == ("waiting", 1, 1)
    await world.signal("go", word="at last")
    assert (world.status(), world.outcome()["said"]) == ("completed", ["at last"])


@pytest.mark.req("GATE-4")
async def test_an_extension_starts_the_total_timeout_again(world: World) -> None:
    """It counts from the flag; refused while the run is not flagged, and without a length."""
    flow = waiting()
    start = await begun(world, flow)
    with pytest.raises(Conflict, match="not flagged total_timeout"):
        await world.answer("total_timeout", "extend", by_ms=DAY)
    await world.nights(flow, until=start + 170 * HOUR)
    for by in (0, -DAY):
        with pytest.raises(InvalidInput, match="needs a length"):
            await world.answer("total_timeout", "extend", by_ms=by)
    with pytest.raises(Conflict, match="continue does not answer total_timeout"):
        await world.go_on()
    await world.answer("total_timeout", "extend", by_ms=DAY)
    assert (world.reasons(), world.run().ceiling_at) == ([], start + 170 * HOUR + DAY)
    await world.nights(flow, until=start + 170 * HOUR + DAY - SECOND)
    assert world.reasons() == []
    await world.pass_(SECOND)
    assert (world.reasons(), flags(world)) == (["total_timeout"], 2)


@pytest.mark.req("GATE-4", "GATE-9")
async def test_a_person_cancels_a_run_that_takes_too_long_and_no_approval_is_accepted(world: World) -> None:
    """Answering `cancel` withdraws what is asked in the commit that posts it (S-20)."""
    flow = negotiation(Receiver(), ceiling=timedelta(hours=2))
    start = await begun(world, flow)
    process = await world.nights(flow, until=start + 2 * HOUR)
    approval = world.pending()
    process.freeze()
    await world.answer("total_timeout", "cancel")
    with pytest.raises(Conflict, match="withdrawn"):
        await world.decide(approval)
    process.thaw()
    await world.pass_(MINUTE)
    assert (world.status(), world.approvals()[0].status.value) == ("cancelled", "withdrawn")
    assert "looked into it" in world.last_event()["reason"]


@pytest.mark.req("GATE-4")
async def test_an_approval_decided_while_the_run_is_too_old_is_honoured(world: World) -> None:
    shop = Receiver()
    flow = negotiation(shop, ceiling=timedelta(hours=2))
    start = await begun(world, flow)
    await world.nights(flow, until=start + 3 * HOUR)
    assert (world.reasons(), world.waiting()[0][0]) == (["total_timeout"], "approval")
    await world.decide(world.pending())
    assert (world.status(), len(shop.did), world.reasons()) == ("completed", 1, [])


@pytest.mark.req("GATE-4")
@pytest.mark.parametrize("days", [14, 28])
@pytest.mark.parametrize("at_start", [True, False])
async def test_a_node_outlives_the_workflow_s_ceiling_by_design(world: World, days: int, at_start: bool) -> None:
    """14 days of the bottleneck route, 28 of the strategic one, at any node; a smaller one lowers nothing."""
    flow = Workflow("negotiation", state=State)
    small, large = timedelta(hours=1), timedelta(days=days)

    @flow.node(start=True, ceiling=large if at_start else small)
    async def one(ctx: Ctx) -> Literal["two"]:
        return "two"

    @flow.node(ceiling=small if at_start else large)
    async def two(ctx: Ctx) -> None:
        await ctx.receive("go", Go)

    start = await begun(world, flow.validate())
    await world.nights(flow, until=start + days * DAY - SECOND)
    assert (world.run().node, world.reasons()) == ("two", [])
    await world.pass_(SECOND)
    assert world.attention()[0].trigger == "negotiation_total_timeout"


@pytest.mark.req("GATE-4", "RUN-6")
async def test_a_run_that_waits_for_a_slot_is_flagged_too_and_starts_when_one_is_free(world: World) -> None:
    world.add_slots("t", 1)
    flow = waiting(ceiling=timedelta(hours=2))
    start = await begun(world, flow)
    await world.start(flow, "r2")
    assert (world.status("r2"), [c.what for c in world.run("r2").timers]) == ("queued", ["ceiling"])
    await world.nights(flow, until=start + 2 * HOUR + SECOND)
    assert (world.status("r2"), world.reasons("r2"), world.reasons()) == (
        "queued",
        ["total_timeout"],
        ["total_timeout"],
    )
    await world.signal("go")
    assert (world.status(), world.status("r2"), world.reasons("r2")) == ("completed", "waiting", ["total_timeout"])


@pytest.mark.req("GATE-4")
async def test_a_ceiling_that_passes_during_a_death_flags_once(world: World) -> None:
    """The holder dies before its park lands, without an alert; the next holder sends it, once."""
    flow = waiting(ceiling=timedelta(hours=2))
    start = await begun(world, flow)
    await world.off_duty()
    await world.pass_(2 * HOUR - SECOND)
    process = world.worker(flow)
    process.wire.before("r1 park", process.kill)
    await world.pass_(2 * SECOND)
    assert (process.wire.dead, world.reasons(), world.run().ceiling_at) == (True, [], start + 2 * HOUR)
    world.worker(flow)
    await world.pass_(MINUTE)
    assert (world.reasons(), flags(world)) == (["total_timeout"], 1)


@pytest.mark.req("GATE-4")
async def test_another_clock_mapping_loses_no_wake(world: World) -> None:
    """A message, then another mapping before the next poll: the run is still due, ceiling or not (S-4)."""
    flow = waiting()
    await begun(world, flow)
    await world.off_duty()
    await world.signal("go", word="kept")
    now = world.core.now()
    await world.store.set_mapping(Mapping(0, now.real, now.business, 10.0), rearmed)
    world.worker(flow)
    await world.settle()
    assert world.status() == "completed"


# --- telling people ----------------------------------------------------------------------------------------------
class Channel:
    """Channel to people that records the rows at the time of its use."""

    def __init__(self, world: World, behaviour: str = "works") -> None:
        self.world = world
        self.behaviour = behaviour
        self.log_entries: list[tuple[str, list[str], str]] = []

    async def notify(self, run: Run, reasons: Sequence[Attention]) -> None:
        stored = self.world.run(run.run)
        shown = ",".join(a.reason.value for a in stored.attention)
        self.log_entries.append((run.run, [a.trigger or a.reason.value for a in reasons], shown))
        if self.behaviour == "raises":
            raise ConnectionRefusedError("no queue")
        if self.behaviour == "hangs":
            await asyncio.get_running_loop().create_future()


@pytest.mark.req("GATE-5", "FAIL-9")
@pytest.mark.parametrize("behaviour", ["works", "raises", "hangs"])
async def test_the_row_is_written_before_the_alert_and_a_failed_alert_hides_nothing(
    world: World, behaviour: str
) -> None:
    """One authoritative write, then the alert; failures and timeouts are counted, and other runs continue."""
    channel = Channel(world, behaviour)
    flow = waiting(ceiling=timedelta(hours=2))
    start = await begun(world, flow)
    process = await world.nights(flow, until=start + 2 * HOUR, notifier=channel)
    assert channel.log_entries == [("r1", ["negotiation_total_timeout"], "total_timeout")]
    assert (world.reasons(), world.status()) == (["total_timeout"], "waiting")
    await world.start(flow, "r2")
    await world.signal("go", "r2")
    assert world.status("r2") == "completed"
    await world.pass_(NOTICE_TIMEOUT)
    assert process.worker.counters["dlq_publish_failed"] == (0 if behaviour == "works" else 1)


@pytest.mark.req("GATE-5")
async def test_a_fault_after_the_run_was_given_back_leaves_the_run_alone(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The engine fails once the flag has landed. The holder no longer owns the run, so it flags nothing and ends."""

    def fail(self: Alerts, run: Any, reasons: Any) -> None:
        raise ConnectionError("the channel is dead")

    monkeypatch.setattr(Alerts, "send", fail)
    flow = waiting(ceiling=timedelta(hours=2))
    start = await begun(world, flow)
    process = await world.nights(flow, until=start + 2 * HOUR)
    assert (world.reasons(), world.status(), process.worker.held) == (["total_timeout"], "waiting", 0)
    assert "run r1 could not be flagged" in caplog.text


@pytest.mark.req("GATE-5")
async def test_an_alert_in_flight_does_not_delay_the_stop_of_a_worker(world: World) -> None:
    channel = Channel(world, "hangs")
    flow = waiting(ceiling=timedelta(hours=2))
    start = await begun(world, flow)
    process = await world.nights(flow, until=start + 2 * HOUR, notifier=channel)
    process.worker.drain()
    await world.pass_(3 * SECOND)
    assert (process.task.done(), process.worker.counters["dlq_publish_failed"]) == (True, 1)


@pytest.mark.req("GATE-5")
async def test_a_refused_flag_sends_no_alert(world: World) -> None:
    """A message comes as the run is flagged: it executes again, and operators get one alert."""
    channel = Channel(world)

    async def body(ctx: Ctx) -> None:
        raise ValueError("a mistake")

    flow = one_node(body, ceiling=timedelta(seconds=1))
    process = world.worker(flow, notifier=channel)
    process.wire.before("r1 flag", lambda: world.signal_now("go"))
    await world.start(flow)
    assert [told for _, told, _ in channel.log_entries] == [["exception"]]


# --- within -----------------------------------------------------------------------------------------------------------
@pytest.mark.req("RUN-1", "GATE-3")
async def test_no_wait_of_a_visit_outlasts_its_within(world: World) -> None:
    """Sleep, collect, receive with `timeout`, approval: all end at entry + within; a receive without end has none."""
    order = write(Receiver())
    flow = Workflow("bounded", state=State)
    day = timedelta(days=1)

    @flow.node(start=True, within=timedelta(hours=1))
    async def one(ctx: Ctx) -> None:
        await asyncio.gather(
            ctx.sleep(day, name="s"),
            ctx.receive("r", Go, timeout=day),
            ctx.collect("c", Go, timeout=timedelta(minutes=5)),
            ctx.receive("free", Go),
            ctx.approval(order.plan("a"), summary="a", by=role("boss"), within=day),
        )

    world.worker(flow.validate())
    await world.start(flow)
    entered = world.run().entered_at
    ends = {w.name: w.deadline - entered for w in world.waits()}
    assert ends == {"s": HOUR, "r": HOUR, "c": 5 * MINUTE, "free": 0 - entered}
    assert world.pending().within_until == entered + HOUR
    await world.pass_(HOUR)
    assert world.reasons() == ["approval_timeout"]
    await world.answer("approval_timeout", "ask_again")
    await world.pass_(1)
    assert (len(world.approvals()), world.approvals()[-1].status.value) == (2, "expired"), "the visit is over its time"

"""Named waits: one deadline and one binding by the store's clock, the same in every execution (S-14)."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest

from outlast.core.commit import Mapping
from outlast.core.run_transition import rearmed
from outlast.flow import Context, RetryLater, Workflow
from tests.engine.world import (
    HOUR,
    MINUTE,
    SECOND,
    Go,
    Receiver,
    State,
    World,
    one_node,
    ordering,
    write,
)

Ctx = Context[State]


@pytest.mark.req("CKP-1", "RUN-2")
async def test_a_sleep_ends_at_its_instant_without_a_holder(world: World) -> None:
    """While it sleeps the run is a row: no owner, no task; `waiting_for` says until when."""

    async def body(ctx: Ctx) -> None:
        await ctx.sleep(timedelta(hours=1), name="night")
        await ctx.sleep(until=ctx.now() + timedelta(hours=2), name="until-noon")

    flow = one_node(body)
    process = world.worker(flow)
    await world.start(flow)
    assert (world.run().owner, process.worker.held) == ("", 0)
    assert world.waiting() == [("timer", "night")]
    await world.pass_(HOUR - 1)
    assert world.waiting() == [("timer", "night")]
    await world.pass_(1)
    assert world.waiting() == [("timer", "until-noon")]
    await world.pass_(HOUR)
    assert world.status() == "completed"


@pytest.mark.req("CKP-2")
async def test_the_first_request_fixes_the_deadline(world: World) -> None:
    """A relative deadline is stored once: wakes and executions do not move it, nor does a crash before the park."""

    async def body(ctx: Ctx) -> None:
        got = await ctx.receive("go", Go, timeout=timedelta(minutes=10))
        ctx.state.said = [got.word if got else "nobody"]

    flow = one_node(body)
    first = world.worker(flow)
    first.wire.before("r1 park", first.kill)
    await world.start(flow)
    world.worker(flow)
    await world.pass_(4 * MINUTE)
    await world.signal("other")
    await world.pass_(6 * MINUTE - 1)
    assert world.status() == "waiting"
    await world.pass_(1)
    assert world.outcome()["said"] == ["nobody"]


@pytest.mark.req("CKP-2")
@pytest.mark.parametrize("early", [True, False])
@pytest.mark.every_store
async def test_a_message_before_the_deadline_counts_and_one_at_it_does_not(world: World, early: bool) -> None:
    """The store's time of arrival decides, even if the run is claimed long after the deadline."""

    async def body(ctx: Ctx) -> None:
        got = await ctx.receive("go", Go, timeout=timedelta(minutes=10))
        ctx.state.said = [got.word if got else "deadline"]

    flow = one_node(body)
    first = world.worker(flow)
    await world.start(flow)
    first.kill()  # no worker serves the lane at the deadline
    await world.pass_(10 * MINUTE - (1 if early else 0))
    await world.signal("go", word="note")
    await world.pass_(10 * MINUTE)
    world.worker(flow)
    await world.pass_(MINUTE)
    assert world.outcome()["said"] == ["note" if early else "deadline"]


@pytest.mark.req("CKP-2")
async def test_a_message_sent_while_the_deadline_is_bound_is_not_missed(world: World) -> None:
    """A bound wait names the last message: a signal of the last millisecond, sent after the mailbox was read, counts.

    The trace of the model of S-14: the holder found nothing, the message lands, the holder binds "deadline"."""

    async def body(ctx: Ctx) -> None:
        first = await ctx.receive("first", Go, timeout=timedelta(minutes=10))
        second = await ctx.receive("second", Go, timeout=timedelta(minutes=20))
        ctx.state.said = [str(first and first.word), str(second and second.word)]

    flow = one_node(body)
    process = world.worker(flow)
    await world.start(flow)
    process.wire.before("bind first", lambda: world.signal_now("second", word="heard"))
    await world.pass_(10 * MINUTE)
    assert world.outcome()["said"] == ["None", "heard"]


@pytest.mark.req("CKP-2", "REC-1")
@pytest.mark.every_store
async def test_a_binding_is_the_same_after_a_crash_and_in_every_later_execution(world: World) -> None:
    """Bound to note 1, it stays bound to note 1, whatever comes later; the successor gets the same answer."""
    seen: list[str] = []

    async def body(ctx: Ctx) -> None:
        got = await ctx.receive("go", Go)
        seen.append(got.word)
        await ctx.receive("end", Go)
        ctx.state.said = [got.word]

    flow = one_node(body)
    first = world.worker(flow)
    first.wire.after("bind go", first.kill)
    await world.start(flow)
    await world.signal("go", word="one")
    await world.signal("go", word="two")
    world.worker(flow)
    await world.pass_(MINUTE)
    await world.signal("end")
    assert seen and set(seen) == {"one"}
    assert world.outcome()["said"] == ["one"]


@pytest.mark.req("CKP-1")
async def test_unbound_messages_are_kept_for_later_visits_and_none_answers_twice(world: World) -> None:
    """Each visit takes the next note, in order of arrival; notes left before the wait existed count."""
    flow = Workflow("rounds", state=State)

    @flow.node(start=True, max_visits=5)
    async def round_(ctx: Ctx) -> Literal["round_"] | None:
        got = await ctx.receive("bid", Go)
        ctx.state.said.append(got.word)
        return "round_" if len(ctx.state.said) < 3 else None

    await world.start(flow)
    for word in "abc":
        await world.signal("bid", word=word)
    world.worker(flow)
    await world.settle()
    assert world.outcome()["said"] == ["a", "b", "c"]


@pytest.mark.every_store
async def test_collect_takes_all_until_the_deadline_or_its_limit(world: World) -> None:
    """`most` ends it early; without it the deadline does, with what has come, which may be nothing."""

    async def body(ctx: Ctx) -> None:
        two = await ctx.collect("bid", Go, timeout=timedelta(minutes=5), limit=2)
        rest = await ctx.collect("late", Go, timeout=timedelta(minutes=5))
        none = await ctx.collect("never", Go, timeout=timedelta(minutes=5))
        ctx.state.said = [g.word for g in (*two, *rest, *none)]

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    for word in "abc":
        await world.signal("bid", word=word)
    for word in "xyz":
        await world.signal("late", word=word)
    assert world.waiting() == [("signal", "late")]
    await world.pass_(10 * MINUTE)
    assert world.outcome()["said"] == ["a", "b", "x", "y", "z"]


async def test_a_signal_the_model_cannot_read_answers_nothing(world: World) -> None:
    """A bad payload is left in the mailbox; the next good one answers."""

    async def body(ctx: Ctx) -> None:
        ctx.state.said = [(await ctx.receive("go", Go)).word]

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.signal("go", word=["not", "text"])
    assert world.status() == "waiting"
    await world.signal("go", word="good")
    assert world.outcome()["said"] == ["good"]


async def test_a_second_wait_of_one_name_is_refused(world: World) -> None:
    """A wait is known by its name; attention names the second one."""

    async def body(ctx: Ctx) -> None:
        await ctx.sleep(timedelta(seconds=0), name="twice")
        await ctx.sleep(timedelta(seconds=0), name="twice")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    assert world.reasons() == ["exception"]
    assert "twice in one visit" in world.attention()[0].detail


async def test_a_wait_whose_kind_changed_between_executions_calls_a_person(world: World) -> None:
    """Names are the same in another execution, and mean the same."""
    kinds: list[str] = []

    async def body(ctx: Ctx) -> None:
        kinds.append("walk")
        if len(kinds) == 1:
            await ctx.receive("x", Go, timeout=timedelta(minutes=1))
        else:
            await ctx.sleep(timedelta(minutes=1), name="x")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(MINUTE)
    assert world.reasons() == ["node_diverged"]


async def test_an_instant_without_a_time_zone_is_refused(world: World) -> None:
    """Deadlines are business instants in UTC; a naive one would mean another instant on another machine."""

    async def body(ctx: Ctx) -> None:
        await ctx.sleep(until=datetime(2027, 1, 1))  # noqa: DTZ001 - the mistake that is tried here

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    assert world.reasons() == ["exception"]
    assert "time zone" in world.attention()[0].detail


@pytest.mark.req("REC-1", "REC-2")
async def test_a_skip_of_96_hours_wakes_the_runs_that_fall_due_and_moves_no_liveness_instant(world: World) -> None:
    """Business time jumps; leases, budgets, settle times and retries are real and stay where they are (S-4)."""
    shop = Receiver()

    async def sleeps(ctx: Ctx) -> None:
        await ctx.sleep(timedelta(hours=90), name="days")

    async def longer(ctx: Ctx) -> None:
        await ctx.sleep(timedelta(hours=100), name="days")

    shop.script.append(RetryLater("busy", after=timedelta(seconds=30)))
    short, long, retries = one_node(sleeps, name="short"), one_node(longer, name="long"), ordering(write(shop), "a")
    world.worker(short, long, retries)
    for flow, run in ((short, "s"), (long, "l"), (retries, "r")):
        await world.start(flow, run)
    retry_due, lease = world.run("r").due_at, world.worker_row("wk-1").lease_until
    now = world.core.now()
    skip = Mapping(0, now.real, now.business + 96 * HOUR, 1.0)
    await world.store.set_mapping(skip, rearmed)
    assert world.run("r").due_at == retry_due
    assert world.worker_row("wk-1").lease_until == lease
    await world.pass_(SECOND)
    assert [world.status(r) for r in "slr"] == ["completed", "waiting", "waiting"]
    await world.pass_(30 * SECOND)
    assert world.status("r") == "completed"
    await world.pass_(4 * HOUR)
    assert world.status("l") == "completed"


@pytest.mark.req("CKP-2")
async def test_a_park_computed_with_an_old_mapping_is_refused_and_done_again(world: World) -> None:
    """The mapping moves between the decision to park and its commit: the new due_at is what counts."""

    async def body(ctx: Ctx) -> None:
        await ctx.sleep(timedelta(hours=90), name="days")

    flow = one_node(body)
    process = world.worker(flow)

    def skip() -> None:
        now = world.core.now()
        world._now(world.store.set_mapping(Mapping(0, now.real, now.business + 96 * HOUR, 1.0), rearmed))

    process.wire.before("r1 park", skip)
    await world.start(flow)
    await world.pass_(SECOND)
    assert world.status() == "completed"


def test_the_clock_of_these_tests_starts_where_it_says() -> None:
    """So that instants in these tests can be read."""
    assert datetime.fromtimestamp(World().time.wall() / 1000, UTC) == datetime(2026, 1, 1, tzinfo=UTC)


async def test_a_sleep_takes_a_duration_as_text_and_needs_no_name(world: World) -> None:
    """Two sleeps of one visit need names."""

    async def body(ctx: Ctx) -> None:
        await ctx.sleep("1h30m")
        await ctx.sleep("30m", name="again")

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    assert world.waiting() == [("timer", "sleep")]
    await world.pass_(90 * MINUTE)
    assert world.waiting() == [("timer", "again")]
    await world.pass_(30 * MINUTE)
    assert world.status() == "completed"


async def test_timeouts_are_text_or_timedelta_and_until_is_an_instant(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        deadline = ctx.now() + timedelta(hours=3)
        ctx.state.said = [
            str(await ctx.receive("a", Go, timeout="1h")),
            str(await ctx.receive("b", Go, until=deadline)),
        ]
        ctx.state.n = len(await ctx.collect("c", Go, timeout=timedelta(hours=1)))

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    await world.pass_(4 * HOUR)
    assert world.outcome()["said"] == ["None", "None"] and world.status() == "completed"


WRONG_ENDS: dict[str, Callable[[Ctx], Any]] = {
    "no end": lambda ctx: ctx.sleep(),  # type: ignore[call-overload]
    "collect without an end": lambda ctx: ctx.collect("c", Go),  # type: ignore[call-overload]
    "two ends": lambda ctx: ctx.receive("r", Go, timeout="1h", until=ctx.now()),  # type: ignore[call-overload]
    "a duration that is none": lambda ctx: ctx.sleep("tomorrow"),
    "a number": lambda ctx: ctx.sleep(12),  # type: ignore[call-overload]
    "a duration as an instant": lambda ctx: ctx.sleep(until=timedelta(hours=1)),  # type: ignore[call-overload]
}


@pytest.mark.parametrize("wrong", WRONG_ENDS)
async def test_a_wait_that_has_no_proper_end_is_refused(world: World, wrong: str) -> None:
    async def body(ctx: Ctx) -> None:
        await WRONG_ENDS[wrong](ctx)

    flow = one_node(body)
    world.worker(flow)
    await world.start(flow)
    assert world.reasons() == ["exception"] and world.waits() == []
    assert "OUT-103" in world.attention()[0].detail

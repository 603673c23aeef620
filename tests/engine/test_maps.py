"""Maps of a node: a window of child runs, with an early end (S-31)."""

import asyncio
import re
from typing import Any

import pytest

from outlast import ChildFailed, Context, Fail, workflow
from outlast.core.rows.map_rows import MAP_OUTCOME
from outlast.core.rows.run_rows import MESSAGE, RUN
from outlast.errors import Conflict, InvalidInput
from tests.engine.world import MINUTE, Go, Receiver, State, World, one_node, write

pytestmark = pytest.mark.req("RUN-14")
Ctx = Context[State]


@workflow
async def digs(ctx: Context, topic: str) -> str:
    """Take 20 seconds. A topic that begins with bad fails."""
    await ctx.sleep("20s")
    if topic.startswith("bad"):
        raise Fail("no such topic")
    return topic.upper()


@workflow
async def paced(ctx: Context, minutes: int) -> int:
    await ctx.sleep(f"{minutes}m")
    return minutes


@workflow
async def listens_to(ctx: Context, topic: str) -> str:
    return (await ctx.receive("word", Go)).word


def inputs_of(*topics: str) -> dict[str, Any]:
    return {topic: digs.arguments(topic) for topic in topics}


def children_of(world: World) -> list[Any]:
    return [run for run in world.core.rows.under(RUN, ("t",)) if run.root]


@pytest.mark.every_store
async def test_a_map_runs_a_window_at_a_time_and_executes_the_body_twice(world: World) -> None:
    executed, topics = [], [f"t{n:02}" for n in range(25)]

    async def body(ctx: Ctx) -> None:
        executed.append(ctx.visit)
        done = await ctx.map(digs, inputs_of(*topics), at_most=4)
        ctx.state.said += (await done.values()).values()

    flow = one_node(body)
    world.worker(flow, digs)
    await world.start(flow)
    assert len(children_of(world)) == 4
    assert world.waiting() == [("child", "digs: 0 of 25 have ended, 4 run")]
    for _ in range(12):
        await world.pass_(MINUTE)
        assert sum(run.ended_at == 0 for run in children_of(world)) <= 4
    assert world.status() == "completed" and world.outcome()["said"] == [topic.upper() for topic in topics]
    assert executed == [1, 1]
    assert len(children_of(world)) == 25
    assert not world.effects("r1") and not world.core.rows.under(MESSAGE, ("t", "r1"))
    assert len(world.core.rows.under(MAP_OUTCOME, ("t", "r1"))) == 25


async def test_enough_ends_a_map_and_what_ends_later_changes_nothing(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        done = await ctx.map(paced, {f"{n}": paced.arguments(n) for n in range(1, 7)}, at_most=3, min_successful=2)
        ctx.state.said += [f"{key} {status}" for key, status in done.statuses.items()]
        ctx.state.said.append(str(done.enough))

    flow = one_node(body)
    world.worker(flow, paced)
    await world.start(flow)
    await world.pass_(10 * MINUTE)
    assert world.status() == "completed"
    assert world.outcome()["said"] == [
        "1 completed", "2 completed", "3 cancelled", "4 cancelled", "5 not_started", "6 not_started", "True",
    ]  # fmt: skip
    assert len(children_of(world)) == 4 and all(run.ended_at for run in children_of(world))


async def test_too_many_failures_end_a_map(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        done = await ctx.map(digs, inputs_of("bad1", "tin", "bad2", "lead", "zinc"), at_most=2, tolerated_failures=1)
        ctx.state.said += [status.value for status in done.statuses.values()]
        assert not done.enough
        try:
            await done.value("bad1")
        except ChildFailed as failed:
            ctx.state.said += [failed.key, failed.code, failed.detail]

    flow = one_node(body)
    world.worker(flow, digs)
    await world.start(flow)
    for _ in range(5):
        await world.pass_(MINUTE)
    said = world.outcome()["said"]
    assert said == ["failed", "completed", "failed", "completed", "not_started", "digs/bad1", "failed", "no such topic"]


async def test_other_inputs_in_a_re_run_ask_a_person(world: World) -> None:
    more: list[str] = []

    async def body(ctx: Ctx) -> None:
        await ctx.sleep("5s", name=f"before{len(more)}") if more else None
        await ctx.map(digs, inputs_of("tin", *more), at_most=2)

    flow = one_node(body)
    world.worker(flow, digs)
    await world.start(flow)
    more.append("lead")
    await world.pass_(MINUTE)
    await world.pass_(MINUTE)
    assert world.reasons() == ["node_diverged"]
    assert len(children_of(world)) == 1
    await world.answer("node_diverged", "accept")
    for _ in range(3):
        await world.pass_(MINUTE)
    assert world.status() == "completed" and len(children_of(world)) == 3


async def test_two_maps_at_once_rest_together(world: World) -> None:
    executed = []

    async def body(ctx: Ctx) -> None:
        executed.append(1)
        one, two = await asyncio.gather(
            ctx.map(digs, inputs_of("tin", "lead", "zinc"), at_most=1),
            ctx.map(digs, inputs_of("gold"), key="precious"),
        )
        ctx.state.said += [*(await one.values()).values(), *(await two.values()).values()]

    flow = one_node(body)
    world.worker(flow, digs)
    await world.start(flow)
    for _ in range(6):
        await world.pass_(MINUTE)
    assert world.outcome()["said"] == ["TIN", "LEAD", "ZINC", "GOLD"]
    assert len(executed) == 3


async def test_a_cancel_ends_the_window_and_starts_nothing_more(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        await ctx.map(listens_to, {f"{n}": listens_to.arguments("x") for n in range(9)}, at_most=3)

    flow = one_node(body)
    world.worker(flow, listens_to)
    await world.start(flow)
    assert len(children_of(world)) == 3
    await world.cancel()
    await world.pass_(MINUTE)
    assert world.status() == "cancelled"
    assert len(children_of(world)) == 3 and {run.status.value for run in children_of(world)} == {"cancelled"}


async def test_the_end_of_a_failed_run_counts_what_stays_of_its_map(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        await ctx.map(digs, inputs_of("tin", "bad", "lead"), no_undo="a dig is not filled up")
        raise Fail("enough")

    flow = one_node(body)
    world.worker(flow, digs)
    await world.start(flow)
    await world.pass_(MINUTE)
    assert world.status() == "failed"
    assert world.last_event()["not_undone"] == ["digs: 2 completed runs of its map: a dig is not filled up"]


async def test_one_slot_is_enough_for_a_map_and_its_run(world: World) -> None:
    world.add_slots("t", 1)

    async def body(ctx: Ctx) -> None:
        done = await ctx.map(digs, inputs_of("tin", "lead", "zinc"), at_most=2)
        ctx.state.said += (await done.values()).values()

    flow = one_node(body)
    world.worker(flow, digs)
    await world.start(flow)
    for _ in range(6):
        await world.pass_(MINUTE)
    assert world.status() == "completed" and world.outcome()["said"] == ["TIN", "LEAD", "ZINC"]
    assert [slot.holder for slot in world.slots()] == [""]


async def test_an_empty_map_is_settled_at_once(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        done = await ctx.map(digs, {})
        ctx.state.said.append(f"{done.enough} {await done.values()}")

    flow = one_node(body)
    world.worker(flow, digs)
    await world.start(flow)
    assert world.outcome()["said"] == ["True {}"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"at_most": 0}, "at_most=0"),
        ({"at_most": 1_001}, "at_most=1001"),
        ({"min_successful": 3}, "min_successful=3"),
        ({"tolerated_failures": -1}, "tolerated_failures=-1"),
        ({"key": "undo/x"}, "undo/x"),
        ({"undo": {"other": digs.arguments("x")}}, "undo"),
    ],
)
async def test_impossible_options_are_refused(world: World, options: dict[str, Any], says: str) -> None:
    async def body(ctx: Ctx) -> None:
        with pytest.raises(InvalidInput, match=re.escape(says)):
            await ctx.map(digs, inputs_of("tin", "lead"), **options)
        ctx.state.said.append("refused")

    flow = one_node(body)
    world.worker(flow, digs)
    await world.start(flow)
    assert world.outcome()["said"] == ["refused"] and not children_of(world)


async def test_children_with_an_undo_are_undone_the_latest_first(world: World) -> None:
    receiver = Receiver()
    order, fire = write(receiver, undo=True), write(receiver, name="fire")

    async def body(ctx: Ctx) -> None:
        await ctx.do(order, "a")
        hired = {name: digs.arguments(name) for name in ("x", "bad", "y")}
        await ctx.map(digs, hired, at_most=1, undo={name: fire.plan(name) for name in hired})
        raise Fail("enough")

    flow = one_node(body)
    world.worker(flow, digs)
    await world.start(flow)
    for _ in range(4):
        await world.pass_(MINUTE)
    assert world.status() == "failed"
    assert [key.rsplit(":", 1)[1] for key in receiver.attempts] == [
        "order/a", "undo/digs/y", "undo/digs/x", "undo/order/a",
    ]  # fmt: skip


async def test_a_map_goes_on_in_another_worker_and_starts_nobody_twice(world: World) -> None:
    topics = [f"t{n}" for n in range(8)]

    async def body(ctx: Ctx) -> None:
        done = await ctx.map(digs, inputs_of(*topics), at_most=3)
        ctx.state.said += await asyncio.gather(*(done.value(each) for each in reversed(topics)))

    flow = one_node(body)
    process = world.worker(flow, digs)
    await world.start(flow)
    for _ in range(8):
        process.kill()
        process = world.worker(flow, digs)
        await world.pass_(MINUTE)
    assert world.status() == "completed" and len(world.outcome()["said"]) == 8 == len(children_of(world))


async def test_deaths_under_a_long_map_do_not_poison_its_run(world: World) -> None:
    topics = [f"t{n}" for n in range(100)]

    async def body(ctx: Ctx) -> None:
        done = await ctx.map(digs, inputs_of(*topics), at_most=2)
        ctx.state.said += (await done.values()).values()

    flow = one_node(body)
    process = world.worker(flow, digs)
    await world.start(flow)
    for _ in range(12):
        held = process.wire.submit

        def dies(commit: Any, held: Any = held, process: Any = process, **options: Any) -> Any:
            if commit.label.startswith("r1 park"):
                process.kill()
            return held(commit, **options)

        process.wire.submit = dies  # type: ignore[method-assign]
        await world.pass_(MINUTE)
        process = world.worker(flow, digs)
        await world.pass_(MINUTE)
    for _ in range(20):
        await world.pass_(MINUTE)
    assert world.status() == "completed" and len(world.outcome()["said"]) == 100 == len(children_of(world))


@workflow(key="named/{n}")
async def named_digs(ctx: Context, n: str, x: int = 0) -> str:
    await ctx.sleep("20s")
    return n


async def test_inputs_without_a_child_take_no_place_in_the_window(world: World) -> None:
    """Else a window of inputs that cannot be started would wait for an end that never comes."""

    async def body(ctx: Ctx) -> None:
        keys = {each: named_digs.arguments(each) for each in "abcd"}
        keys["b"] = named_digs.arguments("b", x=1)
        done = await ctx.map(named_digs, keys, at_most=1)
        ctx.state.said += [f"{key} {status}" for key, status in done.statuses.items()]
        ctx.state.said += [str(error) for error in (await done.errors()).values()]

    async def taken(ctx: Ctx) -> None:
        await asyncio.gather(*(ctx.run(named_digs, named_digs.arguments(each), key=each) for each in "abc"))

    flow, first = one_node(body), one_node(taken, name="takes-names")
    world.worker(flow, first, named_digs)
    await world.start(first, run="r0")
    await world.start(flow)
    for _ in range(4):
        await world.pass_(MINUTE)
    assert world.status() == "completed"
    said = world.outcome()["said"]
    assert said[:4] == ["a failed", "b failed", "c failed", "d completed"]
    assert "named_digs was started before" in said[4]


async def test_two_inputs_with_one_key_of_their_workflow_start_one_child(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        done = await ctx.map(named_digs, {each: named_digs.arguments("both") for each in "ab"})
        ctx.state.said += [f"{key} {status}" for key, status in done.statuses.items()]

    flow = one_node(body)
    world.worker(flow, named_digs)
    await world.start(flow)
    await world.pass_(MINUTE)
    assert world.outcome()["said"] == ["a completed", "b failed"] and len(children_of(world)) == 1


async def test_a_child_that_its_map_has_counted_is_not_tried_again(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        await (await ctx.map(digs, inputs_of("tin", "bad"))).raise_failed()

    flow = one_node(body)
    world.worker(flow, digs)
    await world.start(flow)
    await world.pass_(MINUTE)
    (asked,) = world.run().attention
    assert asked.reason == "child_failed" and [choice.value for choice in asked.choices()] == ["fail", "cancel"]
    with pytest.raises(Conflict, match="whose results do not change"):
        await world.answer("child_failed", "retry")


async def test_an_error_of_an_input_names_its_key(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        with pytest.raises(InvalidInput, match=r"input lead of ctx\.map"):
            await ctx.map(digs, {"tin": digs.arguments("tin"), "lead": 5})  # type: ignore[dict-item]
        ctx.state.said.append("refused")

    flow = one_node(body)
    world.worker(flow, digs)
    await world.start(flow)
    assert world.outcome()["said"] == ["refused"]

"""A child tells its parent something while it goes on: `ctx.parent.signal`, once per id (S-30)."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from outlast import Cancel, Context, workflow
from outlast.core.rows.run_rows import RUN
from outlast.errors import InvalidInput
from tests.engine.world import MINUTE, Go, State, World, one_node
from tests.mutants import remove

pytestmark = pytest.mark.req("RUN-13", "RUN-4")
Ctx = Context[State]


@workflow
async def asks_above(ctx: Context, topic: str) -> str:
    """Send the parent two words, and return the word that it sends back."""
    assert ctx.parent is not None
    await ctx.parent.signal("question", Go(word=f"{topic}?"), id="1")
    await ctx.parent.signal("question", Go(word="another value of this id"), id="1")
    return (await ctx.receive("word", Go)).word


@workflow
async def says_whether_it_has_a_parent(ctx: Context) -> str:
    return "none" if ctx.parent is None else ctx.parent.run_id


def questions(world: World, run: str = "r1") -> list[str]:
    return [message.signal_id for message in world.messages(run) if message.kind == "signal"]


@pytest.mark.every_store
async def test_a_child_asks_its_parent_and_gets_an_answer(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        child = await ctx.start(asks_above, asks_above.arguments("tin"), key="k")
        asked = await ctx.receive("question", Go)
        await child.signal("word", Go(word=f"{asked.word} yes"), id="answer")
        ctx.state.said.append(await child.result())

    flow = one_node(body)
    worker = world.worker(flow, asks_above)
    await world.start(flow)
    worker.kill()
    world.worker(flow, asks_above)
    await world.pass_(2 * MINUTE)
    assert world.outcome()["said"] == ["tin? yes"]
    assert questions(world) == [f"{world.effect('k').external_id}/1"]
    (message,) = [each for each in world.messages("r1") if each.kind == "signal"]
    assert message.actor == f"run {world.effect('k').external_id}"


async def test_a_root_has_no_parent_and_a_child_has(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        ctx.state.said.append("none" if ctx.parent is None else "a parent")
        ctx.state.said.append(await ctx.run(says_whether_it_has_a_parent))

    flow = one_node(body)
    world.worker(flow, says_whether_it_has_a_parent)
    await world.start(flow)
    assert world.outcome()["said"] == ["none", "r1"]


@workflow
async def speaks_late(ctx: Context) -> str:
    await ctx.sleep("1h")
    assert ctx.parent is not None
    await ctx.parent.signal("question", Go(word="too late"), id="late")
    return "said"


async def test_a_parent_that_has_ended_gets_nothing(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        await ctx.start(speaks_late, speaks_late.arguments(), key="k", parent_close="abandon")
        raise Cancel("enough")

    flow = one_node(body)
    world.worker(flow, speaks_late)
    await world.start(flow)
    assert world.status() == "cancelled"
    await world.pass_(2 * 60 * MINUTE)
    child = world.core.rows.get(RUN, ("t", world.effect("k").external_id))
    assert child is not None and child.status == "completed"
    assert questions(world) == []


async def diverges(world: World, body: Callable[[Any], Any]) -> str:
    """Run a child with this body, which waits once, and return what a person is asked about it."""

    @workflow
    async def wavers(ctx: Context) -> None:
        await body(ctx)

    async def starts(ctx: Ctx) -> None:
        await ctx.run(wavers, wavers.arguments(), key="k")

    flow = one_node(starts)
    world.worker(flow, wavers)
    await world.start(flow)
    await world.pass_(MINUTE)
    child = world.core.rows.get(RUN, ("t", world.effect("k").external_id))
    assert child is not None and [each.reason for each in child.attention] == ["node_diverged"], child
    return child.attention[0].detail


@pytest.mark.req("EFF-9")
async def test_another_signal_to_the_parent_is_held(world: World) -> None:
    ids = iter(["one", "two", "three"])

    async def body(ctx: Context) -> None:
        assert ctx.parent is not None
        await ctx.parent.signal("question", Go(), id=next(ids))
        await ctx.sleep("1s")

    assert "outlast.signal parent two" in await diverges(world, body)
    assert [each.rpartition("/")[2] for each in questions(world)] == ["one"]


@pytest.mark.req("EFF-9")
async def test_a_signal_to_the_parent_that_is_not_sent_again_is_noticed(world: World) -> None:
    executed: list[int] = []

    async def body(ctx: Context) -> None:
        executed.append(1)
        assert ctx.parent is not None
        if len(executed) == 1:
            await ctx.parent.signal("question", Go(), id="one")
        await ctx.sleep("1s")

    assert "did not ask for" in await diverges(world, body)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda above: above.signal("question", {"word": "x"}, id="1"), ["of a parent", "ctx.parent.signal("]),
        (lambda above: above.signal("question", Go(), id=""), ["the id of a signal", "ctx.parent.signal("]),
        (lambda above: above.signal("no name", Go(), id="1"), ["signal"]),
    ],
)
async def test_a_wrong_signal_to_the_parent_says_what_to_write(
    world: World, call: Callable[[Any], Any], says: list[str]
) -> None:
    @workflow
    async def mistakes(ctx: Context) -> str:
        try:
            await call(ctx.parent)
        except InvalidInput as error:
            return str(error)
        return ""

    async def body(ctx: Ctx) -> None:
        ctx.state.said.append(await ctx.run(mistakes))

    flow = one_node(body)
    world.worker(flow, mistakes)
    await world.start(flow)
    (text,) = world.outcome()["said"]
    assert [each for each in says if each not in text] == [], text


async def test_several_signals_at_once_are_all_sent(world: World) -> None:
    @workflow
    async def shouts(ctx: Context) -> None:
        assert ctx.parent is not None
        await asyncio.gather(*(ctx.parent.signal("question", Go(word=n), id=n) for n in "abc"))

    async def body(ctx: Ctx) -> None:
        await ctx.start(shouts, shouts.arguments(), key="k")
        ctx.state.said += [each.word for each in await ctx.collect("question", Go, timeout="1h", limit=3)]

    flow = one_node(body)
    world.worker(flow, shouts)
    await world.start(flow)
    await world.pass_(2 * 60 * MINUTE)
    assert sorted(world.outcome()["said"]) == ["a", "b", "c"]


async def test_without_the_record_another_signal_goes_to_the_parent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove("signals_not_expected", monkeypatch)
    with pytest.raises(AssertionError):
        await test_another_signal_to_the_parent_is_held(world)

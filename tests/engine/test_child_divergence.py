"""A re-run that asks for other children, or sends them other signals, is put to a person before it does so (S-27)."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from outlast import Context, Fail, workflow
from outlast.core.rows.run_rows import RUN
from tests.engine.world import MINUTE, Go, State, World, one_node
from tests.mutants import remove

pytestmark = pytest.mark.req("EFF-9", "RUN-13")
Ctx = Context[State]


@workflow
async def hears_words(ctx: Context, topic: str) -> str:
    return ", ".join([each.word for each in await ctx.collect("word", Go, timeout="1h")])


def runs(world: World) -> int:
    return len(list(world.core.rows.under(RUN, ("t",))))


def heard(world: World, key: str = "k") -> list[str]:
    child = world.effect(key).external_id
    return [message.signal_id.rpartition("/")[2] for message in world.messages(child) if message.kind == "signal"]


async def diverged(world: World, body: Callable[[Ctx], Any], *more: Any) -> None:
    """Execute a body, and once more after its wait."""
    flow = one_node(body)
    world.worker(flow, hears_words, *more)
    await world.start(flow)
    await world.pass_(MINUTE)
    assert world.reasons() == ["node_diverged"], world.run()


@pytest.mark.parametrize("verb", ["run", "start", "first"])
async def test_another_child_is_not_started(world: World, verb: str) -> None:
    keys = iter(["one", "two", "three"])

    async def body(ctx: Ctx) -> None:
        key, given = next(keys), hears_words.arguments("a")
        if verb == "start":
            await ctx.start(hears_words, given, key=key)
            await ctx.sleep("1s")
        elif verb == "first":
            await ctx.first(ctx.run(hears_words, given, key=key), ctx.sleep("1s"))
        else:
            await asyncio.gather(ctx.run(hears_words, given, key=key), ctx.sleep("1s"))

    await diverged(world, body)
    assert runs(world) == 2 and "New: hears_words two" in world.run().attention[0].detail


async def test_another_signal_is_not_sent(world: World) -> None:
    ids = iter(["one", "two", "three"])

    async def body(ctx: Ctx) -> None:
        child = await ctx.start(hears_words, hears_words.arguments("a"), key="k")
        await child.signal("word", Go(), id=next(ids))
        await ctx.sleep("1s")

    await diverged(world, body)
    assert heard(world) == ["one"]
    assert "outlast.signal k two" in world.run().attention[0].detail


async def test_a_signal_that_is_not_sent_again_is_noticed_at_the_end(world: World) -> None:
    executed: list[int] = []

    async def body(ctx: Ctx) -> None:
        executed.append(1)
        child = await ctx.start(hears_words, hears_words.arguments("a"), key="k")
        if len(executed) == 1:
            await child.signal("word", Go(), id="one")
        await ctx.sleep("1s")

    await diverged(world, body)


async def test_the_same_signals_are_sent_once(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        child = await ctx.start(hears_words, hears_words.arguments("a"), key="k")
        for n in ("one", "two"):
            await child.signal("word", Go(word=n), id=n)
        await ctx.sleep("1s")
        await child.signal("word", Go(word="three"), id="three")
        ctx.state.said.append(await child.result())

    flow = one_node(body)
    world.worker(flow, hears_words)
    await world.start(flow)
    await world.pass_(2 * 60 * MINUTE)
    assert world.status() == "completed" and world.outcome()["said"] == ["one, two, three"]
    assert heard(world) == ["one", "two", "three"]


async def test_signals_to_a_child_that_is_tried_again_are_sent_to_the_next_one(world: World) -> None:
    words = iter(["", "fine"])

    @workflow
    async def flaky(ctx: Context) -> str:
        await ctx.receive("word", Go)
        if word := next(words):
            return word
        raise Fail("down")

    async def body(ctx: Ctx) -> None:
        child = await ctx.start(flaky, flaky.arguments(), key="k")
        await child.signal("word", Go(), id="one")
        ctx.state.said.append(await child.result())

    flow = one_node(body)
    world.worker(flow, flaky)
    await world.start(flow)
    assert world.reasons() == ["child_failed"]
    await world.answer("child_failed", "retry")
    assert world.status() == "completed" and world.outcome()["said"] == ["fine"]


async def test_without_the_record_another_signal_is_sent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    remove("signals_not_expected", monkeypatch)
    with pytest.raises(AssertionError):
        await test_another_signal_is_not_sent(world)

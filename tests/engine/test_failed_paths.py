"""The failure of a child names the runs down to the one that failed by itself (S-30)."""

from collections.abc import Iterator

import pytest

from outlast import ChildFailed, Context, Fail, workflow
from outlast.core.rows.effect_columns import ERROR, EffectError, FailedRun
from tests.engine.world import Receiver, State, World, one_node, write

pytestmark = pytest.mark.req("RUN-13")
Ctx = Context[State]


@workflow
async def leaf_fails(ctx: Context, how: str) -> str:
    raise Fail("no such topic")


@workflow
async def middle_fails(ctx: Context, how: str) -> str:
    if how == "asks":
        return await ctx.run(leaf_fails, leaf_fails.arguments(how), key="leaf")
    try:
        return await ctx.run(leaf_fails, leaf_fails.arguments(how), key="leaf")
    except ChildFailed as failed:
        if how == "from none":
            raise Fail("another reason") from None
        raise Fail("the leaf is needed") from failed


def ids(world: World) -> Iterator[str]:
    run = "r1"
    for key in ("mid", "leaf"):
        run = world.effect(key, run).external_id
        yield run


@pytest.mark.every_store
async def test_the_failure_names_the_path_and_its_cause(world: World) -> None:
    paths = []

    async def body(ctx: Ctx) -> None:
        try:
            await ctx.run(middle_fails, middle_fails.arguments("from"), key="mid")
        except ChildFailed as failed:
            paths.append((failed.path, failed.cause))
            ctx.state.said.append(str(failed))

    flow = one_node(body)
    world.worker(flow, middle_fails, leaf_fails)
    await world.start(flow)
    mid, leaf = ids(world)
    first = FailedRun("middle_fails", "mid", mid, "failed", "the leaf is needed")
    last = FailedRun("leaf_fails", "leaf", leaf, "failed", "no such topic")
    assert paths[-1] == ((first, last), last)
    (said,) = world.outcome()["said"]
    assert said.endswith(f"{mid} → {leaf}: leaf_fails leaf ended as failed: no such topic")


async def test_a_failure_of_another_reason_has_a_path_of_one_run(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        try:
            await ctx.run(middle_fails, middle_fails.arguments("from none"), key="mid")
        except ChildFailed as failed:
            ctx.state.said += [str(len(failed.path)), failed.cause.detail]

    flow = one_node(body)
    world.worker(flow, middle_fails, leaf_fails)
    await world.start(flow)
    assert world.outcome()["said"] == ["1", "another reason"]


@pytest.mark.parametrize("undoes", [False, True])
async def test_a_person_who_fails_a_run_for_its_child_gives_the_path_to_its_parent(world: World, undoes: bool) -> None:
    order = write(Receiver(), undo=True)

    @workflow
    async def asks(ctx: Context) -> str:
        if undoes:
            await ctx.do(order, "a")
        return await ctx.run(leaf_fails, leaf_fails.arguments("asks"), key="leaf")

    async def body(ctx: Ctx) -> None:
        await ctx.run(asks, asks.arguments(), key="mid", no_undo="it undoes itself")

    flow = one_node(body)
    world.worker(flow, asks, leaf_fails)
    await world.start(flow)
    mid, leaf = ids(world)
    await world.answer("child_failed", "fail", mid)
    assert world.reasons() == ["child_failed"]
    (entry,) = world.run().attention
    assert f"{mid} → {leaf}: leaf_fails leaf ended as failed: no such topic" in entry.detail
    assert world.effect("mid").error.below[0].run == leaf  # type: ignore[union-attr]


def test_a_path_is_stored_and_read_back() -> None:
    error = EffectError("failed", "why", below=(FailedRun("w", "k", "r", "failed", "x"),))
    assert ERROR.decode(ERROR.encode(error)) == error

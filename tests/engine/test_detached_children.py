"""An operator detaches a child: its parent goes on, and the child keeps its attention (S-30)."""

from typing import Any

import pytest

from outlast import ChildFailed, Context, Fail, Refused, workflow
from outlast.core import children
from outlast.core.children import ParentRows
from outlast.core.machine import Choice
from outlast.core.rows.run_rows import RUN, Run
from outlast.engine.child_runs import parent_rows
from outlast.engine.detached_children import detach
from outlast.errors import Conflict, InvalidInput, Stale
from outlast.insight.explanation import explain
from outlast.insight.run_reads import detail_of
from outlast.insight.tenant_rows import TenantRows
from outlast.upkeep.fsck import Fsck
from tests.engine.world import MINUTE, Go, Receiver, State, World, one_node, write

pytestmark = pytest.mark.req("RUN-13")
Ctx = Context[State]


@workflow
async def waits_for_word(ctx: Context, topic: str) -> str:
    return (await ctx.receive("word", Go)).word


def child_of(world: World, key: str = "k", run: str = "r1") -> str:
    return world.effect(key, run).external_id


async def detached(world: World, run: str, reason: str = "it takes too long") -> None:
    await detach(world.store, tenant="t", run=run, actor="ana", reason=reason)
    await world.settle()


async def whole(world: World) -> None:
    assert (await Fsck(world.store, chain=True).look()).findings == ()


def told(world: World, run: str = "r1") -> list[Any]:
    texts = [event.data().get("text", "") for event in world.events(run)]
    return [text for text in texts if "was detached by" in text]


@pytest.mark.every_store
async def test_a_parent_goes_on_without_a_detached_child(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        try:
            await ctx.run(waits_for_word, waits_for_word.arguments("tin"), key="k")
        except ChildFailed as failed:
            ctx.state.said += [failed.code, failed.detail, failed.run]

    flow = one_node(body)
    world.worker(flow, waits_for_word)
    await world.start(flow)
    child = child_of(world)
    await detached(world, child)
    await detached(world, child)  # again changes nothing
    assert world.status() == "completed"
    assert world.outcome()["said"] == ["detached", "it takes too long", child]
    assert told(world) == ["waits_for_word k was detached by ana: it takes too long"]
    assert world.status(child) == "waiting"
    await whole(world)
    await world.signal("word", child, word="late")
    assert world.status(child) == "completed" and world.effect("k").code == "detached"
    await whole(world)


async def test_a_map_counts_a_detached_child_that_goes_on_alone(world: World) -> None:
    """Nothing but its outcome says so: its row in the ledger is gone."""

    async def body(ctx: Ctx) -> None:
        done = await ctx.map(waits_for_word, {"tin": waits_for_word.arguments("tin")}, key="k", no_undo="it only waits")
        try:
            await done.value("tin")
        except ChildFailed as failed:
            ctx.state.said.append(failed.code)

    flow = one_node(body)
    world.worker(flow, waits_for_word)
    await world.start(flow)
    child = child_of(world, "k/tin")
    rows = TenantRows(world.store, "t")
    assert explain(await rows.run_facts(child)).facts["child of"] == "r1"
    await detached(world, child)
    assert world.status() == "completed" and world.outcome()["said"] == ["detached"]
    assert world.status(child) == "waiting" and not world.effects("r1")
    assert (await detail_of(rows, child)).detached
    assert explain(await rows.run_facts(child)).facts["child of"] == "r1; detached: it goes on alone"
    await whole(world)
    await world.signal("word", child, word="late")
    assert world.status(child) == "completed"
    await whole(world)


async def test_a_parent_that_ends_no_longer_waits_for_a_detached_child(world: World) -> None:
    mine, theirs = Receiver(), Receiver(None, Refused("gone"))
    order, pay = write(mine, undo=True), write(theirs, name="pay", undo=True)

    @workflow
    async def stuck(ctx: Context) -> str:
        await ctx.do(pay, "b")
        return (await ctx.receive("word", Go)).word

    async def body(ctx: Ctx) -> None:
        await ctx.do(order, "a")
        await ctx.run(stuck, stuck.arguments(), key="k", no_undo="it undoes itself")

    flow = one_node(body)
    world.worker(flow, stuck)
    await world.start(flow)
    child = child_of(world)
    await world.cancel()
    await world.pass_(MINUTE)
    assert world.status() == "compensating" and world.waiting()[0][0] == "child"
    assert len(mine.did) == 1
    await detached(world, child)
    assert len(mine.did) == 2, "its parent has undone its effect"
    assert world.status() == "cancelled" and world.reasons(child) == ["undo_failed"]
    (undone,) = [event.data() for event in world.events() if event.type.endswith("compensated")]
    assert undone["not_undone"] == [f"stuck k: it undoes itself; run {child} was detached"]
    assert len(told(world)) == 1
    await whole(world)


async def test_a_parent_that_completes_no_longer_waits_for_a_detached_child(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        await ctx.start(waits_for_word, waits_for_word.arguments("tin"), key="k")

    flow = one_node(body)
    world.worker(flow, waits_for_word)
    await world.start(flow)
    assert world.status() == "waiting"
    await detached(world, child_of(world))
    assert world.status() == "completed" and len(told(world)) == 1
    await whole(world)


async def test_a_detached_child_is_not_started_again(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        ctx.state.said.append(await ctx.run(waits_for_word, waits_for_word.arguments("tin"), key="k"))

    flow = one_node(body)
    world.worker(flow, waits_for_word)
    await world.start(flow)
    child = child_of(world)
    await detached(world, child)
    (entry,) = world.run().attention
    assert entry.detail == f"child waits_for_word k (run {child}) was detached and goes on alone: it takes too long"
    assert entry.choices() == (Choice.FAIL, Choice.CANCEL)
    with pytest.raises(Conflict, match="goes on alone, so another run would act beside it"):
        await world.answer("child_failed", "retry")
    await world.answer("child_failed", "fail")
    await whole(world)
    await world.signal("word", child, word="fine")
    assert world.status() == "failed" and world.status(child) == "completed" and child_of(world) == child
    await whole(world)


@pytest.mark.parametrize("caught", [False, True])
async def test_a_run_that_failed_over_a_detached_child_is_not_started_again(world: World, caught: bool) -> None:
    """The second run would start its own child beside the one that goes on alone."""

    @workflow
    async def between(ctx: Context, topic: str) -> str:
        try:
            return await ctx.run(waits_for_word, waits_for_word.arguments(topic), key="k")
        except ChildFailed as failed:
            if not caught:
                raise
            raise Fail("not without it") from failed

    async def body(ctx: Ctx) -> None:
        ctx.state.said.append(await ctx.run(between, between.arguments("tin"), key="b"))

    flow = one_node(body)
    world.worker(flow, between, waits_for_word)
    await world.start(flow)
    middle = child_of(world, "b")
    left = child_of(world, "k", middle)
    await detached(world, left)
    if not caught:
        await world.answer("child_failed", "fail", middle)
    assert world.status(middle) == "failed"
    (entry,) = world.run().attention
    assert left in entry.detail and entry.choices() == (Choice.FAIL, Choice.CANCEL)
    with pytest.raises(Conflict, match="goes on alone, so another run would act beside it"):
        await world.answer("child_failed", "retry")
    assert len([run for run in world.core.rows.under(RUN, ("t",)) if run.workflow == "waits_for_word"]) == 1
    await whole(world)


async def test_a_detached_run_that_undoes_is_not_started_again(world: World) -> None:
    @workflow
    async def completes(ctx: Context, topic: str) -> str:
        return topic

    async def body(ctx: Ctx) -> None:
        await ctx.run(completes, completes.arguments("tin"), key="k", undo=waits_for_word.arguments("tin"))
        raise Fail("no")

    flow = one_node(body)
    world.worker(flow, waits_for_word, completes)
    await world.start(flow)
    undoes = child_of(world, "undo/k")
    await detached(world, undoes)
    (entry,) = world.run().attention
    assert entry.choices() == (Choice.DONE_BY_HAND,) and f"run {undoes} was detached and goes on alone" in entry.detail
    with pytest.raises(Conflict, match="goes on alone"):
        await world.answer("undo_failed", "retry")
    await world.answer("undo_failed", "done_by_hand")
    assert world.status() == "failed" and world.status(undoes) == "waiting"
    await whole(world)


async def test_mistakes_are_said(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        await ctx.start(waits_for_word, waits_for_word.arguments("tin"), key="k", parent_close="abandon")
        if ctx.state.n:
            raise Fail("no")
        await ctx.start(waits_for_word, waits_for_word.arguments("tin"), key="other")

    flow = one_node(body)
    world.worker(flow, waits_for_word)
    await world.start(flow)
    left, child = child_of(world), child_of(world, "other")
    with pytest.raises(InvalidInput, match="needs a reason"):
        await detached(world, child, " ")
    with pytest.raises(Conflict, match="is no child"):
        await detached(world, "r1")
    await world.signal("word", child, word="on")
    with pytest.raises(Conflict, match="has ended"):
        await detached(world, child)
    assert world.status() == "completed"
    with pytest.raises(Conflict, match="holds up no run"):
        await detached(world, left)


@pytest.mark.parametrize("first", ["end", "detach"])
async def test_a_detach_and_an_end_at_one_instant_are_decided_one_after_the_other(world: World, first: str) -> None:
    async def body(ctx: Ctx) -> None:
        try:
            ctx.state.said.append(await ctx.run(waits_for_word, waits_for_word.arguments("tin"), key="k"))
        except ChildFailed as failed:
            ctx.state.said.append(failed.code)

    flow = one_node(body)
    world.worker(flow, waits_for_word)
    await world.start(flow)
    child = await world.store.load(RUN, ("t", child_of(world)))
    assert isinstance(child, Run)
    rows = await parent_rows(world.store, child)
    commit = children.detach(child, ParentRows(*rows), actor="ana", reason="why", now=await world.store.now())
    if first == "end":
        await world.signal("word", child.run, word="done")
        with pytest.raises(Stale):
            await world.store.commit(commit)
    else:
        await world.store.commit(commit)
        await world.signal("word", child.run, word="done")
    await world.settle()
    assert world.outcome()["said"] == ["done" if first == "end" else "detached"]
    await whole(world)

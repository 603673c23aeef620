"""Reads of a tree of runs: lists, the tree, explanations down to the leaf, attention (RUN-13)."""

import asyncio
from typing import Any

import pytest

from outlast import Context, Fail, Refused, Workflow, workflow
from outlast.cli.run_page import after_request, tree_line
from outlast.engine.detached_children import detach
from outlast.errors import NotFound
from outlast.insight.attention_reads import run_attention
from outlast.insight.explanation import explain
from outlast.insight.run_reads import detail_of, run_page
from outlast.insight.run_tree import TREE_RUNS_MAX, tree_of
from outlast.insight.tenant_rows import TenantRows
from outlast.models.runs import RunExplanation, RunList
from outlast.operations.run_operations import ListRuns
from tests.engine.test_children import child_rows, child_run, research
from tests.engine.world import MINUTE, Go, Receiver, State, World, one_node, write

pytestmark = pytest.mark.req("RUN-13")
Ctx = Context[State]


@workflow
async def tree_leaf(ctx: Context, topic: str) -> str:
    """Wait for a word; the topic bad raises an error of its code."""
    if topic == "bad":
        raise ValueError("no such topic")
    return (await ctx.receive("word", Go)).word


@workflow
async def tree_middle(ctx: Context, topics: str) -> str:
    handles = [await ctx.start(tree_leaf, tree_leaf.arguments(each), key=each) for each in topics.split()]
    return " ".join(await asyncio.gather(*(handle.result() for handle in handles)))


def rows_of(world: World) -> TenantRows:
    return TenantRows(world.store, "t")


async def listed(world: World, **of: object) -> list[str]:
    page = await run_page(rows_of(world), ListRuns(**of))  # type: ignore[arg-type]
    return [each.run for each in page.runs]


async def explained(world: World, run: str = "r1") -> RunExplanation:
    return explain(await rows_of(world).run_facts(run))


def asking(topics: str) -> Workflow[Any]:
    async def body(ctx: Ctx) -> None:
        await ctx.run(tree_middle, tree_middle.arguments(topics), key="mid")

    return one_node(body)


async def tree_world(world: World, topics: str) -> tuple[str, dict[str, str]]:
    """Start r1, below it a child, and below that one leaf per topic. Return the child, and the leaves by topic."""
    flow = asking(topics)
    world.worker(flow, tree_middle, tree_leaf, research)
    await world.start(flow)
    await world.settle()
    mid = child_rows(world)[0].external_id
    return mid, {each.key: each.external_id for each in child_rows(world, mid)}


@pytest.mark.every_store
async def test_lists_find_the_children_of_a_run_and_its_tree(world: World) -> None:
    mid, leaves = await tree_world(world, "tin zinc lead")
    await world.start(asking("x"), run="other")
    assert await listed(world, parent="r1") == [mid]
    assert set(await listed(world, parent=mid)) == set(leaves.values())
    assert set(await listed(world, root="r1")) == {mid, *leaves.values()}
    assert set(await listed(world, no_children=True)) == {"r1", "other"}
    assert await listed(world, parent=mid, status="completed") == []
    assert await listed(world, parent="nobody") == []


async def test_pages_of_children_lead_to_each_other_without_gaps(world: World) -> None:
    mid, leaves = await tree_world(world, "a b c d e")
    found, cursor = list[str](), ""
    while True:
        page: RunList = await run_page(rows_of(world), ListRuns(parent=mid, limit=2, cursor=cursor))
        found += [each.run for each in page.runs]
        cursor = page.next_cursor
        if not cursor:
            break
        assert len(page.runs) == 2
    assert sorted(found) == sorted(leaves.values())
    whole = await listed(world, parent=mid)
    assert found == whole


async def test_a_list_names_parent_root_and_depth(world: World) -> None:
    mid, leaves = await tree_world(world, "tin")
    page = await run_page(rows_of(world), ListRuns())
    places = {each.run: (each.parent, each.root, each.depth) for each in page.runs}
    assert places == {"r1": ("", "", 0), mid: ("r1", "r1", 1), leaves["tin"]: (mid, "r1", 2)}


async def test_the_child_of_a_retry_and_the_failed_one_are_both_listed(world: World) -> None:
    outcomes = iter([False, True])

    @workflow
    async def tree_flaky(ctx: Context) -> str:
        if not next(outcomes):
            raise Fail("down")
        return "fine"

    async def body(ctx: Ctx) -> None:
        await ctx.run(tree_flaky, {}, key="k")

    flow = one_node(body)
    world.worker(flow, tree_flaky)
    await world.start(flow)
    await world.answer("child_failed", "retry")
    both = await listed(world, parent="r1")
    assert len(both) == 2 and world.effect("k").external_id in both


async def test_a_detached_child_is_shown_as_detached(world: World) -> None:
    mid, leaves = await tree_world(world, "tin zinc")
    await detach(world.store, tenant="t", run=leaves["tin"], actor="ana", reason="why")
    await world.settle()
    rows = rows_of(world)
    tree = await tree_of(rows, "r1")
    assert [(each.key, each.detached) for each in tree.children] == [("mid", False), ("tin", True), ("zinc", False)]
    assert [tree_line(each).count("· detached") for each in tree.children] == [0, 1, 0]
    for key, detached in (("tin", True), ("zinc", False)):
        assert (await detail_of(rows, leaves[key])).detached is detached
        fact = explain(await rows.run_facts(leaves[key])).facts["child of"]
        assert fact == f"{mid} (root r1)" + ("; detached: it goes on alone" if detached else "")


@pytest.mark.every_store
async def test_a_tree_lists_each_run_after_its_parent(world: World) -> None:
    mid, leaves = await tree_world(world, "tin zinc")
    tree = await tree_of(rows_of(world), "r1")
    assert [(each.level, each.key, each.run, each.parent) for each in tree.children] == [
        (1, "mid", mid, "r1"),
        (2, "tin", leaves["tin"], mid),
        (2, "zinc", leaves["zinc"], mid),
    ]
    assert (tree.parent, tree.root, tree.more) == ("", "", 0)
    assert (await tree_of(rows_of(world), mid)).parent == "r1"
    detail = await detail_of(rows_of(world), "r1")
    assert detail.children == 1 and detail.effects["intended"] == 0, "a living child is no open call"
    with pytest.raises(NotFound):
        await tree_of(rows_of(world), "nobody")


async def test_a_tree_lists_unfinished_runs_first_and_counts_the_rest(world: World) -> None:
    many = TREE_RUNS_MAX + 10
    mid, leaves = await tree_world(world, " ".join(f"n{n:02}" for n in range(many)))
    for n in range(12):
        await world.signal("word", leaves[f"n{n:02}"], word="x")
    tree = await tree_of(rows_of(world), mid)
    assert len(tree.children) == TREE_RUNS_MAX and tree.more == 10
    assert [each.status for each in tree.children].count("completed") == 2
    whole = await tree_of(rows_of(world), "r1")
    assert len(whole.children) == TREE_RUNS_MAX and whole.more == 11


@pytest.mark.every_store
async def test_an_explanation_goes_to_the_leaf_that_blocks(world: World) -> None:
    mid, leaves = await tree_world(world, "tin")
    found = await explained(world)
    assert found.facts["path"] == f"r1 → {mid} → {leaves['tin']}"
    assert f"{leaves['tin']} waits for the signal word" in found.sentence
    assert found.unblock[0] == f"outlast signal {leaves['tin']} word --data '{{…}}'"
    of_leaf = await explained(world, leaves["tin"])
    assert of_leaf.facts["child of"] == f"{mid} (root r1)"
    assert (await explained(world, mid)).facts["child of"] == "r1"


async def test_of_several_children_the_one_that_needs_a_person_is_named(world: World) -> None:
    mid, leaves = await tree_world(world, "tin zinc bad")
    found = await explained(world)
    bad = leaves["bad"]
    assert found.facts["path"].endswith(bad)
    assert any(bad in command and "attention resolve" in command for command in found.unblock)
    of_mid = await explained(world, mid)
    assert "no such topic" in of_mid.sentence


async def test_several_waits_are_counted_and_the_earliest_end_is_named(world: World) -> None:
    @workflow
    async def tree_sleeper(ctx: Context, minutes: int) -> None:
        await ctx.sleep(f"{minutes}m")

    async def body(ctx: Ctx) -> None:
        handles = [await ctx.start(tree_sleeper, tree_sleeper.arguments(n), key=f"m{n}") for n in (9, 3, 5)]
        await asyncio.gather(*(each.result() for each in handles))

    flow = one_node(body)
    world.worker(flow, tree_sleeper)
    await world.start(flow)
    await world.settle()
    found = await explained(world)
    assert "waits for 3 children, among them tree_sleeper m3" in found.sentence
    assert found.facts["path"] == f"r1 → {child_run(world, 'm3').run}"


async def test_a_parent_that_undoes_names_the_child_whose_undo_failed(world: World) -> None:
    receiver, theirs = Receiver(), Receiver(None, Refused("gone"))
    order, pay = write(receiver, undo=True), write(theirs, name="pay", undo=True)

    @workflow
    async def tree_spender(ctx: Context) -> str:
        await ctx.do(pay, "b")
        await ctx.sleep("9h")
        return "spent"

    async def body(ctx: Ctx) -> None:
        await ctx.do(order, "a")
        await ctx.start(tree_spender, tree_spender.arguments(), key="c", no_undo="it undoes what it spends")
        await ctx.sleep("1m")
        raise Fail("enough")

    flow = one_node(body)
    world.worker(flow, tree_spender)
    await world.start(flow)
    await world.pass_(2 * MINUTE)
    child, found = child_run(world, "c").run, await explained(world)
    assert found.sentence.startswith(
        "r1 undoes its effects before it fails (enough; 0 of 1 undone); it waits for child"
    )
    assert found.facts["path"] == f"r1 → {child}" and f"outlast attention resolve {child} done_by_hand" in str(found)


async def test_a_cancelled_parent_that_waits_for_a_child_is_said_to_have_been_taken(world: World) -> None:
    pay = write(Receiver(None, Refused("gone")), name="pay", undo=True)

    @workflow
    async def tree_payer(ctx: Context) -> str:
        await ctx.do(pay, "b")
        await ctx.sleep("9h")
        return "paid"

    async def body(ctx: Ctx) -> None:
        await ctx.run(tree_payer, tree_payer.arguments(), key="c", no_undo="it undoes what it pays")

    flow = one_node(body)
    world.worker(flow, tree_payer)
    await world.start(flow)
    await world.cancel()
    above, below = [await detail_of(rows_of(world), run) for run in ("r1", child_run(world, "c").run)]
    assert [each.verb for each in above.asked] == ["cancel"] and above.status == below.status == "compensating"
    waits = "ends once the child that it waits for has ended and its effects are undone"
    assert [after_request(each, "cancel") for each in (above, below)] == [waits, "ends once its effects are undone"]


@pytest.mark.every_store
async def test_attention_of_a_leaf_counts_the_runs_above_that_wait_for_it(world: World) -> None:
    mid, leaves = await tree_world(world, "bad")
    runs, _ = await rows_of(world).flagged()
    (item,) = await run_attention(rows_of(world), runs)
    assert (item.run, item.parent, item.holds_up) == (leaves["bad"], mid, 2)


async def test_an_abandoned_leaf_holds_up_no_run(world: World) -> None:
    async def body(ctx: Ctx) -> None:
        await ctx.start(tree_leaf, tree_leaf.arguments("bad"), key="k", parent_close="abandon")
        await ctx.sleep("1h")

    flow = one_node(body)
    world.worker(flow, tree_leaf)
    await world.start(flow)
    await world.settle()
    runs, _ = await rows_of(world).flagged()
    (item,) = await run_attention(rows_of(world), runs)
    assert (item.parent, item.holds_up) == ("r1", 0)

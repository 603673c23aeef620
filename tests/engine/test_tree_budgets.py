"""One budget for a tree of runs: its root and all runs below it, at any depth (RUN-13)."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from outlast import Context, Workflow, workflow
from outlast.core.machine import Reason
from outlast.core.rows.limit_rows import CALL_USAGE
from outlast.core.usage import Amounts, Budget
from outlast.engine import commands
from outlast.engine.run_session import RunSession
from outlast.errors import Conflict
from outlast.insight.attention_reads import run_attention
from outlast.insight.explanation import explain
from outlast.insight.run_reads import detail_of
from outlast.insight.tenant_rows import TenantRows
from tests import slices
from tests.engine.conftest import GROUNDS
from tests.engine.process import Process
from tests.engine.test_budgets import Model, raise_
from tests.engine.test_child_crashes import DRAWN, dies_at, lives
from tests.engine.test_children import all_runs, child_run
from tests.engine.world import HOUR, MINUTE, Go, State, World, one_node

pytestmark = pytest.mark.req("RUN-13")
Ctx = Context[State]


def asks_below(model: Model, **options: Any) -> Workflow[Any, Any, Any]:
    """Return a workflow that asks the model each of some words, one after the other."""

    @workflow(name="asks_below", **options)
    async def asker(ctx: Context, words: str) -> str:
        return " ".join([await ctx.do(model.ask, each) for each in words.split()])

    return asker


def passes_on(to: Workflow[Any, Any, Any]) -> Workflow[Any, Any, Any]:
    """Return a workflow whose runs start one run below them."""

    @workflow(name="passes_on")
    async def between(ctx: Context, words: str) -> str:
        found: str = await ctx.run(to, {"words": words}, key="below")
        return found

    return between


def family(to: Workflow[Any, Any, Any], *words: str, own: Model | None = None, **options: Any) -> Workflow[State]:
    """Return a workflow that starts a child for each of some words, then asks a question itself."""

    async def body(ctx: Ctx) -> None:
        handles = [await ctx.start(to, {"words": each}, key=each) for each in words]
        ctx.state.said += await asyncio.gather(*(each.result() for each in handles))
        if own is not None:
            ctx.state.said.append(await ctx.do(own.ask, "own"))

    return one_node(body, **options)


def waits_of(world: World, *keys: str) -> list[list[tuple[str, str]]]:
    return [[(wait.kind, wait.who) for wait in child_run(world, key).waiting_for] for key in keys]


def flagged(world: World) -> list[tuple[str, bool]]:
    """Return the runs that ask a person about a budget, and whether each goes on beside that."""
    found = [(run.run, a) for run in all_runs(world) for a in run.attention if a.reason is Reason.BUDGET_EXHAUSTED]
    return [(run, a.goes_on) for run, a in found]


@pytest.mark.every_store
async def test_runs_below_share_the_budget_of_their_root(world: World) -> None:
    """The first run to meet the limit parks; the root asks once; a raise of the root lets all go on."""
    model = Model(tokens=100)
    asker = asks_below(model)
    flow = family(asker, "a b c", "d e f", budget=Budget(tokens=300))
    world.worker(flow, asker)
    await world.start(flow)
    assert len(model.paid) <= 4 and sum(row.tokens for row in usage(world)) >= 300
    parked = [key for key in ("a b c", "d e f") if child_run(world, key).status.value == "waiting"]
    assert parked and waits_of(world, *parked) == [[("budget", "r1")]] * len(parked)
    assert flagged(world) == [("r1", True)]
    paid = list(model.paid)
    await raise_(world, tokens=1_000)
    assert world.status() == "completed" and sorted(world.outcome()["said"]) == ["A B C", "D E F"]
    assert sorted(model.paid) == list("abcdef") and model.paid[: len(paid)] == paid
    assert flagged(world) == []


def usage(world: World) -> list[Any]:
    return list(world.core.rows.under(CALL_USAGE, ("t",)))


@pytest.mark.every_store
async def test_each_depth_counts_and_waits(world: World) -> None:
    model = Model(tokens=100)
    asker = asks_below(model)
    between = passes_on(asker)
    flow = family(between, "a b c", budget=Budget(tokens=200))
    world.worker(flow, asker, between)
    await world.start(flow)
    (leaf,) = [run for run in all_runs(world) if run.depth == 2]
    assert model.paid == ["a", "b"] and [(w.kind, w.who) for w in leaf.waiting_for] == [("budget", "r1")]
    assert {row.root for row in usage(world)} == {"r1"}
    assert flagged(world) == [("r1", True)]
    found = explain(await TenantRows(world.store, "t").run_facts("r1"))
    needs = "r1 needs a person (its tree has used 200 of 200 tokens, and 1 run below it waits) and continues: it waits "
    assert found.sentence.startswith(f"{needs}for child ")
    assert "outlast runs raise r1 --tokens … --reason …" in found.unblock
    assert found.facts["used by its tree"].startswith("200 of 200 tokens")
    of_leaf = explain(await TenantRows(world.store, "t").run_facts(leaf.run))
    assert f"{leaf.run} waits for the budget of r1, whose tree has used up its tokens" in of_leaf.sentence
    (item,) = await run_attention(TenantRows(world.store, "t"), [world.run("r1")])
    assert (item.run, item.reason, item.holds_up) == ("r1", "budget_exhausted", 1)
    detail = await detail_of(TenantRows(world.store, "t"), "r1")
    assert detail.used_by_tree is not None and detail.used_by_tree.tokens == 200 and detail.used.tokens == 0
    await raise_(world, tokens=100)
    assert world.status() == "completed" and model.paid == ["a", "b", "c"]


async def test_a_raise_that_does_not_cover_asks_again_and_a_second_one_lets_go_on(world: World) -> None:
    model = Model(tokens=100)
    asker = asks_below(model)
    flow = family(asker, "a b c d", budget=Budget(tokens=100))
    world.worker(flow, asker)
    await world.start(flow)
    assert model.paid == ["a"]
    for n, (more, paid) in enumerate([(0, 1), (100, 2), (200, 4)]):
        await raise_(world, tokens=more, money=1)
        assert len(model.paid) == paid, n
    assert world.status() == "completed"


async def test_a_raise_of_a_run_below_names_the_root(world: World) -> None:
    model = Model(tokens=100)
    asker = asks_below(model)
    flow = family(asker, "a b", budget=Budget(tokens=100))
    world.worker(flow, asker)
    await world.start(flow)
    child = child_run(world, "a b").run
    with pytest.raises(Conflict, match=f"run {child} waits for the budget of run r1") as caught:
        await raise_(world, child, tokens=100)
    assert caught.value.fix == "outlast runs raise r1 --tokens … --reason …"


async def test_the_budget_of_a_child_is_a_second_one(world: World) -> None:
    model = Model(tokens=100)
    asker = asks_below(model, budget=Budget(tokens=100))
    flow = family(asker, "a b", budget=Budget(tokens=150))
    world.worker(flow, asker)
    await world.start(flow)
    child = child_run(world, "a b").run
    assert flagged(world) == [(child, False)]
    await raise_(world, child, tokens=100)
    assert model.paid == ["a", "b"] and world.status() == "completed"


async def test_calls_of_the_root_are_compared_with_its_tree(world: World) -> None:
    model, own = Model(tokens=100), Model(tokens=1, name="own_model")
    asker = asks_below(model)
    flow = family(asker, "a", "b", own=own, budget=Budget(tokens=200))
    world.worker(flow, asker)
    await world.start(flow)
    assert sorted(model.paid) == ["a", "b"] and own.paid == [] and flagged(world) == [("r1", False)]
    await raise_(world, tokens=1)
    assert own.paid == ["own"] and world.status() == "completed"


async def test_calls_and_money_and_minutes_count_over_the_tree(world: World) -> None:
    model = Model(tokens=100)
    asker = asks_below(model)
    for n, budget in enumerate((Budget(calls=2), Budget(money="0.50"))):
        flow = family(asker, "a b c", budget=budget, name=f"flow{n}")
        world.worker(flow, asker)
        model.paid.clear()
        await world.start(flow, f"r{n}")
        assert model.paid == ["a", "b"]

    @workflow
    async def late(ctx: Context) -> str:
        await ctx.sleep("20m")
        return await ctx.do(model.ask, "late")

    async def body(ctx: Ctx) -> None:
        await ctx.sleep("15m")
        await ctx.run(late, {}, key="late")

    flow = one_node(body, budget=Budget(minutes=30), name="minutes")
    world.worker(flow, late)
    await world.start(flow, "timed")
    await world.pass_(40 * MINUTE)
    assert "late" not in model.paid and ("timed", True) in flagged(world)
    await raise_(world, "timed", ms=HOUR)
    assert "late" in model.paid and world.status("timed") == "completed"


async def test_a_tree_that_is_cancelled_ends_while_it_waits(world: World) -> None:
    model = Model(tokens=100)
    asker = asks_below(model)
    flow = family(asker, "a b", budget=Budget(tokens=100))
    world.worker(flow, asker)
    await world.start(flow)
    await world.cancel()
    assert world.status() == "cancelled" and child_run(world, "a b").status.value == "cancelled"


async def test_a_child_that_is_cancelled_takes_the_question_back(world: World) -> None:
    model = Model(tokens=100)
    asker = asks_below(model)

    async def body(ctx: Ctx) -> None:
        await ctx.start(asker, {"words": "a b"}, key="k")
        await ctx.receive("go", Go)
        await ctx.child("k").cancel(reason="enough")
        await ctx.receive("end", Go)

    flow = one_node(body, budget=Budget(tokens=100))
    world.worker(flow, asker)
    await world.start(flow)
    assert flagged(world) == [("r1", True)]
    await world.signal("go")
    await world.settle()
    assert child_run(world, "k").status.value == "cancelled"
    await world.signal("end")
    assert world.status() == "completed"


async def test_the_root_goes_on_while_runs_below_wait(world: World) -> None:
    """The question is an overlay: the root receives, and ends its other waits."""
    model = Model(tokens=100)
    asker = asks_below(model)

    async def body(ctx: Ctx) -> None:
        handle = await ctx.start(asker, {"words": "a b"}, key="k")
        ctx.state.said.append((await ctx.receive("go", Go)).word)
        ctx.state.said.append(await handle.result())

    flow = one_node(body, budget=Budget(tokens=100))
    world.worker(flow, asker)
    await world.start(flow)
    await world.signal("go", word="on")
    await world.settle()
    assert flagged(world) == [("r1", True)] and [kind for kind, _ in world.waiting()] == ["child"]
    await raise_(world, tokens=100)
    assert world.outcome()["said"] == ["on", "A B"]


async def test_an_abandoned_run_counts_and_is_free_once_the_root_has_ended(world: World) -> None:
    model = Model(tokens=100)
    asker = asks_below(model)

    async def body(ctx: Ctx) -> None:
        await ctx.start(asker, {"words": "a b c"}, key="k", parent_close="abandon")
        await ctx.receive("end", Go)

    flow = one_node(body, budget=Budget(tokens=200))
    world.worker(flow, asker)
    await world.start(flow)
    assert model.paid == ["a", "b"] and flagged(world) == [("r1", True)]
    await world.signal("end")
    assert world.status() == "completed"
    await world.pass_(2 * HOUR)
    assert model.paid == ["a", "b", "c"] and child_run(world, "k").status.value == "completed"


async def test_a_tree_without_a_budget_reads_no_sum(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model(tokens=100)
    asker = asks_below(model)
    flow = family(asker, "a b")
    monkeypatch.delattr(RunSession, "used_in_tree")
    world.worker(flow, asker)
    await world.start(flow)
    assert world.status() == "completed" and "budget" not in child_run(world, "a b").descent_text


@pytest.mark.every_store
async def test_a_raise_while_a_run_below_parks_is_not_missed(world: World) -> None:
    """The park lands after the raise, and its message lets the root answer it."""
    model = Model(tokens=100)
    asker = asks_below(model)
    flow = family(asker, "a b", budget=Budget(tokens=100))
    process = world.worker(flow, asker)
    raised: list[str] = []

    def person() -> None:
        raised.append("r1")
        world._now(
            commands.raise_budget(
                world.store, tenant="t", run="r1", amounts=Amounts(tokens=100), actor="op", reason="worth it"
            )
        )

    process.wire.before(" park asks_below", person)
    await world.start(flow)
    await world.settle()
    assert raised and world.status() == "completed" and model.paid == ["a", "b"]


# --- deaths of a worker ----------------------------------------------------------------------------
async def spend(dies: Callable[[Process], None], world: World) -> int:
    """Play two agents below a root that a person raises again and again. Return the commits of the first worker."""
    model, allowed = Model(tokens=100), 200
    asker = asks_below(model)
    flow = family(asker, "a b c", "d e f", budget=Budget(tokens=allowed))
    first = world.worker(flow, asker)
    dies(first)
    await world.start(flow)
    for _ in range(10):
        if first.wire.dead and len(world.processes) == 1:
            world.worker(flow, asker)
        assert sum(row.tokens for row in usage(world)) <= allowed + 100, "more than one call for each run in flight"
        if flagged(world):
            assert flagged(world) == [("r1", True)]
            allowed += 200
            await raise_(world, tokens=200)
        await world.pass_(MINUTE)
        if world.status() == "completed":
            break
    assert {run.status.value for run in all_runs(world)} == {"completed"}, "a run waits without an end"
    assert world.outcome()["said"] == ["A B C", "D E F"] and len(all_runs(world)) == 3
    return len(first.wire.labels)


@pytest.mark.parametrize("ground", GROUNDS)
def test_a_death_at_each_commit_leaves_no_run_waiting(ground: str) -> None:
    def in_a_world(dies: Callable[[Process], None]) -> int:
        world, found = World(GROUNDS[ground]), list[int]()

        async def story() -> None:
            found.append(await spend(dies, world))

        try:
            asyncio.run(world.live(story))
        finally:
            world.ground.close()
        return found[0]

    cases = [(number, landed) for number in range(in_a_world(lives)) for landed in (False, True)]
    drawn = cases if slices.seed() == slices.ALL else random.Random(slices.seed()).sample(cases, DRAWN)
    for number, landed in drawn:
        in_a_world(dies_at(number, landed=landed))

"""A worker dies at each of its commits, in trees of runs: no child twice, no orphan, no outcome lost (S-30)."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from outlast import ChildFailed, Context, Fail, workflow
from outlast.core.compensation import can_undo
from outlast.core.rows.effect_rows import EFFECT
from outlast.core.rows.run_rows import RUN, Run, is_over
from outlast.flow import Workflow
from tests import slices
from tests.engine.conftest import GROUNDS
from tests.engine.process import Process
from tests.engine.world import MINUTE, SECOND, Go, Receiver, State, World, one_node, write

pytestmark = pytest.mark.req("RUN-13", "EFF-2")
Ctx = Context[State]
UNDONE: Any = {"undo": True, "undo_terms": {"asks": True}}
DRAWN = 4  # commits that one test dies at; TEST_SEED=all plays each


class Story(NamedTuple):
    """A tree of runs: its workflows, its receiver, and the acts of people."""

    workflows: tuple[Workflow[Any, Any, Any], ...]
    receiver: Receiver
    people: Callable[[World], Awaitable[None]]
    """Called again and again, until each run has ended."""
    may_differ: tuple[str, ...] = ()


async def nobody(world: World) -> None:
    """Let the tree end by itself."""


# --- trees -----------------------------------------------------------------------------------------
def one_of_three_fails() -> Story:
    receiver = Receiver(dedupes=True)
    book = write(receiver, name="book", mode="reconcile", **UNDONE)
    order = write(receiver, mode="reconcile", **UNDONE)

    @workflow
    async def trip(ctx: Context, town: str) -> str:
        await ctx.do(book, town)
        await ctx.sleep("5s")
        if town == "rome":
            raise Fail("full")
        return town

    async def body(ctx: Ctx) -> None:
        await ctx.do(order, "plan")
        towns = ("oslo", "rome", "wien")
        handles = [await ctx.start(trip, trip.arguments(each), key=each, no_undo="kept") for each in towns]
        for handle in handles:
            try:
                ctx.state.said.append(await handle.result())
            except ChildFailed as failed:
                ctx.state.said.append(failed.detail)

    return Story((one_node(body), trip), receiver, nobody)


def first_with_a_loser() -> Story:
    """The message and the deadline have the same instant, so the deadline wins, and the child is cancelled."""
    receiver = Receiver(dedupes=True)
    book = write(receiver, name="book", mode="reconcile", **UNDONE)

    @workflow
    async def slow(ctx: Context) -> str:
        await ctx.do(book, "slow")
        await ctx.sleep("1h")
        return "slow"

    async def body(ctx: Ctx) -> None:
        loser = ctx.run(slow, slow.arguments(), key="slow", no_undo="it undoes what it books")
        won, _ = await ctx.first(loser, ctx.receive("word", Go), ctx.sleep("10s"))
        ctx.state.said.append(str(won))

    async def people(world: World) -> None:
        await world.pass_(10 * SECOND)
        if not world.messages() and not is_over(world.run()):
            await world.signal("word", word="now")

    return Story((one_node(body), slow), receiver, people, ("outcome",))  # a dead worker may miss the deadline


def cancel_of_three_levels() -> Story:
    receiver = Receiver(dedupes=True)
    book = write(receiver, name="book", mode="reconcile", **UNDONE)

    @workflow
    async def leaf(ctx: Context, n: str) -> None:
        await ctx.do(book, n)
        await ctx.sleep("1h")

    @workflow
    async def middle(ctx: Context, n: str) -> None:
        await ctx.do(book, f"middle-{n}")
        names = (f"{n}-a", f"{n}-b")
        await asyncio.gather(*[ctx.run(leaf, leaf.arguments(each), key=each, no_undo="its own") for each in names])

    async def body(ctx: Ctx) -> None:
        await ctx.do(book, "root")
        await asyncio.gather(*[ctx.run(middle, middle.arguments(n), key=n, no_undo="its own") for n in ("x", "y")])

    async def people(world: World) -> None:
        leaves = [run for run in runs_of(world) if run.depth == 2 and run.status.value == "waiting"]
        if len(leaves) == 4:
            await world.cancel()

    return Story((one_node(body), middle, leaf), receiver, people)


def ends_with_open_children(how: str) -> Callable[[], Story]:
    def make() -> Story:
        receiver = Receiver(dedupes=True)
        book = write(receiver, name="book", mode="reconcile", **UNDONE)

        @workflow
        async def child(ctx: Context, n: str) -> str:
            await ctx.do(book, n)
            await ctx.sleep("1h" if how == "failed" else "30s")
            return n

        async def body(ctx: Ctx) -> None:
            await ctx.do(book, "parent")
            close: Any = "abandon" if how == "abandoned" else "cancel"
            for n in ("a", "b"):
                await ctx.start(child, child.arguments(n), key=n, parent_close=close, no_undo="its own")
            if how == "failed":
                await ctx.sleep("1s")
                raise Fail("enough")

        return Story((one_node(body, name=f"flow-{how}"), child), receiver, nobody)

    return make


STORIES: dict[str, Callable[[], Story]] = {
    "one of three fails": one_of_three_fails,
    "first with a loser": first_with_a_loser,
    "cancel of three levels": cancel_of_three_levels,
    **{f"{how} with open children": ends_with_open_children(how) for how in ("completed", "failed", "abandoned")},
}


# --- one play --------------------------------------------------------------------------------------
def runs_of(world: World) -> list[Run]:
    return list(world.core.rows.under(RUN, ("t",)))


def summary(world: World, receiver: Receiver) -> dict[str, Any]:
    """Return the parts of an end that no death changes, after a check of the others."""
    runs = {run.run: run for run in runs_of(world)}
    effects = [e for run in runs for e in world.core.rows.under(EFFECT, ("t", run))]
    assert all(is_over(run) for run in runs.values()), {r.run: (r.status.value, r.attention) for r in runs.values()}
    assert max(Counter(receiver.did).values(), default=1) == 1, "an effect was done twice"
    children = [e for e in effects if e.child_text]
    assert len(runs) == len(children) + 1 and {e.external_id for e in children} < runs.keys()
    for each in children:
        child, parent = runs[each.external_id], runs[each.run]
        assert (each.status.value == "done") == (child.status.value == "completed"), "an outcome was lost"
        assert child.ended_at <= parent.ended_at or each.child.close == "abandon", "an orphan"
    left = {run.run for run in runs.values() if run.status.value == "completed"}
    kept = [e for e in effects if e.status.value == "done" and can_undo(e) and e.run not in left]
    assert not kept, "a call of a run that did not complete is not undone"
    return {
        "runs": sorted((run.workflow, run.status.value, run.depth) for run in runs.values()),
        # a run that is cancelled may have come to a call or not
        "effects": sorted((e.activity, e.key, e.status.value) for e in effects if e.run in left or e.child_text),
        "outcome": world.outcome() if world.status() == "completed" else world.status(),
    }


async def play(world: World, make: Callable[[], Story], dies: Callable[[Process], None]) -> tuple[dict[str, Any], int]:
    """Play a tree with a first worker that may die, and then another. Return the summary and its commits."""
    story = make()
    first = world.worker(*story.workflows)
    dies(first)
    await world.start(story.workflows[0])
    for _ in range(8):
        if first.wire.dead and len(world.processes) == 1:
            world.worker(*story.workflows)
        await story.people(world)
        await world.pass_(MINUTE)
        if all(is_over(run) for run in runs_of(world)):
            break
    found = summary(world, story.receiver)
    return {name: value for name, value in found.items() if name not in story.may_differ}, len(first.wire.labels)


def dies_at(number: int, *, landed: bool) -> Callable[[Process], None]:
    """Let a process die at its commit of this number: before it has landed, or after that."""

    def arrange(process: Process) -> None:
        wire, submit = process.wire, process.wire.submit

        def counted(commit: Any, **options: Any) -> Any:
            if len(wire.labels) == number:
                if landed:
                    submit(commit, **options)
                process.kill()
            return submit(commit, **options)

        wire.submit = counted  # type: ignore[method-assign]

    return arrange


def lives(process: Process) -> None:
    """Let a process live."""


def test_a_death_at_each_commit_changes_nothing(story: str, ground: str) -> None:
    make = STORIES[story]
    calm, commits = _in_a_world(ground, make, lives)
    cases = [(number, landed) for number in range(commits) for landed in (False, True)]
    drawn = cases if slices.seed() == slices.ALL else random.Random(f"{slices.seed()}/{story}").sample(cases, DRAWN)
    for number, landed in drawn:
        end, _ = _in_a_world(ground, make, dies_at(number, landed=landed))
        assert end == calm, f"died at commit {number}, {'after' if landed else 'before'} it had landed"


def _in_a_world(ground: str, make: Callable[[], Story], dies: Callable[[Process], None]) -> tuple[dict[str, Any], int]:
    world, found = World(GROUNDS[ground]), list[Any]()

    async def story() -> None:
        found.append(await play(world, make, dies))

    try:
        asyncio.run(world.live(story))
    finally:
        world.ground.close()
    return found[0]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.parametrize("story", STORIES)
    metafunc.parametrize("ground", GROUNDS)

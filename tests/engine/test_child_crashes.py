"""A worker dies at each of its commits, in trees of runs: no child twice, no orphan, no outcome lost (S-30)."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple

import pytest

from outlast.core.compensation import can_undo
from outlast.core.machine import EffectStatus
from outlast.core.rows.effect_rows import EFFECT
from outlast.core.rows.map_rows import MAP_OUTCOME
from outlast.core.rows.run_rows import RUN, Run, is_over
from outlast.errors import Conflict
from outlast.flow import Workflow
from tests import slices
from tests.crash.trees import TREES, WORD_AFTER_MS
from tests.engine.conftest import GROUNDS
from tests.engine.process import Process
from tests.engine.world import MINUTE, Receiver, World, write

pytestmark = pytest.mark.req("RUN-13", "EFF-2")
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


# --- the acts of people ---------------------------------------------------------------------------
async def at_the_deadline(world: World) -> None:
    """Send the message and the decision at the instant of the deadline."""
    if world.messages() or is_over(world.run()):
        return
    await world.pass_(WORD_AFTER_MS)
    for approval in world.approvals():
        if approval.status.value == "pending":
            await world.decide(approval)
    if not is_over(world.run()):
        await world.signal("word", word="now")


async def once_the_leaves_have_begun(world: World) -> None:
    """Cancel the root. A person knows of each seat that it was not taken."""
    for run in runs_of(world):
        for effect in world.effects(run.run):
            if effect.status is EffectStatus.UNCERTAIN and effect.key.startswith("seat/"):
                with suppress(Conflict):  # a call in flight may still arrive
                    await world.resolve(effect.key, "did_not_happen", run.run)
    leaves = [run for run in runs_of(world) if run.depth == 2 and run.status.value == "waiting"]
    if len(leaves) == 4:
        await world.cancel()


PEOPLE = {"first": at_the_deadline, "cancel": once_the_leaves_have_begun}
MAY_DIFFER = {"first": ("outcome",)}
"""A dead worker may miss the deadline, so that the message is there before it."""


def told(name: str) -> Story:
    """Return a tree of `tests.crash.trees` with a receiver in this process."""
    receiver = Receiver(dedupes=True)
    book = write(receiver, name="book", mode="reconcile", **UNDONE)
    return Story(TREES[name](book), receiver, PEOPLE.get(name, nobody), MAY_DIFFER.get(name, ()))


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
    outcomes = [row for run in runs for row in world.core.rows.under(MAP_OUTCOME, ("t", run))]
    kept = {e.external_id for e in children}
    counted = [row.child for row in outcomes if row.child not in kept]
    assert len(runs) == len(children) + len(counted) + 1 and {*kept, *counted} < runs.keys()
    for row in outcomes:
        assert bool(row.error_text) == (runs[row.child].status.value != "completed"), "an outcome was lost"
    for each in children:
        child, parent = runs[each.external_id], runs[each.run]
        assert (each.status.value in ("done", "undone")) == (child.status.value == "completed"), "an outcome was lost"
        assert child.ended_at <= parent.ended_at or each.child.close == "abandon", "an orphan"
    left = {run.run for run in runs.values() if run.status.value == "completed"}
    undoable = [e for e in effects if e.status.value == "done" and can_undo(e) and not e.undoes and e.run not in left]
    assert not undoable, "a call of a run that did not complete is not undone"
    return {
        "runs": sorted((run.workflow, run.status.value, run.depth) for run in runs.values()),
        # a run that is cancelled may have come to a call or not
        "effects": sorted((e.activity, e.key, e.status.value) for e in effects if e.run in left or e.child_text),
        "maps": [(row.visit, row.key, row.place, row.error_text) for row in outcomes],
        "outcome": world.outcome() if world.status() == "completed" else world.status(),
    }


async def play(world: World, name: str, dies: Callable[[Process], None]) -> tuple[dict[str, Any], int]:
    """Play a tree with a first worker that may die, and then another. Return the summary and its commits."""
    story = told(name)
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
    calm, commits = _in_a_world(ground, story, lives)
    cases = [(number, landed) for number in range(commits) for landed in (False, True)]
    drawn = cases if slices.seed() == slices.ALL else random.Random(f"{slices.seed()}/{story}").sample(cases, DRAWN)
    for number, landed in drawn:
        end, _ = _in_a_world(ground, story, dies_at(number, landed=landed))
        assert end == calm, f"died at commit {number}, {'after' if landed else 'before'} it had landed"


def _in_a_world(ground: str, name: str, dies: Callable[[Process], None]) -> tuple[dict[str, Any], int]:
    world, found = World(GROUNDS[ground]), list[Any]()

    async def story() -> None:
        found.append(await play(world, name, dies))

    try:
        asyncio.run(world.live(story))
    finally:
        world.ground.close()
    return found[0]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.parametrize("story", TREES)
    metafunc.parametrize("ground", GROUNDS)

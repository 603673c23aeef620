"""The trees of `trees.py` as scenarios: a worker that serves the whole tree is killed, whichever run it executes."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from outlast import DidNotHappen, Happened, Unknown, activity, this_call
from outlast.core.machine import ApprovalStatus, RunStatus
from outlast.testing.crash_values import Action, ScenarioState
from outlast.testing.driver import CrashScenario
from outlast.testing.loading import CodeUnderTest
from outlast.testing.run_snapshot import RunSnapshot
from tests.crash import receiver
from tests.crash.agent_trees import AGENT_TREES
from tests.crash.trees import TREES, endless

Act = Callable[[RunSnapshot, ScenarioState], Action | None]
LEAVES: Final = 4
UNDONE: Final = "undo/"
SLOW: Final = "book/slow"


def _label() -> str:
    return f"{this_call().run_id} call {this_call().key}"


@activity(key="book/{what}", name="tree-place")
async def book(what: str) -> str:
    return receiver.receive(this_call().idempotency_key, _label(), what=what, dedupes=False)


@book.reconcile
async def find_booking(what: str) -> Happened[str] | DidNotHappen | Unknown:
    return _find()


async def find_release(done: str, what: str) -> Happened[str] | DidNotHappen | Unknown:
    return _find()


@book.undo(reconcile=find_release)
async def release(done: str, what: str) -> str:
    return receiver.receive(this_call().idempotency_key, _label(), what=f"no {what}", dedupes=False)


def _find() -> Happened[str] | DidNotHappen:
    found = receiver.ask(this_call().idempotency_key, _label())
    return Happened(found) if found else DidNotHappen()


MADE: Final = {**TREES, "window": endless, **AGENT_TREES}
BUILT: Final = {f"tree-{name}": make(book) for name, make in MADE.items()}
"""The workflows of each scenario, the root first."""
TREE_CODE: Final = CodeUnderTest(
    modules=((__name__, __file__),),
    workflows=tuple((each.name, each.version) for tree in BUILT.values() for each in tree),
    prepare="tests.crash.prepare:prepare",
)


def tree_scenario(name: str) -> CrashScenario:
    """Return the scenario of a tree."""
    return CrashScenario(
        name=BUILT[name][0].name,
        input={"objective": "book places"} if name in OF_AGENTS else {},
        env=lambda state: {receiver.FILE: str(state.receivers)},
        executed=lambda state: dict(receiver.executed(state.receivers)),
        wrong=_left_booked if name in CANCELLED else _slow_left_booked if name in MAPS else None,
        answer=lambda state, effect: None,
        may_be_uncertain=lambda key: key.startswith("seat/"),
        acts=ACTS.get(name, _no_act),
        signals=_word if name == "tree-window" else None,
    )


def _word(seen: RunSnapshot, state: ScenarioState) -> list[tuple[str, dict[str, Any], str]]:
    waits = any(wait["what"] == "word" for wait in seen.waiting)
    return [("word", {"word": "now"}, "w-1")] if waits else []


def _no_act(seen: RunSnapshot, state: ScenarioState) -> Action | None:
    return None


def _at_the_deadline(seen: RunSnapshot, state: ScenarioState) -> Action | None:
    """Send the message and the decision at the instant of the deadline, before a worker sees it."""
    at = max((wait["deadline"] for wait in seen.waits if wait["kind"] == "sleep"), default=0)
    if seen.over or not seen.approvals or seen.run["ending"] or not at:
        return None
    if not seen.signals:
        return Action("post", {"signals": [("word", {"word": "now"}, "w-1")]}, at)
    for approval in seen.approvals:
        if approval["status"] == ApprovalStatus.PENDING and not any(m["kind"] == "decision" for m in seen.messages):
            return Action("approve", {"approval": approval["id"], "actor": "ann"}, at)
    return None


def _once_the_leaves_have_begun(seen: RunSnapshot, state: ScenarioState) -> Action | None:
    """Cancel the root while calls are under way: also before the runs of a dead process are taken over."""
    begun = [run for run in seen.tree if run.run["depth"] == 2 and run.effects]
    asked = seen.run["ending"] or any(message["kind"] == "cancel" for message in seen.messages)
    return Action("cancel") if len(begun) == LEAVES and not asked and not seen.over else None


def _what_is_asked_below(seen: RunSnapshot, state: ScenarioState) -> Action | None:
    """Approve what a run below the root asks for."""
    for run in seen.tree:
        for approval in run.approvals:
            if approval["status"] == ApprovalStatus.PENDING and not any(m["kind"] == "decision" for m in run.messages):
                return Action("approve", {"approval": approval["id"], "actor": "ann"})
    return None


def _while_the_agent_waits(seen: RunSnapshot, state: ScenarioState) -> Action | None:
    """Approve what one agent in the background asks for, once the root waits, and then what the other one asks for."""
    turn = {4: "tree-near", 5: "tree-far"}.get(seen.run["visit"], "")
    if seen.run["status"] != RunStatus.WAITING:
        return None
    for run in seen.tree:
        if run.run["workflow"] == turn and (asked := _what_is_asked_below(run, state)) is not None:
            return asked
    return None


OF_AGENTS: Final = ("tree-agents", "tree-background")
ACTS: Final[dict[str, Act]] = {
    "tree-first": _at_the_deadline,
    "tree-cancel": _once_the_leaves_have_begun,
    "tree-agents": _what_is_asked_below,
    "tree-background": _while_the_agent_waits,
}
CANCELLED: Final = ("tree-first", "tree-cancel", "tree-failed")
"""Scenarios in which no run completes that has booked something."""


def _left_booked(state: ScenarioState, reference: Mapping[str, int]) -> list[str]:
    """Return the keys that were executed twice, or booked and not released."""
    done = receiver.executed(state.receivers)
    found = [f"{key} was executed {n} times" for key, n in done.items() if n > 1]
    released = {key.replace(UNDONE, "", 1) for key in done if UNDONE in key}
    return found + [f"{key} is booked and not released" for key in done.keys() - released if UNDONE not in key]


MAPS: Final = ("tree-map", "tree-map-failed")
"""Scenarios in which the children with a slow name are cancelled, before or after they have booked."""


def _slow_left_booked(state: ScenarioState, reference: Mapping[str, int]) -> list[str]:
    """Return the keys that were executed twice, or not as in the reference, but for those of cancelled children."""
    done = receiver.executed(state.receivers)
    slow = {key: n for key, n in done.items() if SLOW in key}
    found = [f"{key} was executed {n} times" for key, n in done.items() if n > 1]
    booked = {key for key in slow if UNDONE not in key}
    found += [f"{key} is booked and not released" for key in booked - {key.replace(UNDONE, "", 1) for key in slow}]
    others = {key: n for key, n in done.items() if SLOW not in key}
    if others != {key: n for key, n in reference.items() if SLOW not in key}:
        found.append(f"the receivers executed {others}")
    return found

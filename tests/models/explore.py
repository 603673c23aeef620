"""Exhaustive breadth-first search over a rule's worlds: every state that can be reached, shortest trace first."""

from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

STATES_MAX = 3_000_000


class Model(Protocol):
    """A model of a rule: first state, next steps, and forbidden states."""

    def first(self) -> Iterable[Hashable]:
        """The states it may start in."""

    def step(self, s: Any) -> Iterator[tuple[str, Hashable]]:
        """Every atomic thing that can happen next, with a sentence that describes it."""

    def bad(self, s: Any) -> str:
        """The sentence that says what is wrong with a state; '' when nothing is."""

    def good(self, s: Any) -> bool:
        """True for a good state. One must be reachable from every state, so that nothing blocks."""


class Found(NamedTuple):
    """Result of a search: its size, and the violation ('' if the rule holds) with the shortest path to it."""

    states: int
    edges: int
    wrong: str
    trace: tuple[str, ...]


class Variant(NamedTuple):
    """A rule as built (`breaks` is ''), or with one safeguard removed and a part of the sentence that must come out."""

    name: str
    model: Model
    breaks: str = ""


def explore(model: Model) -> Found:
    """Search every reachable state. Stops at the first bad one, else at the first that no good one can follow."""
    seen: dict[Hashable, tuple[Hashable, str]] = dict.fromkeys(model.first(), (None, ""))
    todo: deque[Hashable] = deque(seen)
    before: dict[Hashable, list[Hashable]] = {s: [] for s in seen}
    edges = 0
    while todo:
        s = todo.popleft()
        if wrong := model.bad(s):
            return Found(len(seen), edges, wrong, _trace(seen, s))
        for label, after in model.step(s):
            edges += 1
            if after not in seen:
                assert len(seen) < STATES_MAX, "make the model smaller"
                seen[after] = (s, label)
                before[after] = []
                todo.append(after)
            before[after].append(s)
    reached = {s for s in seen if model.good(s)}
    todo.extend(reached)
    while todo:
        for s in before[todo.popleft()]:
            if s not in reached:
                reached.add(s)
                todo.append(s)
    for s in seen:  # in the order of the search: the shortest way comes first
        if s not in reached:
            return Found(len(seen), edges, "stuck: nothing good can follow any more", _trace(seen, s))
    return Found(len(seen), edges, "", ())


def _trace(seen: dict[Hashable, tuple[Hashable, str]], s: Hashable) -> tuple[str, ...]:
    labels: list[str] = []
    while seen[s][0] is not None:
        s, label = seen[s]
        labels.append(label)
    return tuple(reversed(labels))

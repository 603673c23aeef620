"""The part of a workflow's graph that a page draws, with the visits of a run.

A graph of more than ten layers is drawn from top to bottom, and its chains are folded: nodes in a row that have one way
in and one way out are one box, unless they are beside the current node. If more than 60 boxes are left, those
that are nearest to one node are drawn.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, Any, Final, NamedTuple

from fastapi import Query

from outlast.models.runs import Visit
from outlast.ui.graph_layout import DeclaredGraph, Edge, Layout, declared, depth_of, laid_out

NODES_MAX: Final = 60
"""Boxes of a drawing. Of a larger graph the nodes near one of them are drawn."""
NEAR_MAX: Final = 24
ACROSS_MAX: Final = 10
"""Layers that are drawn from left to right. More follow from top to bottom."""
FOLD_MIN: Final = 3
END: Final = "end"
Opened = Annotated[str, Query(alias="unfold", max_length=2_000)]
"""Nodes whose chains are not folded, with commas, in the address of a page."""
Near = Annotated[str, Query(max_length=200)]
"""Node around which a part of a graph is drawn, in the address of a page."""


class DrawnNode(NamedTuple):
    """Node of a run: `state` is `current`, `visited` or `untouched`; `to` are its exits, with `end`.

    `why`: words for how the run has stopped at it, of the kind `kind` of its state; '' for another node.
    """

    name: str
    state: str
    visits: int
    took_ms: int
    to: tuple[str, ...]
    why: str = ""
    kind: str = ""


class DrawnFold(NamedTuple):
    """Chain of nodes that is drawn as one box. `opens`: value of `?unfold=` that shows its nodes."""

    name: str
    members: tuple[str, ...]
    visited: int
    opens: str

    @property
    def state(self) -> str:
        """Return `visited` if a run visited one of its nodes, else `untouched`."""
        return "visited" if self.visited else "untouched"


class Drawing(NamedTuple):
    """Graph of a run. `taken`: the drawn edges that the run has taken. `near`: the node in the middle of a part."""

    nodes: tuple[DrawnNode, ...]
    by_name: Mapping[str, DrawnNode]
    folds: Mapping[str, DrawnFold]
    layout: Layout
    taken: frozenset[Edge]
    near: str
    left_out: int
    """Nodes that are neither drawn nor in a fold."""
    here: str
    """The current node, or the last one of a run that has ended."""


class GraphView(NamedTuple):
    """Part of a graph that is drawn. `folds`: nodes by the name of their box."""

    graph: DeclaredGraph
    folds: Mapping[str, tuple[str, ...]]
    down: bool
    near: str


def drawn(
    topology: Mapping[str, Any],
    visits: Sequence[Visit] = (),
    *,
    current: str = "",
    last: str = "",
    why: str = "",
    kind: str = "",
    opened: str = "",
    near: str = "",
) -> Drawing:
    """Return the graph of a workflow with the visits of a run.

    `current`: its node; '' if it has ended, then `last` is the node in which it did. `why`: words for how it has
    stopped there, of the kind `kind` of its state. `opened`: names of nodes whose chains are not folded, with commas.
    `near`: the node around which a part is drawn.
    """
    graph = declared(topology)
    here = current or last
    view = view_of(graph, here, frozenset(filter(None, opened.split(","))), near if near in graph.nodes else "")
    nodes = tuple(
        node._replace(why=why, kind=kind) if why and node.name == here else node
        for node in _nodes(graph, visits, current)
    )
    by_name = {node.name: node for node in nodes}
    box_of = {name: fold for fold, members in view.folds.items() for name in members}
    folds = {name: _fold(name, [by_name[each] for each in members], opened) for name, members in view.folds.items()}
    taken = frozenset(
        (box_of.get(one.node, one.node), box_of.get(other.node, other.node)) for one, other in pairwise(visits)
    )
    shown = sum(len(view.folds.get(name, (name,))) for name in view.graph.nodes)
    layout = laid_out(view.graph, down=view.down)
    return Drawing(nodes, by_name, folds, layout, taken, view.near, len(nodes) - shown, here)


def _fold(name: str, members: Sequence[DrawnNode], opened: str) -> DrawnFold:
    """Return a chain as a box. It opens by the end that the run does not come to next, so that it stays open."""
    visited = sum(each.visits > 0 for each in members)
    end = members[0 if visited else -1].name
    return DrawnFold(name, tuple(each.name for each in members), visited, ",".join(filter(None, (opened, end))))


def _nodes(graph: DeclaredGraph, visits: Sequence[Visit], current: str) -> tuple[DrawnNode, ...]:
    counts: Counter[str] = Counter()
    took: Counter[str] = Counter()
    for visit in visits:
        counts[visit.node] += 1
        if visit.entered_at is not None and visit.left_at is not None:
            took[visit.node] += (visit.left_at - visit.entered_at) // timedelta(milliseconds=1)
    exits: dict[str, list[str]] = {name: [] for name in graph.nodes}
    for source, target in graph.edges:
        exits[source].append(target)
    return tuple(
        DrawnNode(
            name,
            "current" if name == current else "visited" if counts[name] else "untouched",
            counts[name],
            took[name],
            (*exits[name], *((END,) if name in graph.ends else ())),
        )
        for name in graph.nodes
    )


@lru_cache(maxsize=64)
def view_of(graph: DeclaredGraph, here: str, opened: frozenset[str], near: str) -> GraphView:
    """Return the part of a graph that is drawn. The views of the latest graphs are kept, as their layouts are."""
    large = len(graph.nodes) > NODES_MAX
    if not large and depth_of(graph) <= ACROSS_MAX:
        return GraphView(graph, {}, down=False, near="")
    kept = {name for edge in graph.edges for name in edge if not {here, near}.isdisjoint(edge)} | {here, near}
    folds = {
        f"{members[0]} … {members[-1]}": members
        for members in chains(graph, kept)
        if len(members) >= FOLD_MIN and opened.isdisjoint(members)
    }
    folded = _with_folds(graph, folds)
    if len(folded.nodes) <= NODES_MAX:
        return GraphView(folded, folds, down=True, near="")
    middle = near or here or graph.start
    names = frozenset(nearest(folded, middle, NEAR_MAX))
    part = DeclaredGraph(
        tuple(name for name in folded.nodes if name in names),
        tuple(edge for edge in folded.edges if names.issuperset(edge)),
        folded.start,
        folded.ends & names,
    )
    shown = {name: members for name, members in folds.items() if name in names}
    return GraphView(part, shown, down=depth_of(part) > ACROSS_MAX, near=middle)


def chains(graph: DeclaredGraph, kept: Collection[str]) -> list[tuple[str, ...]]:
    """Return nodes in a row with one way in and one way out. The start, nodes that may end and `kept` are in none."""
    sources: dict[str, list[str]] = {name: [] for name in graph.nodes}
    targets: dict[str, list[str]] = {name: [] for name in graph.nodes}
    for source, target in graph.edges:
        sources[target].append(source)
        targets[source].append(target)
    simple = {
        name
        for name in graph.nodes
        if len(sources[name]) == len(targets[name]) == 1
        and name != graph.start
        and name not in graph.ends
        and name not in kept
    }
    found = []
    for first in graph.nodes:
        if first not in simple or sources[first][0] in simple:
            continue
        row = [first]
        while targets[row[-1]][0] in simple:
            row.append(targets[row[-1]][0])
        found.append(tuple(row))
    return found


def _with_folds(graph: DeclaredGraph, folds: Mapping[str, tuple[str, ...]]) -> DeclaredGraph:
    box_of = {name: fold for fold, members in folds.items() for name in members}
    edges = [(box_of.get(source, source), box_of.get(target, target)) for source, target in graph.edges]
    return DeclaredGraph(
        tuple(dict.fromkeys(box_of.get(name, name) for name in graph.nodes)),
        tuple(dict.fromkeys(edge for edge in edges if edge[0] != edge[1] or edge[0] not in folds)),
        graph.start,
        graph.ends,
    )


def nearest(graph: DeclaredGraph, middle: str, most: int) -> list[str]:
    """Return the nodes that are the fewest edges away from one, in either direction."""
    beside: dict[str, list[str]] = {name: [] for name in graph.nodes}
    for source, target in graph.edges:
        beside[source].append(target)
        beside[target].append(source)
    found = {middle: None} if middle in beside else dict.fromkeys(graph.nodes[:1])
    waiting = list(found)
    for name in waiting:
        for each in beside[name]:
            if each not in found:
                found[each] = None
                waiting.append(each)
        if len(found) >= most:
            break
    return list(found)[:most]

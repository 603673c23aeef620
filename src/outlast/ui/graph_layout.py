"""Layout of a workflow's graph: layers from left to right, few crossings, and edges back below.

Pure functions from nodes and edges to boxes and paths. They end on every graph: with cycles, self-loops, parts that are
not connected, and nodes that nothing reaches.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple

from outlast.models.runs import Visit

NODES_MAX: Final = 60
"""Larger graphs are shown as a list."""
CHAR: Final = 8.0
LABEL_CHARS: Final = 22
BOX_HEIGHT: Final = 48
MIN_WIDTH: Final = 96
GAP_X: Final = 48
GAP_Y: Final = 20
MARGIN: Final = 24
HOP: Final = "\0"
"""Part of the name of a place that an edge runs through; no node has it in its name."""
HOP_HEIGHT: Final = 8
LANES: Final = 12
LOOP: Final = 18
"""Height of the first lane for edges back, and the distance between lanes."""
SWEEPS: Final = 4
ORDERED_MAX: Final = 400
"""Edges between layers that are drawn with few crossings: 0.1 s for as many. More are drawn as they come."""
END: Final = "end"

Edge = tuple[str, str]


class DeclaredGraph(NamedTuple):
    """Nodes of a workflow in their order, its edges, the start, and the nodes that may end the run."""

    nodes: tuple[str, ...]
    edges: tuple[Edge, ...]
    start: str
    ends: frozenset[str]


class Box(NamedTuple):
    """Node with its place. `label` fits the box; `name` is whole."""

    name: str
    label: str
    x: float
    y: float
    width: float
    height: float


class Path(NamedTuple):
    """Edge as the data of an SVG path. `back`: it leads to its own layer or an earlier one."""

    source: str
    target: str
    d: str
    back: bool


class Layout(NamedTuple):
    """Boxes and paths, and the size of the drawing."""

    boxes: tuple[Box, ...]
    paths: tuple[Path, ...]
    width: float
    height: float


def declared(topology: Mapping[str, Any]) -> DeclaredGraph:
    """Return the graph of a stored topology. Targets that it does not declare are left out."""
    nodes: Mapping[str, Any] = topology.get("nodes") or {}
    start = next((name for name, node in nodes.items() if node.get("start")), next(iter(nodes), ""))
    edges = tuple((name, to) for name, node in nodes.items() for to in dict.fromkeys(node.get("to", ())) if to in nodes)
    order = _reach(start, nodes, edges)
    return DeclaredGraph(order, edges, start, frozenset(name for name, node in nodes.items() if node.get("ends")))


def _reach(start: str, nodes: Mapping[str, Any], edges: Sequence[Edge]) -> tuple[str, ...]:
    """Return all nodes, breadth first from the start, then from each node that is not reached."""
    following: dict[str, list[str]] = {}
    for source, target in edges:
        following.setdefault(source, []).append(target)
    found: dict[str, None] = {}
    for root in (start, *nodes):
        waiting = [root] if root in nodes and root not in found else []
        for name in waiting:
            if name not in found:
                found[name] = None
                waiting += following.get(name, ())
    return tuple(found)


@lru_cache(maxsize=64)
def laid_out(graph: DeclaredGraph) -> Layout:
    """Return the places of boxes and edges. An edge over several layers has a place in each of them.

    The layouts of the latest graphs are kept, because each refresh of a run draws its graph.
    """
    forward = _without_cycles(graph)
    layers = _layers(graph, forward)
    ways = _ways(layers, forward)
    pieces = {piece: None for way in ways.values() for piece in pairwise(way)}
    if len(pieces) <= ORDERED_MAX:
        layers = _ordered(layers, pieces)
    boxes, bottom = _placed(layers)
    back = [edge for edge in graph.edges if edge not in forward and edge[0] != edge[1]]
    back.sort(key=lambda edge: boxes[edge[0]].x - boxes[edge[1]].x)
    lanes = {edge: bottom + LOOP * (n % LANES + 1) for n, edge in enumerate(back)}
    paths = tuple(_path(edge, boxes, ways, lanes) for edge in graph.edges)
    width = max((box.x + box.width for box in boxes.values()), default=0) + MARGIN + (GAP_X / 3 if back else 0)
    height = bottom + LOOP * min(len(back), LANES) + MARGIN
    return Layout(tuple(boxes[name] for name in graph.nodes), paths, round(width, 1), round(height, 1))


def _path(
    edge: Edge, boxes: Mapping[str, Box], ways: Mapping[Edge, Sequence[str]], lanes: Mapping[Edge, float]
) -> Path:
    if edge in ways:
        return Path(*edge, _across([boxes[name] for name in ways[edge]]), back=False)
    source, target = boxes[edge[0]], boxes[edge[1]]
    return Path(*edge, _below(source, target, lanes[edge]) if edge in lanes else _round(source), back=True)


def _ways(layers: list[list[str]], forward: Mapping[Edge, None]) -> dict[Edge, list[str]]:
    """Return the names that each edge runs through, and add a place to each layer between source and target."""
    depth = {name: n for n, layer in enumerate(layers) for name in layer}
    ways = {}
    for source, target in forward:
        between = [f"{source}{HOP}{target}{HOP}{n}" for n in range(depth[source] + 1, depth[target])]
        for n, name in enumerate(between, depth[source] + 1):
            layers[n].append(name)
        ways[source, target] = [source, *between, target]
    return ways


def _without_cycles(graph: DeclaredGraph) -> dict[Edge, None]:
    """Return the edges that lead forward: each unless it closes a cycle, those away from the start first.

    So the edge that leads back in a cycle is the one that comes nearer to the start.
    """
    steps = _steps(graph)
    reached = {name: 1 << n for n, name in enumerate(graph.nodes)}  # as bits: the node and all that it leads to
    bit = dict(reached)
    kept: dict[Edge, None] = {}
    for source, target in sorted(graph.edges, key=lambda edge: steps[edge[1]] <= steps[edge[0]]):
        if not reached[target] & bit[source]:
            kept[source, target] = None
            more = reached[target]
            reached = {name: bits | more if bits & bit[source] else bits for name, bits in reached.items()}
    return kept


def _steps(graph: DeclaredGraph) -> dict[str, int]:
    """Return the least number of edges from the start to each node; a node that nothing reaches is a start, too."""
    following: dict[str, list[str]] = {name: [] for name in graph.nodes}
    for source, target in graph.edges:
        following[source].append(target)
    found: dict[str, int] = {}
    for root in graph.nodes:
        waiting = [root] if root not in found else []
        found.setdefault(root, 0)
        for name in waiting:
            for target in following[name]:
                if target not in found:
                    found[target] = found[name] + 1
                    waiting.append(target)
    return found


def _layers(graph: DeclaredGraph, forward: Mapping[Edge, None]) -> list[list[str]]:
    """Return the nodes by layer: one behind the last of their predecessors."""
    before: dict[str, int] = dict.fromkeys(graph.nodes, 0)
    following: dict[str, list[str]] = {name: [] for name in graph.nodes}
    for source, target in forward:
        before[target] += 1
        following[source].append(target)
    depth = dict.fromkeys(graph.nodes, 0)
    free = [name for name in graph.nodes if not before[name]]
    for name in free:
        for target in following[name]:
            depth[target] = max(depth[target], depth[name] + 1)
            before[target] -= 1
            if not before[target]:
                free.append(target)
    layers: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for name in graph.nodes:
        layers[depth[name]].append(name)
    return layers


def _ordered(layers: list[list[str]], forward: Mapping[Edge, None]) -> list[list[str]]:
    """Return the layers, each ordered by the mean place of its neighbours, there and back, so that few edges cross."""
    sources: dict[str, list[str]] = {}
    targets: dict[str, list[str]] = {}
    for source, target in forward:
        sources.setdefault(target, []).append(source)
        targets.setdefault(source, []).append(target)
    best, least = [list(layer) for layer in layers], crossings(layers, forward)
    now = [list(layer) for layer in layers]
    for sweep in range(SWEEPS):
        neighbours = sources if sweep % 2 == 0 else targets
        for layer in now if sweep % 2 == 0 else reversed(now):
            place = {name: i / max(1, len(each)) for each in now for i, name in enumerate(each)}
            means = {
                name: sum(place[n] for n in near) / len(near) if (near := neighbours.get(name)) else place[name]
                for name in layer
            }
            layer.sort(key=means.__getitem__)
        count = crossings(now, forward)
        if count < least:
            best, least = [list(layer) for layer in now], count
    return best


def crossings(layers: Sequence[Sequence[str]], forward: Mapping[Edge, None]) -> int:
    """Count crossings of edges between neighbouring layers."""
    at = {name: (n, i) for n, layer in enumerate(layers) for i, name in enumerate(layer)}
    between: dict[int, list[tuple[int, int]]] = {}
    for source, target in forward:
        (n, i), (m, j) = at[source], at[target]
        if m == n + 1:
            between.setdefault(n, []).append((i, j))
    return sum(
        (a - c) * (b - d) < 0 for pairs in between.values() for k, (a, b) in enumerate(pairs) for c, d in pairs[:k]
    )


def label_of(name: str) -> str:
    """Return a name that fits a box: a long one is cut in the middle, because its ends tell more."""
    if len(name) <= LABEL_CHARS:
        return name
    head = (LABEL_CHARS - 1) // 2
    return f"{name[:head]}…{name[-(LABEL_CHARS - 1 - head) :]}"


def _placed(layers: Sequence[Sequence[str]]) -> tuple[dict[str, Box], float]:
    """Return the boxes and the y below all of them."""
    heights = [sum(_height(name) + GAP_Y for name in layer) for layer in layers]
    tallest = max(heights, default=0)
    boxes: dict[str, Box] = {}
    x: float = MARGIN
    for layer, height in zip(layers, heights, strict=True):
        width = max(MIN_WIDTH, *(len(label_of(name)) * CHAR + 24 for name in layer if HOP not in name))
        y = MARGIN + (tallest - height) / 2
        for name in layer:
            boxes[name] = Box(name, label_of(name), x, y, width, _height(name))
            y += _height(name) + GAP_Y
        x += width + GAP_X
    return boxes, MARGIN + tallest


def _height(name: str) -> int:
    return HOP_HEIGHT if HOP in name else BOX_HEIGHT


def _across(boxes: Sequence[Box]) -> str:
    """Return an edge to the right, through the places of the layers between."""
    d = ""
    for one, other in pairwise(boxes):
        x, y = one.x + one.width, one.y + one.height / 2
        to_x, to_y = other.x, other.y + other.height / 2
        bend = (to_x - x) / 2
        d += f"{'L' if d else 'M'}{x:g} {y:g}C{x + bend:g} {y:g} {to_x - bend:g} {to_y:g} {to_x:g} {to_y:g}"
    return d


def _below(source: Box, target: Box, y: float) -> str:
    """Return an edge back: down beside the source, along a lane below all boxes, and up beside the target."""
    out, into = source.x + source.width, target.x
    right, left = out + GAP_X / 3, into - MARGIN / 2
    middle, to_middle = source.y + source.height * 0.75, target.y + target.height * 0.75
    down = f"M{out:g} {middle:g}Q{right:g} {middle:g} {right:g} {middle + 8:g}L{right:g} {y - 8:g}"
    along = f"Q{right:g} {y:g} {right - 8:g} {y:g}L{left + 8:g} {y:g}Q{left:g} {y:g} {left:g} {y - 8:g}"
    return f"{down}{along}L{left:g} {to_middle + 8:g}Q{left:g} {to_middle:g} {into:g} {to_middle:g}"


def _round(box: Box) -> str:
    """Return an edge from a node to itself, in the gap below its box."""
    out, into, y = box.x + box.width * 0.65, box.x + box.width * 0.35, box.y + box.height
    low = y + GAP_Y * 0.9
    return f"M{out:g} {y:g}C{out:g} {low:g} {into:g} {low:g} {into:g} {y:g}"


class DrawnNode(NamedTuple):
    """Node of a run: `state` is `current`, `visited` or `untouched`; `to` are its exits, with `end`."""

    name: str
    state: str
    visits: int
    took_ms: int
    to: tuple[str, ...]


class Drawing(NamedTuple):
    """Graph of a run. `layout` is None if it is too large to draw; `taken` are the edges that the run has taken."""

    nodes: tuple[DrawnNode, ...]
    by_name: Mapping[str, DrawnNode]
    layout: Layout | None
    taken: frozenset[Edge]


def drawn(topology: Mapping[str, Any], visits: Sequence[Visit] = (), *, current: str = "") -> Drawing:
    """Return the graph of a workflow with the visits of a run. `current`: its node; '' if it has ended."""
    graph = declared(topology)
    counts: Counter[str] = Counter()
    took: Counter[str] = Counter()
    for visit in visits:
        counts[visit.node] += 1
        if visit.entered_at is not None and visit.left_at is not None:
            took[visit.node] += (visit.left_at - visit.entered_at) // timedelta(milliseconds=1)
    exits: dict[str, list[str]] = {name: [] for name in graph.nodes}
    for source, target in graph.edges:
        exits[source].append(target)
    nodes = tuple(
        DrawnNode(
            name,
            "current" if name == current else "visited" if counts[name] else "untouched",
            counts[name],
            took[name],
            (*exits[name], *((END,) if name in graph.ends else ())),
        )
        for name in graph.nodes
    )
    taken = frozenset((one.node, other.node) for one, other in pairwise(visits))
    return Drawing(
        nodes, {node.name: node for node in nodes}, laid_out(graph) if len(nodes) <= NODES_MAX else None, taken
    )

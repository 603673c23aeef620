"""Layout of a workflow's graph: layers from left to right or from top to bottom, few crossings, and edges back aside.

Pure functions from nodes and edges to boxes and paths. They end on every graph: with cycles, self-loops, parts that are
not connected, and nodes that nothing reaches. Places are computed as for layers from left to right. From top to bottom,
x and y change places at the end.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

CHAR: Final = 8.0
LABEL_CHARS: Final = 22
BOX_HEIGHT: Final = 48
MIN_WIDTH: Final = 96
GAP_X: Final = 48
GAP_DOWN: Final = 32
"""Gap between layers from top to bottom. It is wider than what an edge back needs at both of its ends."""
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

Edge = tuple[str, str]
_Point: TypeAlias = tuple[float, float]


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


def depth_of(graph: DeclaredGraph) -> int:
    """Return the number of layers of a graph."""
    return len(_layers(graph, _without_cycles(graph)))


@lru_cache(maxsize=64)
def laid_out(graph: DeclaredGraph, *, down: bool = False) -> Layout:
    """Return the places of boxes and edges. An edge over several layers has a place in each of them.

    `down`: layers follow from top to bottom, and edges back run on the right side. The layouts of the latest graphs are
    kept, because each refresh of a run draws its graph.
    """
    forward = _without_cycles(graph)
    layers = _layers(graph, forward)
    ways = _ways(layers, forward)
    pieces = {piece: None for way in ways.values() for piece in pairwise(way)}
    if len(pieces) <= ORDERED_MAX:
        layers = _ordered(layers, pieces)
    boxes, bottom = _placed(layers, down=down)
    back = [edge for edge in graph.edges if edge not in forward and edge[0] != edge[1]]
    back.sort(key=lambda edge: boxes[edge[0]].x - boxes[edge[1]].x)
    lanes = {edge: bottom + LOOP * (n % LANES + 1) for n, edge in enumerate(back)}
    paths = tuple(
        Path(*edge, _data(_path(edge, boxes, ways, lanes), down=down), back=edge not in ways) for edge in graph.edges
    )
    width = max((box.x + box.width for box in boxes.values()), default=0) + MARGIN + (GAP_X / 3 if back else 0)
    height = bottom + LOOP * min(len(back), LANES) + MARGIN
    placed = tuple(_turned(boxes[name]) if down else boxes[name] for name in graph.nodes)
    if down:
        width, height = height, width
    return Layout(placed, paths, round(width, 1), round(height, 1))


def _turned(box: Box) -> Box:
    return Box(box.name, box.label, box.y, box.x, box.height, box.width)


def _path(
    edge: Edge, boxes: Mapping[str, Box], ways: Mapping[Edge, Sequence[str]], lanes: Mapping[Edge, float]
) -> list[str | _Point]:
    if edge in ways:
        return _across([boxes[name] for name in ways[edge]])
    source, target = boxes[edge[0]], boxes[edge[1]]
    return _below(source, target, lanes[edge]) if edge in lanes else _round(source)


def _data(parts: Sequence[str | _Point], *, down: bool) -> str:
    """Return commands and points as the data of an SVG path."""
    found = ""
    for part in parts:
        x, y = ("", "") if isinstance(part, str) else part[::-1] if down else part
        found += part if isinstance(part, str) else f"{'' if found[-1].isalpha() else ' '}{x:g} {y:g}"
    return found


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


def _placed(layers: Sequence[Sequence[str]], *, down: bool) -> tuple[dict[str, Box], float]:
    """Return the boxes and the y below all of them."""
    heights = [sum(_height(name, down=down) + GAP_Y for name in layer) for layer in layers]
    tallest = max(heights, default=0)
    boxes: dict[str, Box] = {}
    x: float = MARGIN
    for layer, height in zip(layers, heights, strict=True):
        width = BOX_HEIGHT if down else max(MIN_WIDTH, *(_words_width(name) for name in layer if HOP not in name))
        y = MARGIN + (tallest - height) / 2
        for name in layer:
            boxes[name] = Box(name, label_of(name), x, y, width, _height(name, down=down))
            y += boxes[name].height + GAP_Y
        x += width + (GAP_DOWN if down else GAP_X)
    return boxes, MARGIN + tallest


def _height(name: str, *, down: bool) -> float:
    return HOP_HEIGHT if HOP in name else max(MIN_WIDTH, _words_width(name)) if down else BOX_HEIGHT


def _words_width(name: str) -> float:
    return len(label_of(name)) * CHAR + 24


def _across(boxes: Sequence[Box]) -> list[str | _Point]:
    """Return an edge to the right, through the places of the layers between."""
    found: list[str | _Point] = []
    for one, other in pairwise(boxes):
        x, y = one.x + one.width, one.y + one.height / 2
        to_x, to_y = other.x, other.y + other.height / 2
        bend = (to_x - x) / 2
        found += ["L" if found else "M", (x, y), "C", (x + bend, y), (to_x - bend, to_y), (to_x, to_y)]
    return found


def _below(source: Box, target: Box, y: float) -> list[str | _Point]:
    """Return an edge back: down beside the source, along a lane below all boxes, and up beside the target."""
    out, into = source.x + source.width, target.x
    right, left = out + GAP_X / 3, into - MARGIN / 2
    middle, to_middle = source.y + source.height * 0.75, target.y + target.height * 0.75
    down: list[str | _Point] = ["M", (out, middle), "Q", (right, middle), (right, middle + 8), "L", (right, y - 8)]
    along: list[str | _Point] = ["Q", (right, y), (right - 8, y), "L", (left + 8, y), "Q", (left, y), (left, y - 8)]
    return [*down, *along, "L", (left, to_middle + 8), "Q", (left, to_middle), (into, to_middle)]


def _round(box: Box) -> list[str | _Point]:
    """Return an edge from a node to itself, in the gap below its box."""
    out, into, y = box.x + box.width * 0.65, box.x + box.width * 0.35, box.y + box.height
    low = y + GAP_Y * 0.9
    return ["M", (out, y), "C", (out, low), (into, low), (into, y)]

"""The layout of a graph: every node has a place, edges lead forward or below, on hostile graphs, too."""

import random
import re
from itertools import pairwise
from typing import Any

import pytest

from outlast.models.runs import Visit
from outlast.ui.graph_drawing import NEAR_MAX, NODES_MAX, chains, drawn, nearest, view_of
from outlast.ui.graph_layout import CHAR, DeclaredGraph, Layout, crossings, declared, laid_out


def graph(edges: dict[str, list[str]], start: str = "") -> DeclaredGraph:
    names = dict.fromkeys([*edges, *(to for targets in edges.values() for to in targets)])
    nodes: dict[str, Any] = {name: {"to": edges.get(name, []), "start": name == start, "ends": False} for name in names}
    return declared({"nodes": nodes})


def random_graph(seed: int, size: int) -> DeclaredGraph:
    choose = random.Random(seed)
    names = [f"node_{n}" for n in range(size)]
    return graph({name: choose.sample(names, choose.randint(0, 4)) for name in names}, names[0])


HOSTILE = {
    "one": graph({"a": []}, "a"),
    "self-loop": graph({"a": ["a"]}, "a"),
    "cycle": graph({"a": ["b"], "b": ["c"], "c": ["a"]}, "a"),
    "all to all": graph({x: list("abcdef") for x in "abcdef"}, "a"),
    "not connected": graph({"a": ["b"], "c": ["d"], "d": ["c"], "e": []}, "a"),
    "nothing starts": graph({"a": ["b"], "b": ["a"]}),
    "long names": graph({"n" * 100: ["m" * 100], "m" * 100: []}, "n" * 100),
    "chain of 1,000": graph({f"n{n}": [f"n{n + 1}"] for n in range(1000)}, "n0"),
    "200 nodes": random_graph(1, 200),
    "none": declared({"nodes": {}}),
    "no graph": declared({}),
}


@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("name", HOSTILE)
def test_every_graph_has_a_layout(name: str, down: bool) -> None:
    sound(HOSTILE[name], down=down)


@pytest.mark.parametrize("down", [False, True])
def test_random_graphs_have_a_layout(down: bool) -> None:
    for size in range(5, 60, 3):
        sound(random_graph(size, size), down=down)


def sound(of: DeclaredGraph, *, down: bool = False) -> Layout:
    found = laid_out(of, down=down)
    assert [box.name for box in found.boxes] == list(of.nodes)
    assert [(path.source, path.target) for path in found.paths] == list(of.edges)
    for box in found.boxes:
        assert box.x >= 0 and box.x + box.width <= found.width, "no box outside"
        assert box.y >= 0 and box.y + box.height <= found.height
        assert len(box.label) * CHAR <= box.width, "a label does not overflow its box"
    places = sorted(
        (box.y, box.x, box.height, box.width) if down else (box.x, box.y, box.width, box.height) for box in found.boxes
    )
    for one, other in pairwise(places):
        assert one[0] + one[2] <= other[0] or one[1] + one[3] <= other[1], "boxes do not overlap"
    by_name = {box.name: box for box in found.boxes}
    for path in found.paths:
        source, target = by_name[path.source], by_name[path.target]
        assert path.back == (target.y <= source.y if down else target.x <= source.x)
        numbers = [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", path.d)]
        assert max(numbers[1::2]) <= found.height, "no edge outside"
        assert min(numbers[::2]) >= 0
    return found


def test_an_edge_back_runs_below_every_box() -> None:
    found = sound(graph({"a": ["b"], "b": ["c"], "c": ["a"]}, "a"))
    (back,) = [path for path in found.paths if path.back]
    assert (back.source, back.target) == ("c", "a")
    lowest = max(box.y + box.height for box in found.boxes)
    assert max(float(n) for n in re.findall(r" (\d+(?:\.\d+)?)", back.d)) > lowest


def test_the_edge_of_a_cycle_that_comes_nearer_to_the_start_leads_back() -> None:
    """Strategies, and a loop back to each of them. The nodes of a topology are in the order of their names."""
    ways = ["spot", "auction", "strategic"]
    edges = {"route": ways, **{way: ["evaluate"] for way in ways}, "evaluate": ["approve"], "approve": [*ways, "award"]}
    found = sound(graph(dict(sorted({**edges, "award": []}.items())), "route"))
    assert {(path.source, path.target) for path in found.paths if path.back} == {("approve", way) for way in ways}
    at = {box.name: box.x for box in found.boxes}
    assert len({at[way] for way in ways}) == 1 and at["award"] == max(at.values())


def test_a_long_edge_passes_no_box_that_it_does_not_lead_to() -> None:
    found = sound(graph({"a": ["b", "c"], "b": ["c"], "c": []}, "a"))
    (long,) = [path for path in found.paths if (path.source, path.target) == ("a", "c")]
    (between,) = [box for box in found.boxes if box.name == "b"]
    numbers = [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", long.d)]
    inside = [
        y for x, y in zip(numbers[::2], numbers[1::2], strict=True) if between.x <= x <= between.x + between.width
    ]
    assert inside
    assert all(not between.y <= y <= between.y + between.height for y in inside)


def test_a_target_that_is_not_declared_is_left_out() -> None:
    assert declared({"nodes": {"a": {"to": ["gone", "a"], "start": True}}}).edges == (("a", "a"),)


def test_layers_are_ordered_so_that_edges_do_not_cross() -> None:
    found = sound(graph({"s": ["a", "b"], "a": ["y"], "b": ["x"], "x": ["t"], "y": ["t"]}, "s"))
    at = {box.name: box for box in found.boxes}
    layers = [
        sorted((b.name for b in found.boxes if b.x == x), key=lambda n: at[n].y)
        for x in sorted({box.x for box in found.boxes})
    ]
    assert crossings(layers, dict.fromkeys((p.source, p.target) for p in found.paths)) == 0


def test_a_run_lights_its_node_counts_visits_and_dashes_edges_not_taken() -> None:
    topology = {"nodes": {
        "a": {"to": ["b"], "start": True, "ends": False},
        "b": {"to": ["a", "c"], "ends": False},
        "c": {"to": [], "ends": True},
    }}  # fmt: skip
    visits = [Visit(node=node, visit=n, entered_at=None, left_at=None) for n, node in enumerate("abab", 1)]
    found = drawn(topology, visits, current="b")
    assert [(each.name, each.state, each.visits) for each in found.nodes] == [
        ("a", "visited", 2), ("b", "current", 2), ("c", "untouched", 0),
    ]  # fmt: skip
    assert found.taken == {("a", "b"), ("b", "a")}
    assert drawn(topology, visits, current="").nodes[1].state == "visited"


def test_a_small_graph_is_drawn_whole_from_left_to_right() -> None:
    graph_ = graph({f"n{n}": [f"n{n + 1}"] for n in range(9)}, "n0")
    assert view_of(graph_, "n3", frozenset(), "") == (graph_, {}, False, "")


def test_a_deep_graph_runs_down_and_its_chains_are_folded_away_from_the_current_node() -> None:
    found = drawn(chain_of(60), [visit(n) for n in range(38)], current="n37")
    boxes = {box.name: box for box in found.layout.boxes}
    assert list(boxes) == ["n0", "n1 … n35", "n36", "n37", "n38", "n39 … n58", "n59"]
    assert len({box.x + box.width / 2 for box in boxes.values()}) == 1, "one below the other"
    done, rest = found.folds["n1 … n35"], found.folds["n39 … n58"]
    assert (len(done.members), done.visited, done.state) == (35, 35, "visited")
    assert (len(rest.members), rest.visited, rest.state) == (20, 0, "untouched")
    assert ("n0", "n1 … n35") in found.taken and ("n38", "n39 … n58") not in found.taken
    assert found.left_out == 0 and len(found.nodes) == 60


def test_a_fold_opens_and_stays_open_when_the_run_goes_on() -> None:
    found = drawn(chain_of(60), [], current="n37", opened="n1")
    names = [box.name for box in found.layout.boxes]
    assert names == [*[f"n{n}" for n in range(39)], "n39 … n58", "n59"]
    assert found.folds["n39 … n58"].opens == "n1,n58"
    both = drawn(chain_of(60), [], current="n40", opened="n1,n58")
    assert [box.name for box in both.layout.boxes] == [f"n{n}" for n in range(60)]


def test_ends_loops_and_forks_are_in_no_chain() -> None:
    topology = {"nodes": {
        "a": {"to": ["b"], "start": True}, "b": {"to": ["c"]}, "c": {"to": ["c", "d"]}, "d": {"to": ["e"]},
        "e": {"to": ["f"], "ends": True}, "f": {"to": ["g", "h"]}, "g": {"to": ["i"]}, "h": {"to": ["i"]}, "i": {},
        "x": {"to": ["y"]}, "y": {"to": ["x"]},
    }}  # fmt: skip
    assert chains(declared(topology), ()) == [("b",), ("d",), ("g",), ("h",)]


def test_of_a_large_graph_the_nodes_near_one_are_drawn_and_the_rest_is_counted() -> None:
    wide = {"nodes": {"hub": {"to": [f"n{n}" for n in range(150)], "start": True},
                      **{f"n{n}": {"to": [f"m{n}"]} for n in range(150)},
                      **{f"m{n}": {"to": [], "ends": True} for n in range(150)}}}  # fmt: skip
    found = drawn(wide, [], current="m7")
    drawn_names = [box.name for box in found.layout.boxes]
    assert {"m7", "n7", "hub"} <= set(drawn_names) and len(drawn_names) == NEAR_MAX < NODES_MAX
    assert found.near == "m7" and found.left_out == 301 - NEAR_MAX and len(found.nodes) == 301
    assert "m9" in {box.name for box in drawn(wide, [], current="m7", near="m9").layout.boxes}
    assert drawn(wide, [], near="no such node").near == "hub"


def test_the_nearest_nodes_are_found_in_both_directions() -> None:
    assert nearest(graph({"a": ["b"], "b": ["c"], "c": ["d"], "x": []}, "a"), "c", 3) == ["c", "b", "d"]
    assert nearest(declared({}), "a", 3) == []


def chain_of(nodes: int) -> dict[str, Any]:
    last = nodes - 1
    return {
        "nodes": {
            f"n{n}": {"to": [f"n{n + 1}"] if n < last else [], "start": n == 0, "ends": n == last} for n in range(nodes)
        }
    }


def visit(n: int) -> Visit:
    return Visit(node=f"n{n}", visit=n + 1, entered_at=None, left_at=None)

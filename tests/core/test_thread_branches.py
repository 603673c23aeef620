"""Branches of a thread of LangGraph: lines of parents, the one of the last checkpoint first."""

import pytest

from outlast.core.graph_threads import branches
from outlast.core.rows.graph_rows import GraphCheckpoint

CASES = {
    "no checkpoint": ({}, "", {}),
    "one line": ({"c1": "", "c2": "c1", "c3": "c2"}, "c3", {"c1": 1, "c2": 1, "c3": 1}),
    "a fork, which is the last": ({"c1": "", "c2": "c1", "c3": "c1"}, "c3", {"c1": 1, "c3": 1, "c2": 2}),
    "the last has not the greatest id": ({"c1": "", "c2": "c1", "c3": "c1"}, "c2", {"c1": 1, "c2": 1, "c3": 2}),
    "a fork of a fork": (
        {"c1": "", "c2": "c1", "c3": "c1", "c4": "c3", "c5": "c3", "c6": "c2"},
        "c6",
        {"c1": 1, "c2": 1, "c6": 1, "c5": 2, "c3": 2, "c4": 3},
    ),
    "a parent that a prune deleted": ({"c3": "c2", "c4": "c3"}, "c4", {"c3": 1, "c4": 1}),
    "a last one that is missing": ({"c1": "", "c2": "c1"}, "c9", {"c1": 1, "c2": 1}),
    "two roots": ({"c1": "", "c2": ""}, "c1", {"c1": 1, "c2": 2}),
    "parents in a circle": ({"c1": "c2", "c2": "c1", "c3": "c3"}, "", {"c3": 1, "c1": 2, "c2": 2}),
    "a child with a smaller id": ({"b": "", "a": "b"}, "a", {"a": 1, "b": 1}),
}


@pytest.mark.parametrize("case", CASES)
def test_each_checkpoint_is_on_one_branch(case: str) -> None:
    parents, head, expected = CASES[case]
    rows = [
        GraphCheckpoint("default", "t", "", name, 1, parent, "", "{}", "{}", "msgpack", b"", "", 0)
        for name, parent in parents.items()
    ]
    assert branches(rows, head) == branches(rows[::-1], head) == expected

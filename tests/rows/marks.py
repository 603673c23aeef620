"""The requirements that tests cite: `@pytest.mark.req(…)` on a test, or on its module."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from outlast.flow.source import syntax_tree

TESTS: Final = Path(__file__).resolve().parents[1]


@cache
def cited() -> dict[str, frozenset[str]]:
    """Return for each requirement the tests that cite it, as `engine/test_waits.py::test_name`."""
    found: dict[str, set[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "mark.req(" not in text:
            continue
        for name, ids in _marks(syntax_tree(text)):
            for one in ids:
                found.setdefault(one, set()).add(f"{path.relative_to(TESTS).as_posix()}::{name}")
    return {one: frozenset(tests) for one, tests in found.items()}


def _marks(tree: ast.Module) -> Iterator[tuple[str, list[str]]]:
    """Yield each test with the ids of its marks and of its module's."""
    of_module = [
        one
        for each in tree.body
        if isinstance(each, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "pytestmark" for t in each.targets)
        for one in _ids(each.value)
    ]
    for each in ast.walk(tree):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name.startswith("test_"):
            yield each.name, [*of_module, *(one for mark in each.decorator_list for one in _ids(mark))]


def _ids(mark: ast.expr) -> list[str]:
    return [
        arg.value
        for call in ast.walk(mark)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "req"
        for arg in call.args
        if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
    ]

"""The table of docs/security.md lists every attack once, and every listed test exists."""

import ast
import re
from pathlib import Path

from outlast.flow.source import syntax_tree

ROOT = Path(__file__).resolve().parents[2]
ROWS = re.findall(r"(?m)^\| (S\d+) \| (.+) \| (.+) \|$", (ROOT / "docs/security.md").read_text(encoding="utf-8"))


def test_every_attack_is_listed_once() -> None:
    assert [name for name, _, _ in ROWS] == [f"S{n}" for n in range(1, 40)]


def test_every_listed_test_exists() -> None:
    for name, _, shown in ROWS:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", shown)
        assert named or "issue" in shown or "later" in shown or "none are" in shown, f"{name} is shown by nothing"
        for path, function in named:
            tree = syntax_tree((ROOT / path).read_text(encoding="utf-8"))
            found = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
            assert function in found, f"{name}: {path} has no {function}"

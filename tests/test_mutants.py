"""The table of removed safeguards agrees with the harnesses that apply it."""

import ast
import re

import pytest

from outlast.flow.source import syntax_tree
from tests.mutants import BY_ID, CHAOS, MODELS, ROOT, SIMULATION, SUITES, Suite, of, remove, table

TABLE_ROWS_MIN = 140
APPLIED_MIN = 160
APPLIED_BY_TABLE = (SIMULATION, MODELS, CHAOS)
"""Suites that take their mutants from the table; the others name each id."""


def named(suite: Suite) -> set[str]:
    """Return the ids that a test file names as text."""
    tree = syntax_tree((ROOT / suite.path).read_text(encoding="utf-8"))
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return texts & BY_ID.keys()


def test_no_removal_is_lost() -> None:
    assert len(table()) >= TABLE_ROWS_MIN
    assert sum(len(mutant.suites) for mutant in table()) >= APPLIED_MIN


def test_every_id_is_used_once_and_every_removal_has_a_suite() -> None:
    ids = [mutant.id for mutant in table()]
    assert len(set(ids)) == len(ids)
    assert all(mutant.suites and mutant.removed for mutant in table())


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.path)
def test_every_suite_exists_and_removes_a_safeguard(suite: Suite) -> None:
    assert (ROOT / suite.path).exists() and of(suite)


@pytest.mark.parametrize("suite", [s for s in SUITES if s not in APPLIED_BY_TABLE], ids=lambda suite: suite.path)
def test_a_suite_applies_exactly_the_rows_that_name_it(suite: Suite) -> None:
    assert named(suite) == {mutant.id for mutant in of(suite)}


def test_no_other_test_removes_a_safeguard_of_the_table() -> None:
    known = {suite.path for suite in SUITES}
    calls = re.compile(r"""\bremove\("(\w+)", (?:monkeypatch|patch)\)""")
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        found = set(calls.findall(path.read_text(encoding="utf-8"))) & BY_ID.keys()
        assert not found or str(path.relative_to(ROOT)) in known, path


@pytest.mark.parametrize("mutant", BY_ID)
def test_every_removal_finds_the_code_that_it_replaces(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    remove(mutant, monkeypatch)

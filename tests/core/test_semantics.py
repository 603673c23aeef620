"""Every rule that a docstring cites is in docs/semantics.md, with the state of its implementation."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "semantics.md").read_text(encoding="utf-8")
RULES = re.findall(r"^### (S-\d+)$", PAGE, re.MULTILINE)


def test_every_rule_is_there_in_order() -> None:
    assert [f"S-{n}" for n in range(1, 33)] == RULES


def test_every_rule_that_is_cited_is_there() -> None:
    cited = {
        rule for path in (ROOT / "src").rglob("*.py") for rule in re.findall(r"\bS-\d+\b", path.read_text("utf-8"))
    }
    assert cited and cited <= set(RULES)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_states_whether_it_is_built(rule: str) -> None:
    text = PAGE.split(f"### {rule}\n")[1].split("\n#")[0]
    assert re.search(r"\*[^*]*(?i:built|later|declared|laid out)[^*]*\*", text), text


def test_every_rule_marked_as_searched_has_a_model() -> None:
    marked = {rule for rule in RULES if PAGE.split(f"### {rule}\n\n")[1].startswith("◆")}
    models = (ROOT / "tests" / "models").glob("s[0-9][0-9]_*.py")
    searched = {rule for path in models for rule in re.findall(r"S-\d+", path.read_text("utf-8").splitlines()[0])}
    assert marked <= searched

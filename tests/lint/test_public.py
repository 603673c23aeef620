"""`outlast lint` on the shapes of public workflow programs: each hit, each miss and each false hit is stated.

`public/judgement.json` names the mistakes of each program with code and line. They were judged before lint read it, by
a person who had not read the rules' source. It also names the public function that has this shape. No line of the
public code is here: each program has the same calls at the same places, in our own words.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from outlast.cli.lint_commands import linted
from outlast.lint import RULES, lint_file

pytestmark = pytest.mark.req("TEST-3")
PUBLIC = Path(__file__).parent / "public"
PROGRAMS = json.loads((PUBLIC / "judgement.json").read_text(encoding="utf-8"))


class Named(NamedTuple):
    program: str
    code: str
    line: int


MISTAKES: Final = {Named(each, code, line) for each, row in PROGRAMS.items() for code, line in row["mistakes"]}

MISSED: Final = {
    Named("wait_for_a_mixed_list", "OL306", 42),  # the wait is in a helper whose call is an element of a list
}

FALSE_HITS: Final[set[Named]] = set()
"""There was one: `.json()` of a response was named beside its request (OL301)."""


def named(program: str) -> list[Named]:
    """Return the findings of one program, whose module is not imported."""
    return [Named(program, each.code, each.line) for each in lint_file(PUBLIC / f"{program}.py").findings]


@pytest.mark.parametrize("program", PROGRAMS)
def test_exactly_the_stated_findings_are_made(program: str) -> None:
    expected = sorted(each for each in (MISTAKES - MISSED) | FALSE_HITS if each.program == program)
    assert sorted(named(program)) == expected


def test_what_is_stated_as_missed_was_judged_a_mistake_and_a_false_hit_was_not() -> None:
    assert MISSED <= MISTAKES
    assert not FALSE_HITS & MISTAKES


def test_the_missed_race_is_refused_once_its_module_is_imported() -> None:
    """Definition errors are found at import only: docs/lint.md says so of `--no-import`."""
    (each,) = MISSED
    (read,) = linted(str(PUBLIC / f"{each.program}.py"), RULES)
    (refused,) = (finding for finding in read.findings if finding.code == "OL004")
    assert "inside asyncio.wait" in refused.detail


def test_no_rule_that_is_on_has_more_than_one_false_hit() -> None:
    assert all(count == 1 for count in Counter(each.code for each in FALSE_HITS).values())


def test_each_program_has_its_source_and_half_of_them_have_a_mistake() -> None:
    files = {path.stem for path in PUBLIC.glob("*.py")} - {"__init__"}
    assert set(PROGRAMS) == files
    assert len(PROGRAMS) >= 30
    assert 12 <= len({each.program for each in MISTAKES}) <= len(PROGRAMS) - 12
    for name, row in PROGRAMS.items():
        assert all(row[key] for key in ("repository", "path", "licence")), name

"""`outlast lint`: each mistake is named, and nothing that looks like one."""

import ast
from pathlib import Path

import pytest

from outlast.lint import RULES, lint_file, lint_text, python_files, selected
from outlast.lint.rules import CHECKS
from tests.lint.snippets import BAD, GOOD, HEAD

pytestmark = [pytest.mark.req("TEST-3"), pytest.mark.usefixtures("uncollected")]
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", BAD)
def test_each_mistake_is_named_in_its_line(name: str) -> None:
    code, source = BAD[name]
    text = HEAD + source
    line = next(n for n, each in enumerate(text.splitlines(), 1) if each.endswith("#!"))
    found = lint_text("bad.py", text.replace("  #!", ""))
    if code == "OL102":  # the time or chance is made in the node, which is a mistake by itself
        found = [each for each in found if each.code != "OL302"]
    assert [(each.code, each.line) for each in found] == [(code, line)], found


@pytest.mark.parametrize("name", GOOD)
def test_code_that_only_looks_like_a_mistake_is_not_named(name: str) -> None:
    compile(HEAD + GOOD[name], name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert lint_text("good.py", HEAD + GOOD[name]) == []


def test_there_are_thirty_of_each_and_each_rule_has_a_mistake() -> None:
    assert len(BAD) >= 30 and len(GOOD) >= 30
    assert {code for code, _ in BAD.values()} >= {*CHECKS, "OL001", "OL002"}


@pytest.mark.parametrize("code", CHECKS)
def test_without_its_check_a_mistake_of_a_rule_is_not_named(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = HEAD + next(source for each, source in BAD.values() if each == code)
    monkeypatch.delitem(CHECKS, code)
    assert [each for each in lint_text("bad.py", source.replace("  #!", "")) if each.code == code] == []


@pytest.mark.parametrize("code", CHECKS)
def test_each_rule_is_silenced_in_its_line_with_a_reason_only(code: str) -> None:
    source = HEAD + next(source for each, source in BAD.values() if each == code)
    (line,) = (n for n, each in enumerate(source.splitlines(), 1) if each.endswith("#!"))

    def found(comment: str) -> set[str]:
        return {each.code for each in lint_text("a.py", source.replace("#!", comment)) if each.line == line}

    others = found("") - {code}  # a key of time is also the clock in a node
    codes = ", ".join([code, *others])
    assert code in found("")
    assert found(f"# outlast: ignore[{codes}] the reason") == set()
    assert found(f"# outlast: ignore[{codes}]") == {code, *others, "OL001"}


@pytest.mark.parametrize("folder", ["examples", "src/outlast", "tests", "bench"])
def test_no_workflow_of_this_project_has_one_of_these_mistakes(folder: str) -> None:
    """Tests of mistakes are silenced in their lines. Those of `public` are counted in test_public.py."""
    files = [file for file in python_files(ROOT / folder) if not file.is_relative_to(ROOT / "tests/lint/public")]
    found = [each for file in files for each in lint_file(file).findings]
    assert [f"{each.place} {each.code} {each.detail}" for each in found] == []


def test_each_rule_has_a_sentence_and_a_fix() -> None:
    for code, each in RULES.items():
        assert each.sentence.endswith(".") and len(each.fix) > 10, code


def test_names_that_a_star_imports_are_known() -> None:
    text = (
        "from outlast import *\n"
        "@workflow\n"
        "async def stuck(ctx: Context) -> int:\n"
        "    while True:\n"
        "        try:\n"
        "            await ctx.sleep('1h')\n"
        "        except BaseException:\n"
        "            continue\n"
    )
    assert [(each.code, each.line) for each in lint_text("a.py", text)] == [("OL304", 7)]


def test_a_file_without_outlast_is_not_looked_at() -> None:
    assert lint_text("other.py", "import requests\nasync def f(ctx):\n    requests.get('x')\n") == []


def test_a_file_that_cannot_be_read_as_python_is_a_finding(tmp_path: Path) -> None:
    assert [(each.code, each.line) for each in lint_text("a.py", "import outlast\ndef f(:\n")] == [("OL003", 2)]
    odd = tmp_path / "odd.py"
    odd.write_bytes(b"# -*- coding: utf-8 -*-\nx = '\xff'\n")
    assert [each.code for each in lint_file(odd).findings] == ["OL003"]
    others = selected(ignore=["OL003"])
    assert lint_text("a.py", "import outlast\ndef f(:\n", others) == [] and not lint_file(odd, others).findings


def test_only_selected_rules_are_checked() -> None:
    text = HEAD + BAD["the clock in a node"][1] + BAD["a request in a node"][1]
    assert {each.code for each in lint_text("a.py", text)} == {"OL301", "OL302"}
    assert {each.code for each in lint_text("a.py", text, {"OL301"})} == {"OL301"}

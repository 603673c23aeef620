"""The sizes of the package keep the limits of `limits.toml`, and a raised limit has a date and a reason."""

import ast
import datetime
import subprocess

import pytest

from tests import sizes
from tests.sizes import Sizes

Raises = list[dict[str, object]]
pytestmark = pytest.mark.usefixtures("uncollected")


def test_no_size_is_above_its_limit() -> None:
    limits, _ = sizes.read(sizes.LIMITS.read_text(encoding="utf-8"))
    found = sizes.measure()
    above = {name: f"{size:,} > {limits.get(name, 0):,}" for name, size in found.items() if size > limits.get(name, 0)}
    assert above == {}, "make it smaller, or raise the limit with a [[raise]] in limits.toml"
    loose = {name for name, limit in limits.items() if limit > found.get(name, 0) * sizes.SLACK + 3}
    assert loose == set(), "lower them: python -m tests.sizes --write"


def unexplained(before: Sizes, after: Sizes, raises: Raises) -> list[str]:
    """Return the limits that are higher than before, without a raise to this value that has a date and a reason."""
    explained = {
        (each.get("name"), each.get("to"))
        for each in raises
        if isinstance(each.get("date"), datetime.date) and len(str(each.get("reason", ""))) >= 20
    }
    return [name for name, limit in after.items() if limit > before.get(name, 0) and (name, limit) not in explained]


def test_a_raised_limit_has_a_date_and_a_reason() -> None:
    git = ["git", "-C", str(sizes.ROOT), "show", "HEAD~1:limits.toml"]
    parent = subprocess.run(git, capture_output=True, text=True, check=False)
    if parent.returncode:
        pytest.skip("no parent commit with limits.toml is known here")
    before, _ = sizes.read(parent.stdout)
    after, raises = sizes.read(sizes.LIMITS.read_text(encoding="utf-8"))
    assert unexplained(before, after, raises) == []


@pytest.mark.parametrize(
    ("entry", "left"),
    [
        ({}, ["modules.core"]),
        ({"name": "modules.core", "to": 6, "date": datetime.date(2026, 11, 28), "reason": "short"}, ["modules.core"]),
        ({"name": "modules.core", "to": 5, "date": datetime.date(2026, 11, 28), "reason": "r" * 20}, ["modules.core"]),
        ({"name": "modules.core", "to": 6, "reason": "r" * 20}, ["modules.core"]),
        ({"name": "modules.core", "to": 6, "date": datetime.date(2026, 11, 28), "reason": "r" * 20}, []),
    ],
    ids=["none", "no reason", "another value", "no date", "explained"],
)
def test_a_raise_is_explained(entry: dict[str, object], left: list[str]) -> None:
    found = unexplained({"modules.core": 5, "modules.ui": 4}, {"modules.core": 6, "modules.ui": 3}, [entry])
    assert found == left


def test_the_command_explains_each_raise_that_it_writes() -> None:
    before, after = {"modules.core": 5, "modules.ui": 4}, {"modules.core": 6, "modules.ui": 3, "exports.new": 1}
    added = sizes.raised(before, after, datetime.date(2026, 11, 28), 'a "quoted" reason of some length')
    limits, raises = sizes.read(sizes.written(after, added.lstrip()))
    assert limits == after and [each["name"] for each in raises] == ["modules.core", "exports.new"]
    assert unexplained(before, limits, raises) == []
    assert sizes.raised(after, after, datetime.date(2026, 11, 28), "none") == ""


@pytest.mark.parametrize(
    ("text", "is_call"),
    [
        ("x = {\n    1: 2,\n}  # fmt: skip\n", False),
        ("X: Final = frozenset({\n    1, 2,\n})  # fmt: skip\n", False),
        ("from a import (\n    b, c,\n)  # fmt: skip\n", False),
        ("def f():\n    return {\n        1: 2,\n    }  # fmt: skip\n", False),
        ("def f():\n    return g(\n        1, 2,\n    )  # fmt: skip\n", True),
        ("x = g(\n    a, key=1,\n)  # fmt: skip\n", True),
        ("g(\n    [1, 2],\n)  # fmt: skip\n", True),
        ("def f(\n    a, b,\n) -> int:  # fmt: skip\n    return 1\n", True),
        ("raise E(\n    a, b,\n)  # fmt: skip\n", True),
    ],
)
def test_the_formatter_is_switched_off_for_tables_alone(text: str, *, is_call: bool) -> None:
    assert bool(sizes.skips_on_calls(text, ast.parse(text))) == is_call

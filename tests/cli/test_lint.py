"""`outlast lint` and `outlast check --lint` as people call them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from outlast.lint import RULES

pytestmark = pytest.mark.req("TEST-3")
ROOT = Path(__file__).parents[2]
KEYS = """from outlast import activity


@activity(key="pay/{invoice}", no_undo="the bank keeps it")
async def pay(invoice: str) -> str:
    return invoice
"""
SHOP = """import time

from keys import pay
from pydantic import BaseModel

from outlast import Context, Workflow


class Order(BaseModel):
    number: str = ""


flow = Workflow("order", state=Order)


@flow.node(start=True)
async def buy(ctx: Context[Order]) -> None:
    await ctx.do(pay, str(time.time()))
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "keys.py").write_text(KEYS)
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


def outlast(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "outlast", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def codes(answer: "subprocess.CompletedProcess[str]") -> list[str]:
    return [each["code"] for each in json.loads(answer.stdout)["findings"]]


def test_a_finding_has_its_place_its_reason_and_a_fix(shop: Path) -> None:
    answer = outlast(shop, "lint", "shop.py")
    assert answer.returncode == 1 and "→ use ctx.now()" in answer.stderr
    assert "shop.py:18:23 OL102 invoice of the key is made of time.time()" in answer.stdout
    assert "A re-run makes another key" in answer.stdout and "2 found in 1 file with 18 lines" in answer.stdout


def test_only_an_imported_module_shows_the_keys_of_other_modules(shop: Path) -> None:
    assert codes(outlast(shop, "-o", "json", "lint", "shop.py")) == ["OL102", "OL302"]
    assert codes(outlast(shop, "-o", "json", "lint", "shop")) == ["OL102", "OL302"]
    (shop / "shop.py").write_text(SHOP + 'open("imported", "w").close()\n')
    for what in ("shop.py", "shop", "."):
        assert codes(outlast(shop, "-o", "json", "lint", "--no-import", what)) == ["OL302"], what
    assert not (shop / "imported").exists()


def test_a_definition_error_is_a_finding(shop: Path) -> None:
    broken = SHOP.replace("start=True", "").replace("str(time.time())", '"1"')
    (shop / "shop.py").write_text(broken)
    answer = outlast(shop, "-o", "json", "lint", "shop.py")
    assert (answer.returncode, codes(answer)) == (1, ["OL004"]), answer.stderr
    (shop / "shop.py").write_text("import outlast\nraise RuntimeError('no')\n")
    assert codes(outlast(shop, "-o", "json", "lint", "shop.py")) == ["OL004"]


SEVERAL = """from pydantic import BaseModel

from outlast import Context, Workflow, activity


class Order(BaseModel):
    number: str = ""


without_start, unreached, right = (Workflow(name, state=Order) for name in ("one", "two", "three"))


@activity(key="pay/{invoice}", if_uncertain="reconcile", no_undo="the bank keeps it")
async def pay(invoice: str) -> None: ...


@without_start.node
async def first(ctx: Context[Order]) -> None: ...


@unreached.node(start=True)
async def second(ctx: Context[Order]) -> None:
    await ctx.do(pay, "1")


@unreached.node
async def third(ctx: Context[Order]) -> None: ...


@right.node(start=True)
async def fourth(ctx: Context[Order]) -> None:
    await ctx.do(pay, "2")
"""


def test_each_mistake_of_each_workflow_is_one_finding(shop: Path) -> None:
    """Also those of a second workflow, the second of one, and once those of an activity that two workflows see."""
    (shop / "shop.py").write_text(SEVERAL)
    answer = outlast(shop, "-o", "json", "lint", "shop.py")
    found = [(each["code"], each["line"]) for each in json.loads(answer.stdout)["findings"]]
    assert found == [("OL004", 17), ("OL004", 13), ("OL004", 26)], answer.stdout


def test_nothing_found_is_exit_code_0(shop: Path) -> None:
    answer = outlast(shop, "lint", "keys.py")
    assert (answer.returncode, answer.stdout) == (0, "nothing found in 1 file with 6 lines\n")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("lint",), "name a module, a file or a folder"),
        (("lint", "no.py"), "there is no file no.py"),
        (("lint", "no.such"), "there is no module no.such"),
        (("lint", "keys.py", "--select", "OL999"), "there is no rule OL999"),
    ],
)
def test_a_wrong_command_says_what_to_do(shop: Path, words: tuple[str, ...], text: str) -> None:
    answer = outlast(shop, *words)
    assert answer.returncode == 2 and text in answer.stderr and "Traceback" not in answer.stderr, answer


def test_rules_are_listed_and_documented(shop: Path) -> None:
    answer = json.loads(outlast(shop, "-o", "json", "lint", "--rules").stdout)["rules"]
    assert [each["code"] for each in answer] == sorted(RULES)
    page = (ROOT / "docs" / "lint.md").read_text()
    assert [code for code in RULES if f"| {code} |" not in page] == []


def test_check_with_lint_stops_at_a_finding(shop: Path) -> None:
    answer = outlast(shop, "check", "shop.py", "--lint", "--store", "sqlite:runs.db")
    assert answer.returncode == 1 and "OL102" in answer.stdout
    (shop / "shop.py").write_text(SHOP.replace("str(time.time())", "ctx.state.number").replace("import time\n", ""))
    answer = outlast(shop, "check", "shop.py", "--lint", "--store", "memory:")
    assert "OL102" not in answer.stdout


def test_pytest_has_an_item_for_each_file(shop: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "--outlast-lint", "."]
    answer = subprocess.run(command, cwd=shop, capture_output=True, text=True, timeout=120, check=False)
    assert answer.returncode == 1 and "OL302 time.time() in buy" in answer.stdout, answer.stdout + answer.stderr
    assert "1 failed, 1 passed" in answer.stdout

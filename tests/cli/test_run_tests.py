"""`outlast runs test` writes a test that pytest plays, and refuses what no test can be made of."""

import json
import os
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from outlast.testing import RunDiffers
from outlast.testing.recorded_calls import Difference
from outlast.upkeep.recorded_test import code_of_test
from outlast.upkeep.recording import RecordedEnd, Recording
from tests import forked
from tests.cli.conftest import MODULE, Terminal
from tests.cli.test_care import ended
from tests.docs.pages import ROOT, blocks

WITHIN_S = 300


@pytest.fixture
def shop(outlast: Terminal, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal whose folder has the module of the workflow, as an author's folder has."""
    monkeypatch.delitem(sys.modules, "refunds", raising=False)  # of this folder, if an earlier test has imported it
    shutil.copy(MODULE, outlast.folder / "refunds.py")
    (outlast.folder / "tests").mkdir()
    outlast.module = "refunds.py"
    return outlast


def test_a_written_test_plays_the_run_and_finds_a_change(shop: Terminal) -> None:
    ended(shop)
    written = shop("runs", "test", "r1", "--to", "tests/test_run_1.py")
    assert written.code == 0, written
    assert "the present code does as recorded" in written.out
    code = Path("tests/test_run_1.py").read_text()
    assert "from refunds import refunds" in code and "run.every_crash(cases=20)" in code
    assert played(shop).returncode == 0
    Path("refunds.py").write_text(Path("refunds.py").read_text().replace("s.order_id, s.cents)", "s.order_id, 1)"))
    found = played(shop)
    assert found.returncode == 1
    assert "node review, visit 2, approval issue_refund" in found.stdout, found.stdout
    assert "plans[0].arguments.cents: 1 instead of 4200 as recorded" in found.stdout, found.stdout


def played(shop: Terminal) -> subprocess.CompletedProcess[str]:
    """Let pytest play the written test without a crash."""
    command = ["pytest", "-p", "no:cacheprovider", "-q", "tests/test_run_1.py", "-k", "not crash"]
    env = {**os.environ, "PYTHONPATH": str(shop.folder)}
    return forked.run(*command, cwd=shop.folder, env=env, capture_output=True, text=True, timeout=WITHIN_S)


def test_the_page_shows_what_is_written() -> None:
    end = RecordedEnd("completed", None, "", {}, [], [])
    recording = Recording("order-17", "order", 1, 0, 0, {}, [], [], [], end)
    code = code_of_test(recording, "shop.orders", "orders", Path("tests/test_run_17.py"))
    expected = "arguments.cents: 4300 instead of 4200 as recorded"
    differs = RunDiffers(recording, Difference("node pay, visit 2, activity charge (charge/A-1)", expected))
    shown = [block.body for block in blocks(ROOT / "docs" / "testing.md") if "order-17" in block.body]
    assert shown == [code, f"{differs}\n"]


def test_no_file_is_replaced_without_force(shop: Terminal) -> None:
    ended(shop)
    Path("tests/test_run_1.json").write_text("{}")
    refused = shop("runs", "test", "r1", "--to", "tests/test_run_1.py")
    assert refused.code == 2 and "tests/test_run_1.json exists" in refused.err and "--force" in refused.err, refused
    assert not Path("tests/test_run_1.py").exists()
    forced = shop("-o", "json", "runs", "test", "r1", "--to", "tests/test_run_1.py", "--force")
    assert forced.code == 0 and forced.json["calls"] == 2 and forced.json["difference"] == "", forced


@pytest.mark.parametrize(
    ("to", "expected"),
    [("tests/run_1.py", "test_….py"), ("tests/test_run.txt", "test_….py"), ("none/test_run.py", "no folder")],
)
def test_a_file_that_pytest_would_not_find_is_refused(shop: Terminal, to: str, expected: str) -> None:
    shop.start()
    refused = shop("runs", "test", "r1", "--to", to)
    assert refused.code == 2 and expected in refused.err, refused


def test_a_run_without_its_answers_or_its_end_is_refused(shop: Terminal) -> None:
    shop.start(run="r1")
    to = ("--to", "tests/test_run_1.py")
    running = shop("runs", "test", "r1", *to)
    assert running.code == 4 and "has not ended" in running.err, running
    ended(shop, "r2")
    assert shop("purge", "--ledgers", "1ms", "--yes").code == 0
    purged = shop("runs", "test", "r2", *to)
    assert purged.code == 4 and "ledger of run r2 was purged" in purged.err, purged
    assert shop("runs", "test", "none", *to).code == 3
    assert not Path("tests/test_run_1.py").exists() and not Path("tests/test_run_1.json").exists()


def test_the_module_of_the_workflow_is_needed(shop: Terminal) -> None:
    ended(shop)
    missing = shop("runs", "test", "r1", "--to", "tests/test_run_1.py", env={"OUTLAST_MODULE": ""})
    assert missing.code == 2 and "--module" in missing.err, missing


def store_bytes(shop: Terminal) -> dict[str, str]:
    """Return the digest of each file of the store. SQLite's index of its log holds no data."""
    files = sorted(shop.folder.glob("refunds.db*"))
    return {f.name: sha256(f.read_bytes()).hexdigest() for f in files if not f.name.endswith(("-shm", ".lock"))}


EVALUATE = """
import asyncio

from outlast.testing import evaluation, evaluation_cases
from refunds import refunds

cases = evaluation(refunds, "cases.json")
print(asyncio.run(evaluation_cases(cases.file).evaluate(cases.run, progress=False)).cases[0].output.reason)
"""


@pytest.mark.req("TEST-2")
def test_an_evaluation_does_not_touch_the_store_of_the_run(shop: Terminal) -> None:
    ended(shop)
    shop("runs", "show", "r1")  # a reader may make the files of the log
    before = store_bytes(shop)
    assert shop("runs", "test", "r1", "--evals", "cases.json").code == 0
    env = {**os.environ, "PYTHONPATH": str(shop.folder), "OUTLAST_STORE": shop.url}
    given = {"cwd": shop.folder, "env": env, "capture_output": True, "text": True, "timeout": WITHIN_S}
    done = subprocess.run([sys.executable, "-c", EVALUATE], check=False, **given)
    assert done.stdout.startswith("asks finance to approve issue_refund with "), done
    assert store_bytes(shop) == before
    assert set(before) >= {"refunds.db"}


def test_a_data_set_has_the_input_and_the_end_of_each_run(shop: Terminal) -> None:
    ended(shop)
    ended(shop, "r2")
    written = shop("-o", "json", "runs", "test", "r1", "r2", "--evals", "cases.json")
    assert written.code == 0 and written.json["runs"] == ["r1", "r2"] and written.json["differs"] == {}, written
    found = json.loads(Path("cases.json").read_text())
    case, other = found["cases"]
    assert case["inputs"]["state"]["order_id"] == "A-r1" and other["name"] == "r2"
    assert case["expected_output"]["outcome"]["receipt"] == {"number": "R-A-r1"}
    assert case["expected_output"]["status"] == "completed"
    assert found["evaluators"] == ["AsRecorded"]
    assert case["inputs"]["recording"] == "cases/r1.json" and Path("cases/r1.json").exists()
    again = shop("runs", "test", "r1", "--evals", "cases.json")
    assert again.code == 2 and "cases.json exists" in again.err and "--force" in again.err, again


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("r1", "r2", "--to", "tests/test_run_1.py"), "a test is of one run"),
        (("r1",), "a test is of one run"),
        (("r1", "--to", "tests/test_run_1.py", "--evals", "cases.json"), "--to and --evals are given"),
        (("r1", "--evals", "cases.yaml"), "cannot be a data set"),
    ],
)
def test_one_kind_of_file_is_asked_for(shop: Terminal, options: tuple[str, ...], expected: str) -> None:
    shop.start()
    refused = shop("runs", "test", *options)
    assert refused.code == 2 and expected in refused.err, refused

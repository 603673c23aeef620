"""A campaign that played nothing fails, whichever total it prints."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from outlast.flow.source import syntax_tree
from outlast.testing.campaign import CrashReport
from outlast.testing.crash_values import CheckFailed
from tests.measured import unmeasured

ROOT = Path(__file__).resolve().parents[1]
CAMPAIGNS = (
    *(
        "chaos/round.py",
        "chaos/in_flight.py",
        "chaos/killed_trees.py",
        "crash/__main__.py",
        "crash_routes/__main__.py",
        "models/__main__.py",
    ),
    *("simulation/__main__.py", "service/fuzz.py", "temporal/campaign.py", "proxied/round.py"),
    *("examples/acquiring.py", "examples/researching.py", "examples/answering_killed.py", "examples/desk_killed.py"),
    *("examples/killed_rounds.py", "examples/negotiating_killed.py"),
)
"""Programs of `scripts/` that end with a total. Each hands its counts to `unmeasured`."""


def test_a_count_of_zero_is_a_fault() -> None:
    assert unmeasured(runs=0, calls_made=3, kills_of_workers=0) == [
        "nothing was measured: 0 runs",
        "nothing was measured: 0 kills of workers",
    ]
    assert unmeasured(runs=1) == []


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_a_campaign_hands_over_its_counts(name: str) -> None:
    tree = syntax_tree((ROOT / "tests" / name).read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    assert any(call.func.id == "unmeasured" and call.keywords for call in calls if isinstance(call.func, ast.Name))


def test_every_program_of_the_scripts_is_in_the_list() -> None:
    """A script that runs a module of the tests is a campaign, writes a file, or prints a proof of claims."""
    others = {
        "tests.browsers",
        "tests.client.sync_source",
        "tests.core.lifecycle",
        "tests.e2e.over_http",
        "tests.failures",
        "tests.kernel",
        "tests.prose",
        "tests.supply",
        "tests.ui.screenshots",
    }
    listed = {f"tests.{name.removesuffix('.py').replace('/', '.').removesuffix('.__main__')}" for name in CAMPAIGNS}
    parts = {
        "tests.chaos": {"tests.chaos.round", "tests.chaos.in_flight", "tests.temporal.campaign"},
        "tests.proxied": {"tests.proxied.round"},
    }
    texts = [script.read_text(encoding="utf-8") for script in (ROOT / "scripts").iterdir()]
    run = {one.rstrip(".") for text in texts for one in re.findall(r"-m (tests\.[\w.]+)", text)} - others
    assert {part for one in run for part in parts.get(one, {one})} <= listed, run


def test_no_seed_is_no_success() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seeds", "5-4"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and "nothing was measured: 0 seeds" in done.stdout, done.stdout + done.stderr


def test_no_crash_case_is_no_success() -> None:
    """For authors, too: `every_crash` that ran no case proves nothing."""
    with pytest.raises(CheckFailed, match="no crash case was run, of 0: nothing is proven"):
        CrashReport().check(lambda case: case)

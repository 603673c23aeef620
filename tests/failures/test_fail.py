"""Every failure has a test and a safeguard whose removal is noticed, and RELIABILITY.md agrees with the tables."""

import ast
import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import REQUIREMENT_IDS
from tests.crash.__main__ import SCENARIOS
from tests.engine import test_clocks, test_policy
from tests.engine.world import World
from tests.failures.page import PAGE, kills, page, results
from tests.failures.table import COMPLETE, FAILURES, Failure, functions, is_complete
from tests.mutants import BY_ID, SIMULATION, of, remove
from tests.simulation.dice import FAULTS


def fails(test: Callable[[World], Any]) -> None:
    """Check that the test fails in a new world."""
    world = World()
    with pytest.raises(AssertionError):
        asyncio.run(world.live(lambda: test(world)))


def test_all_twelve_failures_are_listed() -> None:
    ids = {one for one in REQUIREMENT_IDS if one.startswith("FAIL-")}
    assert {failure.id for failure in FAILURES} == ids and len(FAILURES) == len(ids) == 12


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.id)
def test_a_failure_has_a_test_and_a_removal(failure: Failure) -> None:
    path, _, name = failure.test.partition("::")
    marks = [ast.unparse(each) for each in functions(path)[name].decorator_list]
    assert any("req" in mark and f"'{failure.id}'" in mark for mark in marks), f"{failure.test} does not name it"
    assert failure.mutant in BY_ID


@pytest.mark.req("FAIL-1")
def test_fail_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a policy decision, a disallowed call reaches the receiver."""
    remove("policy_not_asked", monkeypatch)
    fails(test_policy.test_fail_1_a_model_proposes_a_disallowed_tool)


@pytest.mark.req("FAIL-9")
def test_fail_9(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the alert is sent inline, one dead channel stops the run that it reports."""
    remove("alerts_inline", monkeypatch)
    fails(
        lambda world: test_clocks.test_the_row_is_written_before_the_alert_and_a_failed_alert_hides_nothing(
            world, "raises"
        )
    )


def test_the_page_agrees_with_the_code() -> None:
    """`scripts/reliability` writes RELIABILITY.md from the tables and the measured figures."""
    assert PAGE.read_text(encoding="utf-8") == page(), "run scripts/reliability"


def measured() -> list[tuple[str, str, dict[str, Any]]]:
    """Return each workflow of each stored campaign."""
    return [(each["what"], name, row) for each in kills() for name, row in each["stories"].items()]


def test_every_measured_kill_ended_like_the_reference() -> None:
    for what, name, row in measured():
        assert row["run"] == row["killed"] == row["equal"] > 0, (what, name)
        assert row["twice"] == 0 and row["failures"] == [], (what, name)
        assert sum(row["reached"].values()) == row["killed"], (what, name)
        assert name in SCENARIOS, (what, name)


@pytest.mark.parametrize(("what", "story"), sorted(COMPLETE))
def test_a_complete_campaign_left_no_crash_point(what: str, story: str) -> None:
    (row,) = [row for kind, name, row in measured() if (kind, name) == (what, story)]
    assert row.get("left", 0) == 0, f"{row['left']} places were not gone to"
    assert is_complete(what, row)


def test_a_campaign_with_a_skipped_crash_point_is_not_complete() -> None:
    whole = {"listed": 3, "run": 3, "killed": 3, "equal": 3}
    assert is_complete("single cells", whole) and is_complete("all pairs", whole | {"run": 9, "killed": 9, "equal": 9})
    for spoilt in ({"left": 1}, {"run": 2, "killed": 2, "equal": 2}, {"equal": 2}, {"killed": 2}):
        assert not is_complete("single cells", whole | spoilt)
    assert not is_complete("all pairs", {"listed": 3, "run": 9, "killed": 9, "equal": 9, "left": 1})


def test_the_figures_cover_the_current_faults_and_mutants() -> None:
    seeds, mutants = results("seeds"), results("mutants")
    assert set(FAULTS) <= set(seeds["fired"]), "a fault that never fired"
    assert set(mutants["mutants"]) == {mutant.id for mutant in of(SIMULATION)}
    assert all(each["seed"] >= 0 for each in mutants["mutants"].values())

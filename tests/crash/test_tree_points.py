"""A sample of the crash cases of trees: no effect twice, no child twice, no orphan, no outcome lost (S-30).

`scripts/crash trees` runs all of them.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from outlast.core.maps import FAILED
from outlast.testing.crash_runs import Tally, draw_one, run_case, run_pairs, run_reference
from outlast.testing.driver import Driver
from outlast.testing.fork_server import ForkServer, fork_server
from outlast.testing.run_snapshot import RunSnapshot
from tests.crash.tree_scenarios import BUILT, TREE_CODE, tree_scenario
from tests.slices import drawn

DRAWN = 3
"""Cases of each tree in a default run."""


@pytest.fixture(scope="module")
def forking() -> Iterator[ForkServer]:
    with fork_server(TREE_CODE) as one:
        yield one


def kill_some(driver: Driver, folder: Path, cases: int, *, pairs: int) -> None:
    """Run a few cases of a scenario, and a second crash in a few more."""
    reference = run_reference(driver, folder / "reference")
    tally = Tally()
    for n, case in enumerate(drawn(reference.cases, cases, driver.scenario.name)):
        run_case(driver, case, reference, folder / f"case-{n}", tally)
    for n, case in enumerate(drawn(reference.cases, pairs, f"pairs of {driver.scenario.name}")):
        run_pairs(driver, case, reference, folder / f"pair-{n}", tally, draw_one(1, case.name))
    assert not tally.failures, "\n".join(tally.failures)
    assert tally.equal > 0 and tally.run == tally.equal + tally.missed


@pytest.mark.req("RUN-13", "RUN-14", "EFF-2", "FAIL-11")
@pytest.mark.parametrize("name", BUILT)
def test_a_tree_survives_the_death_of_its_worker(forking: ForkServer, tmp_path: Path, name: str) -> None:
    kill_some(Driver(forking, tree_scenario(name)), tmp_path, DRAWN, pairs=1)


def _without_row(parent: RunSnapshot) -> None:
    parent.effects = [effect for effect in parent.effects if effect["external_id"] != parent.children[0].run["run"]]


def _without_child(parent: RunSnapshot) -> None:
    del parent.children[0]


def _lost_outcome(parent: RunSnapshot) -> None:
    parent.children[0].run["status"] = "completed" if parent.children[0].run["status"] != "completed" else "failed"


def _outlived(parent: RunSnapshot) -> None:
    parent.children[0].run["ended_at"] = parent.run["ended_at"] + 1


def _left_done(parent: RunSnapshot) -> None:
    (effect,) = (each for each in parent.children[0].effects if each["status"] == "undone")
    effect["status"] = "done"


FAULTS = {
    "has no row in the ledger of its parent": _without_row,
    "which does not exist": _without_child,
    "and its row says": _lost_outcome,
    "ended after its parent": _outlived,
    "not undone after the cancel": _left_done,
}


@pytest.mark.parametrize("sentence", FAULTS)
def test_the_judge_of_a_tree_finds_each_fault(forking: ForkServer, tmp_path: Path, sentence: str) -> None:
    driver = Driver(forking, tree_scenario("tree-failed"))
    end = driver.store.read(run_reference(driver, tmp_path).last)
    assert end.wrong() == []
    FAULTS[sentence](end)
    assert any(sentence in each for each in end.wrong()), end.wrong()


def _forgotten(parent: RunSnapshot) -> None:
    del parent.counted[0]


def _miscounted(parent: RunSnapshot) -> None:
    parent.maps[0]["states"] = f"{FAILED}{parent.maps[0]['states'][1:]}"


def _counted_twice(parent: RunSnapshot) -> None:
    parent.counted.append({**parent.counted[0], "place": parent.counted[0]["place"] + 1})


FAULTS_OF_MAP = {
    "and has the outcomes of": _forgotten,
    "is completed, and the map": _miscounted,
    "was counted 2 times": _counted_twice,
}


@pytest.mark.parametrize("sentence", FAULTS_OF_MAP)
def test_the_judge_of_a_map_finds_each_fault(forking: ForkServer, tmp_path: Path, sentence: str) -> None:
    driver = Driver(forking, tree_scenario("tree-map"))
    end = driver.store.read(run_reference(driver, tmp_path).last)
    assert end.wrong() == []
    FAULTS_OF_MAP[sentence](end)
    assert any(sentence in each for each in end.wrong()), end.wrong()


def test_a_call_of_a_child_is_repeated_without_its_safeguard(forking: ForkServer, tmp_path: Path) -> None:
    sound = Driver(forking, tree_scenario("tree-fails"))
    reference = run_reference(sound, tmp_path / "reference")
    point = next(p for p in reference.cases if p.name.endswith("record book/oslo store.batch:after"))
    tally = Tally()
    run_case(sound, point, reference, tmp_path / "sound", tally)
    assert (tally.equal, tally.twice) == (1, 0)
    faulty = Driver(forking, tree_scenario("tree-fails"), more={"mutant": "no_ledger_hit"})
    run_case(faulty, point, reference, tmp_path / "faulty", tally)
    assert (tally.equal, tally.twice) == (1, 1), tally.failures


@pytest.mark.req("RUN-13", "EFF-2")
@pytest.mark.parametrize("name", ["tree-fails", "tree-map"])
def test_a_tree_survives_on_postgresql(tmp_path: Path, name: str) -> None:
    from tests.postgres.scenario import on_server

    with on_server("/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as (store, code):
        modules = (*code.modules, *TREE_CODE.modules)
        with fork_server(replace(TREE_CODE, modules=modules)) as forking:
            kill_some(Driver(forking, tree_scenario(name), store=store), tmp_path, 2, pairs=0)


@pytest.mark.req("RUN-13", "EFF-2")
@pytest.mark.parametrize("name", ["tree-failed", "tree-map"])
def test_a_tree_survives_on_dynamodb(tmp_path: Path, name: str) -> None:
    from tests.dynamodb.scenario import on_emulator  # loads the SDK

    with ExitStack() as stack:
        store, monitor, code = stack.enter_context(on_emulator())
        forking = stack.enter_context(fork_server(replace(TREE_CODE, modules=(*code.modules, *TREE_CODE.modules))))
        scenario = tree_scenario(name)
        scenario.monitor = monitor
        kill_some(Driver(forking, scenario, store=store), tmp_path, 2, pairs=0)

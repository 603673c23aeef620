"""The same script of people, models and faults on each engine: equal ledger, equal events, equal end."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtimes.cases import CASES, IN_THE_GATE
from tests.runtimes.engines import Engine, engine, missing
from tests.runtimes.harness import Observed, observe

REFERENCE: dict[str, Observed] = {}


@pytest.fixture(scope="module", params=["http", "temporal", "langgraph"])
def other(request: pytest.FixtureRequest) -> Iterator[tuple[Engine, bool]]:
    """Return an engine with its server, and whether callers use HTTP."""
    name = "own" if request.param == "http" else request.param
    if why := missing(name):
        pytest.skip(why)
    found = engine(name)
    found.start()
    yield found, request.param == "http"
    found.stop()


@pytest.mark.req("RT-1", "RT-2", "RT-3", "RT-4", "APP-3")
@pytest.mark.parametrize("case", CASES)
def test_a_case_is_equal_on_each_engine(
    other: tuple[Engine, bool], case: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The reference is the engine in this process. `scripts/runtimes` plays all cases."""
    if case not in IN_THE_GATE[other[0].name] and not request.config.getoption("--crash-all"):
        pytest.skip("scripts/runtimes plays it")
    reference = _reference(case, tmp_path)
    found = asyncio.run(observe(other[0], CASES[case], tmp_path, http=other[1]))
    if other[0].claims_each_node:
        found, reference = found.with_one_occasion(), reference.with_one_occasion()
    assert found.end == reference.end
    assert found.executed == reference.executed
    assert found.ledger == reference.ledger
    assert found.events == reference.events


@pytest.mark.req("RT-1", "RT-3", "RT-4")
@pytest.mark.skipif("not config.getoption('--crash-all')", reason="scripts/runtimes plays it")
@pytest.mark.parametrize("case", ["order undone", "acquisition answered"])
@pytest.mark.parametrize("at_rest", [False, True], ids=["at once", "at rest"])
def test_a_run_that_moves_at_each_approval_ends_as_one_that_stays(
    other: tuple[Engine, bool], case: str, at_rest: bool, tmp_path: Path
) -> None:
    if other[1]:
        pytest.skip("a run moves between engines, not between callers")
    found = asyncio.run(observe(other[0], CASES[case], tmp_path, moves=True, at_rest=at_rest))
    reference = _reference(case, tmp_path)
    assert found.parked_once().with_one_occasion() == reference.with_one_occasion()


def _reference(case: str, folder: Path) -> Observed:
    """Return the case on the engine in this process, played once."""
    if case not in REFERENCE:
        inside = folder / "embedded"
        inside.mkdir()
        REFERENCE[case] = asyncio.run(observe(None, CASES[case], inside))
    return REFERENCE[case]

"""The same script of people, models and faults on each engine: equal ledger, equal events, equal end."""

import asyncio
from pathlib import Path

import pytest

from tests.runtimes.cases import CASES
from tests.runtimes.engines import missing
from tests.runtimes.harness import Observed, observe

OTHERS = ("http", "temporal", "langgraph")
REFERENCE: dict[str, Observed] = {}


@pytest.fixture
def reference(request: pytest.FixtureRequest, tmp_path: Path) -> Observed:
    """Return the case on the embedded engine, played once in this process."""
    name = request.getfixturevalue("case")
    if name not in REFERENCE:
        folder = tmp_path / "embedded"
        folder.mkdir()
        REFERENCE[name] = asyncio.run(observe("embedded", CASES[name], folder))
    return REFERENCE[name]


@pytest.mark.req("RT-1", "RT-2")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("engine", OTHERS)
def test_a_case_is_equal_on_each_engine(engine: str, case: str, reference: Observed, tmp_path: Path) -> None:
    if engine != "http" and (why := missing(engine)):
        pytest.skip(why)
    found = asyncio.run(observe(engine, CASES[case], tmp_path))
    assert found.end == reference.end
    assert found.executed == reference.executed
    assert found.ledger == reference.ledger
    assert found.events == reference.events

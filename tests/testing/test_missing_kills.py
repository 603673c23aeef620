"""Crash cases prove that their process was killed at the crash point: without the kill, each case fails."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from outlast.testing.campaign import CrashOptions, _Campaign
from outlast.testing.crash_runs import CrashCase, Reference, Tally, run_case, run_reference
from outlast.testing.crash_values import OUTSIDE
from outlast.testing.driver import Driver
from outlast.testing.fake_receivers import FakeReceivers
from outlast.testing.loading import code_of
from tests.testing.flows import orders, shop


def campaign(folder: Path, prepare: str = "") -> _Campaign:
    asked = CrashOptions(orders, {"order": "o-1"}, receivers=shop)
    code = replace(code_of(orders, "tests.testing.flows"), prepare=prepare)
    return _Campaign(asked, code, lambda end: None, folder)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    folder = tmp_path_factory.mktemp("reference")
    with ExitStack() as stack:
        return run_reference(campaign(folder)._driver(stack), folder / "reference")


def errors(driver: Driver, cases: list[CrashCase], reference: Reference, folder: Path) -> list[str]:
    found = [run_case(driver, p, reference, folder / str(n), Tally()).error for n, p in enumerate(cases)]
    return [error.splitlines()[0] if error else "" for error in found]


@pytest.mark.req("TEST-1")
@pytest.mark.parametrize("prepare", ["not_killed", "killed_elsewhere", "exits"])
def test_a_case_fails_if_its_process_did_not_die_at_the_crash_point(
    reference: Reference, tmp_path: Path, prepare: str
) -> None:
    inside = [p for p in reference.cases if p.point.name not in OUTSIDE and "charge" in p.point.label]
    with ExitStack() as stack:
        driver = campaign(tmp_path, f"tests.testing.missing_kills:{prepare}")._driver(stack)
        said = errors(driver, inside, reference, tmp_path / "cases")
    assert len(said) > 5 and all("did not fire" in each for each in said), said


@pytest.mark.req("TEST-1")
def test_a_case_fails_if_its_call_was_not_interrupted(
    reference: Reference, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = [p for p in reference.cases if p.point.name in OUTSIDE]
    monkeypatch.setattr(
        FakeReceivers, "process_started", lambda self, pid: self._started.set()
    )  # pid 0 is this process group
    monkeypatch.setattr("outlast.testing.fake_receivers.os.kill", lambda pid, how: None)
    with ExitStack() as stack:
        said = errors(campaign(tmp_path)._driver(stack), outside, reference, tmp_path / "cases")
    assert len(said) == 2 and all("did not fire" in each for each in said), said


@pytest.mark.req("TEST-1")
def test_with_the_kills_in_place_every_case_passes(reference: Reference, tmp_path: Path) -> None:
    some = [p for p in reference.cases if "charge" in p.point.label]
    with ExitStack() as stack:
        assert set(errors(campaign(tmp_path)._driver(stack), some, reference, tmp_path / "cases")) == {""}

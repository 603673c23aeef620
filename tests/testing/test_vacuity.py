"""A harness that finds nothing proves nothing: each cell proves that its process died there, of that."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from outlast.testing.campaign import CrashOptions, _Campaign
from outlast.testing.crash_runs import CrashCase, Reference, Tally, run_case, run_reference
from outlast.testing.driver import OUTSIDE, Driver
from outlast.testing.fake_receivers import FakeReceivers
from outlast.testing.loading import code_of
from tests.testing.flows import orders, shop


def campaign(folder: Path, prepare: str = "") -> _Campaign:
    asked = CrashOptions(orders, {"order": "o-1"}, receivers=shop)
    code = replace(code_of(orders, "tests.testing.flows"), prepare=prepare)
    return _Campaign(asked, code, lambda end: None, folder)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Reference:
    folder = tmp_path_factory.mktemp("told")
    with ExitStack() as stack:
        return run_reference(campaign(folder)._teller(stack), folder / "told")


def errors(teller: Driver, places: list[CrashCase], told: Reference, folder: Path) -> list[str]:
    found = [run_case(teller, p, told, folder / str(n), Tally()).error for n, p in enumerate(places)]
    return [error.splitlines()[0] if error else "" for error in found]


@pytest.mark.req("TEST-1")
@pytest.mark.parametrize("prepare", ["unkilled", "killed_elsewhere", "ends_politely"])
def test_a_cell_whose_process_did_not_die_there_fails(told: Reference, tmp_path: Path, prepare: str) -> None:
    inside = [p for p in told.places if p.cell.point not in OUTSIDE and "charge" in p.cell.label]
    with ExitStack() as stack:
        teller = campaign(tmp_path, f"tests.testing.undead:{prepare}")._teller(stack)
        said = errors(teller, inside, told, tmp_path / "cells")
    assert len(said) > 5 and all("did not fire" in each for each in said), said


@pytest.mark.req("TEST-1")
def test_a_call_that_was_not_cut_in_the_air_fails(
    told: Reference, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = [p for p in told.places if p.cell.point in OUTSIDE]
    monkeypatch.setattr(FakeReceivers, "born", lambda self, pid: self._born.set())  # pid 0 would be this very group
    monkeypatch.setattr("outlast.testing.fake_receivers.os.kill", lambda pid, how: None)
    with ExitStack() as stack:
        said = errors(campaign(tmp_path)._teller(stack), outside, told, tmp_path / "cells")
    assert len(said) == 2 and all("did not fire" in each for each in said), said


@pytest.mark.req("TEST-1")
def test_with_the_kills_in_place_every_cell_holds(told: Reference, tmp_path: Path) -> None:
    some = [p for p in told.places if "charge" in p.cell.label]
    with ExitStack() as stack:
        assert set(errors(campaign(tmp_path)._teller(stack), some, told, tmp_path / "cells")) == {""}

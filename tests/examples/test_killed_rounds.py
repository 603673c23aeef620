"""Campaigns of rounds with kills: each round is printed, a fault is counted, and its folder is kept."""

import argparse
import asyncio
import tempfile
from pathlib import Path

import pytest

from outlast.testing.record import RecordEntry
from tests.examples.killed_rounds import Judged, asked_otherwise, campaign, wrong_rounds


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the folders of campaigns into one that is empty."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def options(rounds: int) -> argparse.Namespace:
    return argparse.Namespace(rounds=rounds, seed=3, model="reading")


async def third_is_wrong(folder: Path, seed: int) -> Judged:
    (folder / "log").write_text(f"{seed}")
    return Judged(f"{seed} kills", ["one call twice"] if seed == 5 else [])


def test_each_round_is_a_line_and_the_folders_of_a_fault_are_kept(
    folders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asyncio.run(wrong_rounds(options(3), third_is_wrong)) == 1
    *rounds, total = capsys.readouterr().out.splitlines()
    assert rounds == [
        "seed 3, reading: 3 kills: equal",
        "seed 4, reading: 4 kills: equal",
        "seed 5, reading: 5 kills: one call twice",
    ]
    (kept,) = folders.iterdir()
    assert total == f"1 of 3 rounds wrong; everything is in {kept}"
    assert sorted(each.name for each in kept.iterdir()) == ["3", "4", "5"]


def test_folders_of_rounds_that_are_equal_are_removed(folders: Path) -> None:
    assert campaign(options(2), third_is_wrong) == 0
    assert [*folders.iterdir()] == []


def test_no_round_is_no_success() -> None:
    assert campaign(options(0), third_is_wrong) == 1


def test_another_request_to_the_model_and_one_request_less_are_faults() -> None:
    one, other = (RecordEntry("executed", n, "POST /v1", f"key/{n}", f"{n}", at=0) for n in range(2))
    assert asked_otherwise([one, other], [other, one]) == []
    for killed, calm in (([one], [other]), ([one], [one, other]), ([one, one], [one])):
        assert asked_otherwise(killed, calm) == ["the model was asked something else"]

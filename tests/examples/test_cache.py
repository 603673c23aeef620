"""Is a purchase placed once, however many like it come, and never because of another?"""

from pathlib import Path

import pytest

from examples.negotiation import cache, kraljic
from examples.negotiation.cache import Classifications, InFolder, InMemory
from tests.examples.helpers import purchase


@pytest.fixture(params=["memory", "folder"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Classifications:
    return InMemory() if request.param == "memory" else InFolder(tmp_path / "classifications")


def test_the_second_of_two_alike_is_not_worked_out_again(
    kept: Classifications, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cache.placed(purchase(), kept)
    monkeypatch.setattr(cache, "classify", lambda _: pytest.fail("it is kept"))
    assert cache.placed(purchase(reference="RFQ-9"), kept) == first == kraljic.classify(purchase())


def test_whatever_it_is_made_from_is_in_the_key() -> None:
    other = purchase(supply_risk=purchase().supply_risk.model_dump() | {"geopolitical": 0.9})
    stricter = purchase(governance={"supply_risk_threshold": 9})
    dearer = purchase(governance={"approval_threshold_cents": 1})
    keys = [cache.key_of(p) for p in (purchase(), other, stricter)]
    assert len(set(keys)) == 3
    assert cache.key_of(dearer) == keys[0], "what does not count is not in it"


def test_a_file_that_cannot_be_read_is_not_there(tmp_path: Path) -> None:
    (tmp_path / f"{cache.key_of(purchase())}.json").write_text("{", encoding="utf-8")
    assert cache.placed(purchase(), InFolder(tmp_path)).quadrant == "LEVERAGE"
    assert InFolder(tmp_path).get(cache.key_of(purchase())) is not None


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert cache.placed(purchase(), InFolder(tmp_path / "file")).quadrant == "LEVERAGE"


def test_the_installation_names_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(cache.installed(), InMemory)
    monkeypatch.setenv(cache.FOLDER, f"{tmp_path}")
    cache.placed(purchase(), cache.installed())
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]

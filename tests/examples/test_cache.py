"""Equal purchases are classified once, and different ones never share a classification."""

import asyncio
import importlib.util
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from examples.negotiation import cache, kraljic, placing, similar
from examples.negotiation.cache import Classifications, InFolder, InMemory, Sought
from examples.negotiation.governance import ALIKE_FROM
from examples.negotiation.purchase import Opening
from examples.negotiation.similar import Semantic
from examples.negotiation.state import Negotiation
from outlast import Context, RetryLater, Workflow
from outlast.core.rows.run_rows import is_over
from outlast.runtime.in_process import InProcessRuntime
from outlast.runtime.stores import open_store
from tests.examples.helpers import GIVE_UP_S, purchase


@pytest.fixture(params=["memory", "folder"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Classifications:
    return InMemory() if request.param == "memory" else InFolder(tmp_path / "classifications")


def test_the_second_of_two_equal_purchases_is_not_classified_again(
    kept: Classifications, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cache.placed(purchase(), kept)
    monkeypatch.setattr(cache, "classify", lambda _: pytest.fail("it is kept"))
    assert cache.placed(purchase(reference="RFQ-9"), kept) == first == kraljic.classify(purchase())


def test_every_input_of_the_classification_is_in_the_key() -> None:
    other = purchase(supply_risk=purchase().supply_risk.model_dump() | {"geopolitical": 0.9})
    stricter = purchase(governance={"supply_risk_threshold": 9})
    dearer = purchase(governance={"approval_threshold_cents": 1})
    keys = [cache.key_of(p) for p in (purchase(), other, stricter)]
    assert len(set(keys)) == 3
    assert cache.key_of(dearer) == keys[0], "fields without effect on the classification are not in the key"


def test_an_unreadable_file_counts_as_missing(tmp_path: Path) -> None:
    (tmp_path / f"{cache.key_of(purchase())}.json").write_text("{", encoding="utf-8")
    assert cache.placed(purchase(), InFolder(tmp_path)).quadrant == "LEVERAGE"
    assert InFolder(tmp_path).get(cache.sought(purchase())) is not None


def test_a_failed_write_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert cache.placed(purchase(), InFolder(tmp_path / "file")).quadrant == "LEVERAGE"


def test_the_environment_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(placing.installed(), InMemory), "the default cache compares exact keys"
    monkeypatch.setenv(placing.FOLDER, f"{tmp_path}")
    cache.placed(purchase(), placing.installed())
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]


# --- similar texts -------------------------------------------------------------------------
class Scripted:
    """An embedder with the vectors of the test."""

    def __init__(self, **vectors: Sequence[float]) -> None:
        self._vectors = vectors

    def embed(self, text: str) -> Sequence[float]:
        return self._vectors[text.split(":")[0]]


PLANE = Scripted(chairs=(3, 0), seating=(4, 3), boxes=(0, 1))
"""The cosine of chairs and seating is 0.8, of seating and boxes 0.6, of chairs and boxes 0."""


def other(category: str, geopolitical: float = 0.9, **changes: Any) -> Sought:
    """Return the search terms of the sample with another category and reading, so that its key differs."""
    risk = purchase().supply_risk.model_dump() | {"geopolitical": geopolitical}
    return cache.sought(purchase(category=category, supply_risk=risk, **changes))


def knows_chairs(alike_from: float = ALIKE_FROM) -> Semantic:
    kept = Semantic(InMemory(), PLANE, alike_from)
    cache.placed(purchase(category="chairs"), kept)
    return kept


def test_a_similar_purchase_gets_the_stored_classification_and_names_it() -> None:
    found = knows_chairs().get(other("seating"))
    assert found is not None and found.quadrant == kraljic.classify(purchase()).quadrant
    assert found.like.startswith("chairs: ") and "taken over from 'chairs: " in found.explained()


def test_a_different_text_is_not_found() -> None:
    assert knows_chairs().get(other("boxes")) is None


def test_similarity_below_the_threshold_is_not_found() -> None:
    assert knows_chairs(0.79).get(other("seating")) is not None
    assert knows_chairs(0.81).get(other("seating")) is None


def test_a_classification_with_other_thresholds_is_not_found() -> None:
    assert knows_chairs().get(other("chairs", governance={"supply_risk_threshold": 9})) is None


def test_an_equal_key_takes_precedence_over_a_similar_text() -> None:
    found = knows_chairs().get(cache.sought(purchase(category="boxes")))
    assert found is not None and found.like == ""


def test_a_classification_found_by_similarity_is_not_stored() -> None:
    kept = knows_chairs(0.6)
    assert cache.placed(purchase(category="seating", supply_risk=_risk(0.9)), kept).like
    assert kept.get(other("boxes", 0.8)) is None, (
        "boxes are similar to seating, which was found by similarity and is not stored"
    )


def test_the_oldest_text_is_removed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similar, "KEPT_AT_MOST", 1)
    kept = knows_chairs()
    kept.put(other("boxes"), kraljic.classify(purchase()))
    assert kept.get(other("seating", 0.8)) is None


def _risk(geopolitical: float) -> dict[str, object]:
    return purchase().supply_risk.model_dump() | {"geopolitical": geopolitical}


def test_a_missing_extra_is_reported_with_the_command_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    similar.bundled.cache_clear()
    monkeypatch.setenv(placing.BY, "meaning")
    monkeypatch.setitem(sys.modules, "wordllama", None)
    with pytest.raises(RetryLater, match=r"pip install 'outlast\[semantic\]'"):
        placing.installed()


def test_an_unknown_comparison_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(placing.BY, "magic")
    with pytest.raises(RetryLater, match="key or meaning"):
        placing.installed()


@pytest.mark.skipif(importlib.util.find_spec("wordllama") is None, reason="needs the extra `semantic`")
def test_the_bundled_model_separates_similar_from_different_texts() -> None:
    kept = Semantic(InMemory(), similar.bundled())
    cache.placed(purchase("spot"), kept)
    seats = purchase("spot", supply_risk=_risk(0.9), category="office seating")
    seats.items[0].description = "Standard swivel chairs"
    assert (
        found := kept.get(cache.sought(seats))
    ) is not None and found.like == "office chairs: Swivel chair, standard"
    assert kept.get(cache.sought(purchase("bottleneck"))) is None


def test_a_second_execution_of_a_visit_gets_the_recorded_classification(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Semantic(InMemory(), PLANE)
    cache.placed(purchase(category="chairs"), kept)
    monkeypatch.setattr(placing, "installed", lambda: kept)
    seen: list[str] = []
    once = Workflow("once", state=Negotiation, input=Opening, version=1)

    @once.node(start=True)
    async def look(ctx: Context[Negotiation]) -> None:
        found = await ctx.do(placing.classification.plan(ctx.state.purchase))
        seen.append(found.like)
        kept.put(cache.sought(ctx.state.purchase), kraljic.classify(ctx.state.purchase))  # an exact match from now on
        await ctx.sleep(timedelta(milliseconds=50), name="nap")

    asyncio.run(_to_its_end(once))
    assert len(seen) > 1, "the node ran again"
    assert all(like.startswith("chairs: ") for like in seen)
    assert (now := kept.get(cache.sought(SEATS))) is not None and now.like == "", (
        "the cache has a different classification now"
    )


async def _to_its_end(workflow: Workflow[Negotiation]) -> None:
    store = await open_store("memory:")
    runtime = InProcessRuntime(store, [workflow])
    try:
        async with runtime, asyncio.timeout(GIVE_UP_S):
            run = (await runtime.operations.start_run(workflow.name, SEATS.model_dump(mode="json"))).run
            while not is_over(now := await runtime.operations.rows.run(run)):
                assert not now.attention, now.attention
                await asyncio.sleep(0.01)
    finally:
        await store.close()


SEATS = purchase(category="seating", supply_risk=_risk(0.9))

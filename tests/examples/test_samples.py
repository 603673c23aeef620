"""Each sample runs as `outlast demo --sample NAME` and reaches its declared end."""

import json
from pathlib import Path
from typing import Any

import pytest

from examples.negotiation.market.behaviour import load
from examples.negotiation.purchase import problems
from examples.negotiation.samples import SAMPLES, sample
from examples.negotiation.workflow import negotiation
from tests import forked
from tests.examples.helpers import GIVE_UP_S, ROOT


def play(folder: Path, name: str) -> dict[str, Any]:
    command = ["outlast", "demo", "--approve", "--json", "--folder", f"{folder}", "--sample", name]
    done = forked.run(*command, cwd=ROOT, capture_output=True, text=True, timeout=2 * GIVE_UP_S)
    assert done.returncode == 0, done.stdout + done.stderr
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_has_a_market_that_knows_its_suppliers(name: str) -> None:
    script = SAMPLES[name]
    assert bool(problems(sample(script.purchase))) is (script.ends == "REFUSED")
    if script.ends != "REFUSED":
        asked = {candidate["id"] for candidate in sample(script.purchase)["candidates"]}
        assert asked - {"farrow"} <= set(load(script.scenario).suppliers), "farrow never passes the delivery gate"


def test_there_are_two_purchases_per_quadrant() -> None:
    quadrants = ("spot", "leverage", "bottleneck", "strategic")
    purchases = {script.purchase for script in SAMPLES.values()}
    assert {q: sum(p.partition("-")[0] == q for p in purchases) for q in quadrants} == dict.fromkeys(quadrants, 2)


@pytest.mark.req("RUN-4")
def test_the_start_key_depends_on_category_items_and_deadline() -> None:
    def key(**changes: Any) -> str:
        return negotiation.begin(sample("spot") | changes).key

    assert key() == key(reference="RFQ-9")
    items = [item | {"unit": "box"} for item in sample("spot")["items"]]
    assert len({key(), key(need_by="2026-05-01"), key(category="desks"), key(items=items)}) == 4


@pytest.mark.req("APP-1")
def test_two_concurrent_identical_purchases_are_one_run_with_one_order(tmp_path: Path) -> None:
    printed = play(tmp_path, "spot-twice")
    assert (printed["outcome"], printed["proven"], printed["slots_in_use"]) == ("AWARDED", True, 0)
    assert printed["invitations"] == {"sent": 3, "distinct": 3, "repeated": 0}
    assert "started once" in Path(printed["report"]).read_text(encoding="utf-8")


@pytest.mark.req("APP-1")
def test_a_winner_that_withdraws_after_the_approval_is_replaced(tmp_path: Path) -> None:
    printed = play(tmp_path, "strategic-withdrawn")
    assert (printed["outcome"], printed["proven"]) == ("AWARDED", True)
    assert printed["order"].startswith("PO-baltica-")


@pytest.mark.req("APP-1")
def test_a_purchase_with_contradictory_fields_starts_no_run(tmp_path: Path) -> None:
    printed = play(tmp_path, "inconsistent")
    assert (printed["outcome"], printed["proven"]) == ("REFUSED", True)
    assert len(printed["problems"]) == len(problems(sample("bad")))

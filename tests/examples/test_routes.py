"""Each of the four routes from purchase to award, on the real engine with the market as its own process."""

import itertools
from pathlib import Path

import pytest

from tests.examples.play import negotiate, prompt


@pytest.mark.req("APP-1")
def test_a_spot_purchase_takes_one_round_of_minutes_and_no_approval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = negotiate(tmp_path, monkeypatch, "spot")
    s = end.s
    assert (end.state.shown, s.quadrant, s.rounds_held) == ("AWARDED", "SPOT", 1)
    assert end.approvals == []
    assert end.counts["quotes"].sent == 3
    assert end.counts["invitations"].sent == end.counts["feedback"].sent == 0
    assert end.passed * 24 * 60 < 5
    assert {bid.supplier_id for bid in s.bids} == {"acme", "cordoba"}, "elmtree never answered"
    assert end.state.outcome["supplier_id"] == "cordoba", "the goods cost more, but the landed price is lower"
    assert s.why_winner == "cordoba costs 7,180.00, 120.00 less than acme"
    assert {e.key for e in end.effects if e.activity == "request_quote"} == {
        "quote/acme",
        "quote/cordoba",
        "quote/elmtree",
    }


@pytest.mark.req("APP-1", "GATE-4")
def test_a_bottleneck_asks_for_full_then_substitute_then_partial_delivery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = negotiate(tmp_path, monkeypatch, "bottleneck", "approve")
    s = end.s
    assert (end.state.shown, s.quadrant, s.rounds_held) == ("AWARDED", "BOTTLENECK", 3)
    assert s.bottleneck is not None
    assert s.bottleneck.steps_held == ["full", "substitutes", "partial"]
    assert [(a.supplier_id, a.wanted, a.detail) for a in s.bottleneck.answers] == [
        ("elmtree", "full", "we can make 700 of 1200 seal-88"),
        ("dunlin", "full", "we do not make seal-88"),
        ("elmtree", "substitutes", "we can make 700 of 1200 seal-88"),
    ]
    assert s.declined == {}, "a supplier that declined one step is asked again in the next"
    assert {b.supplier_id: (b.covers, b.substitutes) for b in s.bids} == {
        "dunlin": ({}, {"seal-88": "seal-88x"}),
        "elmtree": ({"seal-88": 700}, {}),
    }
    assert 13.9 < end.passed < 14.1, "baltica never answers, so each step lasts its full time"
    assert end.state.attention == []
    assert end.state.outcome["supplier_id"] == "dunlin"
    assert end.state.outcome["substitutes"] == {"seal-88": "seal-88x"}
    assert s.advice[0].startswith("keep 158 pieces of seal-88 as safety stock: 48 of the 90 days of lead time")
    assert s.advice[1:] == ["qualify seal-88x before it replaces seal-88"]
    assert "It brings seal-88x for seal-88." in end.approvals[0].summary
    assert "every BOTTLENECK purchase is approved by a person" in end.approvals[0].summary
    asked = sorted(e.key for e in end.effects if e.activity == "inquire")
    assert asked == [
        "inquiry/baltica/full",
        "inquiry/baltica/partial",
        "inquiry/baltica/substitutes",
        "inquiry/dunlin/full",
        "inquiry/dunlin/substitutes",
        "inquiry/elmtree/full",
        "inquiry/elmtree/partial",
        "inquiry/elmtree/substitutes",
    ]


@pytest.mark.req("APP-1")
def test_a_partial_bid_may_be_chosen_and_the_missing_units_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = negotiate(tmp_path, monkeypatch, "bottleneck", "other")
    assert end.state.outcome["missing"] == {"seal-88": 500}
    assert end.state.outcome["chosen_by"] == "local"
    assert "find 500 more of seal-88: they are not in this order" in end.s.advice


@pytest.mark.req("APP-1")
def test_a_bottleneck_ends_early_if_the_full_quantity_is_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = prompt("bottleneck", lambda suppliers: suppliers["baltica"].update(rules=[]))
    end = negotiate(tmp_path, monkeypatch, "bottleneck", "approve", scenario=scenario)
    assert end.s.rounds_held == 1
    assert end.state.outcome["supplier_id"] == "baltica"
    assert end.passed < 1


@pytest.mark.req("APP-1")
def test_a_strategic_purchase_is_negotiated_over_five_terms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end = negotiate(tmp_path, monkeypatch, "strategic", "approve")
    s = end.s
    assert (end.state.shown, s.quadrant) == ("AWARDED", "STRATEGIC")
    assert s.strategic is not None
    assert 2 <= s.rounds_held <= 4
    for supplier in ("acme", "baltica", "dunlin"):
        mine = [b for b in s.bids if b.supplier_id == supplier]
        for earlier, later in itertools.pairwise(mine):
            assert later.cents <= earlier.cents
            assert later.payment_days >= earlier.payment_days
            assert later.lead_days <= earlier.lead_days
            assert (later.defect_ppm or 0) <= (earlier.defect_ppm or 0)
            assert later.term_months >= earlier.term_months
    proposed = [e.key for e in end.effects if e.activity == "propose"]
    assert len(proposed) == len(set(proposed)) == end.counts["proposals"].sent
    assert proposed[:3] == ["proposal/baltica/1", "proposal/dunlin/1", "proposal/acme/1"]
    assert "of 100 points as a partner" in s.why_winner
    assert "every STRATEGIC purchase is approved by a person" in end.approvals[0].summary
    assert end.slots == [""]


@pytest.mark.req("APP-1")
def test_a_supplier_that_agrees_is_not_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def eager(suppliers: dict[str, dict[str, object]]) -> None:
        suppliers["acme"] |= {"meets_percent": 100, "floor_percent": 50}

    end = negotiate(tmp_path, monkeypatch, "strategic", "approve", scenario=prompt("strategic", eager))
    assert end.s.strategic is not None
    assert end.s.strategic.agreed["acme"] == 1
    assert [e.key for e in end.effects if e.key.startswith("proposal/acme/")] == ["proposal/acme/1"]
    assert len([e for e in end.effects if e.key.startswith("proposal/dunlin/")]) > 1

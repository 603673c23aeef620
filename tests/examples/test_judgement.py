"""The matrix, the router, the delivery gate and the scores, with their explanations."""

from datetime import date, timedelta

import pytest

from examples.negotiation import kraljic, routing, scoring
from examples.negotiation.governance import CostRates, Governance
from examples.negotiation.letters import Bid
from examples.negotiation.purchase import Candidate
from tests.examples.helpers import purchase

NO_RATES = CostRates(defect_cost_bp=0, carrying_bp_a_year=0, capital_bp_a_year=0, risk_bp=0)


@pytest.mark.parametrize("name", ["spot", "leverage", "bottleneck", "strategic"])
def test_each_sample_falls_into_its_quadrant(name: str) -> None:
    assert kraljic.classify(purchase(name)).quadrant == name.upper()


def test_a_classification_explains_each_component() -> None:
    explained = kraljic.classify(purchase()).explained()
    assert explained.startswith("LEVERAGE\n  supply risk 9 of 100, low (from 50): qualified suppliers 6 → 0 × 35 %")
    assert "profit impact 61 of 100, high (from 50): share of spend 14 % → 70 × 40 %" in explained


def test_the_threshold_itself_is_high() -> None:
    at = purchase(governance={"profit_impact_threshold": 61, "supply_risk_threshold": 9})
    above = purchase(governance={"profit_impact_threshold": 62})
    assert kraljic.classify(at).quadrant == "STRATEGIC"
    assert kraljic.classify(above).quadrant == "SPOT"


def test_every_quadrant_has_a_strategy_and_a_node() -> None:
    assert set(routing.STRATEGIES) == set(routing.ROUTES) == set(kraljic.QUADRANTS.values())


def test_a_bottleneck_admits_candidates_with_too_little_capacity() -> None:
    asked = purchase("bottleneck")
    alone = routing.delivery_gate(asked, asked.requested_on, "LEVERAGE")
    assert "elmtree" in [d.supplier_id for d in alone.discarded]
    assert "elmtree" in routing.delivery_gate(asked, asked.requested_on, "BOTTLENECK").supplier_ids


def test_the_gate_discards_candidates_that_cannot_deliver_with_all_reasons() -> None:
    asked = purchase()
    admitted = routing.delivery_gate(asked, asked.requested_on)
    assert admitted.supplier_ids == ["acme", "baltica", "cordoba", "dunlin", "elmtree"]
    assert [(d.supplier_id, d.reasons) for d in admitted.discarded] == [
        (
            "farrow",
            [
                "delivers on 2026-05-08 (60 days after an order on 2026-03-09), needed by 2026-04-20",
                "can deliver 20000 of 40000 pieces of box-m",
                "has no FSC certificate",
            ],
        )
    ]


def test_the_gate_counts_from_today_and_accepts_the_last_possible_day() -> None:
    asked = purchase()
    ordered = asked.need_by - timedelta(days=24)  # dunlin's 24 days of lead time
    last = ordered - timedelta(days=7)  # Friday to Friday are five business days of auction
    assert (last.strftime("%A"), last + timedelta(days=7)) == ("Friday", ordered)
    assert "dunlin" in routing.delivery_gate(asked, last).supplier_ids
    assert "dunlin" not in routing.delivery_gate(asked, last + timedelta(days=1)).supplier_ids
    assert routing.delivery_gate(asked, date(2000, 1, 1)) == routing.delivery_gate(asked, asked.requested_on)


def supplier(name: str, *, risk: int = 0, duty_bp: int = 0, defect_ppm: int = 0) -> Candidate:
    return Candidate(
        id=name, name=name, mailbox=f"http://{name}.example", currency="EUR", lead_days=10, capacity={},
        risk=risk, duty_bp=duty_bp, defect_ppm=defect_ppm,
    )  # fmt: skip


def offer(name: str, cents: int, *, lead_days: int = 10, freight_cents: int = 0, payment_days: int = 0) -> Bid:
    return Bid(
        bid_id=f"{name}-1", supplier_id=name, cycle=1, round=1, cents=cents,
        freight_cents=freight_cents, lead_days=lead_days, payment_days=payment_days,
    )  # fmt: skip


def test_every_part_of_the_total_cost_is_shown_and_adds_up() -> None:
    rates = CostRates(defect_cost_bp=30_000, carrying_bp_a_year=1_825, capital_bp_a_year=730, risk_bp=1_000)
    bid = offer("a", 1_000_000, freight_cents=5_000, lead_days=20, payment_days=30)
    [score] = scoring.rank([(bid, supplier("a", risk=50, duty_bp=250, defect_ppm=400))], rates)
    assert {cost.name: cost.cents for cost in score.costs} == {
        "goods": 1_000_000,
        "freight": 5_000,
        "duty": 25_000,
        "quality": 1_200,
        "safety stock": 10_000,
        "payment terms": -6_000,
    }
    assert score.total_cents == 1_035_200
    assert score.weighed_cents == 1_035_200 + 51_760
    assert "with risk" in score.explained()


def test_the_cheapest_bid_does_not_win_when_its_costs_and_risk_do_not() -> None:
    bids = [
        (offer("cheap", 1_000_000), supplier("cheap", risk=90, duty_bp=600)),
        (offer("sound", 1_050_000), supplier("sound")),
    ]
    ranked = scoring.rank(bids, CostRates())
    assert [(s.supplier_id, s.place) for s in ranked] == [("sound", 1), ("cheap", 2)]
    assert ranked[0].points == 100 > ranked[1].points
    assert scoring.why_first(ranked).startswith("sound costs 10,551.78 with its risk, ")


@pytest.mark.parametrize(
    ("bids", "first", "why"),
    [
        (
            [(offer("b", 100), supplier("b", risk=1)), (offer("a", 100), supplier("a", risk=2))],
            "b",
            "at the lower risk (1 against 2)",
        ),
        (
            [(offer("b", 100, lead_days=3), supplier("b")), (offer("a", 100), supplier("a"))],
            "b",
            "delivered sooner (3 against 10 days)",
        ),
        ([(offer("b", 100), supplier("b")), (offer("a", 100), supplier("a"))], "a", "the supplier id decides"),
    ],
)
def test_a_tie_is_broken_by_risk_then_time_then_name(bids: list[tuple[Bid, Candidate]], first: str, why: str) -> None:
    for order in (bids, bids[::-1]):
        ranked = scoring.rank(order, NO_RATES)
        assert ranked[0].supplier_id == first
        assert why in scoring.why_first(ranked)


def test_an_approval_is_needed_above_the_threshold_and_for_the_listed_quadrants() -> None:
    rules = Governance(approval_threshold_cents=1000)
    assert rules.approval_reason("LEVERAGE", 1000) is None
    assert rules.approval_reason("LEVERAGE", 1001) == "10.01 is above the threshold of 10.00"
    assert rules.approval_reason("STRATEGIC", 1) == "every STRATEGIC purchase is approved by a person"

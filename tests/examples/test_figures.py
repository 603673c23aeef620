"""The limits in `governance` have the specified values, and the workflow keeps them."""

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from examples.negotiation import governance
from examples.negotiation.governance import Governance
from examples.negotiation.workflow import negotiation
from outlast import business_days
from tests.examples.play import negotiate, prompt


@pytest.mark.req("APP-1", "GATE-3", "GATE-4")
def test_the_limits_have_the_specified_values() -> None:
    assert timedelta(hours=168) == governance.LIFESPAN
    assert timedelta(hours=96) == governance.APPROVAL_WITHIN
    assert timedelta(minutes=5) == governance.SPOT_AT_MOST
    assert (governance.ROUNDS_AT_MOST, governance.AUCTION_DAYS_AT_MOST) == (5, 5)
    assert timedelta(days=14) == governance.BOTTLENECK_AT_MOST
    assert timedelta(days=28) == governance.STRATEGIC_AT_MOST
    assert governance.CYCLES_AT_MOST == 2


@pytest.mark.req("APP-1", "GATE-4")
def test_the_workflow_and_its_nodes_declare_the_limits() -> None:
    nodes = negotiation.nodes
    assert negotiation.ceiling == governance.LIFESPAN
    assert nodes["bottleneck"].ceiling == governance.BOTTLENECK_CEILING
    assert nodes["bottleneck"].ceiling >= governance.BOTTLENECK_AT_MOST + governance.APPROVAL_WITHIN
    assert nodes["strategic"].ceiling == governance.STRATEGIC_AT_MOST
    assert nodes["spot"].ceiling is None
    assert nodes["auction"].ceiling == business_days(10, zone="Europe/Berlin")
    assert {nodes[n].max_visits for n in ("spot", "auction", "bottleneck", "strategic")} == {governance.CYCLES_AT_MOST}
    assert Governance().approval_within == governance.APPROVAL_WITHIN


@pytest.mark.req("APP-1")
@pytest.mark.parametrize(
    "rules",
    [
        {"rounds": 6},
        {"rounds": 3, "round_days": 2},
        {"spot_within": "PT5M"},
        {"bottleneck_steps": ["P6D", "P4D", "P4DT1S"]},
        {"strategic_rounds": 4, "strategic_round_length": "P6DT1S"},
    ],
)
def test_rules_beyond_a_limit_are_refused(rules: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Governance.model_validate(rules)


@pytest.mark.req("APP-1")
def test_rules_at_the_limit_are_accepted() -> None:
    rules = Governance()
    assert rules.negotiating_time("SPOT") < governance.SPOT_AT_MOST
    assert rules.rounds * rules.round_days == governance.AUCTION_DAYS_AT_MOST
    assert rules.ordered_on("LEVERAGE", date(2026, 3, 2)) == date(2026, 3, 9), "Monday, and five business days"
    assert rules.ordered_on("SPOT", date(2026, 3, 2)) == date(2026, 3, 3)
    assert rules.ordered_on("BOTTLENECK", date(2026, 3, 2)) == date(2026, 3, 16)
    assert rules.negotiating_time("BOTTLENECK") == governance.BOTTLENECK_AT_MOST
    assert rules.negotiating_time("STRATEGIC") + rules.approval_within == governance.STRATEGIC_AT_MOST


@pytest.mark.req("APP-1")
def test_an_auction_without_bids_lasts_five_rounds_and_five_business_days(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = negotiate(tmp_path, monkeypatch, "leverage-nobody", governance={"rounds": 5})
    assert end.state.shown == "FAILED"
    assert end.state.reason == "no bid in 5 rounds from 3 suppliers; declined: none"
    assert end.passed == pytest.approx(8, abs=1.1), "a weekend lies in five business days, another day at their begin"
    assert end.counts["invitations"].sent == end.counts["feedback"].sent == 15, "each round has its feedback"
    assert end.counts["orders"].arrived == 0
    assert end.slots == [""]


@pytest.mark.req("APP-1")
def test_strategic_rounds_and_the_approval_fit_into_28_days(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def one_is_silent(suppliers: dict[str, dict[str, Any]]) -> None:
        suppliers["dunlin"]["rules"] = [{"does": "silent", "kind": "proposals"}]

    scenario = prompt("strategic", one_is_silent)
    end = negotiate(tmp_path, monkeypatch, "strategic", "approve", scenario=scenario)
    assert end.state.shown == "AWARDED"
    assert end.passed == pytest.approx(24, abs=0.01)
    assert "dunlin" not in {b.supplier_id for b in end.s.bids}


@pytest.mark.req("APP-1")
@pytest.mark.parametrize(("cents", "asked"), [(10_000, 0), (10_001, 1)])
def test_an_order_at_the_threshold_needs_no_approval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cents: int, asked: int
) -> None:
    def priced(suppliers: dict[str, dict[str, Any]]) -> None:
        suppliers["acme"]["list_cents"]["shoe-s3"] = cents

    scenario = prompt("spot-threshold", priced)
    end = negotiate(tmp_path, monkeypatch, "spot-threshold", *["approve"][:asked], scenario=scenario)
    assert end.state.shown == "AWARDED"
    assert end.state.outcome["cents"] == 500 * cents
    assert len(end.approvals) == asked


@pytest.mark.req("APP-1")
def test_a_purchase_that_all_decline_fails_with_their_reasons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end = negotiate(tmp_path, monkeypatch, "bottleneck-declined")
    assert end.state.shown == "FAILED"
    assert end.state.reason.startswith("no offer in 3 steps from 2 suppliers, who said: elmtree (full): we do not make")
    assert "dunlin (partial): the foundry is closed until autumn" in end.state.reason
    assert end.passed < 1, "a supplier that declined is not waited for"

"""Validation of purchases: an invalid one is refused with all problems at once."""

from typing import Any

import pytest

from examples.negotiation import samples
from examples.negotiation.purchase import Opening, problems
from examples.negotiation.samples import sample
from examples.negotiation.workflow import negotiation
from outlast.errors import InvalidInput


@pytest.mark.parametrize("name", [name for name in samples.names() if name != "bad"])
def test_a_sample_is_accepted_bare_or_under_purchase(name: str) -> None:
    assert problems(sample(name)) == []
    bare, named = Opening.model_validate(sample(name)), Opening.model_validate({"purchase": sample(name)})
    assert bare == named == Opening.model_validate_json(named.model_dump_json())


def test_all_problems_of_the_bad_sample_are_named_at_once() -> None:
    assert problems(sample("bad")) == [
        "$.reference string should match pattern '^[A-Za-z0-9._-]{1,60}$' (given: 'RFQ 2045')",
        "$.supply_risk.geopolitical is missing",
        "$.profit_impact.margin_effect_percent must be less than or equal to 100 (given: 140)",
        "$.candidates[0].lead_days must be greater than or equal to 0 (given: -3)",
        "$.colour is not a field that is known here",
        "$.need_by is 2026-02-20, which is not after requested_on, 2026-03-02",
        "$.items names the item 'sheet-1208' 2 times",
        "$.candidates names the supplier 'acme' 2 times",
        "$.spend_cents is 25000000, but the items at their target prices come to 31000000; they may differ by 2 %",
        "$.candidates[2].mailbox is 'cordoba at example', which is not an http or https address",
        "$.candidates[1].currency is SEK, but the purchase is in EUR; bids would not be comparable",
        "$.candidates[2].capacity names 'sheet-9', which is not an item of this purchase",
    ]


def test_a_run_is_refused_with_the_same_problems() -> None:
    with pytest.raises(InvalidInput) as refused:
        negotiation.first_state(sample("bad"))
    assert len(refused.value.problems) == len(problems(sample("bad")))
    assert ("supply_risk.geopolitical", "is missing") in refused.value.problems


@pytest.mark.parametrize("quantity", [0, -4, "many", None, 2.5])
def test_a_quantity_is_a_whole_number_above_zero(quantity: object) -> None:
    raw = sample("leverage")
    raw["items"][0]["quantity"] = quantity
    assert [text for text in problems(raw) if text.startswith("$.items[0].quantity ")]


@pytest.mark.parametrize(
    ("spend", "agrees"), [(18_768_000, True), (18_768_001, False), (18_032_000, True), (18_031_999, False)]
)
def test_the_spend_agrees_with_the_items_within_two_percent(spend: int, agrees: bool) -> None:
    assert (problems(sample("leverage") | {"spend_cents": spend}) == []) is agrees


def test_rounds_longer_than_the_auction_are_refused() -> None:
    found = problems(sample("leverage") | {"governance": {"round_days": 2}})
    assert found == [
        "$.governance 5 rounds of 2 business days are longer than an auction's 5 business days (given: what is given)"
    ]


@pytest.mark.parametrize("raw", [None, [], "purchase", 7, {"items": 3, "candidates": [4, {}], "need_by": 5}])
def test_any_json_value_is_answered_with_problems(raw: Any) -> None:
    assert problems(raw)


def test_two_suppliers_do_not_share_a_mailbox() -> None:
    raw = sample("leverage")
    raw["candidates"][1]["mailbox"] = raw["candidates"][0]["mailbox"] + "/"
    assert problems(raw) == ["$.candidates[1].mailbox is the same address as $.candidates[0].mailbox"]

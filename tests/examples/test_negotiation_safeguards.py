"""Safeguards of the negotiation, removed one by one: each check passes, and fails without its safeguard."""

from collections.abc import Callable
from typing import Any

import pytest

from examples.negotiation import workflow
from examples.negotiation.letters import Bid, Invitation
from examples.negotiation.market.behaviour import load
from examples.negotiation.samples import sample
from examples.negotiation.workflow import negotiation
from outlast import Fail
from outlast.testing import AppFactory
from tests.examples import test_negotiation_models as models
from tests.examples import test_nodes as nodes
from tests.examples import test_rounds as auctions
from tests.examples.bidders import Bidders
from tests.mutants import remove

pytestmark = pytest.mark.req("APP-1")

Check = Callable[[AppFactory, pytest.MonkeyPatch], object]


def bid_of(supplier: str, cents: int, *, round_number: int = 1) -> Bid:
    return Bid(
        bid_id=f"{supplier}-1-{round_number}",
        supplier_id=supplier,
        cycle=1,
        round=round_number,
        cents=cents,
        freight_cents=0,
        lead_days=1,
        payment_days=60,
    )


def after_a_round() -> Any:
    """Return the state of an auction with two open bids, of which the first was awarded."""
    s = negotiation.first_state(sample("leverage"))
    s.suppliers, s.quadrant = ["acme", "baltica"], "LEVERAGE"
    s.take_in([bid_of("acme", 900), bid_of("baltica", 1_000)], 1)
    return s


# --- checks that no test of the negotiation makes in a second -------------------------------------------------
def a_rejected_round_leaves_no_open_bid(app: AppFactory, patch: pytest.MonkeyPatch) -> None:
    """Bids of suppliers that do not bid again are superseded, too."""
    s = after_a_round()
    s.go_round_again("ana", "ask once more")
    assert s.open_bids() == []


def a_winner_that_falls_out_ends_the_run(app: AppFactory, patch: pytest.MonkeyPatch) -> None:
    """Although the bid of another supplier is open."""
    s = after_a_round()
    s.award = negotiation.first_state(sample("leverage")).award
    patch.setattr(type(s), "winner", "acme-1-1")
    try:
        workflow.falls_out(s, "WITHDRAWN", "is gone")
    except Fail:
        return
    raise AssertionError("another bid was awarded")


def a_bid_that_comes_too_late_is_not_awarded(app: AppFactory, patch: pytest.MonkeyPatch) -> None:
    """The best bid arrives after the goods are needed."""

    def late(bid: Bid, asked: Invitation) -> Bid:
        return bid.model_copy(update={"lead_days": 400, "cents": 1}) if bid.supplier_id == "acme" else bid

    started = app(negotiation)
    Bidders(started, patch, load("calm").suppliers, changed=late)
    run = started.start(negotiation, sample("leverage", today=None) | {"need_by": "2027-01-01"})
    award = run.state.award
    assert run.node == "approve" and award is not None and "acme" not in award.bid_id


def of_steps(name: str) -> Check:
    theirs, percent, expected = models.STEPS[name]
    test = models.test_a_step_goes_towards_the_supplier_and_not_beyond_the_walk_away
    return lambda app, patch: test(theirs, percent, expected)


CHECKS: dict[str, Check] = {
    # limits
    "no_walk_away": of_steps("not beyond the walk-away"),
    "steps_of_any_size": of_steps("a part of the distance"),
    "positions_of_agents_not_judged": lambda app, patch: models.test_no_proposal_passes_the_limits("lying", 0, patch),
    "last_words_without_a_quote": lambda app, patch: models.test_no_proposal_passes_the_limits("lying", 2, patch),
    "moves_of_the_strategist_not_judged": lambda app, patch: models.test_no_proposal_passes_the_limits(
        "lying", 4, patch
    ),
    # rounds
    "rounds_never_converge": auctions.test_rounds_end_early_when_the_bids_converge_and_each_round_has_its_feedback,
    "feedback_for_the_first_alone": (
        auctions.test_rounds_end_early_when_the_bids_converge_and_each_round_has_its_feedback
    ),
    "rounds_converge_at_once": auctions.test_rounds_are_used_up_while_a_price_moves,
    "bids_of_any_round_taken": lambda app, patch: (
        nodes.test_bids_of_unknown_suppliers_other_rounds_and_older_cycles_do_not_count()
    ),
    # award
    "awards_without_an_approval": auctions.test_the_award_says_who_approved_it,
    "second_cycles_without_an_approval": (
        auctions.test_the_award_of_a_second_cycle_is_approved_by_a_person_even_below_the_threshold
    ),
    "bids_of_the_rejected_round_kept": a_rejected_round_leaves_no_open_bid,
    "fallen_winners_replaced_by_default": a_winner_that_falls_out_ends_the_run,
    "bids_that_cannot_be_ordered_kept": a_bid_that_comes_too_late_is_not_awarded,
}


@pytest.mark.parametrize("removed", CHECKS)
def test_a_negotiation_without_a_safeguard_is_noticed(
    removed: str, outlast_app: AppFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    CHECKS[removed](outlast_app, monkeypatch)
    remove(removed, monkeypatch)
    with pytest.raises(AssertionError):
        CHECKS[removed](outlast_app, monkeypatch)

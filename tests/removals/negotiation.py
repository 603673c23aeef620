"""Safeguards of the negotiation in examples: limits of agents, rounds, award, and bids of earlier cycles."""

from typing import Any

from examples.negotiation import limits, rounds, routing, workflow
from examples.negotiation.governance import Governance
from examples.negotiation.state import Negotiation
from tests.removals import Patch, replace


# --- the limits of an agent ---------------------------------------------------------------------
def no_walk_away(patch: Patch) -> None:
    kept = limits.stepped
    replace(patch, kept, lambda before, theirs, percent, worst: kept(before, theirs, percent, theirs))


def steps_of_any_size(patch: Patch) -> None:
    kept = limits.stepped
    replace(patch, kept, lambda before, theirs, percent, worst: kept(before, theirs, 100, worst))


def positions_of_agents_not_judged(patch: Patch) -> None:
    replace(patch, limits.objection_to_position, lambda wanted, allowed: "")


def last_words_without_a_quote(patch: Patch) -> None:
    replace(patch, limits.objection_to_final, lambda *, is_final, quote, note: "")


def moves_of_the_strategist_not_judged(patch: Patch) -> None:
    replace(patch, limits.objection_to_move, lambda s, ask, open_, *, end: "")


# --- the rounds of an auction ----------------------------------------------------------------------
def rounds_never_converge(patch: Patch) -> None:
    replace(patch, rounds.converged, lambda s, round_number: False)


def rounds_converge_at_once(patch: Patch) -> None:
    replace(patch, rounds.converged, lambda s, round_number: True)


def feedback_for_the_first_alone(patch: Patch) -> None:
    kept = rounds.feedback
    replace(patch, kept, lambda s, suppliers, n, run: kept(s, suppliers, 1, run))


def bids_of_any_round_taken(patch: Patch) -> None:
    kept = Negotiation.take_in

    def take_in(self: Negotiation, bids: list[Any], round_number: int) -> None:
        kept(self, [bid.model_copy(update={"cycle": self.cycle, "round": round_number}) for bid in bids], round_number)

    replace(patch, kept, take_in)


# --- the award ----------------------------------------------------------------------------------
def awards_without_an_approval(patch: Patch) -> None:
    replace(patch, Governance.approval_reason, lambda self, quadrant, cents, cycle=1: None)


def second_cycles_without_an_approval(patch: Patch) -> None:
    kept = Governance.approval_reason
    replace(patch, kept, lambda self, quadrant, cents, cycle=1: kept(self, quadrant, cents))


def bids_of_the_rejected_round_kept(patch: Patch) -> None:
    kept = Negotiation.go_round_again

    def again(self: Negotiation, by: str, reason: str) -> None:
        statuses = [bid.status for bid in self.bids]
        kept(self, by, reason)
        for bid, status in zip(self.bids, statuses, strict=True):
            bid.status = status

    replace(patch, kept, again)


def fallen_winners_replaced_by_default(patch: Patch) -> None:
    kept = workflow.falls_out

    def falls_out(s: Negotiation, status: Any, why: str) -> Any:
        s.purchase.governance = s.purchase.governance.model_copy(update={"when_winner_falls_out": "evaluate"})
        return kept(s, status, why)

    replace(patch, kept, falls_out)


def bids_that_cannot_be_ordered_kept(patch: Patch) -> None:
    replace(patch, routing.objections, lambda purchase, bid, today: [])

"""Decisions between two rounds of an auction: the feedback to each supplier, and whether the bids have converged."""

from .letters import Feedback
from .state import HeldBid, Negotiation


def feedback(s: Negotiation, suppliers: list[str], round_number: int, run_id: str) -> dict[str, Feedback]:
    """Return the feedback to each supplier: the best price for the goods, and the supplier's rank."""
    in_order = sorted(s.open_bids(), key=lambda bid: (bid.cents, bid.supplier_id))
    places = {bid.supplier_id: place for place, bid in enumerate(in_order, start=1)}
    return {
        supplier: Feedback(
            run_id=run_id,
            cycle=s.cycle,
            round=round_number,
            best_cents=in_order[0].cents if in_order else 0,
            rank=places.get(supplier, 0),
            bidders=len(in_order),
            target_cents=s.auction.targets.get(supplier, 0) if s.auction else 0,
        )
        for supplier in suppliers
    }


def converged(s: Negotiation, round_number: int) -> bool:
    """True if each active supplier that has bid in this cycle also bid in this round, and none moved its price.

    A price moves if it differs by more than `converged_within_bp` from that of the round before. A supplier that has
    never bid keeps no auction open. A first bid is a move.
    """
    return moved_at_most(s, round_number, s.purchase.governance.converged_within_bp)


def moved_at_most(s: Negotiation, round_number: int, most: int) -> bool:
    """True if no bidder moved its price by more than `most` basis points; see `converged`. Final bids do not move."""
    bidders = {bid.supplier_id for bid in s.bids if bid.cycle == s.cycle} & set(s.active()) - s.final.keys()
    if not bidders:
        return False
    for supplier in bidders:
        now, before = (_bid(s, supplier, n) for n in (round_number, round_number - 1))
        if now is None or before is None or abs(now.cents - before.cents) * 10_000 > before.cents * most:
            return False
    return True


def _bid(s: Negotiation, supplier_id: str, round_number: int) -> HeldBid | None:
    """Return the last bid of a supplier in a round of this cycle."""
    mine = [bid for bid in s.bids if (bid.supplier_id, bid.cycle, bid.round) == (supplier_id, s.cycle, round_number)]
    return mine[-1] if mine else None

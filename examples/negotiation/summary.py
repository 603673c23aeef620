"""Texts about a negotiation: for the approver, for the suppliers, and about the result."""

from .judging import judge
from .kraljic import classify
from .money import money
from .scoring import Score
from .state import Negotiation, missing


def order_text(s: Negotiation, reason: str) -> str:
    """Return the summary for the approver, in one paragraph."""
    bid = s.bid(s.winner)
    name = s.purchase.candidate(bid.supplier_id).name
    total = next(line.total_cents for line in s.scores if line.bid_id == s.winner)
    others = len(s.scores) - 1
    alternatives = "1 other bid is open" if others == 1 else f"{others} other bids are open"
    return (
        f"Award {s.purchase.reference} ({s.purchase.category}) to {name} for {money(bid.cents)} {s.purchase.currency}, "
        f"{money(total)} in total cost of ownership. {s.why_winner}. "
        f"{_caveats(s)}Asked because {reason}; {alternatives}."
    )


def _caveats(s: Negotiation) -> str:
    """Return missing items, substitutes, dropped bids and the number of the cycle, as sentences."""
    bid, said = s.bid(s.winner), []
    if left := missing(s.purchase, bid):
        said.append(f"It leaves out {', '.join(f'{units} of {sku}' for sku, units in left.items())}. ")
    if bid.substitutes:
        said.append(f"It brings {', '.join(f'{theirs} for {ours}' for ours, theirs in bid.substitutes.items())}. ")
    said += [f"No longer available: {why}. " for why in s.fallen.values()]
    if s.another_round:
        said.append("This is the second cycle; there is no third. ")
    return "".join(said)


def letter_text(s: Negotiation, supplier_id: str) -> str:
    """Return the text of the last letter to a supplier."""
    reference, bid = s.purchase.reference, s.bid(s.winner)
    if supplier_id == bid.supplier_id:
        price = f"{money(bid.cents)} {s.purchase.currency}"
        return f"Your bid {bid.bid_id} for {reference} is accepted; our order is {s.order_id} over {price}."
    return f"{reference} has been awarded to another supplier. Thank you for taking part."


def scores(s: Negotiation) -> list[Score]:
    """Return the scores with all their parts, computed again from the stored state."""
    return judge(s)


def description(s: Negotiation) -> str:
    """Describe the negotiation: classification, suppliers, bids, scores and order."""
    lines = [f"{s.purchase.reference}: {s.purchase.category}", classify(s.purchase).explained()]
    lines += [f"not asked: {d.supplier_id}: {'; '.join(d.reasons)}" for d in s.discarded]
    lines += [f"declined: {supplier}: {why}" for supplier, why in s.declined.items()]
    for supplier in s.suppliers:
        prices = [f"{bid.round}: {money(bid.cents)}" for bid in s.bids if bid.supplier_id == supplier]
        if prices:
            lines.append(f"bids of {supplier} by round: {', '.join(prices)}")
    if s.scores:
        lines += [score.explained() for score in scores(s)]
        lines.append(s.why_winner)
    if s.order_id:
        by = f"approved by {s.approved_by}" if s.approved_by else "below the threshold, no approval needed"
        lines.append(f"ordered: {s.order_id} ({by})")
    lines += [f"letter not delivered: {supplier}: {why}" for supplier, why in s.unreached.items()]
    return "\n".join(lines)

"""Bids of a simulated supplier: its list price first, then below the best known price, never below its floor."""

from collections import Counter
from dataclasses import dataclass, field

from ..letters import Bid, Feedback, Inquiry, Invitation, Line, Proposal
from .behaviour import Supplier


@dataclass
class Stance:
    """State of one supplier in one cycle of one negotiation."""

    last_cents: int = 0
    heard_cents: int = 0
    target_cents: int = 0
    offers: Counter[int] = field(default_factory=Counter)
    """Number of bids per round. It exceeds one only if the supplier acted on a repeated request."""


def unable(supplier: Supplier, asked: Invitation) -> str:
    """Return the reason why the supplier cannot bid, or an empty string."""
    lacking = [line.sku for line in asked.lines if not _makes(supplier, line.sku)]
    wanted = asked.wanted if isinstance(asked, Inquiry) else "full"
    if wanted != "full":
        lacking = [sku for sku in lacking if not _makes(supplier, supplier.substitutes.get(sku, sku))]
    if lacking:
        return f"we do not make {', '.join(lacking)}"
    makes = {line.sku: _units(supplier, line) for line in asked.lines}
    if wanted == "partial":
        return "" if any(makes.values()) else "we have nothing left"
    short = [
        f"{makes[line.sku]} of {line.quantity} {line.sku}" for line in asked.lines if makes[line.sku] < line.quantity
    ]
    return f"we can make {', '.join(short)}" if short else ""


def _makes(supplier: Supplier, sku: str) -> bool:
    return not supplier.list_cents or sku in supplier.list_cents


def _made(supplier: Supplier, sku: str) -> str:
    """Return the item that is delivered for an item: itself or a substitute."""
    return sku if _makes(supplier, sku) else supplier.substitutes.get(sku, sku)


def _units(supplier: Supplier, line: Line) -> int:
    return min(line.quantity, supplier.capacity.get(_made(supplier, line.sku), line.quantity))


def hear(stance: Stance, feedback: Feedback) -> None:
    """Remember the best price of a round with a bid, and the price that is asked of this supplier."""
    stance.heard_cents = feedback.best_cents or stance.heard_cents
    stance.target_cents = feedback.target_cents


def offer(supplier_id: str, supplier: Supplier, stance: Stance, asked: Invitation) -> Bid:
    """Return the next bid. Its id is derived from the request, so that equal histories give equal bids."""
    units = {line.sku: _units(supplier, line) for line in asked.lines}
    made = {line.sku: _made(supplier, line.sku) for line in asked.lines}
    price = sum(supplier.list_cents.get(made[sku], supplier.any_cents) * n for sku, n in units.items())
    floor = price * supplier.floor_percent // 100
    if isinstance(asked, Inquiry) or not stance.last_cents:
        cents = price
    elif isinstance(asked, Proposal):
        cents = stance.last_cents
    elif 0 < stance.heard_cents < stance.last_cents:
        cents = min(stance.last_cents, max(floor, stance.heard_cents * (100 - supplier.step_percent) // 100))
    else:
        cents = stance.last_cents
    if isinstance(asked, Proposal):
        cents = max(floor, cents - max(0, cents - asked.terms.cents) * supplier.meets_percent // 100)
    elif floor <= stance.target_cents < cents:
        cents = stance.target_cents
    if supplier.final_from and asked.round > supplier.final_from and stance.last_cents:
        cents = stance.last_cents
    stance.last_cents = cents
    stance.offers[asked.round] += 1
    again = stance.offers[asked.round]
    bid_id = f"{supplier_id}-{asked.cycle}-{asked.round}" + (f"-{again}" if again > 1 else "")
    bid = Bid(
        bid_id=bid_id,
        supplier_id=supplier_id,
        cycle=asked.cycle,
        round=asked.round,
        cents=cents,
        freight_cents=supplier.freight_cents,
        lead_days=supplier.lead_days,
        payment_days=supplier.payment_days,
        covers=units if any(units[line.sku] < line.quantity for line in asked.lines) else {},
        substitutes={sku: theirs for sku, theirs in made.items() if theirs != sku},
        note=supplier.notes[min(asked.round, len(supplier.notes)) - 1] if supplier.notes else "",
    )
    return _answering(bid, supplier, asked) if isinstance(asked, Proposal) else bid


def _answering(bid: Bid, supplier: Supplier, asked: Proposal) -> Bid:
    """Return the bid with its other terms moved towards the proposal, further in each round."""
    way, terms = min(100, supplier.meets_percent * asked.round), asked.terms

    def towards(ours: int, theirs: int) -> int:
        return ours + (theirs - ours) * way // 100

    ppm = supplier.defect_ppm
    return bid.model_copy(
        update={
            "payment_days": min(supplier.most_payment_days, towards(bid.payment_days, terms.payment_days)),
            "lead_days": max(supplier.least_lead_days, towards(bid.lead_days, terms.lead_days)),
            "defect_ppm": None if ppm is None else max(supplier.least_defect_ppm, towards(ppm, terms.defect_ppm)),
            "term_months": min(supplier.most_term_months, towards(supplier.term_months, terms.term_months)),
        }
    )

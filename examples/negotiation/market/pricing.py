"""What a supplier bids: its list price at first, then below the best price it has heard of, never below its floor."""

from collections import Counter
from dataclasses import dataclass, field

from ..letters import Bid, Feedback, Invitation, Line
from .behaviour import Supplier


@dataclass
class Stance:
    """Where one supplier stands in one cycle of one negotiation."""

    last_cents: int = 0
    heard_cents: int = 0
    offers: Counter[int] = field(default_factory=Counter)
    """How often it has bid in each round; more than once only when it was asked again and did not notice."""


def missing(supplier: Supplier, lines: list[Line]) -> list[str]:
    """The items asked for that the supplier does not make."""
    return [line.sku for line in lines if supplier.list_cents and line.sku not in supplier.list_cents]


def hear(stance: Stance, feedback: Feedback) -> None:
    """Takes in the best price of a round."""
    stance.heard_cents = feedback.best_cents


def offer(supplier_id: str, supplier: Supplier, stance: Stance, asked: Invitation) -> Bid:
    """The next bid. Its id follows from what it answers, so that equal histories give equal bids."""
    price = sum(supplier.list_cents.get(line.sku, supplier.any_cents) * line.quantity for line in asked.lines)
    floor = price * supplier.floor_percent // 100
    if not stance.last_cents:
        cents = price
    elif stance.heard_cents < stance.last_cents:
        cents = min(stance.last_cents, max(floor, stance.heard_cents * (100 - supplier.step_percent) // 100))
    else:
        cents = stance.last_cents
    stance.last_cents = cents
    stance.offers[asked.round] += 1
    again = stance.offers[asked.round]
    bid_id = f"{supplier_id}-{asked.cycle}-{asked.round}" + (f"-{again}" if again > 1 else "")
    return Bid(
        bid_id=bid_id,
        supplier_id=supplier_id,
        cycle=asked.cycle,
        round=asked.round,
        cents=cents,
        freight_cents=supplier.freight_cents,
        lead_days=supplier.lead_days,
        payment_days=supplier.payment_days,
    )

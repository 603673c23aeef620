"""Choice of the negotiation strategy, and the delivery gate that admits candidates."""

from datetime import date, timedelta
from typing import Literal, TypeAlias

from pydantic import BaseModel

from .kraljic import Quadrant
from .letters import Bid
from .purchase import Candidate, Purchase

Route: TypeAlias = Literal["spot", "auction", "bottleneck", "strategic"]

ROUTES: dict[Quadrant, Route] = {
    "SPOT": "spot",
    "LEVERAGE": "auction",
    "BOTTLENECK": "bottleneck",
    "STRATEGIC": "strategic",
}
"""The node that negotiates a quadrant."""

STRATEGIES: dict[Quadrant, str] = {
    "SPOT": "spot bid",
    "LEVERAGE": "leverage auction",
    "BOTTLENECK": "bottleneck negotiation",
    "STRATEGIC": "strategic negotiation",
}


class Discarded(BaseModel):
    """A candidate that is not asked, with all reasons."""

    supplier_id: str
    reasons: list[str]


class Admitted(BaseModel):
    """Result of the delivery gate: admitted and discarded candidates."""

    supplier_ids: list[str]
    discarded: list[Discarded]


def delivery_gate(purchase: Purchase, today: date, quadrant: Quadrant = "LEVERAGE") -> Admitted:
    """Discard every candidate that cannot deliver in time, in full, or with the required certificates.

    The order date is the later of the request date and today, plus the longest negotiation of the quadrant. The time
    for the approval is not included, because it depends on the winner. A bottleneck purchase accepts partial
    quantities, so a candidate with any capacity is admitted.
    """
    ordered = purchase.governance.ordered_on(quadrant, max(today, purchase.requested_on))
    discarded: list[Discarded] = []
    admitted: list[str] = []
    for candidate in purchase.candidates:
        reasons = [
            *_too_late(candidate, ordered, purchase.need_by),
            *_too_little(candidate, purchase, any_is_welcome=quadrant == "BOTTLENECK"),
            *_uncertified(candidate, purchase),
        ]
        if reasons:
            discarded.append(Discarded(supplier_id=candidate.id, reasons=reasons))
        else:
            admitted.append(candidate.id)
    return Admitted(supplier_ids=admitted, discarded=discarded)


def objections(purchase: Purchase, bid: Bid, today: date) -> list[str]:
    """Return the reasons why a bid cannot be ordered today: delivery date, certificates, payment terms."""
    candidate, least = purchase.candidate(bid.supplier_id), purchase.governance.payment_days_at_least
    arrives = today + timedelta(days=bid.lead_days)
    late = [f"would arrive on {arrives}, needed by {purchase.need_by}"] if arrives > purchase.need_by else []
    short = [f"gives {bid.payment_days} days of credit, at least {least} are asked"] if bid.payment_days < least else []
    return [*late, *_uncertified(candidate, purchase), *short]


def _too_late(candidate: Candidate, ordered: date, need_by: date) -> list[str]:
    arrives = ordered + timedelta(days=candidate.lead_days)
    if arrives <= need_by:
        return []
    return [f"delivers on {arrives} ({candidate.lead_days} days after an order on {ordered}), needed by {need_by}"]


def _too_little(candidate: Candidate, purchase: Purchase, *, any_is_welcome: bool) -> list[str]:
    if any_is_welcome and any(candidate.capacity.values()):
        return []
    return [
        f"can deliver {candidate.capacity.get(item.sku, 0)} of {item.quantity} {item.unit} of {item.sku}"
        for item in purchase.items
        if candidate.capacity.get(item.sku, 0) < item.quantity
    ]


def _uncertified(candidate: Candidate, purchase: Purchase) -> list[str]:
    return [
        f"has no {name} certificate"
        for name in purchase.required_certifications
        if name not in candidate.certifications
    ]

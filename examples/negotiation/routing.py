"""Which strategy a purchase takes, and which candidates come along: the router and its delivery gate."""

from datetime import date, timedelta

from pydantic import BaseModel

from .kraljic import Quadrant
from .purchase import Candidate, Purchase

STRATEGIES: dict[Quadrant, str] = {
    "SPOT": "spot bid",
    "LEVERAGE": "leverage auction",
    "BOTTLENECK": "bottleneck negotiation",
    "STRATEGIC": "strategic negotiation",
}

AVAILABLE: frozenset[Quadrant] = frozenset({"LEVERAGE"})
"""The strategies this example can carry out today."""


class Discarded(BaseModel):
    """A candidate that will not be asked, and every reason why."""

    supplier_id: str
    reasons: list[str]


class Admitted(BaseModel):
    """What the delivery gate lets through and what it holds back."""

    supplier_ids: list[str]
    discarded: list[Discarded]


def refusal(quadrant: Quadrant) -> str | None:
    """Why a quadrant cannot be negotiated yet, or None when it can."""
    if quadrant in AVAILABLE:
        return None
    return (
        f"this purchase is {quadrant}, whose route is the {STRATEGIES[quadrant]}; "
        f"that route comes with the complete negotiation, until then only LEVERAGE purchases are negotiated"
    )


def delivery_gate(purchase: Purchase, today: date) -> Admitted:
    """Holds back every candidate that could not deliver: too late, too little, or without a certificate.

    The order is reckoned to be placed when the auction is over, counted from the request or from today if that is
    later. The time a person takes to approve is not reckoned: it depends on the winner.
    """
    rules = purchase.governance
    ordered = max(today, purchase.requested_on) + timedelta(days=_days(rules.rounds * rules.round_length))
    discarded: list[Discarded] = []
    admitted: list[str] = []
    for candidate in purchase.candidates:
        reasons = [
            *_too_late(candidate, ordered, purchase.need_by),
            *_too_little(candidate, purchase),
            *_uncertified(candidate, purchase),
        ]
        if reasons:
            discarded.append(Discarded(supplier_id=candidate.id, reasons=reasons))
        else:
            admitted.append(candidate.id)
    return Admitted(supplier_ids=admitted, discarded=discarded)


def _too_late(candidate: Candidate, ordered: date, need_by: date) -> list[str]:
    arrives = ordered + timedelta(days=candidate.lead_days)
    if arrives <= need_by:
        return []
    return [f"delivers on {arrives} ({candidate.lead_days} days after an order on {ordered}), needed by {need_by}"]


def _too_little(candidate: Candidate, purchase: Purchase) -> list[str]:
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


def _days(span: timedelta) -> int:
    return -(-span // timedelta(days=1))

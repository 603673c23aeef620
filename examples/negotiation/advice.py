"""Advice for the buyer of a scarce item, in addition to the order."""

from .letters import Bid
from .purchase import Purchase
from .state import missing

DAYS_A_YEAR = 365


def safety_stock(purchase: Purchase, bid: Bid) -> list[str]:
    """Return the safety stock of each item, and what to do about missing items and substitutes.

    The purchase counts as the need of one year. The stock lasts for a part of the lead time that grows with the risk
    of the supplier and its region: nothing at no risk, the whole lead time if both are certain to fail.
    """
    candidate = purchase.candidate(bid.supplier_id)
    risk = candidate.risk + round(purchase.supply_risk.geopolitical * 100)
    days = -(-bid.lead_days * risk // 200)
    advice = [
        f"keep {-(-item.quantity * days // DAYS_A_YEAR)} {item.unit} of {item.sku} as safety stock: {days} of the "
        f"{bid.lead_days} days of lead time, for a supplier risk of {candidate.risk} and an exposure of "
        f"{purchase.supply_risk.geopolitical:g}"
        for item in purchase.items
    ]
    advice += [
        f"find {units} more of {sku}: they are not in this order" for sku, units in missing(purchase, bid).items()
    ]
    advice += [f"qualify {theirs} before it replaces {ours}" for ours, theirs in bid.substitutes.items()]
    if purchase.supply_risk.qualified_suppliers < 2:
        advice.append("qualify a second supplier: this one is the only one there is")
    return advice

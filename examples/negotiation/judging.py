"""Evaluation of bids by strategy: landed price, total cost, secured supply, or partnership."""

from collections.abc import Sequence

from .governance import CostRates
from .kraljic import Quadrant
from .letters import Bid
from .money import money
from .purchase import Candidate, Purchase
from .scoring import BP, Cost, Part, Score, costs, judged, part, percent, placed, rank
from .state import Negotiation, missing

Pair = tuple[Bid, Candidate]
LANDED = ("goods", "freight", "duty")
TERM_MONTHS_FULL = 36
"""Contract length that earns all points for the term."""
PAYMENT_DAYS_FULL = 90
WEIGHTS = {"price": 35, "quality": 20, "lead time": 15, "payment": 10, "term": 10, "security": 10}
"""Weight of each criterion of a partner, in percent."""
assert sum(WEIGHTS.values()) == 100


def judge(s: Negotiation) -> list[Score]:
    """Return the scores of the open bids from best to worst, by the measure of the strategy."""
    pairs = [(bid, s.purchase.candidate(bid.supplier_id)) for bid in s.open_bids()]
    return by_strategy(s.quadrant, pairs, s.purchase)


def by_strategy(quadrant: Quadrant | None, pairs: Sequence[Pair], purchase: Purchase) -> list[Score]:
    """Score bids by the strategy of a quadrant."""
    rates = purchase.governance.cost_rates
    match quadrant:
        case "SPOT":
            return landed(pairs, rates)
        case "BOTTLENECK":
            return secured(pairs, purchase)
        case "STRATEGIC":
            return partners(pairs, rates)
        case _:
            return rank(pairs, rates)


def landed(pairs: Sequence[Pair], rates: CostRates) -> list[Score]:
    """Rank bids by landed price only: goods, freight and duty."""
    scores = []
    for bid, candidate in pairs:
        here = [cost for cost in costs(bid, candidate, rates) if cost.name in LANDED]
        score = judged(bid, candidate, here, rates)
        scores.append(score.model_copy(update={"weighed_cents": score.total_cents}))
    return placed(scores)


def secured(pairs: Sequence[Pair], purchase: Purchase) -> list[Score]:
    """Rank bids by total cost, including the cost of missing units and substitutes."""
    rates = purchase.governance.cost_rates
    scores = []
    for bid, candidate in pairs:
        parts = [*costs(bid, candidate, rates), *_shortage(bid, purchase, rates), *_requalifying(bid, rates)]
        scores.append(judged(bid, candidate, parts, rates))
    return placed(scores)


def _shortage(bid: Bid, purchase: Purchase, rates: CostRates) -> list[Cost]:
    left = missing(purchase, bid)
    if not left:
        return []
    worth = sum(item.target_cents * left.get(item.sku, 0) for item in purchase.items)
    units = ", ".join(f"{n} {sku}" for sku, n in left.items())
    why = f"{units} to be found elsewhere at {percent(rates.shortage_bp)} of the target"
    return [Cost(name="shortage", cents=part(worth, rates.shortage_bp, BP), why=why)]


def _requalifying(bid: Bid, rates: CostRates) -> list[Cost]:
    if not bid.substitutes:
        return []
    swaps = ", ".join(f"{theirs} for {ours}" for ours, theirs in bid.substitutes.items())
    cents = part(bid.cents, rates.substitute_bp, BP)
    return [Cost(name="qualification", cents=cents, why=f"{swaps}: {percent(rates.substitute_bp)} of the goods")]


def partners(pairs: Sequence[Pair], rates: CostRates) -> list[Score]:
    """Rank bids by points for six criteria. Ties are broken by cost, then as in `rank`."""
    scores = rank(pairs, rates)
    if not scores:
        return []
    held = {bid.bid_id: (bid, candidate) for bid, candidate in pairs}
    cheapest = min(score.total_cents for score in scores)
    soonest = min(score.lead_days for score in scores)
    cleanest = min(_ppm(*pair) for pair in pairs)
    for score in scores:
        bid, candidate = held[score.bid_id]
        score.parts = [
            _part("price", part(cheapest, 100, score.total_cents), f"{money(score.total_cents)} in total cost"),
            _part("quality", _of(cleanest, _ppm(bid, candidate)), f"{_ppm(bid, candidate)} defects in a million"),
            _part("lead time", _of(soonest, score.lead_days), f"{score.lead_days} days"),
            _part("payment", _up_to(bid.payment_days, PAYMENT_DAYS_FULL), f"{bid.payment_days} days"),
            _part("term", _up_to(bid.term_months, TERM_MONTHS_FULL), f"{bid.term_months} months"),
            _part("security", 100 - candidate.risk, f"risk {candidate.risk} of 100"),
        ]
        score.points = part(sum(p.points * p.weight_percent for p in score.parts), 1, 100)
    scores.sort(key=lambda s: (-s.points, s.place))
    for place, score in enumerate(scores, start=1):
        score.place = place
    return scores


def _part(name: str, points: int, why: str) -> Part:
    return Part(name=name, points=points, weight_percent=WEIGHTS[name], why=why)


def _ppm(bid: Bid, candidate: Candidate) -> int:
    return candidate.defect_ppm if bid.defect_ppm is None else bid.defect_ppm


def _of(best: int, this: int) -> int:
    """Return 100 for the best value, less in proportion. One is added to both values to avoid division by zero."""
    return part(100, best + 1, this + 1)


def _up_to(this: int, full: int) -> int:
    return min(100, part(100, this, full))

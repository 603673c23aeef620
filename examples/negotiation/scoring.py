"""Ranking of bids by total cost of ownership and supplier risk, with an explanation of each figure."""

from collections.abc import Iterable

from pydantic import BaseModel

from .governance import CostRates
from .letters import Bid
from .money import money
from .purchase import Candidate

BP = 10_000
"""Basis points per whole. All arithmetic is in whole cents and rounds halves away from zero, so scores are exact."""

DAYS_A_YEAR = 365


class Cost(BaseModel):
    """One part of the total cost; a credit is negative."""

    name: str
    cents: int
    why: str


class Part(BaseModel):
    """One criterion of a partner's score."""

    name: str
    points: int
    weight_percent: int
    why: str


class Score(BaseModel):
    """The score of one bid."""

    bid_id: str
    supplier_id: str
    place: int
    costs: list[Cost]
    total_cents: int
    """Total cost of ownership."""
    risk: int
    lead_days: int
    weighed_cents: int
    """Total cost plus the surcharge for risk. Bids are compared by it."""
    points: int
    """100 for the best bid, less in proportion to the weighed cost. For partners: the weighted sum of the parts."""
    parts: list[Part] = []
    """Criteria that make up the points of a partner; empty for other strategies."""

    def explained(self) -> str:
        """Return the explanation of the score, one line per part."""
        lines = [f"{self.place}. {self.supplier_id} with bid {self.bid_id}: {self.points} points"]
        lines += [f"   {cost.name:<14}{money(cost.cents):>16}  {cost.why}" for cost in self.costs]
        lines.append(f"   {'total cost':<14}{money(self.total_cents):>16}")
        if self.weighed_cents != self.total_cents:
            lines.append(f"   {'with risk':<14}{money(self.weighed_cents):>16}  risk {self.risk} of 100")
        lines += [f"   {part.name:<14}{part.points:>7} × {part.weight_percent:>3} %  {part.why}" for part in self.parts]
        return "\n".join(lines)


def rank(bids: Iterable[tuple[Bid, Candidate]], rates: CostRates) -> list[Score]:
    """Score the bids and order them from best to worst.

    Ties are broken by lower risk, then by shorter lead time, then by supplier id.
    """
    return placed([judged(bid, candidate, costs(bid, candidate, rates), rates) for bid, candidate in bids])


def placed(scores: list[Score]) -> list[Score]:
    """Order scores by weighed cost and set their places and points."""
    scores = sorted(scores, key=lambda s: (s.weighed_cents, s.risk, s.lead_days, s.supplier_id, s.bid_id))
    for place, score in enumerate(scores, start=1):
        score.place = place
        score.points = part(scores[0].weighed_cents, 100, score.weighed_cents)
    return scores


def why_first(scores: list[Score]) -> str:
    """Explain in one sentence why the first score is the best."""
    assert scores, "there is no first among no bids"
    first, others = scores[0], scores[1:]
    if not others:
        return f"{first.supplier_id} made the only open bid, {money(first.total_cents)} in total cost"
    second = others[0]
    if first.parts:
        return (
            f"{first.supplier_id} has {first.points} of 100 points as a partner, {second.supplier_id} {second.points}; "
            f"it costs {money(first.weighed_cents)} with its risk, {second.supplier_id} {money(second.weighed_cents)}"
        )
    if first.weighed_cents < second.weighed_cents:
        by = f"{money(second.weighed_cents - first.weighed_cents)} less than {second.supplier_id}"
    elif first.risk < second.risk:
        by = f"as much as {second.supplier_id}, at the lower risk ({first.risk} against {second.risk})"
    elif first.lead_days < second.lead_days:
        by = f"as much as {second.supplier_id}, delivered sooner ({first.lead_days} against {second.lead_days} days)"
    else:
        by = f"as much as {second.supplier_id} in every respect; the supplier id decides"
    risk = " with its risk" if any(s.weighed_cents != s.total_cents for s in scores) else ""
    return f"{first.supplier_id} costs {money(first.weighed_cents)}{risk}, {by}"


def judged(bid: Bid, candidate: Candidate, costs: list[Cost], rates: CostRates) -> Score:
    """Return the score of a bid at these costs. `placed` sets its place and points."""
    total = sum(cost.cents for cost in costs)
    return Score(
        bid_id=bid.bid_id,
        supplier_id=bid.supplier_id,
        place=1,
        costs=costs,
        total_cents=total,
        risk=candidate.risk,
        lead_days=bid.lead_days,
        weighed_cents=total + part(total, candidate.risk * rates.risk_bp, 100 * BP),
        points=100,
    )


def costs(bid: Bid, candidate: Candidate, rates: CostRates) -> list[Cost]:
    """Return the parts of a bid's total cost of ownership. The first three are its landed price."""
    goods, duty_bp = bid.cents, candidate.duty_bp
    ppm = candidate.defect_ppm if bid.defect_ppm is None else bid.defect_ppm
    return [
        Cost(name="goods", cents=goods, why="the price bid"),
        Cost(name="freight", cents=bid.freight_cents, why="as bid"),
        Cost(name="duty", cents=part(goods, duty_bp, BP), why=f"{percent(duty_bp)} of the goods"),
        Cost(
            name="quality",
            cents=part(goods, ppm * rates.defect_cost_bp, 1_000_000 * BP),
            why=f"{ppm} defects in a million, each {percent(rates.defect_cost_bp)} of its price",
        ),
        Cost(
            name="safety stock",
            cents=part(goods, rates.carrying_bp_a_year * bid.lead_days, BP * DAYS_A_YEAR),
            why=f"{bid.lead_days} days of lead time at {percent(rates.carrying_bp_a_year)} a year",
        ),
        Cost(
            name="payment terms",
            cents=-part(goods, rates.capital_bp_a_year * bid.payment_days, BP * DAYS_A_YEAR),
            why=f"{bid.payment_days} days of credit at {percent(rates.capital_bp_a_year)} a year",
        ),
    ]


def part(amount: int, numerator: int, denominator: int) -> int:
    """Return a fraction of an amount, rounded to whole cents."""
    return (2 * amount * numerator + denominator) // (2 * denominator)


def percent(bp: int) -> str:
    """Format basis points as a percentage."""
    return f"{bp / 100:g} %"

"""Which standing bid is best: total cost of ownership, weighed with the supplier's risk, every figure explained."""

from collections.abc import Iterable

from pydantic import BaseModel

from .governance import CostRates
from .letters import Bid
from .money import money
from .purchase import Candidate

BP = 10_000
"""Basis points in a whole. All arithmetic is in whole cents, halves away from zero, so that a score never drifts."""

DAYS_A_YEAR = 365


class Cost(BaseModel):
    """One part of the total cost; a credit is negative."""

    name: str
    cents: int
    why: str


class Score(BaseModel):
    """One bid, judged."""

    bid_id: str
    supplier_id: str
    place: int
    costs: list[Cost]
    total_cents: int
    """Total cost of ownership."""
    risk: int
    lead_days: int
    weighed_cents: int
    """The total with its allowance for risk: what bids are compared by."""
    points: int
    """100 for the best; the others in proportion to their weighed cost."""

    def explained(self) -> str:
        """The judgement in words, one line a part."""
        lines = [f"{self.place}. {self.supplier_id} with bid {self.bid_id}: {self.points} points"]
        lines += [f"   {cost.name:<14}{money(cost.cents):>16}  {cost.why}" for cost in self.costs]
        lines.append(f"   {'total cost':<14}{money(self.total_cents):>16}")
        lines.append(f"   {'with risk':<14}{money(self.weighed_cents):>16}  risk {self.risk} of 100")
        return "\n".join(lines)


def rank(bids: Iterable[tuple[Bid, Candidate]], rates: CostRates) -> list[Score]:
    """The bids from best to worst. Equal cost is decided by lower risk, then shorter lead time, then supplier id."""
    judged = [_judge(bid, candidate, rates) for bid, candidate in bids]
    judged.sort(key=lambda s: (s.weighed_cents, s.risk, s.lead_days, s.supplier_id, s.bid_id))
    for place, score in enumerate(judged, start=1):
        score.place = place
        score.points = _part(judged[0].weighed_cents, 100, score.weighed_cents)
    return judged


def why_first(scores: list[Score]) -> str:
    """Why the first is first, in one sentence."""
    assert scores, "there is no first among no bids"
    first, others = scores[0], scores[1:]
    if not others:
        return f"{first.supplier_id} made the only standing bid, {money(first.total_cents)} in total cost"
    second = others[0]
    if first.weighed_cents < second.weighed_cents:
        by = f"{money(second.weighed_cents - first.weighed_cents)} less than {second.supplier_id}"
    elif first.risk < second.risk:
        by = f"as much as {second.supplier_id}, at the lower risk ({first.risk} against {second.risk})"
    elif first.lead_days < second.lead_days:
        by = f"as much as {second.supplier_id}, delivered sooner ({first.lead_days} against {second.lead_days} days)"
    else:
        by = f"as much as {second.supplier_id} in every respect; the supplier id decides"
    return f"{first.supplier_id} costs {money(first.weighed_cents)} with its risk, {by}"


def _judge(bid: Bid, candidate: Candidate, rates: CostRates) -> Score:
    costs = _costs(bid, candidate, rates)
    total = sum(cost.cents for cost in costs)
    return Score(
        bid_id=bid.bid_id,
        supplier_id=bid.supplier_id,
        place=1,
        costs=costs,
        total_cents=total,
        risk=candidate.risk,
        lead_days=bid.lead_days,
        weighed_cents=total + _part(total, candidate.risk * rates.risk_bp, 100 * BP),
        points=100,
    )


def _costs(bid: Bid, candidate: Candidate, rates: CostRates) -> list[Cost]:
    goods, duty_bp, ppm = bid.cents, candidate.duty_bp, candidate.defect_ppm
    return [
        Cost(name="goods", cents=goods, why="the price bid"),
        Cost(name="freight", cents=bid.freight_cents, why="as bid"),
        Cost(name="duty", cents=_part(goods, duty_bp, BP), why=f"{_percent(duty_bp)} of the goods"),
        Cost(
            name="quality",
            cents=_part(goods, ppm * rates.defect_cost_bp, 1_000_000 * BP),
            why=f"{ppm} defects in a million, each {_percent(rates.defect_cost_bp)} of its price",
        ),
        Cost(
            name="safety stock",
            cents=_part(goods, rates.carrying_bp_a_year * bid.lead_days, BP * DAYS_A_YEAR),
            why=f"{bid.lead_days} days of lead time at {_percent(rates.carrying_bp_a_year)} a year",
        ),
        Cost(
            name="payment terms",
            cents=-_part(goods, rates.capital_bp_a_year * bid.payment_days, BP * DAYS_A_YEAR),
            why=f"{bid.payment_days} days of credit at {_percent(rates.capital_bp_a_year)} a year",
        ),
    ]


def _part(amount: int, numerator: int, denominator: int) -> int:
    return (2 * amount * numerator + denominator) // (2 * denominator)


def _percent(bp: int) -> str:
    return f"{bp / 100:g} %"

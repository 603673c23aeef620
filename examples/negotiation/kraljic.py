"""Classification of a purchase by supply risk and profit impact (Kraljic matrix), with explained scores."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from .purchase import ProfitImpact, Purchase, SupplyRisk

Quadrant = Literal["SPOT", "LEVERAGE", "BOTTLENECK", "STRATEGIC"]


class Component(BaseModel):
    """One reading that contributes to an axis."""

    name: str
    given: str
    points: Annotated[int, Field(ge=0, le=100)]
    weight_percent: int


class Axis(BaseModel):
    """One axis of the matrix, with its score and components."""

    name: str
    score: Annotated[int, Field(ge=0, le=100)]
    threshold: int
    components: list[Component]

    @property
    def high(self) -> bool:
        """True if the score is at or above the threshold."""
        return self.score >= self.threshold

    def explained(self) -> str:
        """Return the score and its components in one line."""
        parts = ", ".join(f"{c.name} {c.given} → {c.points} × {c.weight_percent} %" for c in self.components)
        return f"{self.name} {self.score} of 100, {'high' if self.high else 'low'} (from {self.threshold}): {parts}"


class Classification(BaseModel):
    """The quadrant of a purchase, with the scores of both axes."""

    quadrant: Quadrant
    supply_risk: Axis
    profit_impact: Axis
    like: str = ""
    """Text of the similar purchase from which the semantic cache took the classification; empty otherwise."""

    def explained(self) -> str:
        """Return the quadrant and one line per axis."""
        taken_over = f", taken over from {self.like!r}" if self.like else ""
        return f"{self.quadrant}{taken_over}\n  {self.supply_risk.explained()}\n  {self.profit_impact.explained()}"


QUADRANTS: dict[tuple[bool, bool], Quadrant] = {
    (False, False): "SPOT",
    (False, True): "LEVERAGE",
    (True, False): "BOTTLENECK",
    (True, True): "STRATEGIC",
}
"""(supply risk is high, profit impact is high) → quadrant."""


def classify(purchase: Purchase) -> Classification:
    """Compute the classification of a purchase. The result depends only on the purchase."""
    rules = purchase.governance
    risk = _axis("supply risk", rules.supply_risk_threshold, _risk(purchase.supply_risk))
    impact = _axis("profit impact", rules.profit_impact_threshold, _impact(purchase.profit_impact))
    return Classification(quadrant=QUADRANTS[risk.high, impact.high], supply_risk=risk, profit_impact=impact)


def _risk(data: SupplyRisk) -> list[Component]:
    suppliers = data.qualified_suppliers
    return [
        _component("qualified suppliers", f"{suppliers}", 100 - 20 * max(0, suppliers - 1), 35),
        _component("lead time", f"{data.lead_time_weeks:g} weeks", data.lead_time_weeks / 26 * 100, 20),
        _component("substitutability", f"{data.substitutability:g}", (1 - data.substitutability) * 100, 25),
        _component("geopolitical exposure", f"{data.geopolitical:g}", data.geopolitical * 100, 20),
    ]


def _impact(data: ProfitImpact) -> list[Component]:
    return [
        _component("share of spend", f"{data.spend_share_percent:g} %", data.spend_share_percent / 20 * 100, 40),
        _component("effect on margin", f"{data.margin_effect_percent:g} %", data.margin_effect_percent / 5 * 100, 30),
        _component("quality criticality", f"{data.quality_criticality:g}", data.quality_criticality * 100, 30),
    ]


def _component(name: str, given: str, points: float, weight_percent: int) -> Component:
    return Component(name=name, given=given, points=round(min(100, max(0, points))), weight_percent=weight_percent)


def _axis(name: str, threshold: int, components: list[Component]) -> Axis:
    assert sum(c.weight_percent for c in components) == 100
    score = round(sum(c.points * c.weight_percent for c in components) / 100)
    return Axis(name=name, score=score, threshold=threshold, components=components)

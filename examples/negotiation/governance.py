"""The rules of a negotiation: rounds, thresholds, approvers, and the weighting of costs.

The figures are those of "Pause for four days, resume in five seconds" (Buyer Team, May 2026).
"""

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from .money import money

LIFESPAN = timedelta(hours=168)
"""A negotiation that is not over by then calls a person (source: REQ-R351, 168 hours)."""
APPROVAL_WITHIN = timedelta(hours=96)
"""So long a person has to decide (source: node 6, 96 hours)."""
SPOT_AT_MOST = timedelta(minutes=5)
"""A spot purchase is negotiated in less (source: node 4a, REQ-G403, under 5 minutes)."""
ROUNDS_AT_MOST = 5
"""Of a leverage auction (source: node 4b, 5 rounds)."""
AUCTION_AT_MOST = timedelta(days=5)
"""A leverage auction is over within five days, whatever its rounds (source: node 4b, 5 days)."""
BOTTLENECK_AT_MOST = timedelta(days=14)
"""All steps of a bottleneck negotiation (source: node 4c, 14 days)."""
BOTTLENECK_CEILING = BOTTLENECK_AT_MOST + APPROVAL_WITHIN + timedelta(days=1)
"""Its tripwire leaves room for the decision, and a day: every bottleneck purchase is approved by a person."""
STRATEGIC_AT_MOST = timedelta(days=28)
"""A strategic purchase as a whole, its approval included; also its tripwire (source: node 4d, 28 days)."""
CYCLES_AT_MOST = 2
"""The first, and the one that a person may ask for (source: a single governed cycle-back)."""
FALL_OUTS_AT_MOST = 2
"""So often another bid is taken in the place of one that fell out after the award was decided."""
DECISIONS_AT_MOST = CYCLES_AT_MOST + FALL_OUTS_AT_MOST
ALIKE_FROM = 0.8
"""Cosine from which two purchases read alike, where the semantic cache is chosen. Ours, not the source's: among the
samples' texts and rewordings of them, the bundled model gave the same items 0.75 to 0.88 and other items 0.66 at most.
Rewordings that share few words fell to 0.5 and are missed. A miss costs nothing; a false hit is the wrong strategy."""

Span = Annotated[timedelta, Field(gt=timedelta())]


class CostRates(BaseModel):
    """Factors from a price to a total cost of ownership, in basis points."""

    model_config = ConfigDict(extra="forbid")

    defect_cost_bp: Annotated[int, Field(ge=0, le=1_000_000)] = 30_000
    """A defective unit costs this part of its price: replacing it, the line that stood, the complaint."""
    carrying_bp_a_year: Annotated[int, Field(ge=0, le=10_000)] = 1_800
    """Safety stock for the days of lead time."""
    capital_bp_a_year: Annotated[int, Field(ge=0, le=10_000)] = 600
    """What a day of payment term is worth."""
    risk_bp: Annotated[int, Field(ge=0, le=10_000)] = 1_500
    """What a risk of 100 adds to the total cost; smaller risks in proportion."""
    shortage_bp: Annotated[int, Field(ge=0, le=1_000_000)] = 20_000
    """A unit that a partial offer leaves out costs this part of its target price: bought elsewhere, in haste."""
    substitute_bp: Annotated[int, Field(ge=0, le=10_000)] = 1_000
    """Qualifying a substitute costs this part of its price."""


class Wishes(BaseModel):
    """Where the buyer begins in a strategic negotiation, and how it moves."""

    model_config = ConfigDict(extra="forbid")

    payment_days: Annotated[int, Field(ge=0, le=365)] = 60
    term_months: Annotated[int, Field(ge=1, le=120)] = 24
    lead_percent: Annotated[int, Field(ge=1, le=100)] = 85
    """Of the lead time a supplier has stated."""
    defect_percent: Annotated[int, Field(ge=1, le=100)] = 60
    """Of the defect rate a supplier has stated."""
    concession_percent: Annotated[int, Field(ge=0, le=100)] = 40
    """Of the way to the supplier's last position the buyer goes with each proposal."""
    agreed_within_bp: Annotated[int, Field(ge=0, le=10_000)] = 100
    """Prices so close are an agreement."""


class Governance(BaseModel):
    """The rules of one negotiation. They are kept with the run: a later change of defaults moves no run in flight."""

    model_config = ConfigDict(extra="forbid")

    rounds: Annotated[int, Field(ge=1, le=ROUNDS_AT_MOST)] = ROUNDS_AT_MOST
    round_length: Span = timedelta(hours=24)
    spot_within: Annotated[timedelta, Field(gt=timedelta(), lt=SPOT_AT_MOST)] = timedelta(minutes=3)
    bottleneck_steps: tuple[Span, Span, Span] = (timedelta(days=6), timedelta(days=4), timedelta(days=4))
    """How long is waited for the whole quantity, for substitutes, for part of the quantity."""
    strategic_rounds: Annotated[int, Field(ge=1, le=8)] = 4
    strategic_round_length: Span = timedelta(days=6)
    wishes: Wishes = Wishes()
    approval_threshold_cents: Annotated[int, Field(ge=0)] = 5_000_000
    """An order of more than this waits for a person."""
    always_approve: list[Literal["SPOT", "LEVERAGE", "BOTTLENECK", "STRATEGIC"]] = ["BOTTLENECK", "STRATEGIC"]
    """Quadrants that wait for a person whatever the amount."""
    approver_role: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,60}$")] = "procurement-lead"
    approval_within: Span = APPROVAL_WITHIN
    payment_days_at_least: Annotated[int, Field(ge=0, le=365)] = 0
    """A bid that gives less credit is not ordered."""
    when_winner_falls_out: Literal["fail", "evaluate"] = "fail"
    """When the award is decided and its supplier will not or cannot have it: end there, or evaluate the others."""
    supply_risk_threshold: Annotated[int, Field(ge=1, le=100)] = 50
    profit_impact_threshold: Annotated[int, Field(ge=1, le=100)] = 50
    cost_rates: CostRates = CostRates()

    @model_validator(mode="after")
    def _fits(self) -> "Governance":
        if self.rounds * self.round_length > AUCTION_AT_MOST:
            raise ValueError(
                f"{self.rounds} rounds of {self.round_length} are longer than an auction's {AUCTION_AT_MOST.days} days"
            )
        steps = sum(self.bottleneck_steps, timedelta())
        if steps > BOTTLENECK_AT_MOST:
            most = BOTTLENECK_AT_MOST.days
            raise ValueError(f"steps of {steps} in all are longer than a bottleneck negotiation's {most} days")
        whole = self.strategic_rounds * self.strategic_round_length + self.approval_within
        if whole > STRATEGIC_AT_MOST:
            raise ValueError(
                f"{self.strategic_rounds} rounds of {self.strategic_round_length} and {self.approval_within} for the "
                f"approval are longer than a strategic purchase's {STRATEGIC_AT_MOST.days} days"
            )
        return self

    def negotiating_time(self, quadrant: str) -> timedelta:
        """How long the negotiation of a quadrant lasts at most, without its approval."""
        match quadrant:
            case "SPOT":
                return self.spot_within
            case "BOTTLENECK":
                return sum(self.bottleneck_steps, timedelta())
            case "STRATEGIC":
                return self.strategic_rounds * self.strategic_round_length
            case _:
                return self.rounds * self.round_length

    def approval_reason(self, quadrant: str, cents: int, cycle: int = 1) -> str | None:
        """Why an order of this size needs a person, or None when it needs none."""
        if quadrant in self.always_approve:
            return f"every {quadrant} purchase is approved by a person"
        if cents > self.approval_threshold_cents:
            return f"{money(cents)} is above the threshold of {money(self.approval_threshold_cents)}"
        if cycle > 1:
            return "a person asked for another round"
        return None

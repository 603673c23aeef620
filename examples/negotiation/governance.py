"""The rules a negotiation is held under: rounds, thresholds, who decides, how costs are weighed."""

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from .money import money

AUCTION_AT_MOST = timedelta(days=5)
"""A leverage auction is over within five days, whatever its rounds."""


class CostRates(BaseModel):
    """What turns a price into a total cost of ownership; rates in basis points."""

    model_config = ConfigDict(extra="forbid")

    defect_cost_bp: Annotated[int, Field(ge=0, le=1_000_000)] = 30_000
    """A defective unit costs this part of its price: replacing it, the line that stood, the complaint."""
    carrying_bp_a_year: Annotated[int, Field(ge=0, le=10_000)] = 1_800
    """Safety stock for the days of lead time."""
    capital_bp_a_year: Annotated[int, Field(ge=0, le=10_000)] = 600
    """What a day of payment term is worth."""
    risk_bp: Annotated[int, Field(ge=0, le=10_000)] = 1_500
    """What a risk of 100 adds to the total cost; smaller risks in proportion."""


class Governance(BaseModel):
    """The rules of one negotiation. They are kept with the run: a later change of defaults moves no run in flight."""

    model_config = ConfigDict(extra="forbid")

    rounds: Annotated[int, Field(ge=1, le=5)] = 5
    round_length: Annotated[timedelta, Field(gt=timedelta())] = timedelta(hours=24)
    approval_threshold_cents: Annotated[int, Field(ge=0)] = 5_000_000
    """An order of more than this waits for a person."""
    always_approve: list[Literal["SPOT", "LEVERAGE", "BOTTLENECK", "STRATEGIC"]] = ["BOTTLENECK", "STRATEGIC"]
    """Quadrants that wait for a person whatever the amount."""
    approver_role: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,60}$")] = "procurement-lead"
    approval_within: Annotated[timedelta, Field(gt=timedelta())] = timedelta(hours=96)
    supply_risk_threshold: Annotated[int, Field(ge=1, le=100)] = 50
    profit_impact_threshold: Annotated[int, Field(ge=1, le=100)] = 50
    cost_rates: CostRates = CostRates()

    @model_validator(mode="after")
    def _fits(self) -> "Governance":
        if self.rounds * self.round_length > AUCTION_AT_MOST:
            raise ValueError(
                f"{self.rounds} rounds of {self.round_length} are longer than an auction's {AUCTION_AT_MOST.days} days"
            )
        return self

    def approval_reason(self, quadrant: str, cents: int) -> str | None:
        """Why an order of this size needs a person, or None when it needs none."""
        if quadrant in self.always_approve:
            return f"every {quadrant} purchase is approved by a person"
        if cents > self.approval_threshold_cents:
            return f"{money(cents)} is above the threshold of {money(self.approval_threshold_cents)}"
        return None

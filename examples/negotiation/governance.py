"""The rules of a negotiation: rounds, thresholds, approver, cost rates.

The limits come from "Pause for four days, resume in five seconds" (Buyer Team, May 2026), and are defined only here.
"""

from datetime import date, datetime, time, timedelta
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from outlast import business_days
from outlast.core.business_days import BusinessDays
from outlast.errors import InvalidInput

from .money import money

LIFESPAN = timedelta(hours=168)
"""Ceiling of a negotiation: after it, the run needs attention (168 hours)."""
APPROVAL_WITHIN = timedelta(hours=96)
"""Time limit of an approval (96 hours)."""
SPOT_AT_MOST = timedelta(minutes=5)
"""Upper bound of a spot negotiation, exclusive (under 5 minutes)."""
ROUNDS_AT_MOST = 5
"""Maximum number of rounds of a leverage auction."""
AUCTION_DAYS_AT_MOST = 5
"""Maximum length of a leverage auction in business days, over all its rounds."""
AUCTION_CEILING = business_days(2 * AUCTION_DAYS_AT_MOST, zone="Europe/Berlin")
"""Ceiling of the auction node. It includes a weekend, which the 168 hours do not, and five days for the approval."""
BOTTLENECK_AT_MOST = timedelta(days=14)
"""Maximum length of a bottleneck negotiation, over all its steps."""
BOTTLENECK_CEILING = BOTTLENECK_AT_MOST + APPROVAL_WITHIN + timedelta(days=1)
"""Ceiling of the bottleneck node. It includes the approval that each bottleneck purchase needs, and one spare day."""
STRATEGIC_AT_MOST = timedelta(days=28)
"""Maximum length of a strategic purchase including its approval. It is also the ceiling of its node."""
CYCLES_AT_MOST = 2
"""Maximum number of cycles: the first one, and one that the approver may ask for."""
FALL_OUTS_AT_MOST = 2
"""Number of times that another bid may replace one that was dropped after the award was decided."""
DECISIONS_AT_MOST = CYCLES_AT_MOST + FALL_OUTS_AT_MOST
ALIKE_FROM = 0.8
"""Cosine from which the semantic cache treats two purchases as similar. Measured with the bundled model on the samples
and rewordings of them: the same items gave 0.75 to 0.88, other items 0.66 at most. Rewordings with few common words
fell to 0.5 and are missed. A miss costs nothing, but a false hit selects the wrong strategy."""

Span = Annotated[timedelta, Field(gt=timedelta())]
BasisPoints = Annotated[int, Field(ge=0, le=10_000)]
"""A part of a whole, at most all of it."""
CostBasisPoints = Annotated[int, Field(ge=0, le=1_000_000)]
"""A cost relative to a price, at most a hundred times it."""
Percent = Annotated[int, Field(ge=0, le=100)]
PercentOfTheirs = Annotated[int, Field(ge=1, le=1_000)]
"""A limit relative to a figure that the supplier states."""
RequestedPercent = Annotated[int, Field(ge=1, le=100)]
"""A request relative to a figure that the supplier states. It is not worse than that."""
PaymentDays = Annotated[int, Field(ge=0, le=365)]


class CostRates(BaseModel):
    """Rates for the total cost of ownership, in basis points."""

    model_config = ConfigDict(extra="forbid")

    defect_cost_bp: CostBasisPoints = 30_000
    """Cost of a defective unit relative to its price: replacement, stopped production, complaint."""
    carrying_bp_a_year: BasisPoints = 1_800
    """Yearly cost of safety stock for the lead time, relative to the goods."""
    capital_bp_a_year: BasisPoints = 600
    """Yearly interest that a payment term saves."""
    risk_bp: BasisPoints = 1_500
    """Surcharge on the total cost for a risk of 100. Smaller risks add a proportional part."""
    shortage_bp: CostBasisPoints = 20_000
    """Cost of a missing unit of a partial offer relative to its target price, because it is bought elsewhere."""
    substitute_bp: BasisPoints = 1_000
    """Cost to qualify a substitute, relative to its price."""


class Wishes(BaseModel):
    """Opening position of the buyer in a strategic negotiation, and its concessions."""

    model_config = ConfigDict(extra="forbid")

    payment_days: PaymentDays = 60
    term_months: Annotated[int, Field(ge=1, le=120)] = 24
    lead_percent: RequestedPercent = 85
    """Requested lead time relative to the supplier's stated one."""
    defect_percent: RequestedPercent = 60
    """Requested defect rate relative to the supplier's stated one."""
    concession_percent: Percent = 40
    """Part of the distance to the supplier's last position by which each proposal moves."""
    agreed_within_bp: BasisPoints = 100
    """Largest price difference that counts as an agreement."""


class WalkAway(BaseModel):
    """The worst terms that a position of the buyer may have. They bound formulas and agents."""

    model_config = ConfigDict(extra="forbid")

    price_percent: Annotated[int, Field(ge=100, le=1_000)] = 115
    """Relative to the sum of the target prices."""
    payment_days: PaymentDays = 0
    lead_percent: PercentOfTheirs = 150
    """Relative to the supplier's stated lead time."""
    defect_percent: PercentOfTheirs = 200
    """Relative to the supplier's stated defect rate."""
    term_months: Annotated[int, Field(ge=0, le=120)] = 0


class Calendar(BaseModel):
    """The business days of the buyer. They are part of the purchase, so they do not change while it is negotiated."""

    model_config = ConfigDict(extra="forbid")

    zone: Annotated[str, Field(min_length=1, max_length=64)] = "Europe/Berlin"
    holidays: Annotated[list[date], Field(max_length=400)] = []

    @field_validator("zone")
    @classmethod
    def _known(cls, zone: str) -> str:
        try:
            business_days(1, zone=zone)
        except InvalidInput as error:
            raise ValueError(str(error)) from None
        return zone

    def days(self, n: int) -> BusinessDays:
        """Return the term of `n` business days."""
        return business_days(n, zone=self.zone, holidays=self.holidays)


class Governance(BaseModel):
    """The rules of one negotiation. The run stores them, so a change of defaults does not affect active runs."""

    model_config = ConfigDict(extra="forbid")

    rounds: Annotated[int, Field(ge=1, le=ROUNDS_AT_MOST)] = ROUNDS_AT_MOST
    round_days: Annotated[int, Field(ge=1, le=AUCTION_DAYS_AT_MOST)] = 1
    """Length of a round of the auction in business days."""
    calendar: Calendar = Calendar()
    converged_within_bp: BasisPoints = 10
    """Largest change of a price, in basis points, that is no move. An auction ends if no bid moves."""
    spot_within: Annotated[timedelta, Field(gt=timedelta(), lt=SPOT_AT_MOST)] = timedelta(minutes=3)
    bottleneck_steps: tuple[Span, Span, Span] = (timedelta(days=6), timedelta(days=4), timedelta(days=4))
    """Time to wait for the full quantity, for substitutes, and for a partial quantity."""
    strategic_rounds: Annotated[int, Field(ge=1, le=8)] = 4
    strategic_round_length: Span = timedelta(days=6)
    wishes: Wishes = Wishes()
    negotiated_by: Literal["formulas", "agents"] = "formulas"
    """Author of positions and moves in the auction and in a strategic negotiation."""
    step_percent: Percent = 60
    """Largest part of the distance to the supplier's last position by which a position may move."""
    walk_away: WalkAway = WalkAway()
    end_within_bp: BasisPoints = 100
    """An agent may end an auction if no price moved by more."""
    leave_out_percent: Annotated[int, Field(ge=0, le=1_000)] = 15
    """An agent may leave out a supplier whose price is higher than the best by more."""
    approval_threshold_cents: Annotated[int, Field(ge=0)] = 5_000_000
    """An order above this amount needs an approval."""
    always_approve: list[Literal["SPOT", "LEVERAGE", "BOTTLENECK", "STRATEGIC"]] = ["BOTTLENECK", "STRATEGIC"]
    """Quadrants that always need an approval."""
    approver_role: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,60}$")] = "procurement-lead"
    approval_within: Span = APPROVAL_WITHIN
    payment_days_at_least: PaymentDays = 0
    """Shortest payment term of a bid that can be ordered."""
    when_winner_falls_out: Literal["fail", "evaluate"] = "fail"
    """Action if the chosen supplier cannot or will not take the order: fail, or evaluate the other bids."""
    supply_risk_threshold: Annotated[int, Field(ge=1, le=100)] = 50
    profit_impact_threshold: Annotated[int, Field(ge=1, le=100)] = 50
    cost_rates: CostRates = CostRates()

    @model_validator(mode="after")
    def _fits(self) -> "Governance":
        if self.rounds * self.round_days > AUCTION_DAYS_AT_MOST:
            raise ValueError(
                f"{self.rounds} rounds of {self.round_days} business days are longer than an auction's "
                f"{AUCTION_DAYS_AT_MOST} business days"
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
        """Return the longest duration of a negotiation by hours, without its approval. An auction has business days."""
        match quadrant:
            case "SPOT":
                return self.spot_within
            case "BOTTLENECK":
                return sum(self.bottleneck_steps, timedelta())
            case "STRATEGIC":
                return self.strategic_rounds * self.strategic_round_length
            case _:
                raise ValueError(f"a {quadrant} negotiation has no length in hours")

    def ordered_on(self, quadrant: str, day: date) -> date:
        """Return the latest day of the order, without the approval, if the negotiation begins on a day."""
        if quadrant != "LEVERAGE":
            return day - (-self.negotiating_time(quadrant) // timedelta(days=1)) * timedelta(days=1)
        noon = datetime.combine(day, time(12), tzinfo=ZoneInfo(self.calendar.zone))
        return self.calendar.days(self.rounds * self.round_days).ends(noon).date()

    def approval_reason(self, quadrant: str, cents: int, cycle: int = 1) -> str | None:
        """Return the reason why an order of this size needs an approval, or None if it needs no approval."""
        if quadrant in self.always_approve:
            return f"every {quadrant} purchase is approved by a person"
        if cents > self.approval_threshold_cents:
            return f"{money(cents)} is above the threshold of {money(self.approval_threshold_cents)}"
        if cycle > 1:
            return "a person asked for another round"
        return None

"""Bodies of the requests between buyer and suppliers."""

from datetime import date, datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Short = Annotated[str, Field(min_length=1, max_length=200)]
Positive = Annotated[int, Field(gt=0, le=10**13)]
Days = Annotated[int, Field(ge=0, le=3650)]
Turn = Annotated[int, Field(ge=1, le=99)]


class Line(BaseModel):
    """One item asked for; the buyer's target price stays with the buyer."""

    sku: str
    quantity: int
    unit: str


class Ask(BaseModel):
    """Questions of one round to every supplier."""

    reference: str
    category: str
    currency: str
    lines: list[Line]
    need_by: date
    cycle: Turn
    round: Turn
    rounds: Turn
    closes_at: datetime


class Invitation(Ask):
    """An invitation to bid: the ask, for which negotiation, and where the bid goes."""

    run_id: str
    answer_to: str


Wanted = Literal["full", "substitutes", "partial"]
"""What a step of a bottleneck negotiation asks for: what the document says · the like · what there is."""


class Inquiry(Invitation):
    """An invitation by a buyer with little choice: it says what would still help."""

    wanted: Wanted


class Terms(BaseModel):
    """Subject of a strategic negotiation."""

    cents: Positive
    payment_days: Days
    lead_days: Days
    defect_ppm: Annotated[int, Field(ge=0, le=1_000_000)]
    term_months: Annotated[int, Field(ge=0, le=240)]


class Proposal(Invitation):
    """The buyer's position in one round; the supplier answers with its own, as a bid."""

    terms: Terms


class Bid(BaseModel):
    """A supplier's offer for the whole purchase. Its id is the supplier's, and is what it is known by ever after."""

    model_config = ConfigDict(extra="forbid")

    bid_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,80}$")]
    supplier_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,60}$")]
    cycle: Turn
    round: Turn
    cents: Positive
    """The goods, all lines."""
    freight_cents: Annotated[int, Field(ge=0, le=10**13)]
    lead_days: Days
    payment_days: Days
    covers: dict[str, Annotated[int, Field(ge=0, le=10**9)]] = {}
    """Units of each item, where it is an offer for less than was asked; empty: all of it."""
    substitutes: dict[str, Short] = {}
    """Items asked for, and what would be delivered in their place."""
    defect_ppm: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """The quality promised; None: nothing beyond what is known of the supplier."""
    term_months: Annotated[int, Field(ge=0, le=240)] = 0
    """How long the supplier is bound to these terms."""


class Feedback(BaseModel):
    """Feedback to a supplier after a round."""

    run_id: str
    cycle: Turn
    round: Turn
    best_cents: Positive
    rank: Annotated[int, Field(ge=0)]
    """Its place among the bidders, 1 the best; 0 when it has no bid."""
    bidders: int


class OrderForm(BaseModel):
    """A purchase order: the bid it accepts and what will be paid."""

    run_id: str
    reference: str
    bid_id: str
    cents: Positive


class Message(BaseModel):
    """A letter in words."""

    run_id: str
    subject: Literal["award", "regret"]
    text: Annotated[str, Field(min_length=1, max_length=2000)]


class Cancellation(BaseModel):
    """Takes an order back."""

    run_id: str
    order_id: str


class Receipt(BaseModel):
    """The supplier's word that it has taken something in."""

    message_id: Short


class Order(BaseModel):
    """The supplier's word that it will deliver."""

    order_id: Short


def bid_signal(cycle: int, round_number: int) -> str:
    """The name under which the bids of one round reach the run."""
    return f"bid.{cycle}.{round_number}"

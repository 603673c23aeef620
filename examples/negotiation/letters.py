"""Request and response bodies between buyer and suppliers."""

from datetime import date, datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Short = Annotated[str, Field(min_length=1, max_length=200)]
Positive = Annotated[int, Field(gt=0, le=10**13)]
Days = Annotated[int, Field(ge=0, le=3650)]
Turn = Annotated[int, Field(ge=1, le=99)]


class Line(BaseModel):
    """One requested item, without the buyer's target price."""

    sku: str
    quantity: int
    unit: str


class Ask(BaseModel):
    """The request of one round, equal for all suppliers."""

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
    """An invitation to bid, with the run and the address for the bid."""

    run_id: str
    answer_to: str


Wanted = Literal["full", "substitutes", "partial"]
"""Request of a step of a bottleneck negotiation: the full quantity, with substitutes, or a partial quantity."""


class Inquiry(Invitation):
    """An invitation of the bottleneck route: it says which offers are acceptable."""

    wanted: Wanted


class Terms(BaseModel):
    """The terms of a strategic negotiation."""

    cents: Positive
    payment_days: Days
    lead_days: Days
    defect_ppm: Annotated[int, Field(ge=0, le=1_000_000)]
    term_months: Annotated[int, Field(ge=0, le=240)]


class Proposal(Invitation):
    """The buyer's position in one round. The supplier answers with its own position, as a bid."""

    terms: Terms


class Bid(BaseModel):
    """A supplier's offer for the whole purchase. The supplier chooses its id."""

    model_config = ConfigDict(extra="forbid")

    bid_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,80}$")]
    supplier_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,60}$")]
    cycle: Turn
    round: Turn
    cents: Positive
    """Price of the goods of all lines."""
    freight_cents: Annotated[int, Field(ge=0, le=10**13)]
    lead_days: Days
    payment_days: Days
    covers: dict[str, Annotated[int, Field(ge=0, le=10**9)]] = {}
    """Units of each item in a partial offer; empty: the full quantity."""
    substitutes: dict[str, Short] = {}
    """Requested item → item delivered instead."""
    defect_ppm: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """Promised defect rate; None: the supplier's known rate applies."""
    term_months: Annotated[int, Field(ge=0, le=240)] = 0
    """Number of months for which the supplier keeps these terms."""
    note: Annotated[str, Field(max_length=1_000)] = ""
    """Words of the supplier. Only a model reads them."""


class Feedback(BaseModel):
    """Feedback to a supplier after a round has closed, the last one too."""

    run_id: str
    cycle: Turn
    round: Turn
    best_cents: Annotated[int, Field(ge=0, le=10**13)]
    """Best price of the goods; 0 if no bid is open."""
    rank: Annotated[int, Field(ge=0)]
    """Rank among the bidders, 1 is the best; 0 without a bid."""
    bidders: int
    target_cents: Annotated[int, Field(ge=0, le=10**13)] = 0
    """Price that the buyer asks of this supplier; 0: none."""


class OrderForm(BaseModel):
    """A purchase order: the accepted bid and its price."""

    run_id: str
    reference: str
    bid_id: str
    cents: Positive


class Message(BaseModel):
    """A letter about the result."""

    run_id: str
    subject: Literal["award", "regret"]
    text: Annotated[str, Field(min_length=1, max_length=2000)]


class Cancellation(BaseModel):
    """The cancellation of an order."""

    run_id: str
    order_id: str


class Receipt(BaseModel):
    """A supplier's confirmation that it has accepted a request."""

    message_id: Short


class Order(BaseModel):
    """A supplier's confirmation of an order."""

    order_id: Short


def bid_signal(cycle: int, round_number: int) -> str:
    """Return the signal name for the bids of one round."""
    return f"bid.{cycle}.{round_number}"

"""The state of a negotiation: small, with references instead of copies."""

from typing import Literal

from pydantic import BaseModel

from .kraljic import Quadrant
from .letters import Bid, Terms, Wanted
from .purchase import Purchase
from .routing import Discarded


class HeldBid(Bid):
    """A bid as the buyer holds it. Only OPEN bids are ever evaluated; a supplier has at most one.

    SUPERSEDED: by its supplier's newer one, or by a person who asked for another round · UNFIT: it cannot be ordered
    as offered · WITHDRAWN: by its supplier.
    """

    status: Literal["OPEN", "SUPERSEDED", "UNFIT", "WITHDRAWN"] = "OPEN"


class ScoreLine(BaseModel):
    """Stored part of a score; the rest is derived from bid, candidate and rules."""

    bid_id: str
    supplier_id: str
    total_cents: int
    weighed_cents: int
    points: int


class StepAnswer(BaseModel):
    """A supplier's no to one step of a bottleneck negotiation; it is asked again in the next."""

    supplier_id: str
    wanted: Wanted
    detail: str


class Bottleneck(BaseModel):
    """State of the bottleneck route."""

    steps_held: list[Wanted] = []
    answers: list[StepAnswer] = []


class Strategic(BaseModel):
    """State of the strategic route."""

    proposed: dict[str, Terms] = {}
    """The buyer's last position towards each supplier."""
    agreed: dict[str, int] = {}
    """Suppliers with whom the buyer came to terms, and in which round."""


class AnotherRound(BaseModel):
    """A person's wish to go round once more."""

    by: str
    reason: str


class Negotiation(BaseModel):
    """The state of a run."""

    purchase: Purchase
    quadrant: Quadrant | None = None
    why_quadrant: str = ""
    suppliers: list[str] = []
    """Those the delivery gate let through, in the purchase's order."""
    discarded: list[Discarded] = []
    cycle: int = 1
    another_round: AnotherRound | None = None
    """Who asked for the second cycle, and why."""
    bottleneck: Bottleneck | None = None
    strategic: Strategic | None = None
    rounds_held: int = 0
    declined: dict[str, str] = {}
    """Suppliers that left the auction, and what they said."""
    bids: list[HeldBid] = []
    why_nothing: str = ""
    """Why no bid stands; the run fails with it in the next node, so that what was heard is kept."""
    scores: list[ScoreLine] = []
    winner: str = ""
    """The id of the bid to be ordered."""
    why_winner: str = ""
    approved_by: str = ""
    chosen_by: str = ""
    """Who chose this bid, where it was not the evaluation."""
    fallen: dict[str, str] = {}
    """Bids that could not be ordered, and why."""
    fall_outs: int = 0
    """How often that was found after the award was decided."""
    advice: list[str] = []
    order_id: str = ""
    unreached: dict[str, str] = {}
    """Suppliers whose last letter was refused, and why."""

    def active(self) -> list[str]:
        """The suppliers still in the auction."""
        return [supplier for supplier in self.suppliers if supplier not in self.declined]

    def standing(self) -> list[HeldBid]:
        """The bids that may be evaluated."""
        return [bid for bid in self.bids if bid.status == "OPEN"]

    def bid(self, bid_id: str) -> HeldBid:
        """Return the bid of an id. Raises KeyError."""
        for bid in self.bids:
            if bid.bid_id == bid_id:
                return bid
        raise KeyError(bid_id)

    def drop(self, bid_id: str, status: Literal["UNFIT", "WITHDRAWN"], why: str) -> None:
        """Takes a bid out of the evaluation for good."""
        self.bid(bid_id).status = status
        self.fallen[bid_id] = why

    def go_round_again(self, by: str, reason: str) -> None:
        """Opens the next cycle. The bids of this one are superseded, whatever became of them before."""
        for bid in self.bids:
            if bid.cycle <= self.cycle:
                bid.status = "SUPERSEDED"
        self.cycle += 1
        self.another_round = AnotherRound(by=by, reason=reason)
        self.rounds_held, self.scores, self.winner, self.why_winner = 0, [], "", ""
        self.bottleneck = self.strategic = None

    def take_in(self, bids: list[Bid], round_number: int) -> None:
        """Add the bids of a round. A newer bid supersedes the supplier's older one; uninvited suppliers are ignored.

        The outcome does not depend on the order in which bids came in: of two bids of one supplier in a round, the
        one with the greater id counts.
        """
        asked = self.active()
        for bid in sorted(bids, key=lambda b: (b.supplier_id, b.bid_id)):
            if bid.supplier_id not in asked or (bid.cycle, bid.round) != (self.cycle, round_number):
                continue
            for older in self.standing():
                if older.supplier_id == bid.supplier_id:
                    older.status = "SUPERSEDED"
            self.bids.append(HeldBid(**bid.model_dump()))


class Outcome(BaseModel):
    """Result of a negotiation."""

    reference: str
    quadrant: str
    supplier_id: str
    bid_id: str
    cents: int
    total_cents: int
    """Total cost of ownership."""
    order_id: str
    cycle: int
    approved_by: str
    chosen_by: str
    """`evaluation`, or the person who chose another bid than the best."""
    why: str
    missing: dict[str, int]
    """Units of each item that were asked for and are not in this order."""
    substitutes: dict[str, str]
    advice: list[str]


def outcome(s: Negotiation) -> Outcome | None:
    """The award; None while there is no order."""
    if not s.order_id:
        return None
    bid = s.bid(s.winner)
    return Outcome(
        reference=s.purchase.reference,
        quadrant=s.quadrant or "",
        supplier_id=bid.supplier_id,
        bid_id=bid.bid_id,
        cents=bid.cents,
        total_cents=next(line.total_cents for line in s.scores if line.bid_id == s.winner),
        order_id=s.order_id,
        cycle=s.cycle,
        approved_by=s.approved_by,
        chosen_by=s.chosen_by or "evaluation",
        why=s.why_winner,
        missing=missing(s.purchase, bid),
        substitutes=bid.substitutes,
        advice=s.advice,
    )


def missing(purchase: Purchase, bid: Bid) -> dict[str, int]:
    """Return the requested items that a bid leaves out."""
    if not bid.covers:
        return {}
    left = {item.sku: item.quantity - bid.covers.get(item.sku, 0) for item in purchase.items}
    return {sku: units for sku, units in left.items() if units > 0}

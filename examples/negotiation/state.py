"""State and outcome of a negotiation. The state is small: it names rows by id where it can."""

from typing import Literal

from pydantic import BaseModel

from .kraljic import Quadrant
from .letters import Bid, Terms, Wanted
from .purchase import Purchase
from .routing import Discarded


class HeldBid(Bid):
    """A bid with its status. Only OPEN bids are evaluated, and a supplier has at most one.

    SUPERSEDED: replaced by a newer bid of its supplier, or by an approver's request for another round. UNFIT: it
    cannot be ordered on these terms. WITHDRAWN: its supplier does not keep it.
    """

    status: Literal["OPEN", "SUPERSEDED", "UNFIT", "WITHDRAWN"] = "OPEN"


class ScoreLine(BaseModel):
    """The stored part of a score. Its parts are computed again from bid, candidate and rules."""

    bid_id: str
    supplier_id: str
    total_cents: int
    weighed_cents: int
    points: int


class StepAnswer(BaseModel):
    """A supplier's refusal of one step of a bottleneck negotiation. The supplier is asked again in the next step."""

    supplier_id: str
    wanted: Wanted
    detail: str


class Bottleneck(BaseModel):
    """State of the bottleneck route."""

    steps_held: list[Wanted] = []
    answers: list[StepAnswer] = []


class Auction(BaseModel):
    """State of the auction."""

    converged_in: int = 0
    """Round after which no bid moved any more; 0: the rounds were used up, or no supplier was left to ask."""
    targets: dict[str, int] = {}
    """Price that an agent asked of each supplier after the last round."""


class Award(BaseModel):
    """The order that the evaluation proposes or a person chose, and the status of its approval."""

    bid_id: str
    why: str
    approval_status: Literal["NOT_NEEDED", "PENDING_HUMAN", "APPROVED", "REJECTED"]
    decided_by: str = ""
    reason: str = ""
    """Reason of the decision."""
    is_choice: bool = False
    """True if the approver chose this bid instead of the best one."""
    order_id: str = ""


class Strategic(BaseModel):
    """State of the strategic route."""

    proposed: dict[str, Terms] = {}
    """The buyer's last position towards each supplier."""
    next_proposed: dict[str, Terms] = {}
    """Position that an agent chose for the next round."""
    agreed: dict[str, int] = {}
    """Suppliers that reached an agreement, with the round."""


class AnotherRound(BaseModel):
    """An approver's request for another round."""

    by: str
    reason: str


class Negotiation(BaseModel):
    """The state of a run."""

    purchase: Purchase
    quadrant: Quadrant | None = None
    why_quadrant: str = ""
    suppliers: list[str] = []
    """Suppliers that passed the delivery gate, in the order of the purchase."""
    discarded: list[Discarded] = []
    cycle: int = 1
    another_round: AnotherRound | None = None
    """The request that opened the second cycle."""
    auction: Auction | None = None
    bottleneck: Bottleneck | None = None
    strategic: Strategic | None = None
    rounds_held: int = 0
    declined: dict[str, str] = {}
    """Suppliers that left the negotiation, with their reasons."""
    final: dict[str, int] = {}
    """Suppliers whose note says that their bid is final, with the round. They are not asked again in this cycle."""
    overruled: list[str] = []
    """Proposals of agents against the limits, with the objection. The formula decided instead."""
    bids: list[HeldBid] = []
    why_nothing: str = ""
    """Reason why no bid is open. The next node fails the run with it, so that the state of this node is kept."""
    scores: list[ScoreLine] = []
    award: Award | None = None
    fallen: dict[str, str] = {}
    """Bids that could not be ordered, with the reasons."""
    fall_outs: int = 0
    """Number of bids dropped after the award was decided."""
    advice: list[str] = []
    unreached: dict[str, str] = {}
    """Suppliers whose last letter was refused, with the reasons."""

    @property
    def winner(self) -> str:
        """The id of the bid to be ordered; empty before the evaluation."""
        return self.award.bid_id if self.award else ""

    @property
    def why_winner(self) -> str:
        """The reason why this bid is to be ordered."""
        return self.award.why if self.award else ""

    @property
    def approved_by(self) -> str:
        """The approver of the order; empty if none was needed."""
        return self.award.decided_by if self.award and self.award.approval_status == "APPROVED" else ""

    @property
    def chosen_by(self) -> str:
        """The approver who chose this bid instead of the best one; empty otherwise."""
        return self.approved_by if self.award and self.award.is_choice else ""

    @property
    def order_id(self) -> str:
        """The number of the order; empty before it is placed."""
        return self.award.order_id if self.award else ""

    def active(self) -> list[str]:
        """Return the suppliers that have not declined."""
        return [supplier for supplier in self.suppliers if supplier not in self.declined]

    def open_bids(self) -> list[HeldBid]:
        """Return the bids that may be evaluated."""
        return [bid for bid in self.bids if bid.status == "OPEN"]

    def bid(self, bid_id: str) -> HeldBid:
        """Return the bid with this id. Raises KeyError for an unknown id."""
        for bid in self.bids:
            if bid.bid_id == bid_id:
                return bid
        raise KeyError(bid_id)

    def drop(self, bid_id: str, status: Literal["UNFIT", "WITHDRAWN"], why: str) -> None:
        """Exclude a bid from every later evaluation."""
        self.bid(bid_id).status = status
        self.fallen[bid_id] = why

    def go_round_again(self, by: str, reason: str) -> None:
        """Open the next cycle. All bids of this cycle are superseded, whatever their status."""
        for bid in self.bids:
            if bid.cycle <= self.cycle:
                bid.status = "SUPERSEDED"
        self.cycle += 1
        self.another_round = AnotherRound(by=by, reason=reason)
        self.rounds_held, self.scores, self.award, self.final = 0, [], None, {}
        self.auction = self.bottleneck = self.strategic = None

    def take_in(self, bids: list[Bid], round_number: int) -> None:
        """Add the bids of a round. A newer bid supersedes the older one of its supplier.

        Bids of suppliers that were not asked are ignored. The result does not depend on the order of arrival: of two
        bids of one supplier in a round, the one with the greater id is kept open.
        """
        asked = self.active()
        for bid in sorted(bids, key=lambda b: (b.supplier_id, b.bid_id)):
            if bid.supplier_id not in asked or (bid.cycle, bid.round) != (self.cycle, round_number):
                continue
            for older in self.open_bids():
                if older.supplier_id == bid.supplier_id:
                    older.status = "SUPERSEDED"
            self.bids.append(HeldBid(**bid.model_dump()))


class Outcome(BaseModel):
    """Outcome of a negotiation that placed an order."""

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
    """`evaluation`, or the approver who chose another bid than the best."""
    why: str
    missing: dict[str, int]
    """Units of each requested item that are not in this order."""
    substitutes: dict[str, str]
    advice: list[str]


def outcome(s: Negotiation) -> Outcome | None:
    """Return the outcome, or None if no order was placed."""
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
    """Return the units of each item that a bid leaves out."""
    if not bid.covers:
        return {}
    left = {item.sku: item.quantity - bid.covers.get(item.sku, 0) for item in purchase.items}
    return {sku: units for sku, units in left.items() if units > 0}

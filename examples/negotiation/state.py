"""What a negotiation remembers from node to node: small, and pointers wherever a pointer will do."""

from typing import Literal

from pydantic import BaseModel

from .kraljic import Quadrant
from .letters import Bid
from .purchase import Purchase
from .routing import Discarded


class HeldBid(Bid):
    """A bid as the buyer holds it. Only OPEN bids are ever evaluated; a supplier has at most one."""

    status: Literal["OPEN", "SUPERSEDED"] = "OPEN"


class ScoreLine(BaseModel):
    """What is kept of a score; the parts follow from bid, candidate and rules, and are not kept."""

    bid_id: str
    supplier_id: str
    total_cents: int
    weighed_cents: int
    points: int


class Negotiation(BaseModel):
    """The state of a run."""

    purchase: Purchase
    quadrant: Quadrant | None = None
    why_quadrant: str = ""
    suppliers: list[str] = []
    """Those the delivery gate let through, in the purchase's order."""
    discarded: list[Discarded] = []
    cycle: int = 1
    rounds_held: int = 0
    declined: dict[str, str] = {}
    """Suppliers that left the auction, and what they said."""
    bids: list[HeldBid] = []
    scores: list[ScoreLine] = []
    winner: str = ""
    """The id of the bid to be ordered."""
    why_winner: str = ""
    approved_by: str = ""
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
        """The bid of this id; KeyError when there is none."""
        for bid in self.bids:
            if bid.bid_id == bid_id:
                return bid
        raise KeyError(bid_id)

    def take_in(self, bids: list[Bid], round_number: int) -> None:
        """Adds the bids of a round. A supplier's newer bid supersedes its older one; who was not asked has no bid.

        The outcome does not depend on the order in which bids came in: of two bids of one supplier in a round, the
        one with the greater id stands.
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
    """What a negotiation returns."""

    reference: str
    supplier_id: str
    bid_id: str
    cents: int
    order_id: str
    approved_by: str
    why: str


def outcome(s: Negotiation) -> Outcome | None:
    """The award; None while there is no order."""
    if not s.order_id:
        return None
    bid = s.bid(s.winner)
    return Outcome(
        reference=s.purchase.reference,
        supplier_id=bid.supplier_id,
        bid_id=bid.bid_id,
        cents=bid.cents,
        order_id=s.order_id,
        approved_by=s.approved_by,
        why=s.why_winner,
    )

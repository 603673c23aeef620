"""The workflow without its nodes, so that each route can be a separate module, and helpers that the routes share."""

from datetime import datetime

from outlast import Context, Refusal, Workflow
from outlast.core.business_days import BusinessDays

from .governance import LIFESPAN
from .letters import Ask, Bid, Line, Receipt, bid_signal
from .purchase import Opening, start_key
from .state import Negotiation, outcome

UNREACHABLE = "retries_exhausted"
"""Refusal code of a supplier that did not answer. It did not decline, so it is asked again in the next round."""

negotiation = Workflow(
    "negotiation", state=Negotiation, input=Opening, outcome=outcome, version=1, ceiling=LIFESPAN, key=start_key
)


def ask_for(s: Negotiation, round_number: int, rounds: int, closes_at: datetime) -> Ask:
    """Return the request of one round, without the buyer's target prices."""
    return Ask(
        reference=s.purchase.reference,
        category=s.purchase.category,
        currency=s.purchase.currency,
        lines=[Line(sku=item.sku, quantity=item.quantity, unit=item.unit) for item in s.purchase.items],
        need_by=s.purchase.need_by,
        cycle=s.cycle,
        round=round_number,
        rounds=rounds,
        closes_at=closes_at,
    )


def mailbox(s: Negotiation, supplier_id: str) -> str:
    """Return the base address of a supplier's mailbox."""
    return s.purchase.candidate(supplier_id).mailbox


def declines(asked: dict[str, Receipt | Refusal]) -> dict[str, str]:
    """Return the reasons of the suppliers that declined. A supplier that did not answer is not among them."""
    noes = {supplier: said for supplier, said in asked.items() if isinstance(said, Refusal)}
    return {supplier: no.detail for supplier, no in noes.items() if no.code != UNREACHABLE}


async def take_in_answers(
    ctx: Context[Negotiation], round_number: int, asked: dict[str, Receipt | Refusal], until: datetime | BusinessDays
) -> list[str]:
    """Collect bids until the round closes or each reached supplier has bid. Return the reached suppliers."""
    s = ctx.state
    reached = [supplier for supplier in s.active() if isinstance(asked.get(supplier), Receipt)]
    bids = await ctx.collect(bid_signal(s.cycle, round_number), Bid, until=until, limit=max(1, len(reached)))
    s.take_in(bids, round_number)
    s.rounds_held = round_number
    return reached

"""Node 4b, leverage: an auction of up to five rounds."""

from typing import Literal

from outlast import Context

from ..course import ask_for, declines, mailbox, negotiation, take_in_answers
from ..governance import CYCLES_AT_MOST
from ..letters import Feedback
from ..state import Negotiation
from ..suppliers import invite, send_feedback


@negotiation.node(status="NEGOTIATING", max_visits=CYCLES_AT_MOST)
async def auction(ctx: Context[Negotiation]) -> Literal["evaluate"]:
    """Node 4b. In each round, invite all suppliers, collect bids until it closes, and send each supplier its rank.

    The keys of invitations and feedback consist of supplier and round. A re-run after a crash finds the earlier calls
    in the ledger and continues in the current round.
    """
    s, rules = ctx.state, ctx.state.purchase.governance
    for n in range(1, rules.rounds + 1):
        ask = ask_for(s, n, rules.rounds, ctx.entered_at + n * rules.round_length)
        asked = await ctx.do_all(
            {sup: invite.plan(sup, n, mailbox(s, sup), ask) for sup in s.active()}, refused="return"
        )
        s.declined |= declines(asked)
        if not s.active():
            break
        reached = await take_in_answers(ctx, n, asked, ask.closes_at)  # unreached suppliers are asked in the next round
        if n < rules.rounds and s.open_bids():
            letters = feedback(s, reached, n, ctx.run_id)
            plans = {sup: send_feedback.plan(sup, n, mailbox(s, sup), letters[sup]) for sup in reached}
            await ctx.do_all(plans, refused="return")
    if not s.open_bids():
        who = ", ".join(s.declined) or "none"
        s.why_nothing = f"no bid in {s.rounds_held} rounds from {len(s.suppliers)} suppliers; declined: {who}"
    return "evaluate"


def feedback(s: Negotiation, suppliers: list[str], round_number: int, run_id: str) -> dict[str, Feedback]:
    """Return the feedback to each supplier: the best price for the goods, and the supplier's rank."""
    in_order = sorted(s.open_bids(), key=lambda bid: (bid.cents, bid.supplier_id))
    places = {bid.supplier_id: place for place, bid in enumerate(in_order, start=1)}
    return {
        supplier: Feedback(
            run_id=run_id,
            cycle=s.cycle,
            round=round_number,
            best_cents=in_order[0].cents,
            rank=places.get(supplier, 0),
            bidders=len(in_order),
        )
        for supplier in suppliers
    }

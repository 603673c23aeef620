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
    """Hold up to five rounds: invite all, collect bids until the round closes, send feedback (node 4b).

    Every invitation and every feedback has a key of supplier and round, so a re-run after a crash finds the sent ones
    in the ledger and continues in its round.
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
        reached = await take_in_answers(ctx, n, asked, ask.closes_at)  # the others sit this round out
        if n < rules.rounds and s.standing():
            told = standings(s, reached, n, ctx.run_id)
            feedback = {sup: send_feedback.plan(sup, n, mailbox(s, sup), told[sup]) for sup in reached}
            await ctx.do_all(feedback, refused="return")
    if not s.standing():
        who = ", ".join(s.declined) or "none"
        s.why_nothing = f"no bid in {s.rounds_held} rounds from {len(s.suppliers)} suppliers; declined: {who}"
    return "evaluate"


def standings(s: Negotiation, suppliers: list[str], round_number: int, run_id: str) -> dict[str, Feedback]:
    """Return the feedback to each supplier after a round: the best price and its own rank."""
    in_order = sorted(s.standing(), key=lambda bid: (bid.cents, bid.supplier_id))
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

"""Node 4b, leverage: an auction of up to five rounds within five business days."""

from typing import Literal

from outlast import Context

from ..course import ask_for, declines, mailbox, negotiation, take_in_answers
from ..governance import AUCTION_CEILING, CYCLES_AT_MOST
from ..negotiators import next_asked, take_positions
from ..rounds import converged, feedback
from ..state import Auction, Negotiation
from ..suppliers import invite, send_feedback


@negotiation.node(status="NEGOTIATING", max_visits=CYCLES_AT_MOST, ceiling=AUCTION_CEILING)
async def auction(ctx: Context[Negotiation]) -> Literal["evaluate"]:
    """Node 4b. In each round, invite all suppliers, collect bids until it closes, and send each supplier its rank.

    The keys of invitations and feedback consist of supplier and round. A re-run after a crash finds the earlier calls
    in the ledger and continues in the current round. The rounds end early when the bids have converged. Agents may
    propose target prices, and who is invited from the second round on.
    """
    s, rules = ctx.state, ctx.state.purchase.governance
    s.auction = progress = Auction()
    for n in range(1, rules.rounds + 1):
        closes = rules.calendar.days(n * rules.round_days)
        ask = ask_for(s, n, rules.rounds, closes.ends(ctx.entered_at))
        invited = await next_asked(ctx, n, [sup for sup in s.active() if sup not in s.final])
        if not invited:
            break
        asked = await ctx.do_all({sup: invite.plan(sup, n, mailbox(s, sup), ask) for sup in invited}, refused="return")
        s.declined |= declines(asked)
        if not s.active():
            break
        # unreached suppliers are asked in the next round
        reached = await take_in_answers(ctx, n, asked, closes.since(ctx.entered_at))
        if n < rules.rounds and rules.negotiated_by == "agents":
            await take_positions(ctx, n)
        letters = feedback(s, reached, n, ctx.run_id)
        plans = {sup: send_feedback.plan(sup, n, mailbox(s, sup), letters[sup]) for sup in reached}
        await ctx.do_all(plans, refused="return")
        if converged(s, n):
            progress.converged_in = n
            break
    if not s.open_bids():
        who = ", ".join(s.declined) or "none"
        s.why_nothing = f"no bid in {s.rounds_held} rounds from {len(s.suppliers)} suppliers; declined: {who}"
    return "evaluate"

"""Node 4d, strategic: proposals and counter-proposals over weeks, about price and other terms."""

from typing import Literal

from outlast import Context

from ..course import ask_for, declines, mailbox, negotiation, take_in_answers
from ..governance import CYCLES_AT_MOST, STRATEGIC_AT_MOST, Wishes
from ..letters import Bid, Terms
from ..limits import answered, open_bid, opening, stepped, walk_away
from ..negotiators import next_asked, take_positions
from ..state import Negotiation, Strategic
from ..suppliers import propose


@negotiation.node(status="NEGOTIATING", max_visits=CYCLES_AT_MOST, ceiling=STRATEGIC_AT_MOST)
async def strategic(ctx: Context[Negotiation]) -> Literal["evaluate"]:
    """Node 4d. Send each supplier a proposal, collect its counter-proposal, and move towards it.

    A supplier that agrees, or whose note says that this is its last word, is not asked again. The key of a proposal
    consists of supplier and round. Proposals are computed from the bids or recorded with the answer of an agent, so a
    re-run after a crash has the same ones.
    """
    s, rules = ctx.state, ctx.state.purchase.governance
    s.strategic = progress = Strategic()
    for n in range(1, rules.strategic_rounds + 1):
        ask = ask_for(s, n, rules.strategic_rounds, ctx.entered_at + n * rules.strategic_round_length)
        open_ = await next_asked(
            ctx, n, [sup for sup in s.active() if sup not in progress.agreed and sup not in s.final]
        )
        if not open_:
            break
        progress.proposed |= {sup: position(s, sup, rules.wishes) for sup in open_}
        asked = await ctx.do_all(
            {sup: propose.plan(sup, n, mailbox(s, sup), ask, progress.proposed[sup]) for sup in open_}, refused="return"
        )
        s.declined |= declines(asked)
        if not set(open_) & set(s.active()):
            break
        await take_in_answers(ctx, n, asked, ask.closes_at)
        for bid in s.open_bids():
            if bid.supplier_id not in progress.agreed and agreed(progress.proposed[bid.supplier_id], bid, rules.wishes):
                progress.agreed[bid.supplier_id] = n
        if all(sup in progress.agreed for sup in s.active()):
            break
        if n < rules.strategic_rounds and rules.negotiated_by == "agents":
            await take_positions(ctx, n)
    if not s.open_bids():
        who = ", ".join(s.declined) or "none"
        s.why_nothing = (
            f"no counter-proposal in {s.rounds_held} rounds from {len(s.suppliers)} suppliers; declined: {who}"
        )
    return "evaluate"


def position(s: Negotiation, supplier_id: str, wishes: Wishes) -> Terms:
    """Return the next proposal: the opening position at first, then that of the agent, or a step by the formula."""
    assert s.strategic is not None
    candidate, before = s.purchase.candidate(supplier_id), s.strategic.proposed.get(supplier_id)
    if before is None:
        return opening(s.purchase, candidate, wishes)
    if chosen := s.strategic.next_proposed.pop(supplier_id, None):
        return chosen
    theirs = open_bid(s, supplier_id)
    if theirs is None:
        return before
    worst = walk_away(s.purchase, candidate)
    return stepped(before, answered(theirs, before), wishes.concession_percent, worst)


def agreed(ours: Terms, theirs: Bid, wishes: Wishes) -> bool:
    """True if a counter-proposal is as good as the proposal, with its price within the tolerance."""
    ppm = ours.defect_ppm if theirs.defect_ppm is None else theirs.defect_ppm
    return (
        theirs.cents * 10_000 <= ours.cents * (10_000 + wishes.agreed_within_bp)
        and theirs.payment_days >= ours.payment_days
        and theirs.lead_days <= ours.lead_days
        and ppm <= ours.defect_ppm
        and theirs.term_months >= ours.term_months
    )

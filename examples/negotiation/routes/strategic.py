"""Node 4d, strategic: proposals and counter-proposals over weeks, about price and other terms."""

from typing import Literal

from outlast import Context

from ..course import ask_for, declines, mailbox, negotiation, take_in_answers
from ..governance import CYCLES_AT_MOST, STRATEGIC_AT_MOST, Wishes
from ..letters import Bid, Terms
from ..purchase import Candidate, Purchase
from ..state import Negotiation, Strategic
from ..suppliers import propose


@negotiation.node(status="NEGOTIATING", max_visits=CYCLES_AT_MOST, ceiling=STRATEGIC_AT_MOST)
async def strategic(ctx: Context[Negotiation]) -> Literal["evaluate"]:
    """Node 4d. Send each supplier a proposal, collect its counter-proposal, and move towards it.

    A supplier that agrees is not asked again. The key of a proposal consists of supplier and round. Proposals are
    computed from the bids, so a re-run after a crash computes the same ones.
    """
    s, rules = ctx.state, ctx.state.purchase.governance
    s.strategic = progress = Strategic()
    for n in range(1, rules.strategic_rounds + 1):
        ask = ask_for(s, n, rules.strategic_rounds, ctx.entered_at + n * rules.strategic_round_length)
        open_ = [sup for sup in s.active() if sup not in progress.agreed]
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
    if not s.open_bids():
        who = ", ".join(s.declined) or "none"
        s.why_nothing = (
            f"no counter-proposal in {s.rounds_held} rounds from {len(s.suppliers)} suppliers; declined: {who}"
        )
    return "evaluate"


def position(s: Negotiation, supplier_id: str, wishes: Wishes) -> Terms:
    """Return the next proposal: the opening position at first, then a step towards the supplier's last bid."""
    assert s.strategic is not None
    before = s.strategic.proposed.get(supplier_id)
    if before is None:
        return opening(s.purchase, s.purchase.candidate(supplier_id), wishes)
    theirs = next((bid for bid in s.open_bids() if bid.supplier_id == supplier_id), None)
    if theirs is None:
        return before
    step = wishes.concession_percent

    def towards(ours: int, answer: int) -> int:
        return ours + (answer - ours) * step // 100

    return Terms(
        cents=towards(before.cents, theirs.cents),
        payment_days=towards(before.payment_days, theirs.payment_days),
        lead_days=towards(before.lead_days, theirs.lead_days),
        defect_ppm=towards(before.defect_ppm, before.defect_ppm if theirs.defect_ppm is None else theirs.defect_ppm),
        term_months=towards(before.term_months, theirs.term_months),
    )


def opening(purchase: Purchase, candidate: Candidate, wishes: Wishes) -> Terms:
    """Return the buyer's opening position."""
    return Terms(
        cents=sum(item.quantity * item.target_cents for item in purchase.items),
        payment_days=wishes.payment_days,
        lead_days=candidate.lead_days * wishes.lead_percent // 100,
        defect_ppm=candidate.defect_ppm * wishes.defect_percent // 100,
        term_months=wishes.term_months,
    )


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

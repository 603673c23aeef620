"""The seven nodes of a negotiation: ingest, classify, route, negotiate (one of four), evaluate, approve, award."""

from typing import Literal

from outlast import Cancel, Context, Fail, Plan, Refusal, Refused, role

from . import advice, judging, routing, scoring
from .course import UNREACHABLE, mailbox, negotiation
from .governance import CYCLES_AT_MOST, DECISIONS_AT_MOST, FALL_OUTS_AT_MOST
from .letters import Message, Order
from .placing import classification
from .purchase import problems
from .routes import bottleneck, leverage, spot, strategic
from .routing import ROUTES, Route
from .state import Award, HeldBid, Negotiation, ScoreLine
from .summary import letter_text, order_text
from .suppliers import place_order, send_message

__all__ = ["bottleneck", "leverage", "negotiation", "spot", "strategic"]


@negotiation.node(start=True, status="VALIDATING")
async def ingest(ctx: Context[Negotiation]) -> Literal["classify"]:
    """Node 1. Fail with all problems at once if the fields of the purchase contradict each other."""
    if found := problems(ctx.state.purchase.model_dump(mode="json")):
        raise Fail("\n".join(found))
    return "classify"


@negotiation.node(status="CLASSIFYING")
async def classify(ctx: Context[Negotiation]) -> Literal["route"]:
    """Node 2. Place the purchase in the Kraljic matrix, by a lookup whose result the run keeps."""
    placed = await ctx.do(classification.plan(ctx.state.purchase))
    ctx.state.quadrant, ctx.state.why_quadrant = placed.quadrant, placed.explained()
    return "route"


@negotiation.node(status="ROUTING")
async def route(ctx: Context[Negotiation]) -> Route:
    """Node 3. Choose the strategy and discard the candidates that cannot deliver."""
    s = ctx.state
    assert s.quadrant is not None
    admitted = routing.delivery_gate(s.purchase, ctx.entered_at.date(), s.quadrant)
    s.suppliers, s.discarded = admitted.supplier_ids, admitted.discarded
    if not s.suppliers:
        reasons = "; ".join(f"{d.supplier_id} {', '.join(d.reasons)}" for d in s.discarded)
        raise Fail(f"no candidate can deliver: {reasons}")
    return ROUTES[s.quadrant]


@negotiation.node(status="EVALUATING", max_visits=DECISIONS_AT_MOST)
async def evaluate(ctx: Context[Negotiation]) -> Literal["approve"]:
    """Node 5. Rank the open bids by the measure of the strategy. A bid that cannot be ordered is dropped first."""
    s = ctx.state
    if not s.open_bids():
        raise Fail(s.why_nothing)
    for bid in s.open_bids():
        if why := routing.objections(s.purchase, bid, ctx.entered_at.date()):
            s.drop(bid.bid_id, "UNFIT", "; ".join(why))
    ranked = judging.judge(s)
    if not ranked:
        fallen = "; ".join(f"{bid_id} {why}" for bid_id, why in s.fallen.items())
        raise Fail(f"no bid can be ordered: {fallen}")
    s.scores = [ScoreLine.model_validate(score.model_dump(include=set(ScoreLine.model_fields))) for score in ranked]
    first = ranked[0].bid_id
    status: Literal["PENDING_HUMAN", "NOT_NEEDED"] = "PENDING_HUMAN" if approval_reason(s, first) else "NOT_NEEDED"
    s.award = Award(bid_id=first, why=scoring.why_first(ranked), approval_status=status)
    return "approve"


@negotiation.node(status="PENDING_APPROVAL", max_visits=DECISIONS_AT_MOST)
async def approve(ctx: Context[Negotiation]) -> Literal["award"] | Route:
    """Node 6. Ask for an approval if the rules require one: this order, another bid, one more round, or none.

    One more round is offered in the first cycle only. The commit that leads back supersedes the bids of the rejected
    round. A crash before that commit changes nothing, and a re-run after it cannot evaluate them.
    """
    s, rules, award = ctx.state, ctx.state.purchase.governance, ctx.state.award
    assert s.quadrant is not None and award is not None
    reason = approval_reason(s, award.bid_id)
    if reason is None:
        return "award"
    plans = {line.bid_id: order_plan(s, s.bid(line.bid_id)) for line in s.scores}
    decision = await ctx.approval(
        plans[award.bid_id],
        summary=order_text(s, reason),
        by=role(rules.approver_role),
        within=rules.approval_within,
        alternatives=[plan for bid_id, plan in plans.items() if bid_id != award.bid_id],
        again=max(0, CYCLES_AT_MOST - s.cycle),
    )
    if decision.outcome == "again":
        s.go_round_again(decision.by, decision.reason)
        return ROUTES[s.quadrant]
    award.decided_by, award.reason = decision.by, decision.reason
    if decision.chosen is None:
        award.approval_status = "REJECTED"
        return "award"
    award.approval_status = "APPROVED"
    chosen = next(bid_id for bid_id, plan in plans.items() if plan == decision.chosen)
    if chosen != award.bid_id:
        award.bid_id, award.is_choice = chosen, True
        award.why = f"{s.bid(chosen).supplier_id} was chosen by {decision.by}: {decision.reason}"
    return "award"


@negotiation.node(status="AWARDING", end="AWARDED", max_visits=DECISIONS_AT_MOST)
async def award(ctx: Context[Negotiation]) -> Literal["evaluate"] | None:
    """Node 7. Place the order if the bid is still open and can be ordered, then write to each active supplier.

    A rejected award ends the run here, so that the state keeps the decision.
    """
    s, award = ctx.state, ctx.state.award
    assert award is not None
    if award.approval_status == "REJECTED":
        raise Cancel(f"rejected by {award.decided_by}: {award.reason}")
    winner = s.bid(award.bid_id)
    if winner.status != "OPEN":
        return falls_out(s, "WITHDRAWN", f"its bid is {winner.status}")
    if why := routing.objections(s.purchase, winner, ctx.entered_at.date()):
        return falls_out(s, "UNFIT", "; ".join(why))
    try:
        order = await ctx.do(order_plan(s, winner))
    except Refused as refused:
        if refused.code == UNREACHABLE:
            raise  # the supplier has not declined: an operator retries, gives up or cancels
        return falls_out(s, "WITHDRAWN", f"does not accept the order: {refused.detail}")
    award.order_id = order.order_id
    if s.quadrant == "BOTTLENECK":
        s.advice = advice.safety_stock(s.purchase, winner)
    letters = {
        supplier: Message(
            run_id=ctx.run_id,
            subject="award" if supplier == winner.supplier_id else "regret",
            text=letter_text(s, supplier),
        )
        for supplier in s.active()
    }
    sent = await ctx.do_all(
        {sup: send_message.plan(sup, m.subject, mailbox(s, sup), m) for sup, m in letters.items()}, refused="return"
    )
    s.unreached = {supplier: answer.detail for supplier, answer in sent.items() if isinstance(answer, Refusal)}
    return None


def falls_out(s: Negotiation, status: Literal["UNFIT", "WITHDRAWN"], why: str) -> Literal["evaluate"]:
    """Drop the awarded bid and return to the evaluation. Raises Fail if the rules or the open bids do not allow it.

    By default the rules do not: the one loop of a negotiation leads from the approval to another round. With
    `when_winner_falls_out="evaluate"`, at most `FALL_OUTS_AT_MOST` bids are replaced, each with its own approval.
    """
    bid = s.bid(s.winner)
    s.drop(bid.bid_id, status, f"{bid.supplier_id} {why}")
    s.fall_outs += 1
    if s.purchase.governance.when_winner_falls_out == "fail" or not s.open_bids() or s.fall_outs > FALL_OUTS_AT_MOST:
        raise Fail(s.fallen[bid.bid_id])
    return "evaluate"


def approval_reason(s: Negotiation, bid_id: str) -> str | None:
    """Return the reason why the order of a bid needs an approval, or None if it needs none."""
    assert s.quadrant is not None
    return s.purchase.governance.approval_reason(s.quadrant, s.bid(bid_id).cents, s.cycle)


def order_plan(s: Negotiation, bid: HeldBid) -> Plan[Order]:
    """Return the plan of the order that accepts a bid. The same plan is approved and then placed."""
    return place_order.plan(bid.supplier_id, bid.bid_id, bid.cents, mailbox(s, bid.supplier_id), s.purchase.reference)

"""The seven nodes of a negotiation: ingest, classify, route, auction, evaluate, approve, award."""

from datetime import datetime, timedelta
from typing import Literal

from outlast import ActivityFailed, Context, Failed, Plan, Refusal, Stopped, Workflow, role

from . import kraljic, routing, scoring
from .letters import Ask, Bid, Feedback, Line, Message, Order, bid_signal
from .purchase import Opening, problems
from .state import HeldBid, Negotiation, ScoreLine, outcome
from .summary import letter_text, order_text
from .suppliers import invite, place_order, send_feedback, send_message

UNREACHABLE = "retries_exhausted"
"""The refusal of a supplier that did not say no: it could not be reached, and may be in the next round."""

negotiation = Workflow(
    "negotiation", state=Negotiation, input=Opening, outcome=outcome, version=1, ceiling=timedelta(hours=168)
)


@negotiation.node(start=True, status="VALIDATING")
async def ingest(ctx: Context[Negotiation]) -> Literal["classify"]:
    """Node 1. A purchase that contradicts itself is refused with every problem at once."""
    if found := problems(ctx.state.purchase.model_dump(mode="json")):
        raise Failed("\n".join(found))
    return "classify"


@negotiation.node(status="CLASSIFYING")
async def classify(ctx: Context[Negotiation]) -> Literal["route"]:
    """Node 2. Places the purchase in the Kraljic matrix."""
    placed = kraljic.classify(ctx.state.purchase)
    ctx.state.quadrant, ctx.state.why_quadrant = placed.quadrant, placed.explained()
    return "route"


@negotiation.node(status="ROUTING")
async def route(ctx: Context[Negotiation]) -> Literal["auction"]:
    """Node 3. Chooses the strategy and holds back candidates that could not deliver."""
    s = ctx.state
    assert s.quadrant is not None
    if refusal := routing.refusal(s.quadrant):
        raise Failed(refusal)
    admitted = routing.delivery_gate(s.purchase, ctx.entered_at.date())
    s.suppliers, s.discarded = admitted.supplier_ids, admitted.discarded
    if not s.suppliers:
        reasons = "; ".join(f"{d.supplier_id} {', '.join(d.reasons)}" for d in s.discarded)
        raise Failed(f"no candidate can deliver: {reasons}")
    return "auction"


@negotiation.node(status="NEGOTIATING")
async def auction(ctx: Context[Negotiation]) -> Literal["evaluate"]:
    """Node 4. Up to five rounds: invite all, collect until the round closes, tell each where it stands.

    Every invitation and every feedback has a key of supplier and round, so a walk after a crash finds what was sent
    in the ledger and goes on in the round it was in.
    """
    s, rules = ctx.state, ctx.state.purchase.governance
    for n in range(1, rules.rounds + 1):
        ask = ask_for(s, n, ctx.entered_at + n * rules.round_length)
        asked = await ctx.do_all(
            {sup: invite.plan(sup, n, mailbox(s, sup), ask) for sup in s.active()}, refused="return"
        )
        no = {supplier: answer for supplier, answer in asked.items() if isinstance(answer, Refusal)}
        s.declined |= {supplier: answer.detail for supplier, answer in no.items() if answer.code != UNREACHABLE}
        if not s.active():
            break
        reached = [supplier for supplier in s.active() if supplier not in no]  # the others sit this round out
        s.take_in(await ctx.collect(bid_signal(s.cycle, n), Bid, until=ask.closes_at, most=max(1, len(reached))), n)
        s.rounds_held = n
        if n < rules.rounds and s.standing():
            told = standings(s, reached, n, ctx.run_id)
            feedback = {sup: send_feedback.plan(sup, n, mailbox(s, sup), told[sup]) for sup in reached}
            await ctx.do_all(feedback, refused="return")
    if not s.standing():
        who = ", ".join(s.declined) or "none"
        raise Failed(f"no bid in {s.rounds_held} rounds from {len(s.suppliers)} suppliers; declined: {who}")
    return "evaluate"


@negotiation.node(status="EVALUATING")
async def evaluate(ctx: Context[Negotiation]) -> Literal["approve"]:
    """Node 5. Ranks the standing bids by total cost of ownership and risk."""
    s = ctx.state
    pairs = [(bid, s.purchase.candidate(bid.supplier_id)) for bid in s.standing()]
    ranked = scoring.rank(pairs, s.purchase.governance.cost_rates)
    s.scores = [ScoreLine.model_validate(score.model_dump(include=set(ScoreLine.model_fields))) for score in ranked]
    s.winner, s.why_winner = ranked[0].bid_id, scoring.why_first(ranked)
    return "approve"


@negotiation.node(status="PENDING_APPROVAL")
async def approve(ctx: Context[Negotiation]) -> Literal["award"]:
    """Node 6. An order above the threshold waits for a person, who may choose another standing bid."""
    s, rules = ctx.state, ctx.state.purchase.governance
    best = s.bid(s.winner)
    assert s.quadrant is not None
    reason = rules.approval_reason(s.quadrant, best.cents)
    if reason is None:
        return "award"
    plans = {line.bid_id: order_plan(s, s.bid(line.bid_id)) for line in s.scores}
    decision = await ctx.approval(
        plans[s.winner],
        summary=order_text(s, reason),
        by=role(rules.approver_role),
        within=rules.approval_within,
        alternatives=[plan for bid_id, plan in plans.items() if bid_id != s.winner],
    )
    if decision.chosen is None:
        raise Stopped(f"rejected by {decision.by}: {decision.reason}")
    s.approved_by = decision.by
    chosen = next(bid_id for bid_id, plan in plans.items() if plan == decision.chosen)
    if chosen != s.winner:
        s.winner = chosen
        s.why_winner = f"{s.bid(chosen).supplier_id} was chosen by {decision.by}: {decision.reason}"
    return "award"


@negotiation.node(status="AWARDING")
async def award(ctx: Context[Negotiation]) -> None:
    """Node 7. Places the order, then writes to everybody who was asked."""
    s = ctx.state
    winner = s.bid(s.winner)
    try:
        order = await ctx.do_plan(order_plan(s, winner))
    except ActivityFailed as refused:
        if refused.refusal.code == UNREACHABLE:
            raise  # not a no: a person retries, gives up or cancels
        raise Failed(f"{winner.supplier_id} does not accept the order: {refused.refusal.detail}") from refused
    s.order_id = order.order_id
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


def ask_for(s: Negotiation, round_number: int, closes_at: datetime) -> Ask:
    """What one round asks; the target prices stay here."""
    return Ask(
        reference=s.purchase.reference,
        category=s.purchase.category,
        currency=s.purchase.currency,
        lines=[Line(sku=item.sku, quantity=item.quantity, unit=item.unit) for item in s.purchase.items],
        need_by=s.purchase.need_by,
        cycle=s.cycle,
        round=round_number,
        rounds=s.purchase.governance.rounds,
        closes_at=closes_at,
    )


def mailbox(s: Negotiation, supplier_id: str) -> str:
    """Where a supplier reads its mail."""
    return s.purchase.candidate(supplier_id).mailbox


def order_plan(s: Negotiation, bid: HeldBid) -> Plan[Order]:
    """The order that accepts a bid: what a person approves and what is then placed."""
    return place_order.plan(bid.supplier_id, bid.bid_id, bid.cents, mailbox(s, bid.supplier_id), s.purchase.reference)


def standings(s: Negotiation, suppliers: list[str], round_number: int, run_id: str) -> dict[str, Feedback]:
    """What each supplier is told after a round: the best price for the goods, and its own place."""
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

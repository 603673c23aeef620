"""Node 4c, bottleneck: ask few suppliers for the full quantity, then substitutes, then a partial quantity."""

from datetime import timedelta
from typing import Literal

from outlast import Context

from ..course import ask_for, declines, mailbox, negotiation, take_in_answers
from ..governance import BOTTLENECK_CEILING, CYCLES_AT_MOST
from ..letters import Wanted
from ..state import Bottleneck, Negotiation, StepAnswer
from ..suppliers import inquire

STEPS: tuple[Wanted, ...] = ("full", "substitutes", "partial")


@negotiation.node(status="NEGOTIATING", max_visits=CYCLES_AT_MOST, ceiling=BOTTLENECK_CEILING)
async def bottleneck(ctx: Context[Negotiation]) -> Literal["evaluate"]:
    """Node 4c. Ask for less in each step, until there is an open bid for the full quantity without substitutes.

    A supplier that declines one step is asked again in the next, unless it has an open bid. The key of an inquiry
    consists of supplier and step.
    """
    s, lengths = ctx.state, ctx.state.purchase.governance.bottleneck_steps
    s.bottleneck = progress = Bottleneck()
    for n, wanted in enumerate(STEPS, 1):
        ask = ask_for(s, n, len(STEPS), ctx.entered_at + sum(lengths[:n], timedelta()))
        offered = {bid.supplier_id for bid in s.open_bids()}
        asked = await ctx.do_all(
            {sup: inquire.plan(sup, wanted, mailbox(s, sup), ask) for sup in s.active() if sup not in offered},
            refused="return",
        )
        progress.steps_held.append(wanted)
        noes = declines(asked)
        progress.answers += [StepAnswer(supplier_id=sup, wanted=wanted, detail=no) for sup, no in noes.items()]
        if len(noes) < len(asked):
            await take_in_answers(ctx, n, asked, ask.closes_at)
        s.rounds_held = n
        if any(not bid.covers and not bid.substitutes for bid in s.open_bids()):
            break
    if not s.open_bids():
        said = "; ".join(f"{a.supplier_id} ({a.wanted}): {a.detail}" for a in progress.answers) or "nothing"
        s.why_nothing = f"no offer in {s.rounds_held} steps from {len(s.suppliers)} suppliers, who said: {said}"
    return "evaluate"

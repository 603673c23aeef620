"""Node 4a, spot: one round within minutes, decided by landed price."""

from typing import Literal

from outlast import Context

from ..course import ask_for, declines, mailbox, negotiation, take_in_answers
from ..governance import CYCLES_AT_MOST
from ..state import Negotiation
from ..suppliers import request_quote


@negotiation.node(status="NEGOTIATING", max_visits=CYCLES_AT_MOST)
async def spot(ctx: Context[Negotiation]) -> Literal["evaluate"]:
    """Node 4a. Ask each supplier for one quote and wait for minutes.

    The key of a request contains the supplier. A re-run after a crash sends no second request, and waits only for the
    remaining time.
    """
    s = ctx.state
    closes = ctx.entered_at + s.purchase.governance.spot_within
    ask = ask_for(s, 1, 1, closes)
    asked = await ctx.do_all(
        {sup: request_quote.plan(sup, mailbox(s, sup), ask) for sup in s.active()}, refused="return"
    )
    s.declined |= declines(asked)
    if s.active():
        await take_in_answers(ctx, 1, asked, closes)
    if not s.open_bids():
        who = ", ".join(s.declined) or "none"
        s.why_nothing = f"no offer within {s.purchase.governance.spot_within}; declined: {who}"
    return "evaluate"

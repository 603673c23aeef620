"""The report for the buyer: bids, reasons, costs, risks and timeline of a negotiation."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from .judging import judge
from .money import money
from .scoring import Score
from .state import HeldBid, Negotiation, missing

MomentKind = Literal["work", "wait", "crash", "person", "end"]


class Moment(NamedTuple):
    """An event of the run for the timeline."""

    at: datetime
    kind: MomentKind
    name: str
    """The node or the actor."""
    text: str
    lasted: timedelta = timedelta()


class Report(NamedTuple):
    """The data for the text and the HTML page."""

    run: str
    ended: str
    """AWARDED, FAILED, CANCELLED, or the current status."""
    reason: str
    s: Negotiation
    moments: tuple[Moment, ...] = ()
    proof: tuple[str, ...] = ()
    """Statements proved by the suppliers' record."""


def scores(s: Negotiation) -> list[Score]:
    """Return the scores of the last evaluation with all their parts, computed from the stored state."""
    return judge(s) if s.scores else []


def verdict(report: Report) -> str:
    """Describe the result in one sentence."""
    s = report.s
    if not s.order_id:
        return f"Nothing was ordered: {report.reason or report.ended}"
    bid = s.bid(s.winner)
    name = s.purchase.candidate(bid.supplier_id).name
    total = next(line.total_cents for line in s.scores if line.bid_id == s.winner)
    currency = s.purchase.currency
    return (
        f"{s.order_id}: {name} delivers for {money(bid.cents)} {currency}, {money(total)} {currency} in total cost. "
        f"{s.why_winner}"
    )


def decided(s: Negotiation) -> str:
    """Describe who decided about the order."""
    if s.chosen_by:
        return f"chosen by {s.chosen_by}, who preferred it to the evaluation's first"
    if s.approved_by:
        return f"proposed by the evaluation, approved by {s.approved_by}"
    return "proposed by the evaluation; the rules ask for no approval"


def terms(s: Negotiation, bid: HeldBid) -> str:
    """Describe the terms of a bid other than its price."""
    said = [f"{bid.lead_days} days", f"{bid.payment_days} days of credit", f"freight {money(bid.freight_cents)}"]
    if bid.defect_ppm is not None:
        said.append(f"{bid.defect_ppm} defects in a million")
    if bid.term_months:
        said.append(f"bound for {bid.term_months} months")
    said += [f"{theirs} for {ours}" for ours, theirs in bid.substitutes.items()]
    said += [f"{units} of {sku} left out" for sku, units in missing(s.purchase, bid).items()]
    return ", ".join(said)


def risks(s: Negotiation) -> Iterator[str]:
    """Yield the remaining risks and the advice."""
    for line in s.why_quadrant.splitlines():
        yield line.strip()
    if s.winner:
        candidate = s.purchase.candidate(s.bid(s.winner).supplier_id)
        yield f"{candidate.id}: risk {candidate.risk} of 100, {candidate.defect_ppm} defects in a million so far"
    yield from (f"fell out: {bid_id}: {why}" for bid_id, why in s.fallen.items())
    yield from (f"letter not delivered: {supplier}: {why}" for supplier, why in s.unreached.items())
    yield from s.advice


def left_out(s: Negotiation) -> Iterator[str]:
    """Yield each supplier without a bid, with the reason."""
    yield from (f"{d.supplier_id} was not asked: {'; '.join(d.reasons)}" for d in s.discarded)
    yield from (f"{supplier} declined: {why}" for supplier, why in s.declined.items())
    if s.bottleneck:
        yield from (f"{a.supplier_id} said no to {a.wanted}: {a.detail}" for a in s.bottleneck.answers)
    bidders = {bid.supplier_id for bid in s.bids}
    yield from (f"{supplier} never bid" for supplier in s.active() if supplier not in bidders)


def text(report: Report) -> str:
    """Format the report for a terminal."""
    s = report.s
    lines = [f"{s.purchase.reference} · {s.purchase.category} · {report.ended}", verdict(report)]
    if s.order_id:
        lines.append(decided(s))
    if s.another_round:
        lines.append(f"{s.another_round.by} asked for another round: {s.another_round.reason}")
    lines += _block("Who bid what", _bids(s))
    lines += _block("Why this one", (line for score in scores(s) for line in score.explained().splitlines()))
    lines += _block("Not in it", left_out(s))
    lines += _block("Risk", risks(s))
    lines += _block("When", (_when(moment) for moment in report.moments))
    lines += _block("Proof", report.proof)
    return "\n".join(lines)


def _bids(s: Negotiation) -> Iterator[str]:
    for bid in s.bids:
        yield (
            f"{bid.supplier_id:<10} cycle {bid.cycle} round {bid.round}  {money(bid.cents):>16}  {bid.status:<10} "
            f"{terms(s, bid)}"
        )


def _when(moment: Moment) -> str:
    lasted = f"  ({span(moment.lasted)})" if moment.lasted else ""
    mark = {"crash": "✗", "person": "▸", "wait": "…"}.get(moment.kind, " ")
    return f"{moment.at:%Y-%m-%d %H:%M:%S} {mark} {moment.name:<12} {moment.text}{lasted}"


def span(lasted: timedelta) -> str:
    """Format a duration in its largest unit, such as 1.5 h."""
    seconds = lasted.total_seconds()
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def _block(title: str, lines: Iterator[str] | tuple[str, ...]) -> list[str]:
    held = list(lines)
    return ["", title, *(f"  {line}" for line in held)] if held else []

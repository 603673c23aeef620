"""The report as one HTML file with embedded charts. All text from outside is escaped."""

from collections.abc import Iterable, Sequence
from html import escape

from .charts import Bar, Line, Span, bars, lines, timeline
from .money import money
from .report import Report, decided, left_out, risks, scores, span, terms, verdict
from .state import Negotiation

STYLE = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem;margin:0}h2{font-size:1.1rem;margin:2rem 0 .5rem}
.badge{display:inline-block;padding:.1rem .6rem;border-radius:1rem;background:#64748b;color:#fff;font-size:.85rem}
.AWARDED{background:#047857}.FAILED{background:#b91c1c}.CANCELLED{background:#b45309}
.lead{font-size:1.1rem;margin:.75rem 0}
table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #94a3b855;vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
tr.won{font-weight:600}tr.out{opacity:.6}
svg{width:100%;height:auto;font:12px system-ui,sans-serif}
ul{padding-left:1.2rem}.scroll{overflow-x:auto}
"""


def page(report: Report) -> str:
    """Return the HTML file of a report."""
    s = report.s
    title = escape(f"{s.purchase.reference} · {s.purchase.category}")
    sections = [
        _section("Who bid what", _prices(s), _bids(s)),
        _section("Why this one", _costs(s), _scores(s)),
        _section("Not in it", _list(left_out(s))),
        _section("Risk", _list(risks(s))),
        _section("When", _timeline(report), _moments(report)),
        _section("Proof", _list(report.proof)),
    ]
    again = s.another_round
    asked = f"<p>{escape(again.by)} asked for another round: {escape(again.reason)}</p>" if again else ""
    by = f"<p>{escape(decided(s))}</p>" if s.order_id else ""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{STYLE}</style></head><body>'
        f'<h1>{title}</h1><p><span class="badge {escape(report.ended)}">{escape(report.ended)}</span> '
        f"{escape(s.quadrant or '')} · run {escape(report.run)}</p>"
        f'<p class="lead">{escape(verdict(report))}</p>{by}{asked}{"".join(sections)}</body></html>\n'
    )


def _section(title: str, *parts: str) -> str:
    inside = "".join(part for part in parts if part)
    return f"<section><h2>{escape(title)}</h2>{inside}</section>" if inside else ""


def _list(items: Iterable[str]) -> str:
    held = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f"<ul>{held}</ul>" if held else ""


def _table(head: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]]) -> str:
    """Return a table. `rows`: CSS class and cells. A head that ends in › marks a column of numbers."""
    numbers = [name.endswith("›") for name in head]
    cells = [
        f"<th{' class=n' if n else ''}>{escape(name.rstrip('›'))}</th>" for name, n in zip(head, numbers, strict=True)
    ]
    body = ""
    for kind, row in rows:
        inside = "".join(
            f"<td{' class=n' if n else ''}>{escape(cell)}</td>" for cell, n in zip(row, numbers, strict=True)
        )
        body += f'<tr class="{escape(kind)}">{inside}</tr>'
    return f'<div class="scroll"><table><tr>{"".join(cells)}</tr>{body}</table></div>' if body else ""


def _name(s: Negotiation, supplier_id: str) -> str:
    return s.purchase.candidate(supplier_id).name


def _prices(s: Negotiation) -> str:
    """Return a chart of prices over the rounds. The rounds of a second cycle follow those of the first."""
    last = max((bid.round for bid in s.bids if bid.cycle == 1), default=0)
    series = [
        Line(
            supplier, [((bid.cycle - 1) * last + bid.round, bid.cents) for bid in s.bids if bid.supplier_id == supplier]
        )
        for supplier in dict.fromkeys(bid.supplier_id for bid in s.bids)
    ]
    if sum(len(line.points) for line in series) < 2:
        return ""
    amounts = sorted({bid.cents for bid in s.bids})
    shown = [(amounts[0], money(amounts[0])), (amounts[-1], money(amounts[-1]))]
    return lines(series, shown[: len(amounts)])


def _bids(s: Negotiation) -> str:
    head = ("supplier", "cycle›", "round›", "price›", "status", "terms")
    rows = []
    for bid in s.bids:
        kind = "won" if s.order_id and bid.bid_id == s.winner else "" if bid.status == "OPEN" else "out"
        cells = (_name(s, bid.supplier_id), f"{bid.cycle}", f"{bid.round}", money(bid.cents), bid.status, terms(s, bid))
        rows.append((kind, cells))
    return _table(head, rows)


def _costs(s: Negotiation) -> str:
    judged = scores(s)
    rows = [Bar(x.supplier_id, [(c.name, c.cents) for c in x.costs], money(x.total_cents)) for x in judged]
    return bars(rows) if rows else ""


def _scores(s: Negotiation) -> str:
    rows = []
    for score in scores(s):
        parts = [f"{cost.name} {money(cost.cents)} ({cost.why})" for cost in score.costs if cost.cents]
        parts += [f"{part.name} {part.points} × {part.weight_percent} % ({part.why})" for part in score.parts]
        cells = (
            f"{score.place}",
            _name(s, score.supplier_id),
            money(score.total_cents),
            money(score.weighed_cents),
            f"{score.risk}",
            f"{score.points}",
            "; ".join(parts),
        )
        rows.append(("won" if score.bid_id == s.winner else "", cells))
    return _table(("place›", "supplier", "total cost›", "with risk›", "risk›", "points›", "made of"), rows)


def _timeline(report: Report) -> str:
    spans = [
        Span(m.name, m.at.timestamp(), m.at.timestamp() + m.lasted.total_seconds(), m.kind, span(m.lasted))
        for m in report.moments
        if m.lasted
    ]
    return timeline(spans) if spans else ""


def _moments(report: Report) -> str:
    head = ("when (business time, UTC)", "what", "", "lasted›")
    rows = [
        ("", (f"{m.at:%Y-%m-%d %H:%M:%S}", m.name, m.text, span(m.lasted) if m.lasted else "")) for m in report.moments
    ]
    return _table(head, rows)

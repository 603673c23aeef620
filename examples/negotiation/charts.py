"""Charts as inline SVG without scripts, fonts or other resources."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

COLOURS = ("#2563eb", "#d97706", "#059669", "#7c3aed", "#dc2626", "#0891b2", "#4b5563", "#be185d")
WIDE, LEFT, TOP = 760, 130, 16
ROW = 26
PLOT = WIDE - LEFT - 90


class Line(NamedTuple):
    """The prices of one supplier: (round, amount)."""

    name: str
    points: Sequence[tuple[int, int]]


class Bar(NamedTuple):
    """One bar with parts: (name, amount). Negative parts are not drawn."""

    name: str
    parts: Sequence[tuple[str, int]]
    label: str


class Span(NamedTuple):
    """A period on the timeline, with its kind."""

    name: str
    begin: float
    end: float
    kind: str
    label: str


KINDS = {"work": "#2563eb", "wait": "#cbd5e1", "person": "#f59e0b", "crash": "#dc2626"}


def lines(series: Sequence[Line], shown: Sequence[tuple[int, str]]) -> str:
    """Draw one line per supplier over the rounds. `shown`: amounts and labels of the axis."""
    amounts = [amount for line in series for _, amount in line.points] or [0]
    rounds = sorted({n for line in series for n, _ in line.points}) or [1]
    low, high = min(amounts), max(max(amounts), min(amounts) + 1)
    tall = 200

    def x(n: int) -> float:
        return LEFT + (PLOT * (n - rounds[0]) / max(1, rounds[-1] - rounds[0]))

    def y(amount: int) -> float:
        return TOP + tall * (high - amount) / (high - low)

    body = [_text(LEFT - 8, y(amount) + 4, text, anchor="end") for amount, text in shown]
    body += [_text(x(n), TOP + tall + 22, f"round {n}", anchor="middle") for n in rounds]
    for i, line in enumerate(series):
        colour = COLOURS[i % len(COLOURS)]
        path = " ".join(f"{x(n):.1f},{y(amount):.1f}" for n, amount in line.points)
        body.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        body += [f'<circle cx="{x(n):.1f}" cy="{y(a):.1f}" r="3.5" fill="{colour}"/>' for n, a in line.points]
        if line.points:
            n, amount = line.points[-1]
            body.append(_text(x(n) + 8, y(amount) + 4, line.name, colour))
    return _svg("Prices by round", TOP + tall + 32, body)


def bars(rows: Sequence[Bar], title: str = "Total cost of ownership") -> str:
    """Draw one stacked bar per row."""
    most = max([sum(max(0, amount) for _, amount in row.parts) for row in rows] or [1]) or 1
    names = list(dict.fromkeys(name for row in rows for name, amount in row.parts if amount > 0))
    body = []
    for i, row in enumerate(rows):
        at, top = float(LEFT), TOP + i * ROW
        body.append(_text(LEFT - 8, top + 14, row.name, anchor="end"))
        for name, amount in row.parts:
            if amount > 0:
                wide = PLOT * amount / most
                colour = COLOURS[names.index(name) % len(COLOURS)]
                body.append(_rect(at, top, wide, colour, name))
                at += wide
        body.append(_text(at + 6, top + 14, row.label))
    base, at = TOP + len(rows) * ROW + 16, float(LEFT)
    for i, name in enumerate(names):
        body += [_rect(at, base - 10, 10, COLOURS[i % len(COLOURS)], name, tall=10), _text(at + 14, base, name)]
        at += 24 + 7 * len(name)
    return _svg(title, base + 12, body)


def timeline(spans: Sequence[Span]) -> str:
    """Draw one row per span on a common time axis."""
    begin = min((span.begin for span in spans), default=0.0)
    whole = max((span.end for span in spans), default=1.0) - begin or 1.0
    body = []
    for i, span in enumerate(spans):
        top, at = TOP + i * ROW, LEFT + PLOT * (span.begin - begin) / whole
        wide = max(2.0, PLOT * (span.end - span.begin) / whole)
        body.append(_text(LEFT - 8, top + 14, span.name, anchor="end"))
        body.append(_rect(at, top, wide, KINDS.get(span.kind, KINDS["work"]), span.label))
        inside = at + wide > LEFT + PLOT * 0.8
        body.append(
            _text(at - 6 if inside else at + wide + 6, top + 14, span.label, anchor="end" if inside else "start")
        )
    return _svg("Timeline", TOP + len(spans) * ROW + 8, body)


def _svg(title: str, tall: float, body: Sequence[str]) -> str:
    inside = "".join(body)
    return (
        f'<svg viewBox="0 0 {WIDE} {tall:.0f}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{inside}</svg>"
    )


def _text(x: float, y: float, text: str, colour: str = "currentColor", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}">{escape(text)}</text>'


def _rect(x: float, y: float, wide: float, colour: str, title: str, tall: float = ROW - 8) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{tall:.1f}" fill="{colour}" rx="2">'
        f"<title>{escape(title)}</title></rect>"
    )

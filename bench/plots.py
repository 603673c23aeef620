"""Plots of figures: one SVG per figure, with a bar per measurement and lines for gate and aim."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from xml.sax.saxutils import escape

from bench.figures import Figures, Goal

Measured = Mapping[str, tuple[Sequence[Goal], Sequence[Figures]]]
WIDE, BAR, LEFT, TOP, RIGHT = 760, 26, 230, 44, 90
FONT = 'font-family="sans-serif" font-size="13"'


def draw(measured: Measured, folder: Path) -> None:
    """Write FIGURE.svg for every measured figure: medians, with minimum and maximum as a thin line."""
    folder.mkdir(parents=True, exist_ok=True)
    names = dict.fromkeys(goal.name for goals, _ in measured.values() for goal in goals)
    for name in names:
        bars = [
            (shown, goal, [each[name] for each in repeats if name in each and not math.isnan(each[name])])
            for shown, (goals, repeats) in measured.items()
            for goal in goals
            if goal.name == name
        ]
        if any(values for _, _, values in bars):
            (folder / f"{name}.svg").write_text(_picture(name, [bar for bar in bars if bar[2]]), encoding="utf-8")


def _picture(name: str, bars: Sequence[tuple[str, Goal, list[float]]]) -> str:
    asked = {
        (word, value)
        for _, goal, _ in bars
        for word, value in (("gate", goal.gate), ("aim", goal.aim))
        if value is not None
    }
    most = max([*(max(values) for _, _, values in bars), *(value for _, value in asked)]) or 1.0
    scale = (WIDE - LEFT - RIGHT) / most
    high = TOP + BAR * len(bars) + 24
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDE}" height="{high}" {FONT}>',
        f'<rect width="{WIDE}" height="{high}" fill="white"/>',
        f'<text x="8" y="22" font-weight="bold">{escape(name)} ({escape(bars[0][1].unit or "number")})</text>',
    ]
    for n, (shown, goal, values) in enumerate(bars):
        lines += _bar(shown, goal, values, TOP + n * BAR, scale)
    for word, value in sorted(asked):
        x = LEFT + value * scale
        lines.append(f'<path d="M{x:.1f} {TOP - 6}V{high - 20}" stroke="#c33" stroke-dasharray="4 3"/>')
        lines.append(f'<text x="{x:.1f}" y="{high - 6}" text-anchor="middle" fill="#c33">{word} {value:,g}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _bar(shown: str, goal: Goal, values: list[float], y: int, scale: float) -> list[str]:
    middle, least, most = median(values), min(values), max(values)
    end, line = LEFT + middle * scale, y + BAR / 2
    return [
        f'<text x="{LEFT - 8}" y="{line + 4}" text-anchor="end">{escape(shown)}</text>',
        f'<rect x="{LEFT}" y="{y + 4}" width="{middle * scale:.1f}" height="{BAR - 8}" fill="#47a"/>',
        f'<path d="M{LEFT + least * scale:.1f} {line}H{LEFT + most * scale:.1f}" stroke="#124"/>',
        f'<text x="{max(end, LEFT + most * scale) + 6:.1f}" y="{line + 4}">{middle:,.{goal.digits}f}</text>',
    ]

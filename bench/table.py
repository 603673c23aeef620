"""A table of the figures of several repeats."""

import math
from collections.abc import Iterator, Sequence
from statistics import median

from bench.figures import NOT_MEASURED, Figures, Goal

HEAD = ("measurement", "figure", "min", "median", "max", "unit", "asked", "verdict")
RIGHT = frozenset({2, 3, 4})
NONE = ("–", "–", "–")


def rows(name: str, goals: Sequence[Goal], repeats: Sequence[Figures]) -> Iterator[tuple[str, ...]]:
    """Return a row per figure. The verdict is on the median of what was measured.

    Raises ValueError for a figure that no goal declares, because it would not be shown.
    """
    if unknown := {name for figures in repeats for name in figures} - {goal.name for goal in goals}:
        raise ValueError(f"{name} has no goal for {', '.join(sorted(unknown))}")
    shown = f"{name} ×{len(repeats)}"
    for goal in goals:
        there = [figures[goal.name] for figures in repeats if goal.name in figures]
        values = [value for value in there if not math.isnan(value)]
        numbers = (
            [f"{value:,.{goal.digits}f}" for value in (min(values), median(values), max(values))] if values else NONE
        )
        if there:
            verdict = goal.verdict(median(values) if values else NOT_MEASURED)
            yield (shown, goal.name, *numbers, goal.unit, goal.asked(), verdict)
            shown = ""


def text(lines: Sequence[tuple[str, ...]]) -> str:
    """Return all rows as aligned text."""
    table = [HEAD, *lines]
    widths = [max(len(line[i]) for line in table) for i in range(len(HEAD))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if i in RIGHT else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in table
    )

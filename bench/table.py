"""A table of the figures of several repeats."""

from collections.abc import Iterator, Sequence
from statistics import median

from bench.figures import Figures, Goal

HEAD = ("measurement", "figure", "min", "median", "max", "unit", "asked", "verdict")
RIGHT = frozenset({2, 3, 4})


def rows(name: str, goals: Sequence[Goal], repeats: Sequence[Figures]) -> Iterator[tuple[str, ...]]:
    """Return a row per figure. The verdict is on the median."""
    shown = f"{name} ×{len(repeats)}"
    for goal in goals:
        values = [figures[goal.name] for figures in repeats if goal.name in figures]
        if values:
            numbers = [f"{value:,.{goal.digits}f}" for value in (min(values), median(values), max(values))]
            yield (shown, goal.name, *numbers, goal.unit, goal.asked(), goal.verdict(median(values)))
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

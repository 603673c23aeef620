"""Figures of a measurement, by name, with their goals."""

import math
from enum import StrEnum
from typing import NamedTuple


class Size(StrEnum):
    """Size of a measurement: full, quick, or just enough to check that the command works."""

    FULL = "full"
    QUICK = "quick"
    TINY = "tiny"

    def of(self, full: int, quick: int, tiny: int = 1) -> int:
        """Return the number for this size."""
        return {Size.FULL: full, Size.QUICK: quick, Size.TINY: tiny}[self]


class Goal(NamedTuple):
    """Goal of one figure. `gate` must be met, `aim` is the target. Without both, the figure is only shown."""

    name: str
    unit: str
    gate: float | None = None
    aim: float | None = None
    least: bool = False  # True: at least; False: at most
    digits: int = 0

    def verdict(self, value: float) -> str:
        """Return "met", "missed", or an empty text without a goal. NOT_MEASURED meets nothing and misses nothing."""
        if math.isnan(value):
            return "not measured"
        words = [
            f"{word} {'met' if self._meets(value, asked) else 'missed'}"
            for word, asked in (("gate", self.gate), ("aim", self.aim))
            if asked is not None
        ]
        return ", ".join(words)

    def asked(self) -> str:
        """Return the gate and the aim as text."""
        sign = "≥" if self.least else "≤"
        parts = [
            f"{word} {sign} {asked:g}" for word, asked in (("gate", self.gate), ("aim", self.aim)) if asked is not None
        ]
        return ", ".join(parts)

    def _meets(self, value: float, asked: float) -> bool:
        return value >= asked if self.least else value <= asked


Figures = dict[str, float]
NOT_MEASURED = math.nan
"""Figure of a share of nothing. It is shown as "–", and JSON has NaN."""


def counted(count: int) -> str:
    """Return a number of rows as the end of a figure's name, so that the name says what was measured: 10k, 1m."""
    for unit, size in (("m", 1_000_000), ("k", 1_000)):
        if count and count % size == 0:
            return f"{count // size}{unit}"
    return f"{count}"


def percentile(values: list[float], share: float) -> float:
    """Return the measured value nearest to this share of the values."""
    assert values and 0 <= share <= 1
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def slope(points: list[tuple[float, float]]) -> float:
    """Return the slope of values over seconds, per hour, by least squares."""
    at = sum(second for second, _ in points) / len(points)
    mean = sum(value for _, value in points) / len(points)
    over = sum((second - at) ** 2 for second, _ in points)
    return 3_600 * sum((second - at) * (value - mean) for second, value in points) / over

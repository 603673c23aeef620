"""What a measurement hands over: figures by name, each with what is asked of it."""

from enum import StrEnum
from typing import NamedTuple


class Size(StrEnum):
    """How much is measured: all of it, enough for a look, or just enough to see that the command works."""

    FULL = "full"
    QUICK = "quick"
    TINY = "tiny"

    def of(self, full: int, quick: int, tiny: int = 1) -> int:
        """The number for this size."""
        return {Size.FULL: full, Size.QUICK: quick, Size.TINY: tiny}[self]


class Goal(NamedTuple):
    """What is asked of one figure. `gate` must be met; `aim` is where we want to be; neither: it is only shown."""

    name: str
    unit: str
    gate: float | None = None
    aim: float | None = None
    least: bool = False  # at least so much; else at most
    digits: int = 0

    def verdict(self, value: float) -> str:
        """In words: met, missed, or '' where nothing is asked."""
        words = [
            f"{word} {'met' if self._meets(value, asked) else 'missed'}"
            for word, asked in (("gate", self.gate), ("aim", self.aim))
            if asked is not None
        ]
        return ", ".join(words)

    def asked(self) -> str:
        """The gate and the aim as people read them."""
        sign = "≥" if self.least else "≤"
        parts = [
            f"{word} {sign} {asked:g}" for word, asked in (("gate", self.gate), ("aim", self.aim)) if asked is not None
        ]
        return ", ".join(parts)

    def _meets(self, value: float, asked: float) -> bool:
        return value >= asked if self.least else value <= asked


Figures = dict[str, float]


def percentile(values: list[float], share: float) -> float:
    """The value below which this share of them lies; the nearest one that was really measured."""
    assert values and 0 <= share <= 1
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

"""Histograms of durations as SVG paths: one column for each part, on an axis that several histograms share."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from outlast.core.distributions import BOUNDS
from outlast.models.measurements import HistogramPart

HEIGHT: Final = 20
_LEAST: Final = 1
"""Least height of a column, so that one duration beside thousands is seen."""


class HistogramAxis(NamedTuple):
    """Parts of durations that a drawing has, as positions in BOUNDS: the first one, and the one after the last."""

    first: int
    after: int

    @property
    def width(self) -> int:
        """Return the number of columns."""
        return self.after - self.first

    @property
    def low_ms(self) -> int:
        """Return the least duration of the axis."""
        return BOUNDS[self.first]

    @property
    def high_ms(self) -> int | None:
        """Return the duration at which the axis ends; None: it has no end."""
        return BOUNDS[self.after] if self.after < len(BOUNDS) else None


def axis_of(histograms: Iterable[Sequence[HistogramPart]]) -> HistogramAxis:
    """Return the axis with all parts of these histograms."""
    places = [BOUNDS.index(part.from_ms) for parts in histograms for part in parts if part.from_ms in BOUNDS]
    return HistogramAxis(min(places), max(places) + 1) if places else HistogramAxis(0, 1)


def histogram_path(parts: Sequence[HistogramPart], axis: HistogramAxis) -> str:
    """Return the path of one column for each part with durations. The highest column is HEIGHT units high."""
    most = max((part.count for part in parts), default=0)
    columns = []
    for part in parts:
        if part.count and part.from_ms in BOUNDS:
            height = max(_LEAST, HEIGHT * part.count // most)
            columns.append(f"M{BOUNDS.index(part.from_ms) - axis.first} {HEIGHT}v-{height}h.9v{height}z")
    return "".join(columns)

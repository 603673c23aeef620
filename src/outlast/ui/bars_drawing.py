"""Bars of the list of runs as SVG shapes: one path per outcome, one link per bar, and words of the axis."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from outlast.core.machine import RunStatus
from outlast.core.run_filters import interval_text
from outlast.insight.run_tally import BARS_MAX, FLAGGED, RUNNING, TallyBar
from outlast.models import exact_instant

HEIGHT: Final = 40
STEP: Final = 10
WIDTH: Final = STEP * BARS_MAX
_GAP: Final = 1
_LEAST: Final = 1.5
"""Least height of a part, so that one run beside thousands is seen."""
OUTCOMES: Final = (
    RunStatus.COMPLETED.value, RUNNING, RunStatus.CANCELLED.value, FLAGGED, RunStatus.FAILED.value,
)  # fmt: skip
"""From the bottom to the top of a bar."""


class OutcomePath(NamedTuple):
    """The parts of all bars with one outcome, as one path, and their number of runs."""

    name: str
    path: str
    total: int


class BarLink(NamedTuple):
    """The place of a bar, the interval that its link asks for, and its title."""

    x: int
    interval: str
    title: str


class BarsDrawing(NamedTuple):
    """Everything that the template draws. `since`: the beginning of the axis."""

    width: int
    outcomes: Sequence[OutcomePath]
    links: Sequence[BarLink]
    highest: int
    since: datetime


def draw_bars(bars: Sequence[TallyBar]) -> BarsDrawing | None:
    """Return the drawing of bars; None without any run."""
    highest = max((bar.total for bar in bars), default=0)
    if not highest:
        return None
    paths: dict[str, list[str]] = {name: [] for name in OUTCOMES}
    totals = dict.fromkeys(OUTCOMES, 0)
    for n, bar in enumerate(bars):
        top = float(HEIGHT)
        for name in OUTCOMES:
            count = bar.counts.get(name, 0)
            if not count:
                continue
            height = min(top, max(_LEAST, (HEIGHT - 2) * count / highest))
            top -= height
            paths[name].append(f"M{n * STEP} {top:.4g}h{STEP - _GAP}v{height:.4g}h-{STEP - _GAP}z")
            totals[name] += count
    links = [BarLink(n * STEP, interval_text(bar.at), _title(bar)) for n, bar in enumerate(bars) if bar.total]
    outcomes = [OutcomePath(name, "".join(paths[name]), totals[name]) for name in OUTCOMES if totals[name]]
    return BarsDrawing(len(bars) * STEP, outcomes, links, highest, exact_instant(bars[0].at.low))


def _title(bar: TallyBar) -> str:
    parts = ", ".join(f"{bar.counts[name]:,} {name}" for name in reversed(OUTCOMES) if name in bar.counts)
    return f"{interval_text(bar.at).partition('/')[0]}: {parts}"

"""Bars of runs over time as SVG shapes: one path per outcome, one link per bar, and the ticks of both axes."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from outlast.core.machine import RunStatus
from outlast.core.run_filters import interval_text
from outlast.insight.cause_reads import BARS, FLAGGED
from outlast.insight.run_tally import DEPLOY, RUNNING, TallyBar, TimeMark
from outlast.models import exact_instant

HEIGHT: Final = 40
STEP: Final = 10
WIDTH: Final = STEP * BARS
NAMED_MAX: Final = 5
"""Deploys and pauses that the title of a line names."""
LISTED_MAX: Final = 20
"""Newest deploys and pauses that are listed below the bars."""
TOUCH: Final = 10
"""Least height of a link, so that a finger hits it."""
TICKS: Final = 4
"""Parts of the axis of time."""
_GAP: Final = 1
_LEAST: Final = 1.5
"""Least height of a part, so that one run beside thousands is seen."""
OUTCOMES: Final = (
    RunStatus.COMPLETED.value, RUNNING, RunStatus.CANCELLED.value, RunStatus.FAILED.value, FLAGGED,
)  # fmt: skip
"""From the bottom to the top of a bar."""


class OutcomePath(NamedTuple):
    """The parts of all bars with one outcome, as one path, and their number of runs."""

    name: str
    path: str
    total: int


class BarLink(NamedTuple):
    """The place of a bar, the term of the list behind it (a filter and its interval), and its title."""

    x: int
    y: float
    height: float
    field: str
    interval: str
    title: str


class MarkLine(NamedTuple):
    """The deploys and pauses of one bar: a line with a title, whose kind is that of the first."""

    path: str
    kind: str
    title: str


class ListedMark(NamedTuple):
    """A deploy or a pause below the bars. `by`, `reason`: of a pause, the texts of a person."""

    at: datetime
    text: str
    by: str
    reason: str


class BarsDrawing(NamedTuple):
    """Everything that the template draws. `bar_ms`: time of a bar; `ticks`: instants at equal distances on the axis."""

    width: int
    outcomes: Sequence[OutcomePath]
    links: Sequence[BarLink]
    highest: int
    bar_ms: int
    ticks: Sequence[datetime]
    grid: str
    """Path of a line at each tick but the first and the last."""
    marks: Sequence[MarkLine]
    listed: Sequence[ListedMark]


def draw_bars(
    bars: Sequence[TallyBar], marks: Sequence[TimeMark] = (), *, field: str = "stopped", by_kind: bool = False
) -> BarsDrawing | None:
    """Return the drawing of bars with the marks in their time; None without any run.

    `field`: filter of the list behind a bar. `by_kind`: a bar has one link for its ends, and above one for its flags.
    """
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
    links = [
        link for n, bar in enumerate(bars) if bar.total for link in _links(n, bar, highest, field, by_kind=by_kind)
    ]
    outcomes = [OutcomePath(name, "".join(paths[name]), totals[name]) for name in OUTCOMES if totals[name]]
    return BarsDrawing(
        len(bars) * STEP,
        outcomes,
        links,
        highest,
        bars[0].at.high - bars[0].at.low,
        [exact_instant(bars[0].at.low + part) for part in _parts(bars[-1].at.high - bars[0].at.low)],
        "".join(f"M{x} 0v{HEIGHT}" for x in _parts(len(bars) * STEP)[1:-1]),
        _lines(bars, marks),
        [ListedMark(exact_instant(each.at), mark_text(each), each.by, each.reason) for each in marks[-LISTED_MAX:]],
    )


def _parts(whole: int) -> list[int]:
    """Return the places of the ticks on an axis."""
    return [whole * n // TICKS for n in range(TICKS + 1)]


def _lines(bars: Sequence[TallyBar], marks: Sequence[TimeMark]) -> list[MarkLine]:
    """Return one line for each bar with marks, at the place of the first."""
    found: list[MarkLine] = []
    for n, bar in enumerate(bars):
        here = [each for each in marks if bar.at.has(each.at)]
        if here:
            x = n * STEP + STEP * (here[0].at - bar.at.low) / (bar.at.high - bar.at.low)
            named = ", ".join(mark_text(each) for each in here[:NAMED_MAX])
            more = f" and {len(here) - NAMED_MAX} more" if len(here) > NAMED_MAX else ""
            at = interval_text(bar.at).partition("/")[0]
            found.append(MarkLine(f"M{x:.4g} 0v{HEIGHT}", here[0].kind, f"{at}: {named}{more}"))
    return found


def mark_text(mark: TimeMark) -> str:
    """Return what happened at a mark, without texts of people."""
    return f"{mark.name} deployed" if mark.kind == DEPLOY else f"{mark.name} paused"


def _links(n: int, bar: TallyBar, highest: int, field: str, *, by_kind: bool) -> list[BarLink]:
    """Return the links of a bar: the runs that ended below, those that were flagged above, if it has both."""
    interval = interval_text(bar.at)
    if not by_kind:
        return [BarLink(n * STEP, 0, HEIGHT, field, interval, _title(bar))]
    ends = bar._replace(counts={name: count for name, count in bar.counts.items() if name != FLAGGED})
    flags = bar._replace(counts={name: count for name, count in bar.counts.items() if name == FLAGGED})
    if not ends.total or not flags.total:
        return [BarLink(n * STEP, 0, HEIGHT, "ended" if ends.total else "flagged", interval, _title(bar))]
    height = round(min(HEIGHT - TOUCH, max(TOUCH, (HEIGHT - 2) * ends.total / highest)), 1)
    return [
        BarLink(n * STEP, HEIGHT - height, height, "ended", interval, _title(ends)),
        BarLink(n * STEP, 0, HEIGHT - height, "flagged", interval, _title(flags)),
    ]


def _title(bar: TallyBar) -> str:
    parts = ", ".join(f"{bar.counts[name]:,} {name}" for name in reversed(OUTCOMES) if name in bar.counts)
    return f"{interval_text(bar.at).partition('/')[0]}: {parts}"

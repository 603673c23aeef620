"""Drawing of a timeline: a scale whose idle spans are cut out, and the places of bars and marks.

Pure functions from the model to boxes. Time in which no attempt runs and nothing begins or ends is idle: a long idle
span is drawn as a gap with its duration written in it.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final, NamedTuple

from outlast.models.timeline import Timeline, TimelineBar, TimelineMark

WIDTH: Final = 832.0
"""Width of the time, so that a window of 1,100 pixels shows the whole."""
LEFT: Final = 176.0
"""Width of the names of lanes."""
GAP: Final = 56.0
"""Width of a span that was cut."""
GAPS_MAX: Final = 8
CUT_SHARE: Final = 0.25
"""An idle span is cut if it is more than this part of the time that is drawn."""
CUT_MIN: Final = timedelta(seconds=1)
ROW: Final = 14.0
ROWS_MAX: Final = 6
LANE_PAD: Final = 12.0
TOP: Final = 40.0
BAR_MIN: Final = 3.0
BARS_MAX: Final = 150
"""Bars of a page, because a page has at most 60 KB."""
EACH_MAX: Final = 40
"""Bars of a timeline that has a row with a name for each bar. Of a longer one, the lane that is opened has them."""
TICKS: Final = 8
TICK_MIN: Final = 72.0
_ROUND: Final = (
    (1, (1, 2, 5, 10, 20, 50, 100, 200, 500)),
    (1_000, (1, 2, 5, 10, 30)),
    (60_000, (1, 2, 5, 10, 30)),
    (3_600_000, (1, 2, 6, 12)),
    (86_400_000, (1, 2, 7, 30, 90, 365, 3_650)),
)
STEPS: Final = tuple(timedelta(milliseconds=n * unit) for unit, of in _ROUND for n in of)
"""Times between two marks of the axis."""
LANES_MAX: Final = 40
"""Lanes of a page, for the same reason; of more, those with bars in the span that is shown."""


class Cut(NamedTuple):
    """Idle span that is not drawn to scale."""

    begin: datetime
    end: datetime
    x: float
    width: float

    @property
    def ms(self) -> int:
        """Length of the span in milliseconds."""
        return (self.end - self.begin) // timedelta(milliseconds=1)


class Scale(NamedTuple):
    """Places of instants: straight between neighbouring `instants`, which are at `places`."""

    instants: tuple[datetime, ...]
    places: tuple[float, ...]
    cuts: tuple[Cut, ...]

    def at(self, instant: datetime) -> float:
        """Return the place of an instant; those outside are at the ends."""
        n = bisect_right(self.instants, instant) - 1
        if n < 0:
            return self.places[0]
        if n >= len(self.instants) - 1:
            return self.places[-1]
        begin, end = self.instants[n], self.instants[n + 1]
        part = (instant - begin) / (end - begin) if end > begin else 0.0
        return self.places[n] + part * (self.places[n + 1] - self.places[n])

    def split(self, begin: datetime, end: datetime, share: float) -> tuple[datetime, datetime]:
        """Return where the first part of a drawn span ends and the other one begins. `share`: of its drawn width.

        Both are the same instant, unless idle time is cut out there.
        """
        x = self.at(begin) + share * (self.at(end) - self.at(begin))
        for cut in self.cuts:
            if cut.x <= x <= cut.x + cut.width:
                return max(begin, cut.begin), min(end, cut.end)
        n = min(max(0, bisect_right(self.places, x) - 1), max(0, len(self.places) - 2))
        if n + 1 >= len(self.places) or self.places[n + 1] <= self.places[n]:
            return begin, begin
        part = (x - self.places[n]) / (self.places[n + 1] - self.places[n])
        at = self.instants[n] + part * (self.instants[n + 1] - self.instants[n])
        return at, at


def scale_of(instants: Iterable[datetime], busy: Sequence[tuple[datetime, datetime]], width: float = WIDTH) -> Scale:
    """Return the scale over these instants. `busy`: spans that are never cut."""
    points = tuple(sorted(set(instants)))
    if len(points) < 2:
        return Scale(points, (0.0,) * len(points), ())
    spans = [end - begin for begin, end in pairwise(points)]
    idle = _idle(points, busy)
    cut: set[int] = set()
    drawn = sum(spans, timedelta())
    for n in sorted(range(len(spans)), key=lambda i: spans[i], reverse=True):
        if n not in idle:
            continue
        if len(cut) == GAPS_MAX or spans[n] < CUT_MIN or spans[n] <= drawn * CUT_SHARE:
            break
        cut.add(n)
        drawn -= spans[n]
    gap = GAP if len(cut) < len(spans) else width / len(spans)
    rest = width - gap * len(cut)
    places = [0.0]
    for n, span in enumerate(spans):
        places.append(places[-1] + (gap if n in cut else rest * (span / drawn)))
    cuts = tuple(Cut(points[n], points[n + 1], places[n], gap) for n in sorted(cut))
    return Scale(points, tuple(places), cuts)


def _idle(points: Sequence[datetime], busy: Sequence[tuple[datetime, datetime]]) -> set[int]:
    """Return the numbers of the spans between points that no busy span overlaps."""
    found: set[int] = set()
    waiting = sorted(busy)
    latest, n = datetime.min.replace(tzinfo=points[0].tzinfo), 0
    for i, (begin, _) in enumerate(pairwise(points)):
        while n < len(waiting) and waiting[n][0] <= begin:
            latest = max(latest, waiting[n][1])
            n += 1
        if latest <= begin:
            found.add(i)
    return found


class Tick(NamedTuple):
    """Mark of the axis: its place, and the time since the start of the run in milliseconds."""

    x: float
    ms: int


def ticks_of(scale: Scale, began: datetime) -> list[Tick]:
    """Return the marks of the axis: at round times since the start, not where idle time is cut, and not too close."""
    cuts = {cut.begin for cut in scale.cuts}
    parts = [(a, b) for a, b in pairwise(scale.instants) if a not in cuts and b > a]
    drawn = sum((b - a for a, b in parts), timedelta())
    step = next((each for each in STEPS if each * TICKS >= drawn), STEPS[-1])
    found = list[Tick]()
    for begin, end in parts:
        at = began + step * -((began - begin) // step)  # the first round time in this part
        for _ in range(2 * TICKS):
            if at > end:
                break
            x = scale.at(at)
            if at >= begin and (not found or x - found[-1].x >= TICK_MIN):
                found.append(Tick(x, (at - began) // timedelta(milliseconds=1)))
            at += step
    return found


class DrawnBar(NamedTuple):
    """Bar with its place. `bars`: number of bars that it shows. `named`: it has a row, so its name fits beside it."""

    bar: TimelineBar
    x: float
    y: float
    width: float
    bars: int
    named: bool = False


class DrawnLane(NamedTuple):
    """Lane of a node with its place."""

    node: str
    visits: int
    y: float
    height: float


class DrawnMark(NamedTuple):
    """Mark with its place."""

    mark: TimelineMark
    x: float


class DrawnTimeline(NamedTuple):
    """Timeline ready to be drawn. `now` and `deadline` are places; None if they are outside."""

    lanes: tuple[DrawnLane, ...]
    bars: tuple[DrawnBar, ...]
    marks: tuple[DrawnMark, ...]
    cuts: tuple[Cut, ...]
    now: float | None
    deadline: float | None
    width: float
    height: float
    grouped: bool
    hidden: int
    """Lanes that are not drawn."""
    ticks: tuple[Tick, ...]
    middle: tuple[datetime, datetime]
    """End of the first half of the drawn time, and beginning of the second one."""
    latest: datetime
    """Beginning of the last tenth of the drawn time."""


def drawn_timeline(found: Timeline, opened: str = "", rows: Sequence[TimelineBar] = ()) -> DrawnTimeline:
    """Return the places of lanes, bars and marks.

    `opened`: the only lane that is drawn, with a row for each bar of `rows`, in their order.
    """
    begin, end = found.from_, found.to
    is_open = found.ended is None and end >= found.now
    now = found.now if is_open and found.now >= begin else None
    deadline = found.next_deadline if is_open and found.next_deadline else None
    last = max(end, deadline) if deadline is not None else end
    spans = {bar.id: (max(bar.began, begin), min(bar.ended or last, last)) for bar in found.bars}
    points = [begin, end, *(point for span in spans.values() for point in span), *(mark.at for mark in found.marks)]
    points += [point for point in (now, deadline) if point is not None]
    busy = [spans[bar.id] for bar in found.bars if bar.kind == "attempt"]
    scale = scale_of((point for point in points if begin <= point <= last), busy)
    bars: list[DrawnBar] = []
    lanes: list[DrawnLane] = []
    y, grouped = TOP, found.grouped
    shown = found.lanes if len(found.lanes) <= LANES_MAX else [lane for lane in found.lanes if lane.bars][:LANES_MAX]
    shown = [lane for lane in shown if opened in ("", lane.node)]
    share = max(2, BARS_MAX // max(1, len(shown)))
    each = bool(opened) or len(found.bars) <= EACH_MAX
    for lane in shown:
        mine = rows if opened else [bar for bar in found.bars if bar.node == lane.node]
        placed = [_place(bar, scale, spans[bar.id]) for bar in mine]
        kept = placed if each else _merged(placed, share)
        grouped = grouped or len(kept) < len(placed)
        lines = _own_rows(kept) if each else _rows(kept)
        bars += [
            bar._replace(y=y + LANE_PAD / 2 + line * ROW, named=each and bar.bar.kind != "visit")
            for bar, line in zip(kept, lines, strict=True)
        ]
        height = (max(lines, default=0) + 1) * ROW + LANE_PAD
        lanes.append(DrawnLane(lane.node, lane.visits, y, height))
        y += height
    marks = tuple(DrawnMark(mark, LEFT + scale.at(mark.at)) for mark in found.marks[-BARS_MAX:])
    return DrawnTimeline(
        tuple(lanes),
        tuple(bars),
        marks,
        tuple(cut._replace(x=LEFT + cut.x) for cut in scale.cuts),
        LEFT + scale.at(now) if now is not None and now <= last else None,
        LEFT + scale.at(deadline) if deadline is not None else None,
        LEFT + WIDTH + 40,
        y + 20,
        grouped,
        0 if opened else len(found.lanes) - len(shown),
        tuple(tick._replace(x=LEFT + tick.x) for tick in ticks_of(scale, found.began)),
        scale.split(begin, end, 0.5),
        scale.split(begin, end, 0.9)[1],
    )


def _place(bar: TimelineBar, scale: Scale, span: tuple[datetime, datetime]) -> DrawnBar:
    x = scale.at(span[0])
    return DrawnBar(bar, LEFT + x, 0.0, max(BAR_MIN, scale.at(span[1]) - x), bar.count)


def _merged(bars: Sequence[DrawnBar], most: int) -> list[DrawnBar]:
    """Return at most about `most` bars: neighbours of one kind and outcome become one, the closest first.

    If more overlap than there are rows, those that overlap become one, because a bar would hide another one.
    """
    found, near = list(bars), 1.0
    while near < WIDTH * 2 and (len(found) > most or (near == 1.0 and _is_crowded(found))):
        found, near = _joined(found, near), near * 2
    return sorted(found, key=lambda each: (each.bar.kind != "visit", each.x))


def _joined(bars: Iterable[DrawnBar], near: float) -> list[DrawnBar]:
    """Return bars of one kind and outcome as one if they overlap or are this near."""
    kept: dict[tuple[str, str], DrawnBar] = {}
    done: list[DrawnBar] = []
    for bar in sorted(bars, key=lambda each: each.x):
        key = (bar.bar.kind, bar.bar.outcome)
        last = kept.get(key)
        if last is not None and bar.x - (last.x + last.width) <= near:
            right = max(last.x + last.width, bar.x + bar.width)
            kept[key] = last._replace(width=right - last.x, bars=last.bars + bar.bars)
            continue
        if last is not None:
            done.append(last)
        kept[key] = bar
    return [*done, *kept.values()]


def _is_crowded(bars: Sequence[DrawnBar]) -> bool:
    """Return True if a bar would hide another one of its row."""
    ordered = sorted(bars, key=lambda each: (each.bar.kind != "visit", each.x))
    ends = dict[int, float]()
    for bar, row in zip(ordered, _rows(ordered), strict=True):
        if bar.x < ends.get(row, 0.0):
            return True
        ends[row] = bar.x + bar.width
    return False


def _own_rows(bars: Sequence[DrawnBar]) -> list[int]:
    """Return a separate row for each bar, in their order. Visits, which do not overlap, share the first row."""
    found, line = list[int](), int(any(bar.bar.kind == "visit" for bar in bars))
    for bar in bars:
        found.append(0 if bar.bar.kind == "visit" else line)
        line += bar.bar.kind != "visit"
    return found


def _rows(bars: Sequence[DrawnBar]) -> list[int]:
    """Return a row for each bar, so that bars do not overlap while there are rows. Visits have the first one."""
    ends: list[float] = []
    rows = []
    for bar in bars:
        first = 0 if bar.bar.kind == "visit" else 1
        row = next((n for n, right in enumerate(ends) if n >= first and right <= bar.x), max(first, len(ends)))
        row = min(row, ROWS_MAX - 1)
        ends += [0.0] * (row + 1 - len(ends))
        ends[row] = max(ends[row], bar.x + bar.width)
        rows.append(row)
    return rows

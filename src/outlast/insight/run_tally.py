"""Totals of a list of runs by status, and the instants at which its runs started and stopped.

They are counted from the newest matching runs, at most as many as the store counts at once. Older runs are
not counted, and the answer says so.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from outlast.core.durations import DAY, HOUR, MINUTE, SECOND
from outlast.core.machine import TERMINAL
from outlast.core.rows.run_rows import Run
from outlast.core.run_filters import Interval
from outlast.insight.tenant_rows import TenantRows, stopped_at
from outlast.operations.run_operations import ListRuns

BARS_MAX: Final = 48
FLAGGED: Final = "flagged"
RUNNING: Final = "started"
_WIDTHS: Final = (
    SECOND, 10 * SECOND, 30 * SECOND, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR,
    2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 28 * DAY,
)  # fmt: skip
"""Widths of a bar. Beyond the last one, older runs have no bar."""


class TallyBar(NamedTuple):
    """Runs of one interval by outcome: a status of an end, `flagged`, or `started`."""

    at: Interval
    counts: dict[str, int]

    @property
    def total(self) -> int:
        """Return the number of runs of the bar."""
        return sum(self.counts.values())


class RunTally(NamedTuple):
    """Totals of a list by status without its filter by status, and bars of the list."""

    by_status: dict[str, int]
    flagged: int
    complete: bool
    """False: older runs match and are not counted, so each number is a lower bound."""
    bars: Sequence[TallyBar]
    whole_bars: bool
    """False: runs before the first bar are not drawn."""

    @property
    def total(self) -> int:
        """Return the number of runs that were counted."""
        return sum(self.by_status.values())


async def tally_of(rows: TenantRows, of: ListRuns, *, starts: bool = False) -> RunTally:
    """Count the runs of a list. `starts`: the bars are of starts instead of ends and calls for a person."""
    every = replace(of, status="", cursor="")
    found, complete = await rows.matching(every, rows.store.count_max)
    kept = [run for run in found if of.status in ("", run.status)]
    instants = [_event(run, starts=starts) for run in kept]
    now = (await rows.store.now()).business
    bars, whole = bars_of([each for each in instants if each[0]], now)
    return RunTally(
        dict(Counter(run.status.value for run in found)),
        sum(bool(run.attention_text) for run in found),
        complete,
        bars,
        whole and complete,
    )


def bars_of(events: Sequence[tuple[int, str]], now: int) -> tuple[list[TallyBar], bool]:
    """Return bars of equal width up to now, and whether they have every event.

    A bar begins at a multiple of its width.
    """
    if not events:
        return [], True
    first = min(at for at, _ in events)
    width = next((w for w in _WIDTHS if now // w - first // w < BARS_MAX), _WIDTHS[-1])
    last = max(now, *(at for at, _ in events)) // width
    begin = max(last - BARS_MAX + 1, 0)
    bars = [TallyBar(Interval(n * width, (n + 1) * width), {}) for n in range(begin, last + 1)]
    whole = True
    for at, outcome in events:
        place = at // width - begin
        if place < 0:
            whole = False
            continue
        counts = bars[place].counts
        counts[outcome] = counts.get(outcome, 0) + 1
    return bars, whole


def _event(run: Run, *, starts: bool) -> tuple[int, str]:
    """Return instant and outcome of a run in the bars; 0 if it has none."""
    outcome = run.status.value if run.status in TERMINAL else FLAGGED if run.attention_text else RUNNING
    return (run.created_at if starts else stopped_at(run)), outcome

"""A run with all that people look at, from one look at its rows: what the command line shows and HTTP answers."""

from typing import Any

from outlast.core.rows import is_over
from outlast.runtime.asked import asked_of
from outlast.runtime.progress import progress_of
from outlast.runtime.reading import Reading, in_order
from outlast.runtime.seen import Seen
from outlast.runtime.views import effect_counts, ending_of, run_view, takeovers_of, visits_of
from outlast.runtime.words import lanes_served


async def whole_run(ops: Reading, run: str) -> tuple[dict[str, Any], Seen]:
    """The run as data, and the rows that it was made from. Raises NotFound."""
    seen = await ops.seen(run)
    row = seen.run
    events = seen.events
    if len(events) < row.seq:
        events = [event for event in await ops.whole_history(run) if event.seq <= row.seq]
    effects = in_order(run, (*seen.effects, *seen.used))
    view = {
        **run_view(row, lanes_served(seen.workers, seen.now)),
        "asked": [] if is_over(row) or not row.mail else asked_of(row, seen.notes),
        "visits": visits_of(row, events),
        "effects": effect_counts(effects),
        "takeovers": takeovers_of(events, seen.workers, ops.store.mapping().real),
        "progress": progress_of(row, events, effects),
        **(ending_of(events) or {}),
    }
    return view, seen

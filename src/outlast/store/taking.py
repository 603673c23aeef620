"""Which runs a take is offered: those found in the store, as the earlier commits of the batch leave them."""

from collections.abc import Iterable

from outlast.core.rows import RUN, Run
from outlast.store.batch import Batch
from outlast.store.tickets import Take


def most_of(take: Take, batch: Batch) -> int:
    """How many runs to look for: those that the batch has changed may no longer be candidates."""
    return take.n + len(batch.changes[RUN.name])


def candidates(take: Take, batch: Batch, found: Iterable[Run]) -> list[Run]:
    """At most `take.n` runs, the oldest due first, or, where owners are named, theirs in the order of the owners."""
    changed = batch.changes[RUN.name]
    runs = [left.row for left in changed.values() if isinstance(left.row, Run)]
    runs += [run for run in found if run[:2] not in changed]
    if take.owners:
        runs = [run for run in runs if run.owner in take.owners]
        runs.sort(key=lambda run: (take.owners.index(run.owner), run.tenant, run.run))
    else:
        real, lanes = batch.now.real, take.lanes
        runs = [run for run in runs if run.due_at is not None and run.due_at <= real and run.lane in lanes]
        runs.sort(key=lambda run: (run.due_at or 0, run.tenant, run.run))
    return runs[: take.n]

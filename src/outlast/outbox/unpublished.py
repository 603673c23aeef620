"""Unpublished events become cursors that owe them: each event a subscription wants is known to a cursor (S-11).

A pass reads unpublished events first and subscriptions after (see `subscriptions.add`). An event's unpublished row is
deleted in the commit that updates its cursors, so a crash in between repeats the pass.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from outlast.core.commit import Commit, Drop, Instant, Put
from outlast.core.crash_points import point
from outlast.core.limits import SMALL_ROWS_MAX
from outlast.core.machine import SWEPT
from outlast.core.rows.outbox_rows import CURSOR, SUBSCRIPTION, UNPUBLISHED, Cursor, Subscription, Unpublished
from outlast.core.rows.row_kind import Key
from outlast.core.rows.run_rows import EVENT, RUN, Run
from outlast.core.webhooks import deliveries
from outlast.errors import Stale
from outlast.outbox import subscriptions
from outlast.store.port import Store

AT_ONCE: Final = 200  # unpublished events, or runs, per pass
Owed = set[str]
"""Subscriptions that owe more events."""


async def assign_unpublished(store: Store, tenant: str) -> tuple[int, Owed]:
    """Process one batch of a tenant's unpublished events; return their number and the subscriptions that owe more."""
    marks = await store.rows(UNPUBLISHED, (tenant,), limit=AT_ONCE)
    if not marks:
        return 0, set()
    active = [row for row in await subscriptions.of_tenant(store, tenant) if deliveries.is_active(row)]
    by_run: defaultdict[str, list[Unpublished]] = defaultdict(list)
    for mark in marks:
        by_run[mark.run].append(mark)
    upto = {run: _wanted(active, of_run) for run, of_run in by_run.items()}
    puts, owed = await _owe(store, tenant, {run: wanted for run, wanted in upto.items() if wanted})
    point("outbox.found", (tenant,))
    commits: list[Commit] = []
    for run, of_run in by_run.items():
        drops = [Drop(mark.tenant, mark.run, mark.seq) for mark in of_run]
        commits += _commits(run, puts.get(run, ()), drops)
    await asyncio.gather(*(_land(store, commit) for commit in commits))
    return len(marks), owed


def _wanted(active: Sequence[Subscription], marks: Sequence[Unpublished]) -> list[tuple[Subscription, int]]:
    """Return the subscriptions that want any of these events of a run, each with the last one it wants."""
    found = []
    for each in active:
        seqs = [mark.seq for mark in marks if mark.at >= each.since and deliveries.wants_type(each, mark.type)]
        if seqs:
            found.append((each, max(seqs)))
    return found


async def _owe(
    store: Store, tenant: str, wanted: dict[str, list[tuple[Subscription, int]]]
) -> tuple[dict[str, list[Put]], Owed]:
    """Return the cursors to create or move for each run, and their subscriptions."""
    keys: list[Key] = [(tenant, run, each.subscription) for run, of_run in wanted.items() for each, _ in of_run]
    cursors = dict(zip(keys, await store.load_many(CURSOR, keys), strict=True))
    flows = any(each.workflows for of_run in wanted.values() for each, _ in of_run)
    asked = [
        run
        for run in wanted
        if flows or any(cursors[tenant, run, each.subscription] is None for each, _ in wanted[run])
    ]
    runs = dict(zip(asked, await store.load_many(RUN, [(tenant, run) for run in asked]), strict=True))
    now = await store.now()
    puts: defaultdict[str, list[Put]] = defaultdict(list)
    owed: Owed = set()
    for run, of_run in wanted.items():
        for each, upto in of_run:
            row = runs.get(run)
            if run in runs and (row is None or not deliveries.wants_workflow(each, row.workflow)):
                continue  # the run was purged, or has another workflow
            cursor = cursors[tenant, run, each.subscription]
            put = await _put(store, each, cursor, row, upto, now)
            if put is not None:
                puts[run].append(put)
                owed.add(each.subscription)
    return puts, owed


async def _put(
    store: Store, each: Subscription, cursor: Cursor | None, run: Run | None, upto: int, now: Instant
) -> Put | None:
    """Return the cursor that owes the wanted events; None if it already does."""
    if cursor is not None:
        after = deliveries.owe(cursor, upto, now)
        return None if after is None else Put(CURSOR, after, cursor.version)
    assert run is not None
    start = await _start(store, run, each.since)
    return Put(CURSOR, deliveries.open_cursor(each, run.run, start, upto, now), 0) if start < upto else None


async def _start(store: Store, run: Run, since: int) -> int:
    """Return the number of the last event of a run before an instant; 0 = none. Events are ordered by time."""
    if run.created_at >= since:
        return 0
    low, high = 0, run.seq  # event `low` is before the instant, event `high` + 1 is not
    while low < high:
        middle = (low + high + 1) // 2
        event = await store.load(EVENT, (run.tenant, run.run, middle))
        if event is not None and event.at < since:
            low = middle
        else:
            high = middle - 1
    return low


def _commits(run: str, puts: Sequence[Put], drops: Sequence[Drop]) -> list[Commit]:
    """Build commits of bounded size; unpublished rows are deleted last."""
    size = SMALL_ROWS_MAX
    if len(puts) + len(drops) <= size:
        return [Commit((*puts, *drops), label=f"{run} find")]
    # Too many for one commit: cursors first, because repeating them changes nothing.
    parts = [Commit(tuple(puts[i : i + size]), label=f"{run} find") for i in range(0, len(puts), size)]
    if puts:
        return parts  # the next pass finds the unpublished rows again, and no cursor needs them then
    return [Commit(tuple(drops[i : i + size]), label=f"{run} find") for i in range(0, len(drops), size)]


async def _land(store: Store, commit: Commit) -> None:
    try:
        await store.commit(commit)
    except Stale:
        pass  # another dispatcher moved a cursor; the next pass finds these events again


async def backfill(store: Store, row: Subscription) -> bool:
    """Process one batch of older runs for a subscription that begins at the start or was re-enabled.

    Return True if the subscription owes more.
    """
    after = (row.tenant, row.swept) if row.swept else ()
    runs = await store.rows(RUN, (row.tenant,), after=after, limit=AT_ONCE)
    wanted = {run.run: [(row, run.seq)] for run in runs if deliveries.wants_workflow(row, run.workflow)}
    puts, owed = await _owe(store, row.tenant, wanted)
    writes = [put for of_run in puts.values() for put in of_run]
    size = SMALL_ROWS_MAX
    for i in range(0, len(writes), size):
        await store.commit(Commit(tuple(writes[i : i + size]), label=f"{row.subscription} sweep"))
    moved = deliveries.swept(row, runs[-1].run if len(runs) == AT_ONCE else SWEPT)
    await store.commit(Commit((Put(SUBSCRIPTION, moved, row.version),), label=f"{row.subscription} swept"))
    return bool(owed)

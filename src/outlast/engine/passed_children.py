"""Children that the window of their parent has passed: their runs go before the rows that name them (S-32).

A holder that dies in between leaves a row without a run. The row is behind the floor, so the next holder deletes it.
"""

from collections.abc import Iterable
from typing import Final

from outlast.core.children import runs_of
from outlast.core.rows.effect_rows import EFFECT, Effect
from outlast.core.rows.map_rows import MAP_OUTCOME, MapOutcome
from outlast.core.rows.outbox_rows import CURSOR, UNPUBLISHED
from outlast.core.rows.row_kind import Kind, key_of
from outlast.core.rows.run_rows import RUN, Run, RunKey, is_over
from outlast.core.window import Behind
from outlast.store.port import Store, maintenance

RUNS_MAX: Final = 10_000
"""Runs below a child that are deleted with it. A child with more stays as long as its root."""


async def forget_runs_of(store: Store, rows: Iterable[Behind], kept: frozenset[str]) -> list[Behind]:
    """Delete the runs of children whose rows are about to go, and return the rows that may go.

    The row of a child stays while a run below it has not ended, or a webhook waits for one of its events. `kept`: ids
    of children that other rows of the ledger name. Raises StoreError.
    """
    found: list[Behind] = []
    for each in rows:
        named = [run for run in _named_by(each.row) if run not in kept]
        if named:
            runs = await _with_those_below(store, each.row[0], named)
            if runs is None:
                continue
            await maintenance(store).purge_runs(runs)
        found.append(each)
    return found


def _named_by(row: object) -> list[str]:
    if isinstance(row, MapOutcome):
        return [row.child] if row.child else []
    return runs_of(row) if isinstance(row, Effect) and row.child_text else []


async def _with_those_below(store: Store, tenant: str, ids: list[str]) -> list[Run] | None:
    """Return these runs and all below them, the lowest first; None if one of them must stay."""
    found: list[Run] = []
    while ids:
        if len(found) + len(ids) > RUNS_MAX:
            return None
        below: list[str] = []
        for run in await store.load_many(RUN, [(tenant, each) for each in ids]):
            if run is None:
                continue
            if not is_over(run) or await owed_to_webhooks(store, run[:2]):
                return None
            found.append(run)
            for kind in (EFFECT, MAP_OUTCOME):
                below += await _ids_in(store, kind, run[:2])
        ids = below
    return found[::-1]


async def _ids_in(store: Store, kind: Kind[Effect] | Kind[MapOutcome], run: RunKey) -> list[str]:
    found: list[str] = []
    after: tuple[str | int, ...] = ()
    while page := await store.rows(kind, run, after=after):
        found += [each for row in page for each in _named_by(row)]
        after = key_of(kind, page[-1])
    return found


async def owed_to_webhooks(store: Store, run: RunKey) -> int:
    """Return the number of the first event of a run that a webhook waits for; 0 if none does. Raises StoreError."""
    marks = await store.rows(UNPUBLISHED, run, limit=1)
    cursors = await store.rows(CURSOR, run)
    owed = [*(mark.seq for mark in marks), *(each.seq + 1 for each in cursors if each.seq < each.upto)]
    return min(owed, default=0)

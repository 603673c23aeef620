"""Maps of a run as readers see them: counts, and the first children that failed (S-31)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from outlast.core import maps
from outlast.core.children import place_of
from outlast.core.divergence import MAP
from outlast.core.rows.effect_columns import NO_ERROR
from outlast.core.rows.effect_rows import MEMO, Effect, Memo
from outlast.core.rows.map_rows import MAP_OUTCOME, MAP_PROGRESS, MapOutcome, MapProgress
from outlast.core.rows.row_kind import Key, key_of
from outlast.core.rows.run_rows import RUN, Run
from outlast.models.runs import FailedChild, RunMap
from outlast.store.port import RunRows, Store

MAPS_MAX: Final = 20
"""Maps that one answer lists, the latest ones."""
FAILED_MAX: Final = 5
"""Failed children of one map that an answer lists."""


async def maps_of(store: Store, rows: RunRows) -> list[RunMap]:
    """Return the latest maps of a run, in the order of their visits."""
    memos = [memo for memo in rows.memos if memo.activity == MAP and memo.digest][-MAPS_MAX:]
    if not memos:
        return []
    found = await store.load_many(MAP_PROGRESS, [(*memo[:3], maps.name_of(memo)) for memo in memos])
    return [
        await _map_of(store, rows, memo, progress)
        for memo, progress in zip(memos, found, strict=True)
        if progress is not None
    ]


async def _map_of(store: Store, rows: RunRows, memo: Memo, progress: MapProgress) -> RunMap:
    calls = maps.calls_of(progress.key, rows.run._replace(visit=memo.visit), rows.effects)
    failed = [n for n, letter in enumerate(progress.states) if letter.lower() == maps.FAILED][:FAILED_MAX]
    outcomes = await store.load_many(MAP_OUTCOME, [(*progress[:4], n) for n in failed]) if failed else ()
    there = [row for row in outcomes if row is not None]
    names: list[Key] = [(row.tenant, row.child) for row in there if row.child]
    runs = await store.load_many(RUN, names, listed=True) if names else ()
    return map_model(memo, progress, calls, there, {row.run: row for row in runs if row is not None})


def map_model(
    memo: Memo,
    progress: MapProgress,
    calls: Mapping[int, Effect],
    failed: Sequence[MapOutcome],
    runs: Mapping[str, Run],
) -> RunMap:
    """Return a map. `calls`: its rows in the ledger; `failed`: outcomes of some that failed, and their `runs`."""
    terms = maps.terms_of(memo)
    letters = Counter(progress.states.lower())
    letters.update(maps.letter_of(calls[n]) for n in maps.to_count(progress, calls))
    ended = letters[maps.COMPLETED] + letters[maps.FAILED] + letters[maps.CANCELLED]
    running = len(maps.living(calls))
    return RunMap(
        key=maps.key_of_map(progress.key),
        visit=progress.visit,
        workflow=terms.workflow,
        inputs=terms.n,
        at_most=terms.at_most,
        completed=letters[maps.COMPLETED],
        failed=letters[maps.FAILED],
        cancelled=letters[maps.CANCELLED],
        running=running,
        not_started=max(terms.n - ended - running, 0),
        decided=progress.decided,
        ended=bool(progress.settled),
        failed_children=[_failed_child(terms.workflow, row, runs.get(row.child)) for row in failed],
    )


def _failed_child(workflow: str, row: MapOutcome, run: Run | None) -> FailedChild:
    """Return a child of a map that failed. One that was purged or not started is known by the place of its input."""
    error = row.error or NO_ERROR
    key = place_of(run)[1] if run is not None else f"input {row.place + 1}"
    return FailedChild(workflow=workflow, key=key, run=row.child, code=error.code, detail=error.detail)


async def counted_children(store: Store, tenant: str, run: str) -> list[str]:
    """Return the ids of the children that maps of a run have counted."""
    memos = await store.rows(MEMO, (tenant, run))
    if not any(memo.activity == MAP for memo in memos):
        return []
    found, prefix = list[str](), (tenant, run)
    after: Key = ()
    while page := await store.rows(MAP_OUTCOME, prefix, after=after):
        found += [row.child for row in page if row.child]
        after = key_of(MAP_OUTCOME, page[-1])
    return found

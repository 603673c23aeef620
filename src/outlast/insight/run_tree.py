"""The tree of runs below a run, read level by level from the ledgers of the parents."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from outlast.core import children
from outlast.core.machine import EffectStatus, RunStatus
from outlast.core.rows.effect_columns import NO_ERROR
from outlast.core.rows.effect_rows import EFFECT, Effect
from outlast.core.rows.run_rows import RUN
from outlast.insight.run_maps import counted_children
from outlast.insight.run_reads import summaries_of
from outlast.insight.tenant_rows import TenantRows
from outlast.models.child_tree import RunTree, TreeRun
from outlast.models.runs import RunSummary

TREE_RUNS_MAX: Final = 50
"""Runs that one tree lists. Each takes the read of one ledger."""


class Level(NamedTuple):
    """Chosen rows of each parent's ledger, and the number of rows that were left out."""

    calls: Mapping[str, Sequence[Effect]]
    left_out: int


async def tree_of(rows: TenantRows, run: str) -> RunTree:
    """Return the runs below a run, at most TREE_RUNS_MAX. Raises NotFound."""
    top = await rows.run(run)
    serving = await rows.serving()
    found: dict[str, list[TreeRun]] = {}
    parents, room, more, level = [run], TREE_RUNS_MAX, 0, 1
    while parents:
        ledgers = await asyncio.gather(*(rows.store.rows(EFFECT, (rows.tenant, each)) for each in parents))
        calls, left_out = chosen(dict(zip(parents, ledgers, strict=True)), room)
        asked = [call.external_id for of_parent in calls.values() for call in of_parent]
        summaries = {each.run: each for each in await _summaries(rows, asked, serving)} if asked else {}
        for parent, of_parent in calls.items():
            found[parent] = [tree_run(call, summaries.get(call.external_id), level) for call in of_parent]
        room, more, parents, level = room - len(asked), more + left_out, list(summaries), level + 1
    return RunTree(run=run, parent=top.parent, root=top.root, children=in_tree_order(run, found), more=more)


async def runs_below(rows: TenantRows, run: str) -> list[str]:
    """Return the ids of all runs below a run, level by level, those of failed attempts included. Purged ones are left
    out.
    """
    found, parents = list[str](), [run]
    while parents:
        ledgers = [await rows.store.rows(EFFECT, (rows.tenant, each)) for each in parents]
        ids = [each for ledger in ledgers for call in ledger if call.child_text for each in children.runs_of(call)]
        for parent in parents:
            ids += {*await counted_children(rows.store, rows.tenant, parent)} - {*ids}
        loaded = await rows.store.load_many(RUN, [(rows.tenant, each) for each in ids], listed=True) if ids else ()
        parents = [row.run for row in loaded if row is not None]
        found += parents
    return found


async def _summaries(rows: TenantRows, runs: Sequence[str], serving: frozenset[str]) -> list[RunSummary]:
    found = await rows.store.load_many(RUN, [(rows.tenant, run) for run in runs], listed=True)
    return await summaries_of(rows, [row for row in found if row is not None], serving)


def chosen(ledgers: Mapping[str, Sequence[Effect]], room: int) -> Level:
    """Return the children of each parent to list, at most `room` of all: unfinished ones before those that ended."""
    calls = {parent: [row for row in ledger if row.child_text] for parent, ledger in ledgers.items()}
    of_all = [call for of_parent in calls.values() for call in of_parent]
    kept = {id(call) for call in sorted(of_all, key=lambda call: bool(call.settled_at))[:room]}
    listed = {
        parent: sorted((call for call in of_parent if id(call) in kept), key=lambda call: call.ordinal)
        for parent, of_parent in calls.items()
    }
    return Level(listed, len(of_all) - len(kept))


def tree_run(call: Effect, summary: RunSummary | None, level: int) -> TreeRun:
    """Return one run of a tree. `summary`: None if the run was purged."""
    return TreeRun(
        level=level,
        parent=call.run,
        key=call.key,
        workflow=call.activity,
        run=call.external_id,
        status=summary.status if summary is not None else "",
        shown=summary.shown if summary is not None else outcome_text(call),
        waiting_text=summary.waiting_text if summary is not None else "",
        detached=call.child.detached,
    )


def outcome_text(call: Effect) -> str:
    """Return the end of a child as its parent recorded it; '' if it has recorded none."""
    if not call.settled_at:
        return ""
    if call.status is EffectStatus.REFUSED:
        return (call.error or NO_ERROR).code.upper()
    return RunStatus.COMPLETED.value.upper()


def in_tree_order(run: str, found: Mapping[str, Sequence[TreeRun]]) -> list[TreeRun]:
    """Return the runs below a run, each followed by the runs below it."""
    return [each for child in found.get(run, ()) for each in (child, *in_tree_order(child.run, found))]

"""Runs with everything that the command line and HTTP show, from one read of their rows."""

from collections.abc import Collection, Sequence
from typing import Any

from outlast.core.events import EventType, iso
from outlast.core.machine import EffectStatus
from outlast.core.rows import Effect, Event, Run, is_over
from outlast.runtime.labels import lanes_served
from outlast.runtime.operations import Operations
from outlast.runtime.run_facts import RunFacts, in_order, pending_requests_of
from outlast.runtime.tenant_rows import RESULTS_PER_READ
from outlast.runtime.views import effect_counts, ending_of, result_view, run_view, takeovers_of, visits_of


def progress_of(run: Run, events: Sequence[Event], effects: Sequence[Effect]) -> dict[str, Any]:
    """Count done and intended effects (of this visit and of all), and name the last checkpoint and the waits."""
    here = [e for e in effects if e.node == run.node and e.visit in (0, run.visit)]
    saved = next((e for e in reversed(events) if e.type == EventType.CHECKPOINT), None)
    waits = run.waiting_for
    return {
        "node": run.node,
        "visit": run.visit,
        "effects_done": _done(effects),
        "effects_intended": len(effects),
        "here_done": _done(here),
        "here_intended": len(here),
        "checkpoints": sum(1 for e in events if e.type == EventType.CHECKPOINT),
        "last_checkpoint_at": iso(saved.at) if saved is not None else None,
        "waits_for": [f"{w.kind} {w.what}" for w in waits],
        "until": iso(min(w.until for w in waits if w.until)) if any(w.until for w in waits) else None,
    }


def _done(effects: Sequence[Effect]) -> int:
    return sum(1 for e in effects if e.status is EffectStatus.DONE)


async def run_detail_view(ops: Operations, run: str) -> tuple[dict[str, Any], RunFacts]:
    """Return the run as JSON data, and the rows it was made from. Raises NotFound."""
    facts = await ops.rows.run_facts(run)
    row = facts.run
    events = facts.events
    if len(events) < row.seq:
        events = [event for event in await ops.rows.full_history(run) if event.seq <= row.seq]
    effects = in_order(run, (*facts.effects, *facts.used))
    view = {
        **run_view(row, lanes_served(facts.workers, facts.now), (await ops.rows.counts_of_results([row]))[run]),
        "asked": [] if is_over(row) or not row.inbox_seq else pending_requests_of(row, facts.messages),
        "visits": visits_of(row, events),
        "effects": effect_counts(effects),
        "takeovers": takeovers_of(events, facts.workers, ops.store.mapping().real),
        "progress": progress_of(row, events, effects),
        **(ending_of(events) or {}),
    }
    return view, facts


async def run_views(ops: Operations, rows: Sequence[Run], serving: Collection[str]) -> list[dict[str, Any]]:
    """Return runs as lists show them; their results are counted in one query."""
    counts = await ops.rows.counts_of_results(rows)
    return [run_view(row, serving, counts[row.run]) for row in rows]


async def listed_runs(ops: Operations, rows: Sequence[Run], serving: Collection[str]) -> list[dict[str, Any]]:
    """Return runs as lists show them, each with requests that no worker has read yet."""
    asked = await ops.pending_requests(rows)
    return [{**view, "asked": asked.get(view["run"], [])} for view in await run_views(ops, rows, serving)]


async def page_of_results(
    ops: Operations, run: str, *, after: int = 0, limit: int = RESULTS_PER_READ
) -> tuple[list[dict[str, Any]], int, int]:
    """Return one page of results, the count of all rows, and the ordinal of the next page (0 at the end).

    Rows are counted after they are read, so a reader of all pages gets as many as the last count says. Raises NotFound.
    """
    rows = await ops.rows.results(run, after=after, limit=limit)
    count = await ops.rows.count_results(run)
    last = rows[-1].ordinal if rows else after
    return [result_view(row) for row in rows], count, last if last < count else 0

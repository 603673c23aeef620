"""Reads of runs and of their effects, as clients see them."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from outlast.core.machine import RunStatus
from outlast.core.rows.run_rows import EVENT, Message, Run, is_over
from outlast.core.rows.store_rows import lanes_served
from outlast.core.shown_arguments import ShownArgument
from outlast.core.usage import NOTHING_USED
from outlast.core.verbs import end_of
from outlast.errors import Corrupt, NotFound
from outlast.insight.explanation import explain
from outlast.insight.row_models import (
    effect_record,
    list_item,
    result_row,
    run_detail,
    run_state,
    run_summary,
    with_schemas,
)
from outlast.insight.run_facts import RunFacts, in_order, pending_requests_of, unread_requests
from outlast.insight.run_sorting import sorted_page
from outlast.insight.tenant_rows import TenantRows, effect_name
from outlast.models.approvals import ApprovalDetail, ApprovalSummary
from outlast.models.attention import RunAttention
from outlast.models.effects import EffectList, EffectRecord
from outlast.models.runs import EndedRun, ResultList, RunDetail, RunExplanation, RunList, RunState, RunSummary
from outlast.operations.effect_operations import ListLedger
from outlast.operations.run_operations import ListRuns
from outlast.telemetry.redact import redacted


class RunOverview(NamedTuple):
    """A run, its wait in words, and the reasons for which it needs a person."""

    row: Run
    detail: RunDetail
    explained: RunExplanation
    attention: Sequence[RunAttention]


class ApprovalOfRun(NamedTuple):
    """An approval and its run. `named`: the main arguments that the author named for each of its calls."""

    approval: ApprovalDetail
    run: RunSummary
    named: Sequence[Sequence[ShownArgument]]


class ActsOfRun(NamedTuple):
    """A run with all messages and all approvals that it has had."""

    overview: RunOverview
    messages: Sequence[Message]
    approvals: Sequence[ApprovalSummary]


async def summaries_of(
    rows: TenantRows, runs: Sequence[Run], serving: frozenset[str] | None = None
) -> list[RunSummary]:
    """Return runs as lists show them. `serving`: the lanes with a live worker, if they are known."""
    counts = await rows.counts_of_results(runs)
    serving = await rows.serving() if serving is None else serving
    calls = await rows.oldest_calls(runs)
    return [run_summary(run, serving, counts[run.run], calls.get(run.run, 0)) for run in runs]


async def run_page(rows: TenantRows, request: ListRuns) -> RunList:
    """Return a page of runs, newest first or in the order that is asked for. For the filters, see `Client.runs`."""
    (runs, further), among = await sorted_page(rows, request) if request.sort else (await rows.runs(request), None)
    now = await rows.store.now()
    ends = await ends_of(rows, runs)
    used = await rows.usage_of(runs)
    found = []
    for run, summary in zip(runs, await summaries_of(rows, runs), strict=True):
        asked = await unread_requests(rows.store, run, now)
        found.append(list_item(run, summary, asked, now, ends.get(run.run, ""), used.get(run.run, NOTHING_USED)))
    return RunList(runs=found, next_cursor=further, sorted_among=among)


async def ends_of(rows: TenantRows, runs: Sequence[Run]) -> dict[str, str]:
    """Return why the runs that failed or were cancelled ended, by the last event of each."""
    keys = [(run.tenant, run.run, run.seq) for run in runs if is_over(run) and run.status is not RunStatus.COMPLETED]
    events = await rows.store.load_many(EVENT, keys, listed=True) if keys else ()
    ends: dict[str, str] = {}
    for event in events:
        with suppress(Corrupt):  # a list has the run all the same; its page says what cannot be read
            if event is not None and (end := end_of(event)) is not None and isinstance(end.reason, str):
                ends[event.run] = end.reason
    return ends


async def detail_of(rows: TenantRows, run: str) -> RunDetail:
    """Return everything that a page about one run shows."""
    return await detail_from(rows, await rows.run_facts(run))


async def detail_from(rows: TenantRows, facts: RunFacts) -> RunDetail:
    """Return the same from facts that were read before."""
    row, run = facts.run, facts.run.run
    history = facts.history if len(facts.events) >= row.seq else await rows.run_history(row)
    asked = [] if is_over(row) or not row.inbox_seq else pending_requests_of(row, facts.messages)
    serving, calls = lanes_served(facts.workers, facts.now.real), await rows.oldest_calls([row])
    summary = with_schemas(run_summary(row, serving, facts.results, calls.get(run, 0)), row, facts.waits)
    return run_detail(
        list_item(row, summary, asked, facts.now, used=facts.spent),
        history,
        in_order(run, (*facts.effects, *facts.used)),
        history.takeovers(facts.workers, rows.store.mapping().real),
        explain(facts).sentence,
        facts.amounts,
        facts.allowed,
        facts.tree_amounts,
        ledger_purged=facts.ledger_purged,
        detached=facts.detached,
        history_from=facts.history_from,
        maps=facts.maps,
    )


async def state_of_run(rows: TenantRows, run: str, checkpoint: int = 0) -> RunState:
    """Return the state of a run at a checkpoint, redacted in a thread because a large one takes seconds.

    `checkpoint`: number of the event that wrote it; 0 for the last one. Raises NotFound.
    """
    if checkpoint:
        event, state = await rows.state_at(run, checkpoint)
        return run_state(run, event.node, event, state, await asyncio.to_thread(redacted, state))
    found, state = await rows.last_state(run)
    return run_state(run, found.run.node, found.last, state, await asyncio.to_thread(redacted, state))


async def end_of_run(rows: TenantRows, run: Run) -> EndedRun:
    """Return how a run ended, from the last event of its row. Raises NotFound if its history has been deleted."""
    last = await rows.store.load(EVENT, (run.tenant, run.run, run.seq))
    end = end_of(last) if last is not None else None
    if end is None:
        raise NotFound(f"the end of run {run.run} is gone", "its history has been deleted")
    return EndedRun(run.status, end.outcome, end.reason, end.not_undone)


async def result_page(rows: TenantRows, run: str, *, after: int, limit: int) -> ResultList:
    """Return results of a run in order of first emission, after an ordinal."""
    found = await rows.results(run, after=after, limit=limit)
    count = await rows.count_results(run)  # after the rows, so a reader of all pages gets as many as it says
    last = found[-1].ordinal if found else after
    further = str(last) if last < count else ""
    return ResultList(results=[result_row(row) for row in found], count=count, next_cursor=further)


# --- effects ---------------------------------------------------------------------------------------
async def effects_of_run(rows: TenantRows, run: str) -> list[EffectRecord]:
    """Return the effects of a run in the order of their intents, with the late answers to them."""
    effects, known = await rows.effects(run), await rows.evidence(run)
    now, held, asked = await rows.store.now(), await rows.held_runs(effects), await rows.asked_effects(effects)
    return [
        effect_record(
            e,
            now,
            [k for k in known if (k.visit, k.key) == (e.visit, e.key)],
            held=held,
            asked=asked.get(effect_name(e)),
        )
        for e in effects
    ]


async def effect_page(rows: TenantRows, request: ListLedger) -> EffectList:
    """Return a page of the effects of all runs, newest first. For the filters, see `Client.ledger`."""
    effects, further = await rows.ledger(request)
    now, held, asked = await rows.store.now(), await rows.held_runs(effects), await rows.asked_effects(effects)
    records = [effect_record(row, now, held=held, asked=asked.get(effect_name(row))) for row in effects]
    return EffectList(effects=records, next_cursor=further)


async def one_effect(rows: TenantRows, run: str, key: str, *, visit: int | None) -> EffectRecord:
    """Return one effect with the late answers to it: of a visit, else the uncertain one, else the latest."""
    found = await rows.effect(run, key, visit=visit)
    held = await rows.held_runs([found.effect])
    asked = (await rows.asked_effects([found.effect])).get(effect_name(found.effect))
    return effect_record(found.effect, await rows.store.now(), found.evidence, held=held, asked=asked)

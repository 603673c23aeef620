"""Everything people and programs read of runs, bound to one tenant and one actor."""

import json
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from outlast.core import compensation
from outlast.core.budget import SECOND
from outlast.core.machine import EffectStatus, Reason
from outlast.core.overlay import waiting_of
from outlast.core.rows import (
    APPROVAL,
    EFFECT,
    EVENT,
    EVIDENCE,
    HOLD,
    RESULT,
    RUN,
    SLOT,
    STORE,
    USAGE,
    WORKER,
    Approval,
    Effect,
    Event,
    Evidence,
    Hold,
    Result,
    Run,
    Slot,
    Worker,
    is_over,
)
from outlast.engine import commands, pauses
from outlast.engine.snapshots import joined
from outlast.errors import NotFound
from outlast.flow.people import Rule
from outlast.runtime import attention, effect_queries
from outlast.runtime.explain import explain
from outlast.runtime.labels import is_held, lanes_served
from outlast.runtime.port import Actor
from outlast.runtime.run_facts import Explanation, Seen, asked_of, may_be_unheeded, notes_of
from outlast.store.pages import cursor_of
from outlast.store.port import Store

EVENTS_PER_READ = 1_000
RESULTS_PER_READ = 1_000
PAGES_PER_CALL = 100  # a filter that finds nothing looks no further at once


class Reading:
    """Reads as one actor of one tenant; no call reaches another tenant's rows (RUN-5)."""

    def __init__(self, store: Store, *, tenant: str, actor: Actor) -> None:
        """What is read is the same for every actor; only `may_decide` asks who it is."""
        self.store = store
        self.tenant = tenant
        self.actor = actor

    # --- runs -------------------------------------------------------------------------------------
    async def run(self, run: str) -> Run:
        """The run's row. Raises NotFound."""
        return await commands.find_run(self.store, self.tenant, run)

    async def runs(
        self,
        *,
        status: str = "",
        workflow: str = "",
        attention: bool = False,
        waiting_for: str = "",
        q: str = "",
        since: timedelta | None = None,
        cursor: str = "",
        limit: int = 50,
    ) -> tuple[tuple[Run, ...], str]:
        """Runs, newest first, and the cursor of the next page ('' at the end).

        `attention`: only those that a person must look at; `waiting_for`: only those that wait for this kind of
        thing; `q`: only those with this in run id or correlation id. These are looked for page by page, so an answer
        may hold fewer runs than `limit` and still have a cursor. `since`: only those started no longer ago than this.
        """
        earliest = (await self.store.now()).business - int(since.total_seconds() * SECOND) if since else 0
        where = {k: v for k, v in (("status", status), ("workflow", workflow)) if v}
        found: list[Run] = []
        for _ in range(PAGES_PER_CALL):
            page = await self.store.page(RUN, self.tenant, dict(where), cursor=cursor, limit=limit)
            for row in page.rows:
                assert isinstance(row, Run)
                if row.created_at < earliest:
                    return tuple(found), ""  # whatever follows is older still
                if (attention and not row.attention) or (waiting_for and not _waits_for(row, waiting_for)):
                    continue
                if q and q not in row.run and q not in row.correlation_id:
                    continue
                found.append(row)
                if len(found) == limit:
                    at_the_end = row is page.rows[-1] and not page.cursor
                    return tuple(found), "" if at_the_end else cursor_of(RUN, row)
            cursor = page.cursor
            if not cursor:
                break
        return tuple(found), cursor

    async def input(self, run: str) -> Any:
        """What the run was started with, as its workflow took it. Raises NotFound."""
        await self.run(run)
        first = await self.store.load(EVENT, (self.tenant, run, 1))
        if not isinstance(first, Event) or first.snapshot is None:
            raise NotFound(f"the input of run {run} is not kept any more")
        return json.loads((await joined(self.store, (self.tenant, run), first.snapshot)).state)

    async def counts(self) -> dict[str, dict[str, int]]:
        """How many runs and how many approvals of the tenant there are of each status."""
        return {kind.name: await self.store.tally(kind, self.tenant, "status") for kind in (RUN, APPROVAL)}

    async def explain(self, run: str) -> Explanation:
        """Where a run stands and why, in one sentence with its facts. Raises NotFound."""
        return explain(await self.seen(run))

    async def seen(self, run: str) -> Seen:
        """All rows that say where a run stands. Raises NotFound."""
        return await attention.seen(self.store, self.tenant, run)

    async def asked(self, run: Run) -> list[dict[str, Any]]:
        """What was asked of a run and is not done: a cancel, or a `continue` of its attention."""
        return [] if is_over(run) or not run.inbox_seq else asked_of(run, await notes_of(self.store, run))

    async def unheeded(self, runs: Iterable[Run]) -> dict[str, list[dict[str, Any]]]:
        """What was asked of each of these runs and may not have been read by a worker yet."""
        now = await self.store.now()
        return {row.run: await self.asked(row) for row in runs if may_be_unheeded(row, now)}

    # --- what a run left --------------------------------------------------------------------------
    async def history(self, run: str, *, after: int = 0, limit: int = EVENTS_PER_READ) -> tuple[Event, ...]:
        """The run's events after a number. Raises NotFound."""
        await self.run(run)
        rows = await self.store.rows(EVENT, (self.tenant, run), after=(self.tenant, run, after), limit=limit)
        return tuple(r for r in rows if isinstance(r, Event))

    async def whole_history(self, run: str) -> tuple[Event, ...]:
        """Every event of the run. Raises NotFound."""
        found = list(await self.history(run))
        while len(found) % EVENTS_PER_READ == 0 and (page := await self.history(run, after=len(found))):
            found += page
        return tuple(found)

    async def results(self, run: str, *, after: int = 0, limit: int = RESULTS_PER_READ) -> tuple[Result, ...]:
        """Return results of a run in the order of their first emission, from after an ordinal; at most 1,000.

        Raises NotFound.
        """
        await self.run(run)
        at_most = max(0, min(limit, RESULTS_PER_READ))
        rows = await self.store.in_order(RESULT, (self.tenant, run), after=after, limit=at_most)
        return tuple(row for row in rows if isinstance(row, Result))

    async def count_results(self, run: str) -> int:
        """Count the results of a run, from its rows at this moment (OUT-5). Raises NotFound."""
        row = await self.run(run)
        return (await self.counts_of_results([row]))[run]

    async def counts_of_results(self, runs: Sequence[Run]) -> dict[str, int]:
        """Count the results of each of these runs in one query."""
        claimed = [row.run for row in runs if row.version > 1]  # a run that no worker has claimed has none
        counted = await self.store.count(RESULT, [(self.tenant, run) for run in claimed]) if claimed else ()
        return dict.fromkeys((row.run for row in runs), 0) | dict(zip(claimed, counted, strict=True))

    async def standing(self, run: str) -> list[str]:
        """What the run did and no undo can take back, each with the reason, latest first. Raises NotFound."""
        row, effects = await self.run(run), await self.effects(run)
        return compensation.names([e for e in compensation.standing(row, effects) if not compensation.can_undo(e)])

    async def to_undo(self, run: str) -> list[str]:
        """What would be undone if it ended now, in the order of undoing. Raises NotFound."""
        return compensation.names(compensation.owed(await self.run(run), await self.effects(run)))

    async def evidence(self, run: str) -> tuple[Evidence, ...]:
        """Late answers of holders that had been replaced. Raises NotFound."""
        await self.run(run)
        rows = await self.store.rows(EVIDENCE, (self.tenant, run))
        return tuple(r for r in rows if isinstance(r, Evidence))

    # --- effects ----------------------------------------------------------------------------------
    async def effects(self, run: str) -> tuple[Effect, ...]:
        """The ledger of a run, in the order of its intents, what it shares with others included: another run's
        effect that it uses or waits for says whose it is in `by_run`, and comes last. Raises NotFound."""
        return await self.effects_of(await self.run(run))

    async def effects_of(self, run: Run) -> tuple[Effect, ...]:
        """The same of a run whose row is there already."""
        rows = await self.store.rows(EFFECT, (self.tenant, run.run))
        own = [r for r in rows if isinstance(r, Effect)]
        for used in await self.store.rows(USAGE, (self.tenant, run.run)):
            row = await self.store.load(EFFECT, (self.tenant, "", 0, str(used[2])))
            own += [row] if isinstance(row, Effect) else []
        return in_order(run.run, own)

    async def ledger(
        self,
        *,
        status: EffectStatus | None = None,
        activity: str = "",
        run: str = "",
        since: timedelta | None = None,
        cursor: str = "",
        limit: int = 50,
    ) -> tuple[tuple[Effect, ...], str]:
        """The calls of all runs, newest first, and the cursor of the next page; `since`: no older than this."""
        since_real = (await self.store.now()).real - int(since.total_seconds() * SECOND) if since else 0
        return await effect_queries.page(
            self.store,
            self.tenant,
            status=status,
            activity=activity,
            run=run,
            since_real=since_real,
            cursor=cursor,
            limit=limit,
        )

    async def held_runs(self, effects: Iterable[Effect]) -> frozenset[str]:
        """Return the runs of open ones among these effects that a worker holds at this moment."""
        runs = {e.by_run or e.run for e in effects if e.status is EffectStatus.INTENDED}
        rows = await self.store.load_many(RUN, [(self.tenant, run) for run in runs]) if runs else ()
        return frozenset(row.run for row in rows if isinstance(row, Run) and is_held(row))

    async def effect(self, run: str, key: str, *, visit: int | None = None) -> effect_queries.Doubt:
        """One effect with its evidence: the uncertain one of this key, else the latest, or that of a visit."""
        effect = await commands.find_effect(self.store, self.tenant, run, key, visit=visit)
        return effect_queries.Doubt(effect, await effect_queries.evidence_of(self.store, effect))

    async def doubts(self, runs: Iterable[Run]) -> dict[effect_queries.EffectName, effect_queries.Doubt]:
        """The uncertain effects for which these runs call a person, with their evidence."""
        return await effect_queries.doubts_of(self.store, runs)

    # --- people -----------------------------------------------------------------------------------
    async def approval(self, approval: str) -> Approval:
        """One approval. Raises NotFound."""
        return await commands.find_approval(self.store, self.tenant, approval)

    async def approvals(
        self, *, status: str = "", run: str = "", cursor: str = "", limit: int = 50
    ) -> tuple[tuple[Approval, ...], str]:
        """Approvals, newest first, and the cursor of the next page."""
        where: dict[str, str | int] = {k: v for k, v in (("status", status), ("run", run)) if v}
        page = await self.store.page(APPROVAL, self.tenant, where, cursor=cursor, limit=limit)
        return tuple(r for r in page.rows if isinstance(r, Approval)), page.cursor

    async def approvals_of(self, run: str) -> list[Approval]:
        """Every approval of one run."""
        return await commands.approvals_of(self.store, self.tenant, run)

    def may_decide(self, approval: Approval) -> bool:
        """Does this actor hold what its rule asks for?"""
        return Rule.parse(approval.who).allows(self.actor.roles)

    async def flagged(
        self, *, reason: Reason | None = None, workflow: str = "", cursor: str = "", limit: int = attention.PAGE
    ) -> tuple[tuple[Run, ...], str]:
        """Runs a person must look at, for this reason or any, of one page of runs; and the next page's cursor."""
        return await attention.flagged(self.store, self.tenant, reason, workflow, cursor, limit)

    # --- what holds runs up -----------------------------------------------------------------------
    async def pauses(self) -> tuple[Hold, ...]:
        """The holds that are up."""
        rows = await self.store.rows(HOLD, (self.tenant,))
        return tuple(r for r in rows if isinstance(r, Hold) and r.up)

    async def held_up(self) -> dict[str, int]:
        """How many runs wait for the release of each hold, by its key."""
        return await attention.held_up(self.store, self.tenant)

    async def breakers(self) -> tuple[tuple[Hold, int], ...]:
        """The circuit breakers that are up, each with how many runs wait for it."""
        up = [hold for hold in await self.pauses() if hold.kind == pauses.BREAKER]
        waiting = await self.held_up() if up else {}
        return tuple((hold, waiting.get(hold.key, 0)) for hold in up)

    async def slots(self) -> tuple[Slot, ...]:
        """The slot rows that bind this tenant, the global ones included."""
        rows = [*await self.store.rows(SLOT, (STORE,)), *await self.store.rows(SLOT, (self.tenant,))]
        return tuple(r for r in rows if isinstance(r, Slot))

    # --- workers ----------------------------------------------------------------------------------
    async def workers(self) -> tuple[Worker, ...]:
        """The workers that serve this store, closed ones included."""
        return tuple(r for r in await self.store.rows(WORKER, (STORE,)) if isinstance(r, Worker))

    async def held(self, worker: str) -> int:
        """How many runs a worker holds, whoever's they are."""
        return len(await self.store.owned(worker))

    async def serving(self) -> frozenset[str]:
        """The lanes that some worker serves whose lease still runs."""
        now = await self.store.now()
        return lanes_served(await self.workers(), now)


def in_order(run: str, effects: Iterable[Effect]) -> tuple[Effect, ...]:
    """Of a run's own and the shared ones that it uses: its own in the order of its intents, then those of others."""
    return tuple(sorted(effects, key=lambda e: (e.by_run not in ("", run), e.ordinal)))


def _waits_for(run: Run, kind: str) -> bool:
    return any(w.kind == kind for w in waiting_of(run))

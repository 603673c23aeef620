"""The store is here: what commands ask of runs is read from its rows."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from outlast.cli.desk.port import ResultPage, RunPage, View
from outlast.core.machine import ApprovalStatus, EffectStatus
from outlast.core.rows import APPROVAL, RUN, STORE, TOPOLOGY, Event, Run, Topology, is_due, is_over
from outlast.flow.workflow import Workflow
from outlast.runtime import watch
from outlast.runtime.operations import Operations
from outlast.runtime.views import effect_view, event_view
from outlast.runtime.whole import listed_runs, page_of_results, run_views, whole_run

T = TypeVar("T")
PAGE = 200


class LocalRuns:
    """The part of a desk that is about runs."""

    codes = True

    def __init__(self, ops: Operations, workflows: Mapping[str, Workflow[Any]] | None = None) -> None:
        self.ops = ops
        self.me = ops.actor.name
        self._workflows = workflows or {}

    async def caller(self) -> str:
        """The user of this machine."""
        return self.ops.actor.name

    async def now_real(self) -> int:
        """The store's clock."""
        return (await self.ops.store.now()).real

    async def until(self, look: Callable[[], Awaitable[T | None]], *, within_s: float) -> T | None:
        """By the store's wakes, and by looking again."""
        return await watch.until(self.ops.store, look, within_s=within_s)

    async def runs(
        self,
        *,
        status: str,
        workflow: str,
        attention: bool,
        waiting_for: str,
        since: timedelta | None,
        cursor: str,
        limit: int,
    ) -> RunPage:
        """One page, counted."""
        rows, further = await self.ops.runs(
            status=status,
            workflow=workflow,
            attention=attention,
            waiting_for=waiting_for,
            since=since,
            cursor=cursor,
            limit=limit,
        )
        counts, now = await self.ops.counts(), await self.now_real()
        return RunPage(
            await listed_runs(self.ops, rows, await self.ops.serving()),
            further,
            frozenset(row.run for row in rows if not row.owner and is_due(row, now)),
            sum(counts[RUN.name].values()),
            counts[APPROVAL.name].get(ApprovalStatus.PENDING, 0),
        )

    async def run(self, run: str) -> View:
        """All of it, from rows."""
        return (await whole_run(self.ops, run))[0]

    async def glance(self, run: str) -> View:
        """Its row."""
        return (await run_views(self.ops, [await self.ops.run(run)], await self.ops.serving()))[0]

    async def input(self, run: str) -> Any:
        """From its first event."""
        return await self.ops.input(run)

    async def results(self, run: str, *, after: int, limit: int) -> ResultPage:
        """From its rows."""
        return ResultPage(*await page_of_results(self.ops, run, after=after, limit=limit))

    async def last_event(self, run: str) -> int:
        """As its row says."""
        return (await self.ops.run(run)).seq

    async def effects(self, run: str) -> list[View]:
        """With the late answers of replaced workers."""
        now, rows, known = await self.ops.store.now(), await self.ops.effects(run), await self.ops.evidence(run)
        held = await self.ops.held_runs(rows)
        return [
            effect_view(e, now, [k for k in known if (k.visit, k.key) == (e.visit, e.key)], held=held) for e in rows
        ]

    async def ledger(
        self, *, status: EffectStatus | None, activity: str, run: str, since: timedelta | None, cursor: str, limit: int
    ) -> tuple[list[View], str]:
        """From the rows."""
        rows, further = await self.ops.ledger(
            status=status, activity=activity, run=run, since=since, cursor=cursor, limit=limit
        )
        now = await self.ops.store.now()
        held = await self.ops.held_runs(rows)
        return [effect_view(row, now, held=held) for row in rows], further

    async def effect(self, run: str, key: str, *, visit: int | None) -> View:
        """With its evidence."""
        found = await self.ops.effect(run, key, visit=visit)
        held = await self.ops.held_runs([found.effect])
        return effect_view(found.effect, await self.ops.store.now(), found.evidence, held=held)

    async def events(self, run: str, *, after: int = 0) -> list[View]:
        """From the rows."""
        found: list[View] = []
        while page := await self.ops.history(run, after=after):
            found += [event_view(event) for event in page]
            after = page[-1].seq
        return found

    async def follow(self, run: str, *, after: int = 0) -> AsyncIterator[str]:
        """By the store's wakes."""

        async def look() -> tuple[Sequence[Event], Run] | None:
            row = await self.ops.run(run)  # read before the events: what ended it is among them then
            events = await self.ops.history(run, after=after, limit=PAGE)
            return (events, row) if events or is_over(row) else None

        while True:
            found = await watch.until(self.ops.store, look)
            assert found is not None
            if not found[0]:
                return
            for event in found[0]:
                after = event.seq
                yield event.body.decode()

    async def topology(self, view: View) -> View | None:
        """As a worker of that version wrote it down."""
        row = await self.ops.store.load(TOPOLOGY, (STORE, str(view["lane"])))
        found: View | None = json.loads(row.body) if isinstance(row, Topology) else None
        return found

    async def explain(self, run: str) -> View:
        """In one sentence."""
        return (await self.ops.explain(run)).view()

    async def input_schema(self, workflow: str) -> View:
        """Of the code that is loaded."""
        found = self._workflows.get(workflow)
        return found.input_schema() if found is not None else {}

    async def start(self, workflow: str, given: bytes, *, run: str, key: str) -> tuple[View, bool]:
        """With the code that is loaded."""
        started = await self.ops.start(workflow, given, run_id=run, idempotency_key=key)
        return await self.glance(started.run), started.created

    async def signal(self, run: str, name: str, payload: View, *, signal_id: str) -> bool:
        """Into the mailbox."""
        return await self.ops.signal(run, name, payload, signal_id=signal_id)

    async def to_undo(self, run: str) -> list[str]:
        """Named."""
        return await self.ops.to_undo(run)

    async def standing(self, run: str) -> list[str]:
        """Named."""
        return await self.ops.standing(run)

    async def cancel(self, run: str, *, reason: str) -> None:
        """By a note."""
        await self.ops.cancel(run, reason=reason)

    async def go_on(self, run: str, *, reason: str) -> None:
        """By a note."""
        await self.ops.go_on(run, reason=reason)

    async def extend(self, run: str, *, by: timedelta, reason: str) -> None:
        """By a note."""
        await self.ops.extend(run, by=by, reason=reason)

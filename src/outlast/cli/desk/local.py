"""The store is here: what commands ask is read from its rows."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from outlast.cli.desk.port import AnsweredPage, RunPage, Verb, View
from outlast.core.events import iso
from outlast.core.machine import ApprovalStatus, Choice, Reason
from outlast.core.overlay import attention_of
from outlast.core.rows import APPROVAL, RUN, STORE, TOPOLOGY, Approval, Event, Run, Topology, is_due, is_over
from outlast.flow.people import Rule
from outlast.flow.workflow import Workflow
from outlast.runtime import versions as of_store
from outlast.runtime import watch
from outlast.runtime.answering import answer_entry, entry_of
from outlast.runtime.answers import away_view, entry_view
from outlast.runtime.operations import Operations
from outlast.runtime.progress import progress_of
from outlast.runtime.views import (
    approval_view,
    effect_counts,
    effect_view,
    ending_of,
    event_view,
    run_view,
    takeovers_of,
    visits_of,
    worker_view,
)

T = TypeVar("T")
PAGE = 200


class Local:
    """A desk over `Operations`."""

    codes = True

    def __init__(self, ops: Operations, workflows: Mapping[str, Workflow[Any]] | None = None) -> None:
        self.ops = ops
        self.name = ops.actor.name
        self.me = ops.actor.name
        self._workflows = workflows or {}

    async def now_real(self) -> int:
        """The store's clock."""
        return (await self.ops.store.now()).real

    async def until(self, look: Callable[[], Awaitable[T | None]], *, within_s: float) -> T | None:
        """By the store's wakes, and by looking again."""
        return await watch.until(self.ops.store, look, within_s=within_s)

    # --- runs ----------------------------------------------------------------------------------
    async def runs(
        self, *, status: str, workflow: str, attention: bool, waiting_for: str, cursor: str, limit: int
    ) -> RunPage:
        """One page, counted."""
        rows, further = await self.ops.runs(
            status=status, workflow=workflow, attention=attention, waiting_for=waiting_for, cursor=cursor, limit=limit
        )
        serving, asked = await self.ops.serving(), await self.ops.unheeded(rows)
        counts, now = await self.ops.counts(), await self.now_real()
        return RunPage(
            [{**run_view(row, serving), "asked": asked.get(row.run, [])} for row in rows],
            further,
            frozenset(row.run for row in rows if not row.owner and is_due(row, now)),
            sum(counts[RUN.name].values()),
            counts[APPROVAL.name].get(ApprovalStatus.PENDING, 0),
        )

    async def run(self, run: str) -> View:
        """All of it, from rows."""
        ops = self.ops
        row = await ops.run(run)
        events = await ops.whole_history(run)
        effects = await ops.effects(run)
        return {
            **run_view(row, await ops.serving()),
            "asked": await ops.asked(row),
            "visits": visits_of(row, events),
            "effects": effect_counts(effects),
            "takeovers": takeovers_of(events, await ops.workers(), ops.store.mapping().real),
            "progress": progress_of(row, events, effects),
            **(ending_of(events) or {}),
        }

    async def glance(self, run: str) -> View:
        """Its row."""
        return run_view(await self.ops.run(run), await self.ops.serving())

    async def last_event(self, run: str) -> int:
        """As its row says."""
        return (await self.ops.run(run)).seq

    async def effects(self, run: str) -> list[View]:
        """With the late answers of replaced workers."""
        now, rows, known = await self.ops.store.now(), await self.ops.effects(run), await self.ops.evidence(run)
        return [effect_view(e, now, [k for k in known if (k.visit, k.key) == (e.visit, e.key)]) for e in rows]

    async def effect(self, run: str, key: str, *, visit: int | None) -> View:
        """With its evidence."""
        found = await self.ops.effect(run, key, visit=visit)
        return effect_view(found.effect, await self.ops.store.now(), found.evidence)

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

    # --- approvals -----------------------------------------------------------------------------
    async def approvals(self, *, status: str, cursor: str, limit: int) -> tuple[list[View], str]:
        """One page."""
        rows, further = await self.ops.approvals(status=status, cursor=cursor, limit=limit)
        return [approval_view(row) for row in rows], further

    async def approval(self, approval: str) -> View:
        """With whether this actor may decide."""
        return self._seen(await self.ops.approval(approval))

    async def approve(self, approval: str, *, reason: str, alternative: int, changes: Mapping[str, Any] | None) -> View:
        """With the code that is loaded, where values change."""
        return approval_view(await self.ops.approve(approval, reason=reason, alternative=alternative, changes=changes))

    async def reject(self, approval: str, *, reason: str, again: bool) -> View:
        """The call is not made."""
        return approval_view(await self.ops.reject(approval, reason=reason, again=again))

    async def claim_approval(self, approval: str) -> View:
        """It binds nobody."""
        return approval_view(await self.ops.claim_approval(approval))

    async def reassign(self, approval: str, who: str, *, reason: str) -> View:
        """Raises InvalidInput for a rule that cannot be read."""
        return approval_view(await self.ops.reassign(approval, Rule.parse(who), reason=reason))

    def _seen(self, row: Approval) -> View:
        return {**approval_view(row), "you_may_decide": self.ops.may_decide(row)}

    # --- attention, effects --------------------------------------------------------------------
    async def attention(
        self, *, reason: Reason | None, workflow: str, cursor: str, first: bool
    ) -> tuple[list[View], str]:
        """Of one page of runs; breakers on the first."""
        rows, further = await self.ops.flagged(reason=reason, workflow=workflow, cursor=cursor)
        views = [v for v in await self._items(rows) if reason in (None, v["reason"])]
        away = [away_view(hold, n) for hold, n in await self.ops.breakers()] if first and reason is None else []
        if first and reason in (None, Reason.WEBHOOK_DEAD):
            away += await self.ops.webhooks.attention()
        return [*away, *views], further

    async def attention_of(self, run: str) -> list[View]:
        """Every reason."""
        return await self._items([await self.ops.run(run)])

    async def _items(self, rows: Sequence[Run]) -> list[View]:
        doubts = await self.ops.doubts(rows)
        now = await self.ops.store.now()
        return [
            entry_view(row, entry, doubts.get((row.run, entry.visit, entry.key)), now)
            for row in rows
            for entry in attention_of(row)
        ]

    async def reason_of(self, run: str, choice: Choice, reason: Reason | None, key: str) -> Reason:
        """Raises Conflict, InvalidInput where it is not clear."""
        return entry_of(await self.ops.run(run), choice, reason, key).reason

    async def answer(
        self, run: str, choice: Choice, *, reason: Reason | None, key: str, text: str, by: timedelta | None
    ) -> None:
        """Of exactly this reason."""
        row = await self.ops.run(run)
        await answer_entry(self.ops, row, entry_of(row, choice, reason, key), choice, text, by)

    async def answer_all(
        self, reason: Reason, choice: Choice, *, text: str, workflow: str, by: timedelta | None, cursor: str
    ) -> AnsweredPage:
        """Each once."""
        page = await self.ops.answer_all(reason, choice, text=text, workflow=workflow, by=by, cursor=cursor)
        return AnsweredPage(page.done, page.failed, page.cursor)

    async def resolve_effect(
        self, run: str, key: str, verb: Verb, *, reason: str, external_id: str, response: Any
    ) -> None:
        """Checked against the activity where its code is loaded."""
        await self.ops.resolve_effect(run, key, verb, reason=reason, external_id=external_id, response=response)

    # --- the store -----------------------------------------------------------------------------
    async def workers(self) -> list[View]:
        """With what each holds."""
        now = await self.ops.store.now()
        return [worker_view(row, now, await self.ops.held(row.id)) for row in await self.ops.workers()]

    async def versions(self) -> list[View]:
        """With instants as text."""
        found = await of_store.versions(self.ops)
        return [{**v._asdict(), "since": iso(v.since) if v.since else None} for v in found]

"""The client over a store opened in this process."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from typing_extensions import override

from outlast.cli.client import AnsweredPage, OutlastClient, ResultPage, RunPage, Verb, View, WebhookViews
from outlast.core.events import iso
from outlast.core.machine import ApprovalStatus, Choice, DeliveryStatus, EffectStatus, Reason
from outlast.core.rows import APPROVAL, RUN, STORE, TOPOLOGY, Approval, Event, Run, is_due, is_over
from outlast.engine.pauses import What
from outlast.flow.approval_rule import Rule
from outlast.flow.workflow import Workflow
from outlast.runtime import approvals, stores
from outlast.runtime.approvals import approval_detail_view, listed_approval
from outlast.runtime.attention_answers import breaker_item, entry_of, entry_view
from outlast.runtime.operations import Operations
from outlast.runtime.run_detail import listed_runs, page_of_results, run_detail_view, run_views
from outlast.runtime.settings import load
from outlast.runtime.views import caller_view, effect_view, event_view, pause_view, worker_view
from outlast.runtime.webhooks import (
    KEPT,
    attempt_view,
    delivery_view,
    new_webhook_view,
    reach_of,
    webhook_detail_view,
    webhook_view,
)


class LocalWebhooks(WebhookViews):
    """Webhooks read and written in the store; the settings limit their addresses."""

    def __init__(self, ops: Operations) -> None:
        self._ops = ops
        self._webhooks = ops.webhooks
        self._webhooks.reach = reach_of(load())

    @override
    async def all(self) -> list[View]:
        return [await self._whole(row.subscription) for row in await self._webhooks.list()]

    @override
    async def get(self, webhook: str) -> View:
        return await self._whole(webhook)

    async def _whole(self, webhook: str) -> View:
        return webhook_detail_view(await self._webhooks.get(webhook), await self._webhooks.backlog(webhook))

    @override
    async def unsent(self) -> int:
        from outlast.runtime.webhooks import unattended_ms

        return await unattended_ms(self._ops.store, self._ops.tenant)

    @override
    async def add(
        self,
        url: str,
        *,
        name: str,
        types: Sequence[str],
        workflows: Sequence[str],
        headers: Mapping[str, str],
        from_start: bool,
    ) -> View:
        made = await self._webhooks.add(
            url, name=name, types=types, workflows=workflows, headers=headers, from_start=from_start
        )
        return new_webhook_view(made)

    @override
    async def test(self, webhook: str) -> View:
        return attempt_view(webhook, await self._webhooks.test(webhook))

    @override
    async def deliveries(
        self, webhook: str, *, status: DeliveryStatus | None, cursor: str, limit: int
    ) -> tuple[list[View], str]:
        rows, further = await self._webhooks.deliveries(webhook, status=status, cursor=cursor, limit=limit)
        business = self._ops.store.mapping().business
        return [delivery_view(row, business) for row in rows], further

    @override
    async def redeliver(self, delivery: str) -> int:
        if ":" not in delivery:
            return await self._webhooks.redeliver_dead(delivery)
        await self._webhooks.redeliver(delivery)
        return 1

    @override
    async def rotate(self, webhook: str, *, keep: timedelta | None) -> View:
        return new_webhook_view(await self._webhooks.rotate(webhook, keep=KEPT if keep is None else keep))

    @override
    async def disable(self, webhook: str, *, reason: str) -> View:
        return webhook_view(await self._webhooks.disable(webhook, reason=reason))

    @override
    async def enable(self, webhook: str) -> View:
        return webhook_view(await self._webhooks.enable(webhook))

    @override
    async def remove(self, webhook: str) -> View:
        return webhook_view(await self._webhooks.remove(webhook))


T = TypeVar("T")
PAGE = 200


class LocalClient(OutlastClient):
    """Client over the operations of a store."""

    codes = True

    def __init__(self, ops: Operations, workflows: Mapping[str, Workflow[Any]] | None = None) -> None:
        self.ops = ops
        self.me = ops.actor.name
        self._workflows = workflows or {}

    @override
    async def caller(self) -> str:
        return self.ops.actor.name

    @override
    async def now_real(self) -> int:
        return (await self.ops.store.now()).real

    @override
    async def until(self, look: Callable[[], Awaitable[T | None]], *, within_s: float) -> T | None:
        return await stores.until(self.ops.store, look, within_s=within_s)

    @override
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
        rows, further = await self.ops.rows.runs(
            status=status,
            workflow=workflow,
            attention=attention,
            waiting_for=waiting_for,
            since=since,
            cursor=cursor,
            limit=limit,
        )
        counts, now = await self.ops.rows.counts(), await self.now_real()
        return RunPage(
            await listed_runs(self.ops, rows, await self.ops.rows.serving()),
            further,
            frozenset(row.run for row in rows if not row.owner and is_due(row, now)),
            sum(counts[RUN.name].values()),
            counts[APPROVAL.name].get(ApprovalStatus.PENDING, 0),
        )

    @override
    async def run(self, run: str) -> View:
        return (await run_detail_view(self.ops, run))[0]

    @override
    async def run_summary(self, run: str) -> View:
        return (await run_views(self.ops, [await self.ops.rows.run(run)], await self.ops.rows.serving()))[0]

    @override
    async def input(self, run: str) -> Any:
        return await self.ops.rows.input(run)

    @override
    async def results(self, run: str, *, after: int, limit: int) -> ResultPage:
        return ResultPage(*await page_of_results(self.ops, run, after=after, limit=limit))

    @override
    async def last_event(self, run: str) -> int:
        return (await self.ops.rows.run(run)).seq

    @override
    async def effects(self, run: str) -> list[View]:
        now, rows, known = (
            await self.ops.store.now(),
            await self.ops.rows.effects(run),
            await self.ops.rows.evidence(run),
        )
        held = await self.ops.rows.held_runs(rows)
        return [
            effect_view(e, now, [k for k in known if (k.visit, k.key) == (e.visit, e.key)], held=held) for e in rows
        ]

    @override
    async def ledger(
        self, *, status: EffectStatus | None, activity: str, run: str, since: timedelta | None, cursor: str, limit: int
    ) -> tuple[list[View], str]:
        rows, further = await self.ops.rows.ledger(
            status=status, activity=activity, run=run, since=since, cursor=cursor, limit=limit
        )
        now = await self.ops.store.now()
        held = await self.ops.rows.held_runs(rows)
        return [effect_view(row, now, held=held) for row in rows], further

    @override
    async def effect(self, run: str, key: str, *, visit: int | None) -> View:
        found = await self.ops.rows.effect(run, key, visit=visit)
        held = await self.ops.rows.held_runs([found.effect])
        return effect_view(found.effect, await self.ops.store.now(), found.evidence, held=held)

    @override
    async def events(self, run: str, *, after: int = 0) -> list[View]:
        found: list[View] = []
        while page := await self.ops.rows.history(run, after=after):
            found += [event_view(event) for event in page]
            after = page[-1].seq
        return found

    @override
    async def follow(self, run: str, *, after: int = 0) -> AsyncIterator[str]:

        async def look() -> tuple[Sequence[Event], Run] | None:
            row = await self.ops.rows.run(run)  # read before the events, which then include the end
            events = await self.ops.rows.history(run, after=after, limit=PAGE)
            return (events, row) if events or is_over(row) else None

        while True:
            found = await stores.until(self.ops.store, look)
            assert found is not None
            if not found[0]:
                return
            for event in found[0]:
                after = event.seq
                yield event.body.decode()

    @override
    async def topology(self, view: View) -> View | None:
        row = await self.ops.store.load(TOPOLOGY, (STORE, str(view["lane"])))
        found: View | None = json.loads(row.body) if row is not None else None
        return found

    @override
    async def explain(self, run: str) -> View:
        return (await self.ops.explain(run)).view()

    @override
    async def input_schema(self, workflow: str) -> View:
        found = self._workflows.get(workflow)
        return found.input_schema() if found is not None else {}

    @override
    async def start(self, workflow: str, given: bytes, *, run: str, key: str) -> tuple[View, bool]:
        started = await self.ops.start_run(workflow, given, run_id=run, key=key)
        return await self.run_summary(started.run), started.created

    @override
    async def signal(self, run: str, name: str, payload: View, *, signal_id: str) -> bool:
        return await self.ops.signal(run, name, payload, signal_id=signal_id)

    @override
    async def to_undo(self, run: str) -> list[str]:
        return await self.ops.to_undo(run)

    @override
    async def not_undone(self, run: str) -> list[str]:
        return await self.ops.not_undone(run)

    @override
    async def cancel(self, run: str, *, reason: str) -> None:
        await self.ops.cancel(run, reason=reason)

    @override
    async def go_on(self, run: str, *, reason: str) -> None:
        await self.ops.continue_run(run, reason=reason)

    @override
    async def extend(self, run: str, *, by: timedelta, reason: str) -> None:
        await self.ops.extend(run, by=by, reason=reason)

    # --- approvals -----------------------------------------------------------------------------
    @override
    async def approvals(
        self, *, status: str, mine: bool, overdue: bool, cursor: str, limit: int
    ) -> tuple[list[View], str]:
        only = ApprovalStatus(status) if status else None
        rows, further = await approvals.approvals(
            self.ops, status=only, mine=mine, overdue=overdue, cursor=cursor, limit=limit
        )
        return [listed_approval(self.ops, row) for row in rows], further

    @override
    async def approvals_of(self, run: str) -> list[View]:
        return [listed_approval(self.ops, row) for row in await self.ops.rows.approvals_of(run)]

    @override
    async def approval(self, approval: str) -> View:
        return await self._whole(await self.ops.rows.approval(approval))

    @override
    async def approve(self, approval: str, *, reason: str, alternative: int, changes: Mapping[str, Any] | None) -> View:
        return await self._whole(
            await self.ops.approve(approval, reason=reason, alternative=alternative, changes=changes)
        )

    @override
    async def reject(self, approval: str, *, reason: str, again: bool) -> View:
        return await self._whole(await self.ops.reject(approval, reason=reason, again=again))

    @override
    async def claim_approval(self, approval: str) -> View:
        return await self._whole(await self.ops.claim_approval(approval))

    @override
    async def reassign(self, approval: str, who: str, *, reason: str) -> View:
        return await self._whole(await self.ops.reassign(approval, Rule.parse(who), reason=reason))

    async def _whole(self, row: Approval) -> View:
        return await approval_detail_view(self.ops, row, await self.ops.rows.run(row.run))

    # --- attention, effects --------------------------------------------------------------------
    @override
    async def attention(
        self, *, reason: Reason | None, workflow: str, cursor: str, first: bool
    ) -> tuple[list[View], str]:
        rows, further = await self.ops.rows.flagged(reason=reason, workflow=workflow, cursor=cursor)
        views = [v for v in await self._items(rows) if reason in (None, v["reason"])]
        away = [breaker_item(hold, n) for hold, n in await self.ops.rows.breakers()] if first and reason is None else []
        if first and reason in (None, Reason.WEBHOOK_DEAD):
            away += await self.ops.webhooks.attention()
        return [*away, *views], further

    @override
    async def attention_of(self, run: str) -> list[View]:
        return await self._items([await self.ops.rows.run(run)])

    async def _items(self, rows: Sequence[Run]) -> list[View]:
        uncertain_evidence = await self.ops.rows.uncertain_evidence(rows)
        now = await self.ops.store.now()
        return [
            entry_view(row, entry, uncertain_evidence.get((row.run, entry.visit, entry.key)), now)
            for row in rows
            for entry in row.attention
        ]

    @override
    async def reason_of(self, run: str, choice: Choice, reason: Reason | None, key: str) -> Reason:
        return entry_of(await self.ops.rows.run(run), choice, reason, key).reason

    @override
    async def answer(
        self, run: str, choice: Choice, *, reason: Reason | None, key: str, text: str, by: timedelta | None
    ) -> None:
        row = await self.ops.rows.run(run)
        await self.ops.answer_entry(row, entry_of(row, choice, reason, key), choice, text=text, by=by)

    @override
    async def answer_all(
        self, reason: Reason, choice: Choice, *, text: str, workflow: str, by: timedelta | None, cursor: str
    ) -> AnsweredPage:
        page = await self.ops.answer_all(reason, choice, text=text, workflow=workflow, by=by, cursor=cursor)
        return AnsweredPage(page.done, page.failed, page.cursor)

    @override
    async def resolve_effect(
        self, run: str, key: str, verb: Verb, *, reason: str, external_id: str, response: Any
    ) -> None:
        await self.ops.resolve_effect(run, key, verb, reason=reason, external_id=external_id, response=response)

    # --- webhooks, workers, versions, pauses -----------------------------------------------------
    @property
    @override
    def webhooks(self) -> LocalWebhooks:
        return LocalWebhooks(self.ops)

    @override
    async def whoami(self) -> View:
        return caller_view(self.ops.actor, self.ops.tenant)

    @override
    async def workers(self) -> list[View]:
        now = await self.ops.store.now()
        return [worker_view(row, now, await self.ops.rows.held(row.id)) for row in await self.ops.rows.workers()]

    @override
    async def versions(self) -> list[View]:
        from outlast.runtime.versions import versions  # imported here: most commands do without it

        found = await versions(self.ops)
        return [{**v._asdict(), "since": iso(v.since) if v.since else None} for v in found]

    @override
    async def of_lane(self, workflow: str, lane: str) -> list[str]:
        from outlast.runtime.versions import unfinished

        rows = await unfinished(self.ops.store, self.ops.tenant, workflow)
        return [row.run for row in rows if row.lane == lane]

    @override
    async def move_runs(
        self, workflow: str, version: int, runs: Sequence[str], *, node: str, reason: str
    ) -> tuple[Sequence[str], Sequence[tuple[str, str]]]:
        from outlast.runtime.versions import move_runs

        return await move_runs(self.ops, workflow, version, runs, node=node, reason=reason)

    @override
    async def pauses(self) -> list[View]:
        waiting, business = await self.ops.rows.held_up(), self.ops.store.mapping().business
        return [pause_view(each, waiting.get(each.key, 0), business) for each in await self.ops.rows.pauses()]

    @override
    async def pause(self, what: What, name: str, *, reason: str) -> View:
        await self.ops.pause(what, name, reason=reason)
        return {"paused": f"{what} {name}".strip(), "by": await self.caller(), "reason": reason}

    @override
    async def resume(self, what: What, name: str) -> View:
        woken = await self.ops.resume(what, name)
        return {"resumed": f"{what} {name}".strip(), "by": await self.caller(), "runs": woken}

"""The client over a store opened in this process."""

import json
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, TypeVar

from typing_extensions import override

from outlast.core.durations import Duration, Liveness
from outlast.core.events import iso
from outlast.core.machine import ApprovalStatus, Choice, DeliveryStatus, EffectStatus, Reason
from outlast.core.rows import STORE, TOPOLOGY, Approval, Run
from outlast.engine.pauses import What
from outlast.errors import InvalidInput
from outlast.flow.approval_rule import Rule
from outlast.flow.workflow import Workflow
from outlast.models import exact_instant
from outlast.models.approvals import ApprovalDetail, ApprovalList
from outlast.models.attention import AttentionList, RunAttention
from outlast.models.effects import EffectList, EffectRecord
from outlast.models.runs import EventList, ResultList, RunDetail, RunExplanation, RunList, RunStarted, RunSummary
from outlast.models.service import ActivePause, CallerInfo, PauseCreated, PauseEnded, VersionStatus, WorkerStatus
from outlast.models.webhooks import DeliveryList, WebhookAttempt, WebhookDetail, WebhookSummary, WebhookWithSecret
from outlast.runtime import approvals, stores
from outlast.runtime.approvals import approval_detail_view, listed_approval
from outlast.runtime.attention import AnsweredRuns, Verb
from outlast.runtime.attention_answers import breaker_item, entry_of, entry_view
from outlast.runtime.client import Client, WebhookClient
from outlast.runtime.operations import Operations
from outlast.runtime.settings import load
from outlast.runtime.views import caller_view, effect_view, pause_view, worker_view
from outlast.runtime.webhooks import (
    KEPT,
    attempt_view,
    delivery_view,
    new_webhook_view,
    reach_of,
    webhook_detail_view,
    webhook_view,
)

T = TypeVar("T")
PAGE = 200


class LocalWebhooks(WebhookClient):
    """Webhooks read and written in the store; the settings limit their addresses."""

    def __init__(self, ops: Operations) -> None:
        self._ops = ops
        self._webhooks = ops.webhooks
        self._webhooks.reach = reach_of(load())

    @override
    async def list(self) -> Sequence[WebhookDetail]:
        return [await self.get(row.subscription) for row in await self._webhooks.list()]

    @override
    async def get(self, webhook: str) -> WebhookDetail:
        return WebhookDetail.model_validate(
            webhook_detail_view(await self._webhooks.get(webhook), await self._webhooks.backlog(webhook))
        )

    @override
    async def unsent_ms(self) -> int:
        from outlast.runtime.webhooks import unattended_ms

        return await unattended_ms(self._ops.store, self._ops.tenant)

    @override
    async def add(
        self,
        url: str,
        *,
        name: str = "",
        types: Sequence[str] = (),
        workflows: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
        from_start: bool = False,
    ) -> WebhookWithSecret:
        made = await self._webhooks.add(
            url, name=name, types=types, workflows=workflows, headers=headers or {}, from_start=from_start
        )
        return WebhookWithSecret.model_validate(new_webhook_view(made))

    @override
    async def test(self, webhook: str) -> WebhookAttempt:
        return WebhookAttempt.model_validate(attempt_view(webhook, await self._webhooks.test(webhook)))

    @override
    async def deliveries(
        self, webhook: str = "", *, status: DeliveryStatus | None = None, cursor: str = "", limit: int = 50
    ) -> DeliveryList:
        rows, further = await self._webhooks.deliveries(webhook, status=status, cursor=cursor, limit=limit)
        business = self._ops.store.mapping().business
        views = [delivery_view(row, business) for row in rows]
        return DeliveryList.model_validate({"deliveries": views, "next_cursor": further})

    @override
    async def redeliver(self, delivery: str) -> int:
        if ":" not in delivery:
            return await self._webhooks.redeliver_dead(delivery)
        await self._webhooks.redeliver(delivery)
        return 1

    @override
    async def rotate(self, webhook: str, *, keep: Duration | None = None) -> WebhookWithSecret:
        made = await self._webhooks.rotate(webhook, keep=KEPT if keep is None else keep)
        return WebhookWithSecret.model_validate(new_webhook_view(made))

    @override
    async def disable(self, webhook: str, *, reason: str) -> WebhookSummary:
        return WebhookSummary.model_validate(webhook_view(await self._webhooks.disable(webhook, reason=reason)))

    @override
    async def enable(self, webhook: str) -> WebhookSummary:
        return WebhookSummary.model_validate(webhook_view(await self._webhooks.enable(webhook)))

    @override
    async def remove(self, webhook: str) -> WebhookSummary:
        return WebhookSummary.model_validate(webhook_view(await self._webhooks.remove(webhook)))


class LocalClient(Client):
    """Client over the operations of a store."""

    has_code = True

    def __init__(self, ops: Operations, workflows: Mapping[str, Workflow[Any]] | None = None) -> None:
        self.ops = ops
        self.me = ops.actor.name
        self._workflows = workflows or {}

    @override
    async def close(self) -> None:
        await self.ops.store.close()

    @override
    async def now(self) -> datetime:
        return exact_instant((await self.ops.store.now()).real)

    @override
    async def until(self, read: Callable[[], Awaitable[T | None]], *, within_s: float | None = None) -> T | None:
        return await stores.until(self.ops.store, read, within_s=within_s)

    @override
    def worker(
        self,
        workflows: Sequence[Workflow[Any, Any, Any]],
        *,
        concurrency: int = 100,
        name: str = "",
        live: Liveness | None = None,
    ) -> AbstractAsyncContextManager[None]:
        raise InvalidInput("a command serves no workflow through its client", "use outlast worker")

    # --- runs ----------------------------------------------------------------------------------
    @override
    async def start_run(
        self,
        workflow: Workflow[Any, Any, Any] | str,
        given: bytes,
        *,
        run_id: str = "",
        key: str = "",
        correlation_id: str = "",
        trace_id: str = "",
    ) -> RunStarted:
        return await self.ops.start_run(
            workflow, given, run_id=run_id, key=key, correlation_id=correlation_id, trace_id=trace_id
        )

    @override
    async def runs(
        self,
        *,
        status: str = "",
        workflow: str = "",
        attention: bool = False,
        waiting_for: str = "",
        q: str = "",
        since: Duration | None = None,
        cursor: str = "",
        limit: int = 50,
    ) -> RunList:
        return await self.ops.runs(
            status=status,
            workflow=workflow,
            attention=attention,
            waiting_for=waiting_for,
            q=q,
            since=since,
            cursor=cursor,
            limit=limit,
        )

    @override
    async def run(self, run: str) -> RunDetail:
        return await self.ops.run(run)

    @override
    async def run_summary(self, run: str) -> RunSummary:
        return await self.ops.run_summary(run)

    @override
    async def run_input(self, run: str) -> Any:
        return await self.ops.run_input(run)

    @override
    async def results(self, run: str, *, after: int = 0, limit: int = 1_000) -> ResultList:
        return await self.ops.results(run, after=after, limit=limit)

    @override
    async def events(self, run: str, *, after: int = 0, limit: int = 200) -> EventList:
        return await self.ops.events(run, after=after, limit=limit)

    @override
    def follow(self, run: str, *, after: int = 0) -> AsyncIterator[str]:
        return self.ops.follow(run, after=after)

    @override
    async def explain(self, run: str) -> RunExplanation:
        return RunExplanation.model_validate((await self.ops.explain(run)).view())

    @override
    async def signal(
        self, run: str, name: str, payload: Mapping[str, Any], *, signal_id: str = "", version: int = 0
    ) -> bool:
        return await self.ops.signal(run, name, dict(payload), signal_id=signal_id, version=version)

    @override
    async def cancel(self, run: str, *, reason: str, version: int = 0) -> None:
        await self.ops.cancel(run, reason=reason, version=version)

    @override
    async def continue_run(self, run: str, *, reason: str = "", version: int = 0) -> None:
        await self.ops.continue_run(run, reason=reason, version=version)

    @override
    async def extend(self, run: str, *, by: Duration, reason: str, version: int = 0) -> None:
        await self.ops.extend(run, by=by, reason=reason, version=version)

    @override
    async def to_undo(self, run: str) -> Sequence[str]:
        return await self.ops.to_undo(run)

    @override
    async def not_undone(self, run: str) -> Sequence[str]:
        return await self.ops.not_undone(run)

    # --- effects -------------------------------------------------------------------------------
    @override
    async def effects(self, run: str) -> Sequence[EffectRecord]:
        now, rows, known = (
            await self.ops.store.now(),
            await self.ops.rows.effects(run),
            await self.ops.rows.evidence(run),
        )
        held = await self.ops.rows.held_runs(rows)
        return [
            _effect(effect_view(e, now, [k for k in known if (k.visit, k.key) == (e.visit, e.key)], held=held))
            for e in rows
        ]

    @override
    async def ledger(
        self,
        *,
        status: EffectStatus | None = None,
        activity: str = "",
        run: str = "",
        since: Duration | None = None,
        cursor: str = "",
        limit: int = 50,
    ) -> EffectList:
        rows, further = await self.ops.rows.ledger(
            status=status, activity=activity, run=run, since=since, cursor=cursor, limit=limit
        )
        now = await self.ops.store.now()
        held = await self.ops.rows.held_runs(rows)
        effects = [_effect(effect_view(row, now, held=held)) for row in rows]
        return EffectList(effects=effects, next_cursor=further)

    @override
    async def effect(self, run: str, key: str, *, visit: int | None = None) -> EffectRecord:
        found = await self.ops.rows.effect(run, key, visit=visit)
        held = await self.ops.rows.held_runs([found.effect])
        return _effect(effect_view(found.effect, await self.ops.store.now(), found.evidence, held=held))

    @override
    async def resolve_effect(
        self, run: str, key: str, answer: Verb, *, reason: str, external_id: str = "", response: Any = None
    ) -> None:
        await self.ops.resolve_effect(run, key, answer, reason=reason, external_id=external_id, response=response)

    # --- approvals -----------------------------------------------------------------------------
    @override
    async def approvals(
        self,
        *,
        status: str = "",
        run: str = "",
        mine: bool = False,
        overdue: bool = False,
        cursor: str = "",
        limit: int = 50,
    ) -> ApprovalList:
        only = ApprovalStatus(status) if status else None
        rows, further = await approvals.approvals(
            self.ops, status=only, run=run, mine=mine, overdue=overdue, cursor=cursor, limit=limit
        )
        views = [listed_approval(self.ops, row) for row in rows]
        return ApprovalList.model_validate({"approvals": views, "next_cursor": further})

    @override
    async def approval(self, approval: str) -> ApprovalDetail:
        return await self._whole(await self.ops.rows.approval(approval))

    @override
    async def approve(
        self,
        approval: str,
        *,
        reason: str = "",
        alternative: int = 0,
        changes: Mapping[str, Any] | None = None,
        version: int = 0,
    ) -> ApprovalDetail:
        return await self._whole(
            await self.ops.approve(approval, reason=reason, alternative=alternative, changes=changes, version=version)
        )

    @override
    async def reject(self, approval: str, *, reason: str, again: bool = False, version: int = 0) -> ApprovalDetail:
        return await self._whole(await self.ops.reject(approval, reason=reason, again=again, version=version))

    @override
    async def claim_approval(self, approval: str, *, version: int = 0) -> ApprovalDetail:
        return await self._whole(await self.ops.claim_approval(approval, version=version))

    @override
    async def reassign(self, approval: str, who: str, *, reason: str, version: int = 0) -> ApprovalDetail:
        return await self._whole(await self.ops.reassign(approval, Rule.parse(who), reason=reason, version=version))

    async def _whole(self, row: Approval) -> ApprovalDetail:
        view = await approval_detail_view(self.ops, row, await self.ops.rows.run(row.run))
        return ApprovalDetail.model_validate({**view, "schema": {}})

    # --- attention -----------------------------------------------------------------------------
    @override
    async def attention(self, *, reason: Reason | None = None, workflow: str = "", cursor: str = "") -> AttentionList:
        rows, further = await self.ops.rows.flagged(reason=reason, workflow=workflow, cursor=cursor)
        views = [item for item in await self._items(rows) if reason in (None, item["reason"])]
        away: list[dict[str, Any]] = []
        if not cursor and reason is None:
            away += [breaker_item(pause, n) for pause, n in await self.ops.rows.breakers()]
        if not cursor and reason in (None, Reason.WEBHOOK_DEAD):
            away += await self.ops.webhooks.attention()
        return AttentionList.model_validate({"attention": [*away, *views], "next_cursor": further})

    @override
    async def attention_of(self, run: str) -> Sequence[RunAttention]:
        return [RunAttention.model_validate(item) for item in await self._items([await self.ops.rows.run(run)])]

    async def _items(self, rows: Sequence[Run]) -> list[dict[str, Any]]:
        uncertain_evidence = await self.ops.rows.uncertain_evidence(rows)
        now = await self.ops.store.now()
        return [
            entry_view(row, entry, uncertain_evidence.get((row.run, entry.visit, entry.key)), now)
            for row in rows
            for entry in row.attention
        ]

    @override
    async def answer(
        self,
        run: str,
        choice: Choice,
        *,
        reason: Reason | None = None,
        key: str = "",
        text: str,
        by: Duration | None = None,
    ) -> Reason:
        row = await self.ops.rows.run(run)
        entry = entry_of(row, choice, reason, key)
        await self.ops.answer_entry(row, entry, choice, text=text, by=by)
        return entry.reason

    @override
    async def answer_all(
        self,
        reason: Reason,
        choice: Choice,
        *,
        text: str,
        workflow: str = "",
        by: Duration | None = None,
        cursor: str = "",
    ) -> AnsweredRuns:
        return await self.ops.answer_all(reason, choice, text=text, workflow=workflow, by=by, cursor=cursor)

    # --- the store -----------------------------------------------------------------------------
    @property
    @override
    def webhooks(self) -> LocalWebhooks:
        return LocalWebhooks(self.ops)

    @override
    async def whoami(self) -> CallerInfo:
        return CallerInfo.model_validate(caller_view(self.ops.actor, self.ops.tenant))

    @override
    async def workers(self) -> Sequence[WorkerStatus]:
        now = await self.ops.store.now()
        return [
            WorkerStatus.model_validate(worker_view(row, now, await self.ops.rows.held(row.id)))
            for row in await self.ops.rows.workers()
        ]

    @override
    async def input_schema(self, workflow: str) -> Mapping[str, Any]:
        found = self._workflows.get(workflow)
        return found.input_schema() if found is not None else {}

    @override
    async def topology(self, workflow: str, lane: str) -> Mapping[str, Any] | None:
        row = await self.ops.store.load(TOPOLOGY, (STORE, lane))
        return row.structure() if row is not None else None

    @override
    async def versions(self) -> Sequence[VersionStatus]:
        from outlast.runtime.versions import versions  # imported here: most commands do without it

        found = await versions(self.ops)
        return [
            VersionStatus.model_validate({**v._asdict(), "since": iso(v.since) if v.since else None}) for v in found
        ]

    @override
    async def unfinished(self, workflow: str, lane: str) -> Sequence[str]:
        from outlast.runtime.versions import unfinished

        rows = await unfinished(self.ops.store, self.ops.tenant, workflow)
        return [row.run for row in rows if row.lane == lane]

    @override
    async def move_runs(
        self, workflow: str, version: int, runs: Sequence[str], *, node: str = "", reason: str
    ) -> AnsweredRuns:
        from outlast.runtime.versions import move_runs

        done, failed = await move_runs(self.ops, workflow, version, runs, node=node, reason=reason)
        return AnsweredRuns(tuple(done), tuple(failed), "")

    @override
    async def pauses(self) -> Sequence[ActivePause]:
        waiting, business = await self.ops.rows.held_up(), self.ops.store.mapping().business
        return [
            ActivePause.model_validate(pause_view(each, waiting.get(each.key, 0), business))
            for each in await self.ops.rows.pauses()
        ]

    @override
    async def pause(self, what: What, name: str = "", *, reason: str) -> PauseCreated:
        await self.ops.pause(what, name, reason=reason)
        return PauseCreated(paused=f"{what} {name}".strip(), by=self.ops.actor.name, reason=reason)

    @override
    async def resume(self, what: What, name: str = "") -> PauseEnded:
        woken = await self.ops.resume(what, name)
        return PauseEnded(resumed=f"{what} {name}".strip(), by=self.ops.actor.name, runs=woken)


def _effect(view: dict[str, Any]) -> EffectRecord:
    name = json.dumps([view["run"], view["visit"], view["key"]], separators=(",", ":"))
    return EffectRecord.model_validate({"id": urlsafe_b64encode(name.encode()).decode(), **view})

"""The client of a service, over HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar
from urllib.parse import quote

import httpx2
from typing_extensions import override

from outlast.cli.client.connection import ServiceConnection, frames
from outlast.core.compensation import NO_UNDO
from outlast.core.durations import Liveness
from outlast.core.machine import TERMINAL, Choice, DeliveryStatus, EffectStatus, Reason, RunStatus
from outlast.engine.pauses import What
from outlast.errors import InvalidInput, NotFound, OutlastError, Unavailable
from outlast.flow.workflow import Workflow
from outlast.models import exact_instant
from outlast.models.approvals import ApprovalDetail, ApprovalList
from outlast.models.attention import AttentionList, RunAttention
from outlast.models.effects import EffectList, EffectRecord
from outlast.models.runs import EventList, ResultList, RunDetail, RunExplanation, RunList, RunStarted, RunSummary
from outlast.models.service import ActivePause, CallerInfo, PauseCreated, PauseEnded, VersionStatus, WorkerStatus
from outlast.models.webhooks import DeliveryList, WebhookAttempt, WebhookDetail, WebhookSummary, WebhookWithSecret
from outlast.runtime.attention import AnsweredRuns, Verb, verb_of
from outlast.runtime.client import Client, WebhookClient
from outlast.runtime.clocks import SystemClock, new_id
from outlast.runtime.versions import UNSERVED, why_not
from outlast.runtime.views import ENDINGS


class RemoteWebhooks(WebhookClient):
    """Webhooks of the service; its settings limit their addresses."""

    def __init__(self, wire: ServiceConnection) -> None:
        self._wire = wire

    @override
    async def list(self) -> Sequence[WebhookDetail]:
        return [await self.get(each["webhook"]) for each in (await self._wire.get("/webhooks"))["webhooks"]]

    @override
    async def get(self, webhook: str) -> WebhookDetail:
        return WebhookDetail.model_validate(await self._wire.get(f"/webhooks/{part(webhook)}"))

    @override
    async def unsent_ms(self) -> int:
        return int((await self._wire.get("/webhooks"))["unsent_ms"])

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
        body = {
            "url": url,
            "name": name,
            "types": types,
            "workflows": workflows,
            "headers": headers or {},
            "from_start": from_start,
        }
        return WebhookWithSecret.model_validate(await self._wire.post("/webhooks", body))

    @override
    async def test(self, webhook: str) -> WebhookAttempt:
        return WebhookAttempt.model_validate(await self._wire.post(f"/webhooks/{part(webhook)}/test"))

    @override
    async def deliveries(
        self, webhook: str = "", *, status: DeliveryStatus | None = None, cursor: str = "", limit: int = 50
    ) -> DeliveryList:
        where = f"/webhooks/{part(webhook)}/deliveries" if webhook else "/deliveries"
        page = await self._wire.get(where, status=status, cursor=cursor, limit=limit)
        return DeliveryList.model_validate(page)

    @override
    async def redeliver(self, delivery: str) -> int:
        if ":" in delivery:
            await self._wire.post(f"/deliveries/{part(delivery)}/redeliver")
            return 1
        n, more = 0, True
        while more:
            answer = await self._wire.post(f"/webhooks/{part(delivery)}/redeliver")
            n, more = n + answer["events"], answer["more"]
        return n

    @override
    async def rotate(self, webhook: str, *, keep: timedelta | None = None) -> WebhookWithSecret:
        return WebhookWithSecret.model_validate(
            await self._wire.post(f"/webhooks/{part(webhook)}/rotate", {"keep": iso(keep)})
        )

    @override
    async def disable(self, webhook: str, *, reason: str) -> WebhookSummary:
        return WebhookSummary.model_validate(
            await self._wire.post(f"/webhooks/{part(webhook)}/disable", {"reason": reason})
        )

    @override
    async def enable(self, webhook: str) -> WebhookSummary:
        return WebhookSummary.model_validate(await self._wire.post(f"/webhooks/{part(webhook)}/enable"))

    @override
    async def remove(self, webhook: str) -> WebhookSummary:
        return WebhookSummary.model_validate(await self._wire.post(f"/webhooks/{part(webhook)}", method="DELETE"))


T = TypeVar("T")
LOOK_S: Final = 0.1
PAGE: Final = 1_000
AWAY_MAX: Final = 60_000
"""Maximum time of attempts to reopen a stream, in ms."""
BACK_OFF_S: Final = (0.2, 0.5, 1.0, 2.0, 5.0)


def part(name: str) -> str:
    """Return a name quoted as one path segment."""
    return quote(name, safe="")


def iso(span: timedelta | None) -> str | None:
    """Return a duration in ISO 8601."""
    return f"PT{span.total_seconds():.3f}S" if span is not None else None


class RemoteClient(Client):
    """Client of one service. `lost` is called with a message when a stream breaks off and is reopened."""

    me = "you"
    has_code = False

    def __init__(self, wire: ServiceConnection, lost: Callable[[str], None]) -> None:
        self.wire = wire
        self._lost = lost
        self._clock = SystemClock()

    @override
    async def close(self) -> None:
        await self.wire.close()

    @override
    async def now(self) -> datetime:
        return exact_instant(self._clock.wall())

    @override
    async def until(self, read: Callable[[], Awaitable[T | None]], *, within_s: float | None = None) -> T | None:
        try:
            async with asyncio.timeout(within_s):
                while (found := await read()) is None:  # noqa: ASYNC110 - a remote service sets no event here
                    await asyncio.sleep(LOOK_S)
                return found
        except TimeoutError:
            return None

    @override
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
    ) -> RunList:
        page = await self.wire.get(
            "/runs", status=status, workflow=workflow, attention=attention, waiting_for=waiting_for, q=q,
            since=iso(since), cursor=cursor, limit=limit,
        )  # fmt: skip
        return RunList.model_validate(page)

    @override
    async def run(self, run: str) -> RunDetail:
        return RunDetail.model_validate(await self.wire.get(f"/runs/{part(run)}"))

    @override
    async def run_summary(self, run: str) -> RunSummary:
        return RunSummary.model_validate(await self.wire.get(f"/runs/{part(run)}"))

    @override
    async def run_input(self, run: str) -> Any:
        return (await self.wire.get(f"/runs/{part(run)}/input"))["input"]

    @override
    async def results(self, run: str, *, after: int = 0, limit: int = 1_000) -> ResultList:
        return ResultList.model_validate(await self.wire.get(f"/runs/{part(run)}/results", after=after, limit=limit))

    @override
    async def effects(self, run: str) -> Sequence[EffectRecord]:
        return EffectList.model_validate(await self.wire.get(f"/runs/{part(run)}/effects")).effects

    @override
    async def ledger(
        self,
        *,
        status: EffectStatus | None = None,
        activity: str = "",
        run: str = "",
        since: timedelta | None = None,
        cursor: str = "",
        limit: int = 50,
    ) -> EffectList:
        page = await self.wire.get(
            "/effects", status=status, activity=activity, run=run, since=iso(since), cursor=cursor, limit=limit
        )
        return EffectList.model_validate(page)

    @override
    async def effect(self, run: str, key: str, *, visit: int | None = None) -> EffectRecord:
        alike = [e for e in await self.effects(run) if e.key == key and visit in (None, e.visit)]
        if not alike:
            raise NotFound(
                f"run {run} has no effect {key}" + (f" in visit {visit}" if visit is not None else ""),
                "use the key that the ledger shows",
                f"outlast runs effects {run}",
            )
        return next((e for e in alike if e.status == EffectStatus.UNCERTAIN), alike[-1])

    @override
    async def events(self, run: str, *, after: int = 0, limit: int = 200) -> EventList:
        return EventList.model_validate(await self.wire.get(f"/runs/{part(run)}/events", after=after, limit=limit))

    @override
    async def follow(self, run: str, *, after: int = 0) -> AsyncIterator[str]:
        failures, begun = 0, False
        since: int | None = None
        while True:
            heard, gone = False, None
            try:
                async for number, text in self._stream(run, after):
                    failures, begun, since = 0, True, None
                    if not text:
                        continue
                    after, heard = number, True
                    yield text
                    if json.loads(text)["type"] in ENDINGS:
                        return
                if not heard and (await self.run_summary(run)).status in TERMINAL:
                    return
            except (httpx2.HTTPError, Unavailable) as error:
                gone = error
            if gone is not None:
                if since is None and begun:
                    self._lost(f"the stream broke off after event {after}; reconnecting")
                since = self._clock.mono() if since is None else since
                if not begun or self._clock.mono() - since > AWAY_MAX:
                    raise self.wire.away(gone) from gone
            await asyncio.sleep(BACK_OFF_S[min(failures, len(BACK_OFF_S) - 1)])
            failures += 1

    async def _stream(self, run: str, after: int) -> AsyncIterator[tuple[int, str]]:
        """Yield (0, '') once the stream is open, then number and text of each event until the stream ends."""
        async with self.wire.stream(f"/runs/{part(run)}/events", after) as lines:
            yield 0, ""
            async for number, text in frames(lines):
                yield int(number), text

    @override
    async def topology(self, workflow: str, lane: str) -> Mapping[str, Any] | None:
        try:
            found = await self.wire.get(f"/workflows/{part(workflow)}")
        except NotFound:
            return None
        return found["topology"] if found["lane"] == lane else None

    @override
    async def explain(self, run: str) -> RunExplanation:
        return RunExplanation.model_validate(await self.wire.get(f"/runs/{part(run)}/explain"))

    @override
    async def input_schema(self, workflow: str) -> Mapping[str, Any]:
        schema: Mapping[str, Any] = (await self.wire.get(f"/workflows/{part(workflow)}"))["input_schema"]
        return schema

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
        try:
            data = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise InvalidInput("the input is not JSON", str(error), "correct it") from error
        name = workflow if isinstance(workflow, str) else workflow.name
        body = {"input": data, "id": run_id or new_id(f"{name[:4]}_")}  # the id makes a repetition the same run
        body |= {field: value for field, value in (("correlation_id", correlation_id), ("trace_id", trace_id)) if value}
        return RunStarted.model_validate(await self.wire.post(f"/workflows/{part(name)}/runs", body, key=key or None))

    @override
    async def signal(
        self, run: str, name: str, payload: Mapping[str, Any], *, signal_id: str = "", version: int = 0
    ) -> bool:
        body = {"payload": payload, **({"signal_id": signal_id} if signal_id else {})}
        return bool((await self.wire.post(f"/runs/{part(run)}/signals/{part(name)}", body, etag=etag(version)))["new"])

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

    @override
    async def to_undo(self, run: str) -> Sequence[str]:
        done = await self._done(run)
        return [f"{e.effect} {e.key}" for e in done if e.undo and not e.undo.startswith(NO_UNDO)]

    @override
    async def not_undone(self, run: str) -> Sequence[str]:
        kept = [e for e in await self._done(run) if not e.undo or e.undo.startswith(NO_UNDO)]
        return [f"{e.effect} {e.key}" + (f": {e.undo.removeprefix(NO_UNDO)}" if e.undo else "") for e in kept]

    async def _done(self, run: str) -> list[EffectRecord]:
        return [e for e in reversed(await self.effects(run)) if e.status == EffectStatus.DONE and e.run == run]

    @override
    async def cancel(self, run: str, *, reason: str, version: int = 0) -> None:
        await self.wire.post(f"/runs/{part(run)}/cancel", {"reason": reason}, etag=etag(version))

    @override
    async def continue_run(self, run: str, *, reason: str = "", version: int = 0) -> None:
        await self.wire.post(f"/runs/{part(run)}/continue", {"reason": reason}, etag=etag(version))

    @override
    async def extend(self, run: str, *, by: timedelta, reason: str, version: int = 0) -> None:
        body = {"reason": reason, "by": by.total_seconds()}
        await self.wire.post(f"/runs/{part(run)}/extend", body, etag=etag(version))

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
        page = await self.wire.get(
            "/approvals", status=status, run=run, mine=mine, overdue=overdue, cursor=cursor, limit=limit
        )
        return ApprovalList.model_validate(page)

    @override
    async def approval(self, approval: str) -> ApprovalDetail:
        return ApprovalDetail.model_validate(await self.wire.get(f"/approvals/{part(approval)}"))

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
        seen = await self.approval(approval)
        offered = len(seen.plans)
        if not 0 <= alternative < offered:
            raise NotFound(
                f"approval {approval} has no alternative {alternative}",
                f"it offers {offered - 1} beside the requested plan",
                f"list them with: outlast approvals show {approval}",
            )
        body = {"decision": "approve", "reason": reason, "alternative": alternative}
        body |= {"changes": dict(changes)} if changes else {}
        return await self._decide(approval, body, version or seen.version)

    @override
    async def reject(self, approval: str, *, reason: str, again: bool = False, version: int = 0) -> ApprovalDetail:
        body = {"decision": "again" if again else "reject", "reason": reason}
        return await self._decide(approval, body, version or (await self.approval(approval)).version)

    async def _decide(self, approval: str, body: Mapping[str, Any], version: int) -> ApprovalDetail:
        answer = await self.wire.post(f"/approvals/{part(approval)}/decision", body, etag=etag(version))
        return ApprovalDetail.model_validate(answer["approval"])

    @override
    async def claim_approval(self, approval: str, *, version: int = 0) -> ApprovalDetail:
        answer = await self.wire.post(f"/approvals/{part(approval)}/claim", etag=etag(version))
        return ApprovalDetail.model_validate(answer)

    @override
    async def reassign(self, approval: str, who: str, *, reason: str, version: int = 0) -> ApprovalDetail:
        body = {"to": who, "reason": reason}
        answer = await self.wire.post(f"/approvals/{part(approval)}/reassign", body, etag=etag(version))
        return ApprovalDetail.model_validate(answer)

    # --- attention, effects --------------------------------------------------------------------
    @override
    async def attention(self, *, reason: Reason | None = None, workflow: str = "", cursor: str = "") -> AttentionList:
        page = await self.wire.get("/attention", reason=reason, workflow=workflow, cursor=cursor)
        return AttentionList.model_validate(page)

    @override
    async def attention_of(self, run: str) -> Sequence[RunAttention]:
        view = await self.run(run)
        cursor = ""
        while view.attention:
            page = await self.attention(workflow=view.workflow, cursor=cursor)
            if found := [item for item in page.attention if isinstance(item, RunAttention) and item.run == run]:
                return found
            cursor = page.next_cursor
            if not cursor:
                break
        return []

    @override
    async def answer(
        self,
        run: str,
        choice: Choice,
        *,
        reason: Reason | None = None,
        key: str = "",
        text: str,
        by: timedelta | None = None,
    ) -> Reason:
        about = reason or await self._reason(run, choice)
        body: dict[str, Any] = {"choice": choice.value, "reason": text, "key": key}
        if reason is not None:
            body["attention"] = reason.value
        if by is not None:
            body["by"] = by.total_seconds()
        await self.wire.post(f"/attention/{part(run)}/resolve", body)
        return about

    async def _reason(self, run: str, choice: Choice) -> Reason:
        """Return the reason that a choice answers; the service refuses it if several match."""
        entries = (await self.run_summary(run)).attention
        offered = [each.reason for each in entries if choice in each.choices]
        return Reason(next(iter([*offered, *(each.reason for each in entries)]), Reason.EXCEPTION))

    @override
    async def answer_all(
        self,
        reason: Reason,
        choice: Choice,
        *,
        text: str,
        workflow: str = "",
        by: timedelta | None = None,
        cursor: str = "",
    ) -> AnsweredRuns:
        page = await self.attention(reason=reason, workflow=workflow, cursor=cursor)
        done: dict[str, None] = {}
        failed: list[tuple[str, str]] = []
        for item in page.attention:
            if not isinstance(item, RunAttention) or (item.run in done and reason is not Reason.EFFECT_UNCERTAIN):
                continue
            try:
                if reason is Reason.EFFECT_UNCERTAIN:
                    await self.resolve_effect(item.run, item.key, verb_of(choice), reason=text)
                else:
                    await self.answer(item.run, choice, reason=reason, text=text, by=by)
            except OutlastError as error:
                failed.append((item.run, f"{error.what}: {error.why}" if error.why else error.what))
                continue
            done[item.run] = None
        return AnsweredRuns(tuple(done), tuple(failed), page.next_cursor)

    @override
    async def resolve_effect(
        self, run: str, key: str, answer: Verb, *, reason: str, external_id: str = "", response: Any = None
    ) -> None:
        if not reason.strip():
            raise InvalidInput(
                "the service asks for a reason", "people will read it in the run's history", "say --reason …"
            )
        effect = await self.effect(run, key)
        body: dict[str, Any] = {"outcome": answer, "reason": reason}
        if answer == "happened":
            body |= {"external_id": external_id, "response": response}
        await self.wire.post(f"/effects/{part(effect.id)}/resolve", body)

    # --- webhooks, workers, versions, pauses -----------------------------------------------------
    @property
    @override
    def webhooks(self) -> RemoteWebhooks:
        return RemoteWebhooks(self.wire)

    @override
    async def whoami(self) -> CallerInfo:
        return CallerInfo.model_validate(await self.wire.get("/me"))

    @override
    async def workers(self) -> Sequence[WorkerStatus]:
        return [WorkerStatus.model_validate(each) for each in (await self.wire.get("/workers", all=True))["workers"]]

    @override
    async def versions(self) -> Sequence[VersionStatus]:
        return [VersionStatus.model_validate(each) for each in (await self.wire.get("/versions"))["versions"]]

    @override
    async def unfinished(self, workflow: str, lane: str) -> Sequence[str]:
        found: list[str] = []
        for status in set(RunStatus) - TERMINAL:
            cursor, more = "", True
            while more:
                page = await self.runs(status=status, workflow=workflow, cursor=cursor, limit=PAGE)
                found += [view.run for view in page.runs if view.lane == lane]
                more = bool(cursor := page.next_cursor)
        return list(dict.fromkeys(found))

    @override
    async def move_runs(
        self, workflow: str, version: int, runs: Sequence[str], *, node: str = "", reason: str
    ) -> AnsweredRuns:
        done: list[str] = []
        failed: list[tuple[str, str]] = []
        body = {"workflow": workflow, "version": version, "node": node, "reason": reason}
        for run in dict.fromkeys(runs):
            try:
                await self.wire.post(f"/runs/{part(run)}/move", body)
                done.append(run)
            except OutlastError as error:
                if error.refusal == UNSERVED:
                    raise
                failed.append((run, why_not(error)))
        return AnsweredRuns(tuple(done), tuple(failed), "")

    @override
    async def pauses(self) -> Sequence[ActivePause]:
        return [ActivePause.model_validate(each) for each in (await self.wire.get("/pauses"))["pauses"]]

    @override
    async def pause(self, what: What, name: str = "", *, reason: str) -> PauseCreated:
        answer = await self.wire.post("/pauses", {"what": what, "name": name, "reason": reason})
        return PauseCreated.model_validate(answer)

    @override
    async def resume(self, what: What, name: str = "") -> PauseEnded:
        return PauseEnded.model_validate(await self.wire.post("/pauses/resume", {"what": what, "name": name}))


def etag(version: int) -> str:
    """Return the header value of a condition on a version; '' for 0."""
    return f'"v{version}"' if version else ""

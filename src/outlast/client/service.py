"""The client of a service, over HTTP."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from datetime import datetime
from typing import Any, Final, TypeVar

import httpx2
from typing_extensions import override

from outlast.client.connection import LOST, REPEATS_S, UNSENT, ServiceConnection, iso, part, tag
from outlast.client.parts import answer_parts, move_each
from outlast.client.webhooks import ServiceWebhooks
from outlast.core.attention import check_for_all, check_many
from outlast.core.compensation import NO_UNDO
from outlast.core.durations import SECOND, Duration, Liveness, timedelta_of
from outlast.core.events import ENDINGS
from outlast.core.events import iso as iso_instant
from outlast.core.lanes import check_scheduler
from outlast.core.machine import TERMINAL, Choice, EffectStatus, Reason, RunStatus
from outlast.core.run_columns import What
from outlast.core.usage import NO_LIMITS, Budget, Money, micros, money_text
from outlast.engine.clocks import SystemClock, new_id
from outlast.errors import Busy, InvalidInput, NotFound, Unavailable
from outlast.flow.workflow import Workflow
from outlast.models import checked_instant, exact_instant
from outlast.models.approvals import ApprovalDetail, ApprovalList, ApprovalSort, ApprovalSummary, DecisionRecorded
from outlast.models.attention import (
    AnsweredRuns,
    AnswerFor,
    AnswerList,
    AnswerOutcome,
    AttentionList,
    RunAttention,
    Verb,
    concerns,
)
from outlast.models.effects import EffectList, EffectRecord
from outlast.models.runs import (
    CloudEvent,
    EndedRun,
    EventList,
    RequestRecorded,
    ResultList,
    RunDelta,
    RunDetail,
    RunExplanation,
    RunInput,
    RunList,
    RunStarted,
    RunSummary,
    SignalRecorded,
)
from outlast.models.service import (
    ActivePause,
    BudgetList,
    CallerInfo,
    DailyBudget,
    PauseCreated,
    PauseEnded,
    PauseList,
    StatusSummary,
    VersionList,
    VersionStatus,
    WorkerList,
    WorkerStatus,
    WorkflowDetail,
)
from outlast.models.steps import StepList
from outlast.models.timeline import Timeline
from outlast.runtime.client import Client, end_of

T = TypeVar("T")
POLL_S: Final = (0.1, 1.0)
"""First and longest interval of polls. A service announces the end of a run, but no other change."""
PAGE: Final = 1_000
LOOK_S: Final = 0.5
"""Time for one read of a run whose wait has a shorter timeout, or at the end of it."""
BACK_OFF_S: Final = (0.2, 0.5, 1.0, 2.0, 5.0)
log: Final = logging.getLogger("outlast.client")


class StreamOutage:
    """Attempts to reopen a stream, which last until the connection's timeout without a sign of the service.

    A stream that only opens is no sign, because any peer can open and end one.
    """

    def __init__(self, connection: ServiceConnection) -> None:
        self._connection = connection
        self._clock = SystemClock()
        self._begun = self._told = False
        self._since: int | None = None
        self._failures = 0

    def heard(self, *, opened: bool) -> None:
        """Note that the stream was opened, or that it has brought an event, a text or a comment."""
        self._begun = True
        if not opened:
            self._since, self._failures, self._told = None, 0, False

    def noticed(self) -> None:
        """Note that the stream has ended."""
        self._since = self._clock.mono() if self._since is None else self._since

    def answered(self) -> None:
        """Note another answer of the service. The next attempt still waits longer than the last."""
        self._since = None

    def may_last(self, error: Exception) -> bool:
        """Return True if a further attempt may be made after an error."""
        assert self._since is not None
        most_s = self._connection.timeout_s
        if not self._begun and isinstance(error, UNSENT):
            most_s = self._connection.unsent_s
        elif not self._begun and (not isinstance(error, LOST) or self._failures >= len(REPEATS_S)):
            return False
        return (self._clock.mono() - self._since) / SECOND + self._pause_s < most_s

    def is_news(self) -> bool:
        """Return True once for an outage of a stream that was open."""
        first, self._told = self._begun and not self._told, self._told or self._begun
        return first

    @property
    def _pause_s(self) -> float:
        return BACK_OFF_S[min(self._failures, len(BACK_OFF_S) - 1)]

    def wait_s(self) -> float:
        """Return the wait before the next attempt."""
        pause_s = self._pause_s
        self._failures += 1
        return pause_s


class ServiceClient(Client):
    """Client of one service. `lost` is called with a message when a stream breaks off and is reopened."""

    me = "you"
    has_code = False
    scheduler = ""

    def __init__(self, connection: ServiceConnection, lost: Callable[[str], None] = log.warning) -> None:
        self.connection = connection
        self._lost = lost
        self._clock = SystemClock()
        self._webhooks = ServiceWebhooks(connection)

    @property
    @override
    def webhooks(self) -> ServiceWebhooks:
        return self._webhooks

    @override
    async def _release(self) -> None:
        await self.connection.close()

    @override
    async def now(self) -> datetime:
        return exact_instant(self._clock.wall())

    @override
    async def until(self, read: Callable[[], Awaitable[T | None]], *, within_s: float | None = None) -> T | None:
        wait_s, longest_s = POLL_S
        try:
            async with asyncio.timeout(within_s):
                while (found := await read()) is None:
                    await asyncio.sleep(wait_s)
                    wait_s = min(wait_s * 1.2, longest_s)
                return found
        except TimeoutError:
            return None

    # --- runs ----------------------------------------------------------------------------------
    @override
    def worker(
        self,
        workflows: Sequence[Workflow[Any, Any, Any]],
        *,
        concurrency: int = 100,
        name: str = "",
        live: Liveness | None = None,
    ) -> AbstractAsyncContextManager[None]:
        raise InvalidInput(
            "a worker needs the store itself",
            f"{self.connection.base} is a service, and a worker writes to its store",
            'connect to the store, e.g. outlast.connect("postgresql://…"); or start outlast worker where the store is',
        )

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
        scheduler: str = "",
    ) -> RunStarted:
        name = workflow if isinstance(workflow, str) else workflow.name
        try:
            data = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise InvalidInput("the input is not JSON", str(error), "correct it") from error
        body = {
            "input": data,
            "id": run_id or new_id(f"{name[:4]}_"),  # chosen here, so that a repeated request is the same run
            "key": key,
            "correlation_id": correlation_id,
            "trace_id": trace_id,
            "scheduler": scheduler or self.scheduler or None,
        }
        return await self.connection.post(RunStarted, f"/workflows/{part(name)}/runs", body)

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
        return await self.connection.get(
            RunList, "/runs", status=status, workflow=workflow, attention=attention, waiting_for=waiting_for, q=q,
            since=iso(since), cursor=cursor, limit=limit,
        )  # fmt: skip

    @override
    async def run(self, run: str) -> RunDetail:
        return await self.connection.get(RunDetail, f"/runs/{part(run)}")

    @override
    async def run_summary(self, run: str) -> RunSummary:
        return await self.connection.get(RunSummary, f"/runs/{part(run)}")

    @override
    async def run_input(self, run: str) -> Any:
        return (await self.connection.get(RunInput, f"/runs/{part(run)}/input")).input

    @override
    async def results(self, run: str, *, after: int = 0, limit: int = 1_000) -> ResultList:
        return await self.connection.get(ResultList, f"/runs/{part(run)}/results", after=after, limit=limit)

    @override
    async def steps(self, run: str, *, kind: str = "", step: str = "", cursor: str = "", limit: int = 50) -> StepList:
        path = f"/runs/{part(run)}/steps"
        return await self.connection.get(StepList, path, kind=kind, step=step, cursor=cursor, limit=limit)

    @override
    async def timeline(self, run: str, *, begin: datetime | None = None, end: datetime | None = None) -> Timeline:
        given = (("from", begin), ("to", end))
        span = {name: iso_instant(checked_instant(name, at)) for name, at in given if at is not None}
        return await self.connection.get(Timeline, f"/runs/{part(run)}/timeline", **span)

    @override
    async def events(self, run: str, *, after: int = 0, limit: int = 200, of_type: str = "") -> EventList:
        asked = {"after": after, "limit": limit, "type": of_type or None}
        return await self.connection.get(EventList, f"/runs/{part(run)}/events", **asked)

    @override
    async def ended(self, run: str, *, within_s: float | None = None) -> bool:
        begun = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(None if within_s is None else max(within_s, LOOK_S)) as waiting:
                if (await self.run_summary(run)).status in TERMINAL:
                    return True
                if within_s is not None:
                    waiting.reschedule(begun + within_s)
                return await self._ends(run)
        except TimeoutError:
            if not waiting.expired():
                raise
            return False

    async def _ends(self, run: str) -> bool:
        try:
            async with aclosing(self.updates(run)) as updates:
                async for _ in updates:
                    pass
            return True
        except Busy:  # too many streams of this tenant: poll instead
            return await super().ended(run)

    @override
    async def run_end(self, run: str, *, within_s: float | None = None) -> EndedRun | None:
        clock = asyncio.get_running_loop().time
        end_s = None if within_s is None else clock() + within_s
        if not await self.ended(run, within_s=within_s):
            return None
        try:
            async with asyncio.timeout_at(None if end_s is None else max(end_s, clock() + LOOK_S)) as reading:
                return end_of(await self.run(run))
        except TimeoutError:
            if not reading.expired():
                raise
            return None

    @override
    async def _seen(self, run: str) -> RunSummary | None:
        try:
            async with asyncio.timeout(LOOK_S):
                return await self.run_summary(run)
        except (TimeoutError, Unavailable):
            return None

    @override
    async def follow(self, run: str, *, after: int = 0) -> AsyncGenerator[str]:
        async with aclosing(self.updates(run, after=after)) as updates:
            async for each in updates:
                if isinstance(each, str):
                    yield each

    async def _heard(
        self, run: str, after: int, outage: StreamOutage
    ) -> AsyncGenerator[tuple[int, str | RunDelta, bool]]:
        """Yield number and text of each event of one stream, and True with the last; a delta has the number 0."""
        async with aclosing(self.connection.updates(run, after)) as stream:
            async for number, update in stream:
                outage.heard(opened=update is None)
                ended = number > 0 and CloudEvent.model_validate_json(str(update)).type in ENDINGS
                if update:
                    yield number, update, ended
                if ended:
                    return

    @override
    async def updates(self, run: str, *, after: int = 0) -> AsyncGenerator[str | RunDelta]:
        outage = StreamOutage(self.connection)
        while True:
            ended, news, gone = False, False, None
            try:
                async with aclosing(self._heard(run, after, outage)) as found:
                    async for number, update, last in found:
                        after, news, ended = number or after, news or number > 0, last
                        yield update
                if ended:
                    return
                outage.noticed()
                if not news and (await self.run_summary(run)).status in TERMINAL:
                    return
                outage.answered()
            except (httpx2.HTTPError, TimeoutError, Unavailable, Busy) as error:
                gone = error
            if gone is not None:
                outage.noticed()
                if not outage.may_last(gone):
                    raise gone if isinstance(gone, Busy) else self.connection.away(gone) from gone
                if outage.is_news():
                    self._lost(f"the stream broke off after event {after}; reconnecting")
            await asyncio.sleep(outage.wait_s())

    @override
    async def explain(self, run: str) -> RunExplanation:
        return await self.connection.get(RunExplanation, f"/runs/{part(run)}/explain")

    @override
    async def signal(
        self, run: str, name: str, payload: Mapping[str, Any], *, signal_id: str = "", version: int = 0
    ) -> bool:
        body = {"payload": dict(payload), **({"signal_id": signal_id} if signal_id else {})}
        path = f"/runs/{part(run)}/signals/{part(name)}"
        return (await self.connection.post(SignalRecorded, path, body, etag=tag(version))).new

    @override
    async def cancel(self, run: str, *, reason: str, version: int = 0, idempotency_key: str = "") -> None:
        await self._act(run, "cancel", {"reason": reason}, version, idempotency_key)

    @override
    async def continue_run(self, run: str, *, reason: str = "", version: int = 0) -> None:
        await self._act(run, Choice.CONTINUE, {"reason": reason}, version)

    @override
    async def extend(self, run: str, *, by: Duration, reason: str, version: int = 0, idempotency_key: str = "") -> None:
        body = {"reason": reason, "by": timedelta_of("by", by).total_seconds()}
        await self._act(run, Choice.EXTEND, body, version, idempotency_key)

    @override
    async def move_to(
        self, run: str, scheduler: str, *, reason: str = "", force: bool = False, version: int = 0
    ) -> None:
        body = {"scheduler": check_scheduler(scheduler), "reason": reason, "force": force}
        await self._act(run, "scheduler", body, version)

    @override
    async def raise_budget(
        self,
        run: str,
        *,
        tokens: int = 0,
        money: Money = 0,
        calls: int = 0,
        minutes: float = 0,
        reason: str,
        version: int = 0,
        idempotency_key: str = "",
    ) -> None:
        more = {"tokens": tokens, "money": money_text(micros(money)), "calls": calls, "minutes": minutes}
        await self._act(run, Choice.RAISE, {"reason": reason, **more}, version, idempotency_key)

    async def _act(self, run: str, verb: str, body: Mapping[str, Any], version: int = 0, key: str = "") -> None:
        await self.connection.post(RequestRecorded, f"/runs/{part(run)}/{verb}", body, etag=tag(version), key=key)

    @override
    async def to_undo(self, run: str) -> Sequence[str]:
        done = await self._done(run)
        return [f"{e.effect} {e.key}" for e in done if e.undo and not e.undo.startswith(NO_UNDO)]

    @override
    async def not_undone(self, run: str) -> Sequence[str]:
        kept = [e for e in await self._done(run) if not e.undo or e.undo.startswith(NO_UNDO)]
        return [f"{e.effect} {e.key}" + (f": {e.undo.removeprefix(NO_UNDO)}" if e.undo else "") for e in kept]

    async def _done(self, run: str) -> Sequence[EffectRecord]:
        return [e for e in reversed(await self.effects(run)) if e.status == EffectStatus.DONE and e.run == run]

    # --- effects -------------------------------------------------------------------------------
    @override
    async def effects(self, run: str) -> Sequence[EffectRecord]:
        return (await self.connection.get(EffectList, f"/runs/{part(run)}/effects")).effects

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
        return await self.connection.get(
            EffectList, "/effects", status=status, activity=activity, run=run, since=iso(since), cursor=cursor,
            limit=limit,
        )  # fmt: skip

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
    async def resolve_effect(
        self, run: str, key: str, answer: Verb, *, reason: str, external_id: str = "", response: Any = None,
        correct: bool = False,
    ) -> None:  # fmt: skip
        if not reason.strip():
            raise InvalidInput(
                "the service asks for a reason", "people will read it in the run's history", "say --reason …"
            )
        body: dict[str, Any] = {"outcome": answer, "reason": reason, **({"correct": True} if correct else {})}
        if answer == "happened":
            body |= {"external_id": external_id, "response": response}
        effect = await self.effect(run, key)
        await self.connection.post(EffectRecord, f"/effects/{part(effect.id)}/resolve", body)

    # --- approvals -----------------------------------------------------------------------------
    @override
    async def approvals(
        self,
        *,
        status: str = "",
        run: str = "",
        mine: bool = False,
        role: str = "",
        person: str = "",
        overdue: bool = False,
        decided_by: str = "",
        sort: ApprovalSort = "newest",
        cursor: str = "",
        limit: int = 50,
    ) -> ApprovalList:
        return await self.connection.get(
            ApprovalList,
            "/approvals",
            status=status,
            run=run,
            mine=mine,
            role=role,
            person=person,
            overdue=overdue,
            decided_by=decided_by,
            sort="" if sort == "newest" else sort,
            cursor=cursor,
            limit=limit,
        )

    @override
    async def approval(self, approval: str) -> ApprovalDetail:
        return await self.connection.get(ApprovalDetail, f"/approvals/{part(approval)}")

    @override
    async def approve(
        self,
        approval: str,
        *,
        reason: str = "",
        alternative: int = 0,
        changes: Mapping[str, Any] | None = None,
        version: int = 0,
        idempotency_key: str = "",
    ) -> ApprovalSummary:
        body = {"decision": "approve", "reason": reason, "alternative": alternative}
        body |= {"changes": dict(changes)} if changes else {}
        return await self._decide(approval, body, version, idempotency_key)

    @override
    async def reject(
        self, approval: str, *, reason: str, again: bool = False, version: int = 0, idempotency_key: str = ""
    ) -> ApprovalSummary:
        body = {"decision": "again" if again else "reject", "reason": reason}
        return await self._decide(approval, body, version, idempotency_key)

    async def _decide(self, approval: str, body: Mapping[str, Any], version: int, key: str) -> ApprovalSummary:
        path, shown = f"/approvals/{part(approval)}/decision", version or (await self.approval(approval)).version
        return (await self.connection.post(DecisionRecorded, path, body, etag=tag(shown), key=key)).approval

    @override
    async def claim_approval(self, approval: str, *, version: int = 0) -> ApprovalSummary:
        return await self.connection.post(ApprovalSummary, f"/approvals/{part(approval)}/claim", etag=tag(version))

    @override
    async def reassign(self, approval: str, who: str, *, reason: str, version: int = 0) -> ApprovalSummary:
        path, body = f"/approvals/{part(approval)}/reassign", {"to": who, "reason": reason}
        return await self.connection.post(ApprovalSummary, path, body, etag=tag(version))

    # --- attention -----------------------------------------------------------------------------
    @override
    async def attention(
        self, *, reason: Reason | None = None, workflow: str = "", assigned_to: str = "", cursor: str = ""
    ) -> AttentionList:
        return await self.connection.get(
            AttentionList, "/attention", reason=reason, workflow=workflow, assigned_to=assigned_to, cursor=cursor
        )

    @override
    async def assign(
        self, run: str, to: str, *, reason: Reason | None = None, key: str = "", note: str = ""
    ) -> RunAttention:
        body: dict[str, Any] = {"run": run, "to": to, "key": key, "note": note}
        if reason is not None:
            body["attention"] = reason.value
        return await self.connection.post(RunAttention, "/attention/assign", body)

    @override
    async def attention_of(self, run: str) -> Sequence[RunAttention]:
        summary, cursor = await self.run_summary(run), ""
        while summary.attention:
            page = await self.attention(workflow=summary.workflow, cursor=cursor)
            if found := [item for item in page.attention if isinstance(item, RunAttention) and item.run == run]:
                return found
            if not (cursor := page.next_cursor):
                break
        return []

    @override
    async def answer(
        self, run: str, choice: Choice, *, reason: Reason | None = None, key: str = "", text: str,
        by: Duration | None = None,
    ) -> Reason:  # fmt: skip
        entries = (await self.run_summary(run)).attention
        body: dict[str, Any] = {"choice": choice.value, "reason": text, "key": key}
        if reason is not None:
            body["attention"] = reason.value
        if by is not None:
            body["by"] = timedelta_of("by", by).total_seconds()
        await self.connection.post(RequestRecorded, f"/attention/{part(run)}/resolve", body)
        offered = [Reason(each.reason) for each in entries if choice in each.choices]
        return reason or next(iter(offered), Reason.EXCEPTION)

    @override
    async def answer_all(
        self, reason: Reason, choice: Choice, *, text: str, workflow: str = "", node: str = "", activity: str = "",
        by: Duration | None = None, cursor: str = "",
    ) -> AnsweredRuns:  # fmt: skip
        check_for_all(reason, choice)
        page = await self.attention(reason=reason, workflow=workflow, cursor=cursor)
        keyed, items = reason is Reason.EFFECT_UNCERTAIN, [i for i in page.attention if isinstance(i, RunAttention)]
        items = [item for item in items if concerns(item.node, item.missing, node, activity)]
        asked = {(item.run, item.key if keyed else ""): None for item in items}
        given = [AnswerFor(run=run, key=key) for run, key in asked]

        async def answer(part_of: Sequence[AnswerFor]) -> Sequence[AnswerOutcome]:
            return (await self.answer_many(part_of, reason, choice, text=text, by=by)).answers

        outcomes = await answer_parts(answer, given)
        return AnsweredRuns.of(outcomes, page.next_cursor)

    @override
    async def answer_many(
        self, runs: Sequence[AnswerFor], reason: Reason, choice: Choice, *, text: str, by: Duration | None = None
    ) -> AnswerList:
        check_many(len(runs), reason, choice)
        body: dict[str, Any] = {
            "attention": reason.value, "choice": choice.value, "reason": text,
            "runs": [given.model_dump() for given in runs],
        }  # fmt: skip
        if by is not None:
            body["by"] = timedelta_of("by", by).total_seconds()
        return await self.connection.post(AnswerList, "/attention/resolve", body)

    # --- the store -----------------------------------------------------------------------------
    @override
    async def summary(self) -> StatusSummary:
        return await self.connection.get(StatusSummary, "/summary")

    @override
    async def whoami(self) -> CallerInfo:
        return await self.connection.get(CallerInfo, "/me")

    @override
    async def workers(self) -> Sequence[WorkerStatus]:
        return (await self.connection.get(WorkerList, "/workers", all=True)).workers

    @override
    async def drain_worker(self, worker: str, *, reason: str) -> WorkerStatus:
        return await self.connection.post(WorkerStatus, f"/workers/{part(worker)}/drain", {"reason": reason})

    @override
    async def input_schema(self, workflow: str) -> Mapping[str, Any]:
        found = await self._workflow(workflow)
        return found.input_schema if found is not None else {}

    @override
    async def topology(self, workflow: str, lane: str) -> Mapping[str, Any] | None:
        found = await self._workflow(workflow)
        return found.topology if found is not None and found.lane == lane else None

    async def _workflow(self, name: str) -> WorkflowDetail | None:
        try:
            return await self.connection.get(WorkflowDetail, f"/workflows/{part(name)}")
        except NotFound:
            return None

    @override
    async def versions(self) -> Sequence[VersionStatus]:
        return (await self.connection.get(VersionList, "/versions")).versions

    @override
    async def unfinished(self, workflow: str, lane: str) -> Sequence[str]:
        found: dict[str, None] = {}
        for status in set(RunStatus) - TERMINAL:
            cursor, more = "", True
            while more:
                page = await self.runs(status=status, workflow=workflow, cursor=cursor, limit=PAGE)
                found |= dict.fromkeys(each.run for each in page.runs if each.lane == lane)
                more = bool(cursor := page.next_cursor)
        return list(found)

    @override
    async def move_runs(
        self, workflow: str, version: int, runs: Sequence[str], *, node: str = "", reason: str
    ) -> AnsweredRuns:
        body = {"workflow": workflow, "version": version, "node": node, "reason": reason}
        return await move_each(lambda run: self._act(run, "move", body), runs)

    @override
    async def budgets(self) -> Sequence[DailyBudget]:
        return (await self.connection.get(BudgetList, "/budgets")).budgets

    @override
    async def set_budget(self, budget: Budget | None, *, reason: str = "") -> None:
        limits = budget.limits if budget is not None else NO_LIMITS
        money = None if limits.money is None else money_text(limits.money)
        minutes = budget.minutes if budget is not None else None
        body = {"tokens": limits.tokens, "money": money, "calls": limits.calls, "minutes": minutes, "reason": reason}
        await self.connection.post(BudgetList, "/budgets", body)

    @override
    async def pauses(self) -> Sequence[ActivePause]:
        return (await self.connection.get(PauseList, "/pauses")).pauses

    @override
    async def pause(self, what: What, name: str = "", *, reason: str) -> PauseCreated:
        return await self.connection.post(PauseCreated, "/pauses", {"what": what, "name": name, "reason": reason})

    @override
    async def resume(self, what: What, name: str = "") -> PauseEnded:
        return await self.connection.post(PauseEnded, "/pauses/resume", {"what": what, "name": name})

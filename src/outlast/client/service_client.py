"""The client of a service, over HTTP."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Final, Literal, TypeVar

import httpx2
from pydantic import BaseModel
from typing_extensions import override

from outlast.client.event_frames import BrokenStream
from outlast.client.parts import answer_parts, move_each
from outlast.client.service_connection import LOST, REPEATS_S, UNSENT, ServiceConnection
from outlast.client.service_webhooks import ServiceWebhooks
from outlast.clocks import SystemClock, new_id
from outlast.core.attention import check_for_all, check_many
from outlast.core.compensation import NO_UNDO
from outlast.core.durations import SECOND, Duration, Liveness
from outlast.core.events import ENDINGS
from outlast.core.lanes import check_scheduler
from outlast.core.limits import RUNS_PER_READ
from outlast.core.machine import TERMINAL, Choice, EffectStatus, Reason, RunStatus
from outlast.core.paging import pages
from outlast.core.rows.run_columns import What
from outlast.core.usage import NO_LIMITS, Budget, Money, money_text
from outlast.errors import Busy, InvalidInput, NotFound, Unavailable
from outlast.flow.workflow import Workflow
from outlast.models import exact_instant
from outlast.models.approvals import ApprovalDetail, ApprovalList, ApprovalSort, ApprovalSummary
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
    ResultList,
    RunDelta,
    RunDetail,
    RunExplanation,
    RunList,
    RunStarted,
    RunSummary,
)
from outlast.models.service import (
    ActivePause,
    CallerInfo,
    DailyBudget,
    PauseCreated,
    PauseEnded,
    SlotLimit,
    StatusSummary,
    VersionStatus,
    WorkerStatus,
    WorkflowDetail,
)
from outlast.models.steps import StepList
from outlast.models.timeline import Timeline
from outlast.operations.approval_operations import (
    ClaimApproval,
    DecideApproval,
    GetApproval,
    ListApprovals,
    ReassignApproval,
)
from outlast.operations.attention_operations import (
    AssignAttention,
    ListAttention,
    ResolveAttention,
    ResolveAttentionOfMany,
)
from outlast.operations.declaration import OperationRequest
from outlast.operations.effect_operations import ListEffects, ListLedger, ResolveEffect
from outlast.operations.run_operations import (
    CancelRun,
    ContinueRun,
    ExplainRun,
    ExtendRun,
    GetInput,
    GetRun,
    GetRunSummary,
    GetTimeline,
    GetUnmovable,
    GetWorkflow,
    ListEvents,
    ListResults,
    ListRuns,
    ListSteps,
    MoveRun,
    MoveRunToScheduler,
    RaiseBudget,
    SignalRun,
    StartRun,
)
from outlast.operations.service_operations import (
    DrainWorker,
    GetMe,
    GetSummary,
    ListBudgets,
    ListPauses,
    ListVersions,
    ListWorkers,
    PauseCalls,
    ResumeCalls,
    SetBudget,
    SetSlots,
)
from outlast.runtime.client import Client, end_of

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
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

    async def _call(self, request: OperationRequest[M]) -> M:
        return await self.connection.call(request)

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
        start = StartRun(
            name,
            data,
            run_id=run_id or new_id(f"{name[:4]}_"),  # chosen here, so that a repeated request is the same run
            key=key,
            correlation_id=correlation_id,
            trace_id=trace_id,
            scheduler=scheduler or self.scheduler or None,
        )
        return await self._call(start)

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
        return await self._call(
            ListRuns(
                status=status,
                workflow=workflow,
                attention=attention,
                waiting_for=waiting_for,
                q=q,
                since=since,
                cursor=cursor,
                limit=limit,
            )
        )

    @override
    async def run(self, run: str) -> RunDetail:
        return await self._call(GetRun(run))

    @override
    async def run_summary(self, run: str) -> RunSummary:
        return await self._call(GetRunSummary(run))

    @override
    async def run_input(self, run: str) -> Any:
        return (await self._call(GetInput(run))).input

    @override
    async def results(self, run: str, *, after: int = 0, limit: int = 1_000) -> ResultList:
        return await self._call(ListResults(run, after=after, limit=limit))

    @override
    async def steps(self, run: str, *, kind: str = "", step: str = "", cursor: str = "", limit: int = 50) -> StepList:
        return await self._call(ListSteps(run, kind=kind, step=step, cursor=cursor, limit=limit))

    @override
    async def timeline(self, run: str, *, begin: datetime | None = None, end: datetime | None = None) -> Timeline:
        return await self._call(GetTimeline(run, begin=begin, end=end))

    @override
    async def events(self, run: str, *, after: int = 0, limit: int = 200, of_type: str = "") -> EventList:
        return await self._call(ListEvents(run, after=after, limit=limit, of_type=of_type))

    @override
    async def ended(self, run: str, *, within_s: float | None = None) -> bool:
        started = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(None if within_s is None else max(within_s, LOOK_S)) as waiting:
                if (await self.run_summary(run)).status in TERMINAL:
                    return True
                if within_s is not None:
                    waiting.reschedule(started + within_s)
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

    async def _rest(self, run: str, after: int) -> AsyncGenerator[str]:
        """Yield the further events of a run that has ended. Its stream may have ended before they were recorded."""
        more = True
        while more:
            page = await self.events(run, after=after)
            for event in page.events:
                if event.id != f"{run}/{after + 1}":
                    raise self.connection.away(BrokenStream("a page of events is not the next one of this run"))
                yield event.model_dump_json()
                after += 1
            more = bool(page.events) and not page.ended

    @override
    async def updates(self, run: str, *, after: int = 0) -> AsyncGenerator[str | RunDelta]:
        outage = StreamOutage(self.connection)
        while True:
            ended, over, news, gone = False, False, False, None
            try:
                async with aclosing(self._heard(run, after, outage)) as found:
                    async for number, update, last in found:
                        after, news, ended = number or after, news or number > 0, last
                        yield update
                if ended:
                    return
                outage.noticed()
                over = not news and (await self.run_summary(run)).status in TERMINAL
                outage.answered()
            except (httpx2.HTTPError, TimeoutError, Unavailable, Busy) as error:
                gone = error
            if gone is not None:
                outage.noticed()
                if not outage.may_last(gone):
                    raise gone if isinstance(gone, Busy) else self.connection.away(gone) from gone
                if outage.is_news():
                    self._lost(f"the stream broke off after event {after}; reconnecting")
            if over:
                break
            await asyncio.sleep(outage.wait_s())
        async with aclosing(self._rest(run, after)) as rest:
            async for text in rest:
                yield text

    @override
    async def explain(self, run: str) -> RunExplanation:
        return await self._call(ExplainRun(run))

    @override
    async def signal(
        self, run: str, name: str, payload: Mapping[str, Any], *, signal_id: str = "", version: int = 0
    ) -> bool:
        return (await self._call(SignalRun(run, name, payload, signal_id=signal_id, version=version))).new

    @override
    async def cancel(self, run: str, *, reason: str, version: int = 0, idempotency_key: str = "") -> None:
        await self._call(CancelRun(run, reason=reason, version=version, idempotency_key=idempotency_key))

    @override
    async def continue_run(self, run: str, *, reason: str = "", version: int = 0) -> None:
        await self._call(ContinueRun(run, reason=reason, version=version))

    @override
    async def extend(self, run: str, *, by: Duration, reason: str, version: int = 0, idempotency_key: str = "") -> None:
        await self._call(ExtendRun(run, by=by, reason=reason, version=version, idempotency_key=idempotency_key))

    @override
    async def move_to(
        self, run: str, scheduler: str, *, reason: str = "", force: bool = False, version: int = 0
    ) -> None:
        await self._call(
            MoveRunToScheduler(run, check_scheduler(scheduler), reason=reason, force=force, version=version)
        )

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
        await self._call(
            RaiseBudget(
                run,
                tokens=tokens,
                money=money,
                calls=calls,
                minutes=minutes,
                reason=reason,
                version=version,
                idempotency_key=idempotency_key,
            )
        )

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
        return (await self._call(ListEffects(run))).effects

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
        return await self._call(
            ListLedger(status=status, activity=activity, run=run, since=since, cursor=cursor, limit=limit)
        )

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
        self,
        run: str,
        key: str,
        answer: Verb,
        *,
        reason: str,
        external_id: str = "",
        response: Any = None,
        version: int = 0,
        visit: int | None = None,
        correct: bool = False,
    ) -> None:
        if not reason.strip():
            raise InvalidInput(
                "the service asks for a reason", "people will read it in the run's history", "say --reason …"
            )
        effect = await self.effect(run, key, visit=visit)
        settled = ResolveEffect(effect.id, answer, reason=reason, correct=correct, version=version)
        if answer == "happened":
            settled = replace(settled, external_id=external_id, response=response)
        await self._call(settled)

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
        return await self._call(
            ListApprovals(
                status=status,
                run=run,
                mine=mine,
                role=role,
                person=person,
                overdue=overdue,
                decided_by=decided_by,
                sort=sort,
                cursor=cursor,
                limit=limit,
            )
        )

    @override
    async def approval(self, approval: str) -> ApprovalDetail:
        return await self._call(GetApproval(approval))

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
        return await self._decide(
            DecideApproval(
                approval,
                "approve",
                reason=reason,
                alternative=alternative,
                changes=changes or None,
                version=version,
                idempotency_key=idempotency_key,
            )
        )

    @override
    async def reject(
        self, approval: str, *, reason: str, again: bool = False, version: int = 0, idempotency_key: str = ""
    ) -> ApprovalSummary:
        verdict: Literal["again", "reject"] = "again" if again else "reject"
        return await self._decide(
            DecideApproval(approval, verdict, reason=reason, version=version, idempotency_key=idempotency_key)
        )

    async def _decide(self, decision: DecideApproval) -> ApprovalSummary:
        if not decision.version:
            decision = replace(decision, version=(await self.approval(decision.approval)).version)
        return (await self._call(decision)).approval

    @override
    async def claim_approval(self, approval: str, *, version: int = 0) -> ApprovalSummary:
        return await self._call(ClaimApproval(approval, version=version))

    @override
    async def reassign(self, approval: str, who: str, *, reason: str, version: int = 0) -> ApprovalSummary:
        return await self._call(ReassignApproval(approval, who, reason=reason, version=version))

    # --- attention -----------------------------------------------------------------------------
    @override
    async def attention(
        self,
        *,
        reason: Reason | None = None,
        workflow: str = "",
        assigned_to: str = "",
        cursor: str = "",
        limit: int = RUNS_PER_READ,
    ) -> AttentionList:
        return await self._call(
            ListAttention(reason=reason, workflow=workflow, assigned_to=assigned_to, cursor=cursor, limit=limit)
        )

    @override
    async def assign(
        self, run: str, to: str, *, reason: Reason | None = None, key: str = "", note: str = ""
    ) -> RunAttention:
        return await self._call(AssignAttention(run, to, reason=reason, key=key, note=note))

    @override
    async def attention_of(self, run: str) -> Sequence[RunAttention]:
        summary = await self.run_summary(run)
        if not summary.attention:
            return []
        async for page in pages(partial(self.attention, workflow=summary.workflow)):
            if found := [item for item in page.attention if isinstance(item, RunAttention) and item.run == run]:
                return found
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
        by: Duration | None = None,
        version: int = 0,
    ) -> Reason:
        entries = (await self.run_summary(run)).attention
        await self._call(ResolveAttention(run, choice, reason=reason, key=key, text=text, by=by, version=version))
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
        return await self._call(ResolveAttentionOfMany(runs, reason, choice, text=text, by=by))

    # --- the store -----------------------------------------------------------------------------
    @override
    async def summary(self) -> StatusSummary:
        return await self._call(GetSummary())

    @override
    async def whoami(self) -> CallerInfo:
        return await self._call(GetMe())

    @override
    async def workers(self) -> Sequence[WorkerStatus]:
        return (await self._call(ListWorkers(everybody=True))).workers

    @override
    async def drain_worker(self, worker: str, *, reason: str) -> WorkerStatus:
        return await self._call(DrainWorker(worker, reason=reason))

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
            return await self._call(GetWorkflow(name))
        except NotFound:
            return None

    @override
    async def versions(self) -> Sequence[VersionStatus]:
        return (await self._call(ListVersions())).versions

    @override
    async def unfinished(self, workflow: str, lane: str, *, limit: int = 0) -> Sequence[str]:
        found: dict[str, None] = {}
        for status in set(RunStatus) - TERMINAL:
            async for page in pages(partial(self.runs, status=status, workflow=workflow, limit=PAGE)):
                found |= dict.fromkeys(each.run for each in page.runs if each.lane == lane)
                if 0 < limit <= len(found):
                    return list(found)[:limit]
        return list(found)

    @override
    async def move_run(
        self, run: str, workflow: str, to: int, *, node: str = "", reason: str = "", version: int = 0
    ) -> None:
        await self._call(MoveRun(run, workflow, to, node=node, reason=reason, version=version))

    @override
    async def unmovable(self, run: str) -> str:
        return (await self._call(GetUnmovable(run))).why

    @override
    async def move_runs(
        self, workflow: str, version: int, runs: Sequence[str], *, node: str = "", reason: str
    ) -> AnsweredRuns:
        return await move_each(lambda run: self.move_run(run, workflow, version, node=node, reason=reason), runs)

    @override
    async def budgets(self) -> Sequence[DailyBudget]:
        return (await self._call(ListBudgets())).budgets

    @override
    async def set_budget(self, budget: Budget | None, *, reason: str = "") -> None:
        limits = budget.limits if budget is not None else NO_LIMITS
        money = None if limits.money is None else money_text(limits.money)
        minutes = budget.minutes if budget is not None else None
        await self._call(
            SetBudget(tokens=limits.tokens, money=money, calls=limits.calls, minutes=minutes, reason=reason)
        )

    @override
    async def set_slots(self, n: int, *, everywhere: bool = False) -> SlotLimit:
        return await self._call(SetSlots(n, everywhere=everywhere))

    @override
    async def pauses(self) -> Sequence[ActivePause]:
        return (await self._call(ListPauses())).pauses

    @override
    async def pause(self, what: What, name: str = "", *, reason: str) -> PauseCreated:
        return await self._call(PauseCalls(what, name, reason=reason))

    @override
    async def resume(self, what: What, name: str = "") -> PauseEnded:
        return await self._call(ResumeCalls(what, name))

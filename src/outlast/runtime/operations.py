"""The client in this process: actions and queries over a store, bound to one tenant and one actor."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, Final, TypeVar

from typing_extensions import override

from outlast.clocks import new_id
from outlast.core import compensation
from outlast.core.acts import KeyedAct, act_of
from outlast.core.approvals import Actor, PersonDecision
from outlast.core.approver_rule import Rule
from outlast.core.argument_checks import Arguments
from outlast.core.assignments import Assignments, assignment_of, assignments_row, is_assigned_to
from outlast.core.attention import AttentionAnswer, check_many
from outlast.core.bulk_answers import check_bulk, must_confirm
from outlast.core.commit import Expect
from outlast.core.durations import Duration, Liveness, ms_of, timedelta_of
from outlast.core.lanes import lane_of, version_in
from outlast.core.limits import SLOTS_MAX, USAGE_DAYS_MAX
from outlast.core.machine import Choice, Reason
from outlast.core.rows.effect_rows import Approval, Effect
from outlast.core.rows.run_columns import Attention
from outlast.core.rows.run_rows import FLOOR, RUN, Event, Run, is_over
from outlast.core.rows.store_rows import META, STORE, TOPOLOGY
from outlast.core.start_details import StartOptions
from outlast.core.usage import NO_LIMITS, Budget, amounts_of
from outlast.core.window import remaining
from outlast.engine import commands
from outlast.engine import known_pauses as pauses
from outlast.engine.admission import set_slots
from outlast.engine.detached_children import detach
from outlast.engine.fork_start import ForkRequest, fork
from outlast.errors import NotFound
from outlast.flow.workflow import Workflow
from outlast.insight.agent_calls import prompt_detail, prompt_list, stored_text
from outlast.insight.agent_steps import step_page, steps_of
from outlast.insight.answer_schemas import encoder_of
from outlast.insight.approval_reads import approval_detail, approval_page, approval_summary, approvals_in_order
from outlast.insight.attention_reads import answer_each, general_attention, run_attention
from outlast.insight.audit_reads import audit_page
from outlast.insight.budget_reads import daily_budgets, nearest_runs, usage_of_days
from outlast.insight.cause_reads import cause_detail, cause_list, counted_bars
from outlast.insight.explanation import explain
from outlast.insight.row_models import active_pause, caller_info, event_list, worker_status
from outlast.insight.run_facts import messages_of
from outlast.insight.run_reads import (
    ActsOfRun,
    ApprovalOfRun,
    RunOverview,
    detail_from,
    detail_of,
    effect_page,
    effects_of_run,
    end_of_run,
    one_effect,
    result_page,
    run_page,
    state_of_run,
    summaries_of,
)
from outlast.insight.run_story import ModelTurn, RunStory, chosen, messages_before, story_of
from outlast.insight.run_tally import RunTally, tally_of
from outlast.insight.run_timeline import timeline_of
from outlast.insight.run_tree import runs_below, tree_of
from outlast.insight.shown_rows import after_commit, of_one
from outlast.insight.summary import status_summary
from outlast.insight.tenant_rows import PAGE_ROWS_MAX, TenantRows
from outlast.insight.tool_calls import tool_calls, tool_list
from outlast.models import exact_instant
from outlast.models.agents import PromptDetail, PromptList, ToolCallList, ToolList
from outlast.models.approvals import ApprovalDetail, ApprovalList, ApprovalSummary
from outlast.models.attention import AnsweredRuns, AnswerFor, AnswerList, AttentionList, RunAttention
from outlast.models.audit_entries import AuditList
from outlast.models.bulk import BulkAnswer, BulkPreview
from outlast.models.causes import Bars, CauseDetail, CauseList
from outlast.models.child_tree import RunTree
from outlast.models.comparison import RunComparison
from outlast.models.effects import EffectList, EffectRecord
from outlast.models.fork_answers import ForkPointList, ForkPreview, RunForked
from outlast.models.measurements import DecisionTimes, RunDurations
from outlast.models.runs import (
    EndedRun,
    EventList,
    ResultList,
    RunDelta,
    RunDetail,
    RunExplanation,
    RunList,
    RunStarted,
    RunState,
    RunSummary,
)
from outlast.models.service import (
    ActivePause,
    BudgetedRunList,
    CallerInfo,
    DailyBudget,
    PauseCreated,
    PauseEnded,
    SlotLimit,
    StatusSummary,
    UsageList,
    VersionStatus,
    WorkerStatus,
)  # fmt: skip
from outlast.models.steps import StepList
from outlast.models.timeline import Timeline
from outlast.models.views import SavedView
from outlast.operations import OPERATIONS
from outlast.operations import agent_operations as agent_ops
from outlast.operations import approval_operations as approval_ops
from outlast.operations import attention_operations as attention_ops
from outlast.operations import audit_operations as audit_ops
from outlast.operations import cause_operations as cause_ops
from outlast.operations import effect_operations as effect_ops
from outlast.operations import fork_operations as fork_ops
from outlast.operations import metric_operations as metric_ops
from outlast.operations import run_operations as run_ops
from outlast.operations import service_operations as service_ops
from outlast.operations import view_operations as view_ops
from outlast.operations.declaration import OperationRequest
from outlast.operations.handlers import handlers_of, handles
from outlast.runtime import saved_views
from outlast.runtime import served_versions as versions
from outlast.runtime.bulk_answers import EXTENSION, count_of_filter, filter_of, job_of, start_job
from outlast.runtime.client import Client, Given
from outlast.runtime.offered_forks import fork_points, fork_preview, forked
from outlast.runtime.run_waiters import RunWaiters, follow, updates
from outlast.runtime.webhooks import OF_WEBHOOKS, Webhooks, event_types
from outlast.store.port import Store

RUN_ID_CHARS = 20  # of a run that is started under the key of a request
T = TypeVar("T")
R = TypeVar("R")


class Operations(Client):
    """Client in this process: one actor in one tenant of a store. No call reaches another tenant's rows (RUN-5)."""

    has_code = True
    scheduler = ""

    def __init__(
        self,
        store: Store,
        *,
        tenant: str,
        actor: Actor,
        workflows: Mapping[str, Workflow[Any]],
        versions: Sequence[Workflow[Any]] = (),
    ) -> None:
        """Act as `actor` in a `tenant` of a `store`. `workflows`: by name; `versions`: further loaded versions."""
        self.store = store
        self.tenant = tenant
        self.actor = actor
        self.rows = TenantRows(store, tenant)
        self.me = actor.name
        self.idempotency_key = ""
        self._webhooks = Webhooks(store, tenant, actor)
        self._waiters = RunWaiters(store)
        self._workflows = workflows
        self._versions = versions

    def use_key(self, idempotency_key: str) -> None:
        """Carry out every act of this object under a key, of the one request that it serves."""
        self.idempotency_key = self._webhooks.idempotency_key = idempotency_key

    def _act(self, operation: str, idempotency_key: str = "", *content: object) -> KeyedAct | None:
        """Return the identity of an act of the caller: under this key, or that of the request; None without one."""
        key = idempotency_key or self.idempotency_key
        return act_of(self.tenant, self.me, operation, key, *content) if key else None

    @override
    def _call(self, request: OperationRequest[R]) -> Coroutine[Any, Any, R]:
        handler = HANDLERS.get(type(request))
        return self._webhooks._call(request) if handler is None else handler(self, request)

    perform = _call  # for routes and pages, whose requests are valid

    @property
    @override
    def webhooks(self) -> Webhooks:
        return self._webhooks

    @override
    def worker(
        self,
        workflows: Sequence[Workflow[Any, Any, Any]],
        *,
        concurrency: int = 100,
        name: str = "",
        live: Liveness | None = None,
    ) -> AbstractAsyncContextManager[None]:
        from outlast.runtime.local_worker import serving  # imported here, because most callers serve nothing

        workflows = Arguments("worker").members("workflows", workflows, Workflow, "list workflows: [orders]")
        newest = {each.name: each for each in sorted(workflows, key=lambda each: each.version)}
        self._workflows = {**newest, **self._workflows}
        return serving(self.store, workflows, concurrency=concurrency, name=name, live=live)

    def _code_of(self, run: Run) -> Workflow[Any] | None:
        """Return the workflow of a run in the run's own version, or None if it is not loaded."""
        code = (run.workflow, version_in(run.lane))
        return next((w for w in (*self._workflows.values(), *self._versions) if (w.name, w.version) == code), None)

    @override
    async def _release(self) -> None:
        await self.store.close()

    @override
    async def now(self) -> datetime:
        return exact_instant((await self.store.now()).real)

    @override
    async def until(self, read: Callable[[], Awaitable[T | None]], *, within_s: float | None = None) -> T | None:
        from outlast.runtime.stores import until  # imported here, because it loads a driver

        return await until(self.store, read, within_s=within_s)

    # --- start and act on runs --------------------------------------------------------------------
    @handles(run_ops.START_RUN)
    async def _start_named(self, request: run_ops.StartRun) -> RunStarted:
        return await self._start_run(
            request.name,
            dict(request.input),
            StartOptions(request.run_id or "", request.key or "", request.scheduler or self.scheduler, request.details),
        )

    @override
    async def _start_run(
        self,
        workflow: Workflow[Any, Any, Any] | str,
        given: Given,
        options: StartOptions,
    ) -> RunStarted:
        started, created = await self._begin(workflow, given, options)
        return RunStarted(**vars(await after_commit(self.run_summary(started))), created=created)

    @override
    async def _begin(
        self,
        workflow: Workflow[Any, Any, Any] | str,
        given: Given,
        options: StartOptions,
    ) -> tuple[str, bool]:
        found = workflow if isinstance(workflow, Workflow) else self._workflows.get(workflow)
        if found is None:
            known = ", ".join(sorted(self._workflows)) or "none"
            fix = "choose one of these, or load the module that declares it"
            raise NotFound(f"no workflow {workflow}", f"loaded here: {known}", fix)
        act = None if options.run_id else self._act("start_run", "", found.name)
        run = options.run_id or (f"{found.name[:4]}_{act.id[:RUN_ID_CHARS]}" if act else new_id(f"{found.name[:4]}_"))
        return await commands.start(
            self.store,
            found,
            given,
            tenant=self.tenant,
            actor=self.me,
            run=run,
            key=options.key,
            scheduler=options.scheduler,
            details=options.details,
        )

    @handles(fork_ops.LIST_FORK_POINTS)
    async def _list_fork_points(self, request: fork_ops.ListForkPoints) -> ForkPointList:
        return await fork_points(self.rows, request.run)

    @handles(fork_ops.PREVIEW_FORK)
    async def _preview_fork(self, request: fork_ops.PreviewFork) -> ForkPreview:
        code = self._code_to_fork(await self.rows.run(request.run))
        asked = _with_terms(ForkRequest(request.run, request.point, effects=request.effects), request)
        return await fork_preview(self.rows, code, asked._replace(approvers=request.approvers))

    @handles(fork_ops.FORK_RUN)
    async def _fork_run(self, request: fork_ops.ForkRun) -> RunForked:
        asked = ForkRequest(request.run, request.point, effects=request.effects, approvers=request.approvers)
        return await self._fork(request, asked)

    @handles(fork_ops.FORK_RUN_LIVE)
    async def _fork_run_live(self, request: fork_ops.ForkRunLive) -> RunForked:
        return await self._fork(request, ForkRequest(request.run, request.point, effects="live"))

    async def _fork(self, request: fork_ops.ForkRun | fork_ops.ForkRunLive, asked: ForkRequest) -> RunForked:
        """Start a fork under the id that the caller names, or one that follows from the key of the request."""
        of = await self.rows.run(request.run)
        code = self._code_to_fork(of)
        act = None if request.fork_id else self._act("fork_run", "", of.run)
        name = f"{of.workflow[:4]}_"
        run = request.fork_id or (f"{name}{act.id[:RUN_ID_CHARS]}" if act else new_id(name))
        asked = _with_terms(asked, request)
        return forked(asked, await fork(self.store, code, asked, tenant=self.tenant, actor=self.me, run=run))

    def _code_to_fork(self, of: Run) -> Workflow[Any, Any, Any]:
        """Return the code in which a fork of a run is executed. Raises NotFound."""
        code = self._code_of(of) or self._workflows.get(of.workflow)
        if code is None:
            known = ", ".join(sorted(self._workflows)) or "none"
            raise NotFound(f"no workflow {of.workflow}", f"loaded here: {known}", "load the module that declares it")
        return code

    def shown(self, run: str, version: int) -> Expect | None:
        """Return the condition that the run still has this version of its row; None for 0 (not checked)."""
        return Expect(RUN, (self.tenant, run), version) if version else None

    @handles(run_ops.SIGNAL_RUN)
    def _signal_run(self, request: run_ops.SignalRun) -> Coroutine[Any, Any, bool]:  # one frame less at each wait
        return commands.signal(
            self.store,
            tenant=self.tenant,
            run=request.run,
            name=request.name,
            payload=dict(request.payload),
            actor=self.me,
            signal_id=request.signal_id,
            seen=self.shown(request.run, request.version),
        )

    @handles(run_ops.CANCEL_RUN)
    async def _cancel_run(self, request: run_ops.CancelRun) -> None:
        seen = self.shown(request.run, request.version)
        act = self._act("cancel_run", request.idempotency_key, request.run, request.reason)
        await commands.cancel(
            self.store, tenant=self.tenant, run=request.run, actor=self.me, reason=request.reason, seen=seen, act=act
        )

    @handles(run_ops.DETACH_RUN)
    async def _detach_run(self, request: run_ops.DetachRun) -> None:
        seen = self.shown(request.run, request.version)
        act = self._act("detach_run", request.idempotency_key, request.run, request.reason)
        await detach(
            self.store, tenant=self.tenant, run=request.run, actor=self.me, reason=request.reason, seen=seen, act=act
        )

    @handles(run_ops.CONTINUE_RUN)
    async def _continue_run(self, request: run_ops.ContinueRun) -> None:
        seen, act = self.shown(request.run, request.version), self._act("continue_run", "", request.run, request.reason)
        await commands.continue_run(
            self.store, tenant=self.tenant, run=request.run, actor=self.me, reason=request.reason, seen=seen, act=act
        )

    @handles(run_ops.EXTEND_RUN)
    async def _extend_run(self, request: run_ops.ExtendRun) -> None:
        act = self._act("extend_run", request.idempotency_key, request.run, ms_of("by", request.by), request.reason)
        await self._answer(
            request.run,
            Choice.EXTEND,
            reason=Reason.TOTAL_TIMEOUT,
            text=request.reason,
            by=request.by,
            version=request.version,
            act=act,
        )

    @handles(run_ops.MOVE_RUN)
    async def _move_run(self, request: run_ops.MoveRun) -> None:
        content = (request.run, request.workflow, request.to, request.node, request.reason)
        shown, act = self.shown(request.run, request.version), self._act("move_run", "", *content)
        await versions.request_version(
            self.rows,
            self.me,
            request.run,
            request.workflow,
            request.to,
            node=request.node,
            reason=request.reason,
            shown=shown,
            act=act,
        )

    @handles(run_ops.GET_UNMOVABLE)
    async def _get_unmovable(self, request: run_ops.GetUnmovable) -> str:
        return await versions.unmovable(self.rows, request.run)

    @handles(run_ops.MOVE_RUN_TO_SCHEDULER)
    async def _move_run_to_scheduler(self, request: run_ops.MoveRunToScheduler) -> None:
        content = (request.run, request.scheduler, request.reason, request.force)
        shown, act = self.shown(request.run, request.version), self._act("move_run_to_scheduler", "", *content)
        await versions.move_to_scheduler(
            self.rows,
            self.me,
            request.run,
            request.scheduler,
            reason=request.reason,
            force=request.force,
            shown=shown,
            act=act,
        )

    @override
    async def move_runs(
        self, workflow: str, version: int, runs: Sequence[str], *, node: str = "", reason: str
    ) -> AnsweredRuns:
        return await versions.move_runs(self.rows, self.me, workflow, version, runs, node=node, reason=reason)

    # --- approvals ---------------------------------------------------------------------------------
    @handles(approval_ops.LIST_APPROVALS)
    async def _list_approvals(self, request: approval_ops.ListApprovals) -> ApprovalList:
        rows, further = await approval_page(self.rows, self.actor, request)
        return ApprovalList(approvals=[approval_summary(row, self.actor) for row in rows], next_cursor=further)

    @handles(approval_ops.GET_APPROVAL)
    @of_one
    async def _get_approval(self, request: approval_ops.GetApproval) -> ApprovalDetail:
        row = await self.rows.approval(request.approval)
        return await self._detail(row, await self.rows.run(row.run))

    @of_one
    async def approval_and_run(self, approval: str) -> ApprovalOfRun:
        """Return the content of the page of an approval, all of one state of its run."""
        row = await self.rows.approval(approval)
        run = await self.rows.run(row.run)
        summary = (await summaries_of(self.rows, [run]))[0]
        return ApprovalOfRun(await self._detail(row, run), summary, [plan.shown for plan in row.plans])

    async def approvals_in_order(self, request: approval_ops.ListApprovals, most: int) -> tuple[tuple[str, ...], bool]:
        """Return the ids of a list of approvals in its order, at most `most`, and whether there are more."""
        return await approvals_in_order(self.rows, self.actor, request, most)

    @of_one
    async def approval_in(self, approval: str, run: Run) -> ApprovalDetail:
        """Return an approval of a run whose row was read before."""
        return await self._detail(await self.rows.approval(approval), run)

    async def _detail(self, row: Approval, run: Run) -> ApprovalDetail:
        return await approval_detail(self.rows, row, run, self.actor, self._code_of(run))

    @handles(approval_ops.DECIDE_APPROVAL)
    async def _decide_approval(self, request: approval_ops.DecideApproval) -> ApprovalSummary:
        changes = request.changes or {}
        choice = PersonDecision(request.decision, request.reason, request.alternative, changes, request.version)
        content = (request.decision, request.reason, request.alternative, dict(changes))
        act = self._act("decide_approval", request.idempotency_key, request.approval, *content)
        row = await commands.decide_approval(
            self.store, self.tenant, request.approval, self.actor, choice, self._code_of, act
        )
        return approval_summary(row, self.actor)

    @handles(approval_ops.CLAIM_APPROVAL)
    async def _claim_approval(self, request: approval_ops.ClaimApproval) -> ApprovalSummary:
        act = self._act("claim_approval", "", request.approval)
        row = await commands.acknowledge(
            self.store, self.tenant, request.approval, self.actor, version=request.version, act=act
        )
        return approval_summary(row, self.actor)

    @handles(approval_ops.REASSIGN_APPROVAL)
    async def _reassign_approval(self, request: approval_ops.ReassignApproval) -> ApprovalSummary:
        rule = Rule.parse(request.who)
        act = self._act("reassign_approval", "", request.approval, str(rule), request.reason)
        row = await commands.reassign(
            self.store,
            self.tenant,
            request.approval,
            self.actor,
            rule,
            request.reason,
            version=request.version,
            act=act,
        )
        return approval_summary(row, self.actor)

    # --- attention ---------------------------------------------------------------------------------
    @handles(attention_ops.LIST_ATTENTION)
    async def _list_attention(self, request: attention_ops.ListAttention) -> AttentionList:
        return await self.attention_page(request)

    async def attention_page(
        self, request: attention_ops.ListAttention, assigned: Assignments | None = None
    ) -> AttentionList:
        """Return one page of `attention`, for pages that have read the assignments already."""
        if assigned is None and request.assigned_to:
            assigned = await self.rows.assignments()

        def is_for(run: Run, entry: Attention) -> bool:
            if request.reason not in (None, entry.reason):
                return False
            if request.cause not in ("", entry.cause or entry.reason.value):
                return False
            found = assignment_of(assigned or {}, run, entry)
            return not request.assigned_to or is_assigned_to(found.to if found else "", request.assigned_to, self.me)

        rows, further = await self.rows.flagged(
            reason=request.reason,
            workflow=request.workflow,
            version=request.version,
            node=request.node,
            cause=request.cause,
            cursor=request.cursor,
            limit=request.limit,
            keep=(lambda run: any(is_for(run, entry) for entry in run.attention)) if request.assigned_to else None,
        )
        of_runs = request.assigned_to or request.cause or request.node or request.version is not None
        general = not (request.cursor or of_runs)
        items = await general_attention(self.rows, self.webhooks, request.reason) if general else []
        items += await run_attention(self.rows, rows, assigned, is_for)
        return AttentionList(attention=items, next_cursor=further)

    @override
    @of_one
    async def attention_of(self, run: str) -> Sequence[RunAttention]:
        return await run_attention(self.rows, [await self.rows.run(run)])

    @handles(attention_ops.ASSIGN_ATTENTION)
    async def _assign_attention(self, request: attention_ops.AssignAttention) -> RunAttention:
        content = (request.run, request.to, str(request.reason), request.key, request.note)
        item = await commands.assign_attention(
            self.store,
            tenant=self.tenant,
            run=request.run,
            to=request.to,
            actor=self.me,
            reason=request.reason,
            key=request.key,
            note=request.note,
            act=self._act("assign_attention", "", *content),
        )
        named = {request.run: [item.assignment] if item.assignment is not None else []}
        shown = await run_attention(self.rows, [item.run], named)
        return next(each for each in shown if (each.reason, each.key) == (item.entry.reason.value, item.entry.key))

    @handles(attention_ops.RESOLVE_ATTENTION)
    async def _resolve_attention(self, request: attention_ops.ResolveAttention) -> Reason:
        content = _content(request.choice, request.reason, request.key, request.text, request.by)
        act = self._act("resolve_attention", "", request.run, *content)
        return await self._answer(
            request.run,
            request.choice,
            reason=request.reason,
            key=request.key,
            text=request.text,
            by=request.by,
            version=request.version,
            act=act,
        )

    async def _answer(
        self,
        run: str,
        choice: Choice,
        *,
        text: str,
        reason: Reason | None = None,
        key: str = "",
        by: Duration | None = None,
        version: int = 0,
        act: KeyedAct | None = None,
    ) -> Reason:
        self.actor.check_person()
        by_ms = ms_of("by", EXTENSION if by is None else by)
        answer = AttentionAnswer(choice, text, reason, key, by_ms if choice is Choice.EXTEND else 0)
        seen = self.shown(run, version)
        return await commands.resolve_attention(
            self.store, tenant=self.tenant, run=run, answer=answer, actor=self.me, seen=seen, act=act
        )

    @handles(attention_ops.RESOLVE_ATTENTION_OF_MANY)
    async def _resolve_attention_of_many(self, request: attention_ops.ResolveAttentionOfMany) -> AnswerList:
        self.actor.check_person()
        longer = None if request.by is None else timedelta_of("by", request.by)
        check_many(len(request.runs), request.reason, request.choice)

        async def one(given: AnswerFor) -> None:
            each = f"resolve_attention_of_many {given.run} {given.key}"  # because each run has its own outcome
            content = _content(request.choice, request.reason, given.key, request.text, longer)
            await self._answer(
                given.run,
                request.choice,
                reason=request.reason,
                key=given.key,
                text=request.text,
                by=longer,
                version=given.version,
                act=self._act(each, "", *content),
            )

        return await answer_each(request.runs, one)

    @handles(attention_ops.PREVIEW_BULK_ANSWER)
    async def _preview_bulk_answer(self, request: attention_ops.PreviewBulkAnswer) -> BulkPreview:
        check_bulk(request.reason, request.choice)
        runs = await count_of_filter(self.rows, filter_of(request), request.query)
        return BulkPreview(runs=runs, confirm=must_confirm(runs, request.choice))

    @handles(attention_ops.START_BULK_ANSWER)
    async def _start_bulk_answer(self, request: attention_ops.StartBulkAnswer) -> BulkAnswer:
        self.actor.check_person()
        act = self._act("start_bulk_answer")
        run = f"bulk_{act.id[:RUN_ID_CHARS]}" if act else new_id("bulk_")
        return await start_job(self.rows, self.actor, request, run)

    @handles(attention_ops.GET_BULK_ANSWER)
    @of_one
    async def _get_bulk_answer(self, request: attention_ops.GetBulkAnswer) -> BulkAnswer:
        return await job_of(self.rows, request.run)

    # --- effects -----------------------------------------------------------------------------------
    @handles(effect_ops.LIST_EFFECTS)
    @of_one
    async def _list_effects(self, request: effect_ops.ListEffects) -> Sequence[EffectRecord]:
        return await effects_of_run(self.rows, request.run)

    @handles(effect_ops.LIST_LEDGER)
    async def _list_ledger(self, request: effect_ops.ListLedger) -> EffectList:
        return await effect_page(self.rows, request)

    @override
    @of_one
    async def effect(self, run: str, key: str, *, visit: int | None = None) -> EffectRecord:
        return await one_effect(self.rows, run, key, visit=visit)

    @handles(effect_ops.RESOLVE_EFFECT)
    async def _resolve_effect(self, request: effect_ops.ResolveEffect) -> None:
        self.actor.check_person()
        encode = None
        if request.answer == "happened":
            of = await self.rows.run(request.run)
            encode = encoder_of(self._code_of(of), await self.rows.answer_schemas_of(of), of.lane, request.response)
        await commands.resolve_effect(
            self.store,
            tenant=self.tenant,
            run=request.run,
            key=request.key,
            verb=request.answer,
            actor=self.me,
            reason=request.reason,
            encode=encode,
            external_id=request.external_id,
            version=request.version,
            visit=request.visit,
            correct=request.correct,
            act=self._act(
                "resolve_effect",
                "",
                request.run,
                request.visit,
                request.key,
                request.answer,
                request.reason,
                request.external_id,
                request.response,
                request.correct,
            ),
        )

    # --- causes ------------------------------------------------------------------------------------
    @handles(cause_ops.LIST_CAUSES)
    async def _list_causes(self, request: cause_ops.ListCauses) -> CauseList:
        return await cause_list(self.rows, reason=request.reason, workflow=request.workflow, node=request.node)

    @handles(cause_ops.GET_CAUSE)
    async def _get_cause(self, request: cause_ops.GetCause) -> CauseDetail:
        return await cause_detail(self.rows, request.cause)

    @handles(cause_ops.GET_BARS)
    async def _get_bars(self, request: cause_ops.GetBars) -> Bars:
        return await counted_bars(self.rows, request)

    @handles(metric_ops.GET_RUN_DURATIONS)
    async def _get_run_durations(self, request: metric_ops.GetRunDurations) -> RunDurations:
        from outlast.insight.metric_reads import run_durations  # imported here, because few programs measure

        return await run_durations(self.rows, request)

    @handles(metric_ops.GET_DECISION_TIMES)
    async def _get_decision_times(self, request: metric_ops.GetDecisionTimes) -> DecisionTimes:
        from outlast.insight.metric_reads import decision_times  # imported here, because few programs measure

        return await decision_times(self.rows, request)

    # --- agents ------------------------------------------------------------------------------------
    @handles(agent_ops.LIST_PROMPTS)
    async def _list_prompts(self, request: agent_ops.ListPrompts) -> PromptList:
        Arguments("prompts", of_call=True).number("days", request.days, 1, USAGE_DAYS_MAX)
        return await prompt_list(self.rows, workflow=request.workflow, model=request.model, days=request.days)

    @handles(agent_ops.GET_PROMPT)
    async def _get_prompt(self, request: agent_ops.GetPrompt) -> PromptDetail:
        return await prompt_detail(self.rows, request.prompt, request.workflow)

    @handles(agent_ops.LIST_TOOLS)
    async def _list_tools(self, request: agent_ops.ListTools) -> ToolList:
        return await tool_list(self.rows, workflow=request.workflow)

    @handles(agent_ops.LIST_TOOL_CALLS)
    async def _list_tool_calls(self, request: agent_ops.ListToolCalls) -> ToolCallList:
        return await tool_calls(self.rows, request)

    # --- the store ---------------------------------------------------------------------------------
    @handles(service_ops.GET_SUMMARY)
    async def _get_summary(self, request: service_ops.GetSummary) -> StatusSummary:
        lanes = {lane_of(w.name, w.version) for w in (*self._workflows.values(), *self._versions)}
        rows, now = await self.rows.summary(lanes)
        return status_summary(rows, self.actor, now, self.store.mapping())

    @handles(service_ops.GET_ME)
    async def _get_me(self, request: service_ops.GetMe) -> CallerInfo:
        return caller_info(self.actor, self.tenant)

    @handles(service_ops.LIST_WORKERS)
    async def _list_workers(self, request: service_ops.ListWorkers) -> Sequence[WorkerStatus]:
        now, asked = await self.store.now(), await self.rows.drains()
        rows = await self.rows.workers()
        shown = [worker_status(row, now, await self.rows.held(row.id), asked.get(row.id)) for row in rows]
        return [each for each in shown if request.everybody or each.lease_left_ms]

    @handles(service_ops.DRAIN_WORKER)
    async def _drain_worker(self, request: service_ops.DrainWorker) -> WorkerStatus:
        row, ask = await commands.drain_worker(self.store, request.worker, actor=self.me, reason=request.reason)
        return worker_status(row, await self.store.now(), await self.rows.held(request.worker), ask)

    @override
    async def input_schema(self, workflow: str) -> Mapping[str, Any]:
        found = self._workflows.get(workflow)
        return found.input_schema() if found is not None else {}

    @override
    async def topology(self, workflow: str, lane: str) -> Mapping[str, Any] | None:
        row = await self.store.load(TOPOLOGY, (STORE, lane))
        return row.structure() if row is not None else None

    @handles(service_ops.LIST_VERSIONS)
    async def _list_versions(self, request: service_ops.ListVersions) -> Sequence[VersionStatus]:
        return await versions.versions(self.rows)

    @override
    async def unfinished(self, workflow: str, lane: str, *, limit: int = 0) -> Sequence[str]:
        return [row.run for row in await versions.unfinished(self.rows, workflow, lane, limit)]

    @handles(service_ops.LIST_PAUSES)
    async def _list_pauses(self, request: service_ops.ListPauses) -> Sequence[ActivePause]:
        waiting, business = await self.rows.held_up(), self.store.mapping().business
        return [active_pause(each, waiting.get(each.key, 0), business) for each in await self.rows.pauses()]

    @handles(service_ops.PAUSE)
    async def _pause(self, request: service_ops.PauseCalls) -> PauseCreated:
        act = self._act("pause", "", request.what, request.name, request.reason)
        key = pauses.pause_key(request.what, request.name)
        await pauses.pause(self.store, self.tenant, key, actor=self.me, reason=request.reason, act=act)
        return PauseCreated(paused=f"{request.what} {request.name}".strip(), by=self.me, reason=request.reason)

    @handles(service_ops.RESUME)
    async def _resume(self, request: service_ops.ResumeCalls) -> PauseEnded:
        act = self._act("resume", "", request.what, request.name)
        woken = await pauses.resume(
            self.store, self.tenant, pauses.pause_key(request.what, request.name), actor=self.me, act=act
        )
        return PauseEnded(resumed=f"{request.what} {request.name}".strip(), by=self.me, runs=woken)

    @handles(run_ops.RAISE_BUDGET)
    async def _raise_budget(self, request: run_ops.RaiseBudget) -> None:
        self.actor.check_person()
        amounts = amounts_of(request.tokens, request.money, request.calls, request.minutes, request.children)
        act = self._act("raise_budget", request.idempotency_key, request.run, *amounts, request.reason)
        await commands.raise_budget(
            self.store,
            tenant=self.tenant,
            run=request.run,
            amounts=amounts,
            actor=self.me,
            reason=request.reason,
            seen=self.shown(request.run, request.version),
            act=act,
        )

    @handles(service_ops.LIST_BUDGETS)
    async def _list_budgets(self, request: service_ops.ListBudgets) -> Sequence[DailyBudget]:
        return await daily_budgets(self.rows)

    @handles(service_ops.LIST_BUDGETED_RUNS)
    async def _list_budgeted_runs(self, request: service_ops.ListBudgetedRuns) -> BudgetedRunList:
        Arguments("budgeted_runs", of_call=True).number("limit", request.limit, 1, PAGE_ROWS_MAX)
        return await nearest_runs(self.rows, request.limit)

    @handles(view_ops.LIST_VIEWS)
    async def _list_views(self, request: view_ops.ListViews) -> Sequence[SavedView]:
        return await saved_views.saved_views(self.store, self.tenant)

    @handles(view_ops.SAVE_VIEW)
    async def _save_view(self, request: view_ops.SaveView) -> SavedView:
        act = self._act("save_view", "", request.name, request.query)
        return await saved_views.save(self.store, self.tenant, request.name, request.query, by=self.me, act=act)

    @handles(view_ops.REMOVE_VIEW)
    async def _remove_view(self, request: view_ops.RemoveView) -> Sequence[SavedView]:
        act = self._act("remove_view", "", request.name)
        return await saved_views.remove(self.store, self.tenant, request.name, act=act)

    @handles(audit_ops.LIST_AUDIT)
    async def _list_audit(self, request: audit_ops.ListAudit) -> AuditList:
        Arguments("audit", of_call=True).number("limit", request.limit, 1, PAGE_ROWS_MAX)
        return await audit_page(self.rows, request)

    @handles(service_ops.LIST_USAGE)
    async def _list_usage(self, request: service_ops.ListUsage) -> UsageList:
        Arguments("usage", of_call=True).number("days", request.days, 1, USAGE_DAYS_MAX)
        return await usage_of_days(self.rows, request.days)

    @handles(service_ops.SET_BUDGET)
    async def _set_budget(self, request: service_ops.SetBudget) -> None:
        self.actor.check_person()
        given = (request.tokens, request.money, request.calls, request.minutes)
        limits = NO_LIMITS if given == (None,) * len(given) else Budget(*given).limits
        act = self._act("set_budget", "", *limits, request.reason)
        await commands.set_daily_budget(self.store, self.tenant, limits, actor=self.me, reason=request.reason, act=act)

    @handles(service_ops.SET_SLOTS)
    async def _set_slots(self, request: service_ops.SetSlots) -> SlotLimit:
        Arguments("set_slots", of_call=True).number("n", request.n, 1, SLOTS_MAX)
        act = self._act("set_slots", "", request.n, request.everywhere)
        slots = await set_slots(self.store, STORE if request.everywhere else self.tenant, request.n, act)
        used = sum(bool(slot.holder) for slot in slots)
        return SlotLimit(slots=len(slots), used=used, everywhere=request.everywhere)

    # --- runs -------------------------------------------------------------------------------------
    @handles(run_ops.LIST_RUNS)
    async def _list_runs(self, request: run_ops.ListRuns) -> RunList:
        return await run_page(self.rows, request)

    async def run_tally(self, request: run_ops.ListRuns, *, starts: bool = False) -> RunTally:
        """Return the totals and the bars of a list of runs."""
        return await tally_of(self.rows, request, starts=starts)

    @handles(run_ops.GET_RUN_SUMMARY)
    @of_one
    async def _get_run_summary(self, request: run_ops.GetRunSummary) -> RunSummary:
        return (await summaries_of(self.rows, [await self.rows.run(request.run)]))[0]

    @override
    async def ended(self, run: str, *, within_s: float | None = None) -> bool:
        return await self.until_row(run, is_over, within_s=within_s) is not None

    @override
    async def run_end(self, run: str, *, within_s: float | None = None) -> EndedRun | None:
        row = await self.until_row(run, is_over, within_s=within_s)
        return await end_of_run(self.rows, row) if row is not None else None

    async def until_row(self, run: str, condition: Callable[[Run], bool], *, within_s: float | None) -> Run | None:
        """Return the row of a run once it meets the condition; None after `within_s` seconds."""
        if within_s is not None and within_s <= 0:  # a timeout of 0 ends before the first read
            row = await self.rows.run(run)
            return row if condition(row) else None
        return await self._waiters.wait(self.tenant, run, condition, within_s=within_s)

    @handles(run_ops.GET_RUN)
    @of_one
    async def _get_run(self, request: run_ops.GetRun) -> RunDetail:
        return await detail_of(self.rows, request.run)

    @handles(run_ops.GET_INPUT)
    @of_one
    async def _get_input(self, request: run_ops.GetInput) -> Any:
        return await self.rows.input(request.run)

    @handles(run_ops.GET_STATE)
    @of_one
    async def _get_state(self, request: run_ops.GetState) -> RunState:
        return await state_of_run(self.rows, request.run, request.checkpoint)

    @handles(run_ops.LIST_RESULTS)
    @of_one
    async def _list_results(self, request: run_ops.ListResults) -> ResultList:
        return await result_page(self.rows, request.run, after=request.after, limit=request.limit)

    @handles(run_ops.LIST_STEPS)
    @of_one
    async def _list_steps(self, request: run_ops.ListSteps) -> StepList:
        return step_page(
            await self.rows.step_rows(request.run, request.limit),
            kind=request.kind,
            step=request.step,
            cursor=request.cursor,
            limit=request.limit,
        )

    @handles(run_ops.COMPARE_RUNS)
    @of_one
    async def _compare_runs(self, request: run_ops.CompareRuns) -> RunComparison:
        from outlast.insight.run_comparison import compared_runs  # imported here, because few programs compare

        return await compared_runs(self.rows, request)

    @handles(run_ops.GET_TIMELINE)
    @of_one
    async def _get_timeline(self, request: run_ops.GetTimeline) -> Timeline:
        return timeline_of(await self.rows.timeline_rows(request.run), begin=request.begin, end=request.end)

    @handles(run_ops.LIST_EVENTS)
    @of_one
    async def _list_events(self, request: run_ops.ListEvents) -> EventList:
        types = event_types((request.of_type,)) if request.of_type else ()
        row = await self.rows.run(request.run)  # read before the events, which then include the end
        return event_list(
            row, *await self.rows.history_of(request.run, types, after=request.after, limit=request.limit)
        )

    @override
    def follow(self, run: str, *, after: int = 0) -> AsyncGenerator[str]:
        return follow(self.rows, self.until, run, after)

    @override
    def updates(self, run: str, *, after: int = 0) -> AsyncGenerator[str | RunDelta]:
        return updates(self.rows, self.until, run, after)

    @handles(run_ops.EXPLAIN_RUN)
    @of_one
    async def _explain_run(self, request: run_ops.ExplainRun) -> RunExplanation:
        return explain(await self.rows.run_facts(request.run))

    @handles(run_ops.GET_TREE)
    @of_one
    async def _get_tree(self, request: run_ops.GetTree) -> RunTree:
        return await tree_of(self.rows, request.run)

    @of_one
    async def overview(self, run: str) -> RunOverview:
        """Return what each page of a run shows of it, all of one state of the run."""
        return await self._overview(run)

    async def _overview(self, run: str) -> RunOverview:
        facts = await self.rows.run_facts(run)
        items = await run_attention(self.rows, [facts.run]) if facts.run.attention else []
        return RunOverview(facts.run, await detail_from(self.rows, facts), explain(facts), items)

    @of_one
    async def story(self, run: str, *, failed: bool = False, text: str = "") -> RunStory:
        """Return the first page of a run with its steps, all of one state of the run. Raises NotFound.

        `failed`: only steps that went otherwise than planned; `text`: only those with it in one of their texts.
        """
        read = await self.rows.rows_of(run)
        steps = await self.rows.steps_from(read)
        facts = await self.rows.run_facts(run, read)
        items = await run_attention(self.rows, [facts.run]) if facts.run.attention else []
        detail = await detail_from(self.rows, facts._replace(events=steps.history.events))
        entries = story_of(steps)
        kept = chosen(steps, entries, failed=failed, text=text)
        return RunStory(facts.run, detail, explain(facts), items, kept, len(entries))

    async def turn(self, run: str, step: str, *, prompt: str, limit: int) -> ModelTurn:
        """Return the last messages before a step of a model. `prompt`: digest of its instructions; '' reads none."""
        steps = await self.rows.steps_from(await self.rows.rows_of(run))
        return ModelTurn(await stored_text(self.rows, prompt), *messages_before(steps_of(steps), step, limit))

    @of_one
    async def acts(self, run: str) -> ActsOfRun:
        """Return what people and programs did in a run, all of one state of the run."""
        found = await self._overview(run)
        approvals = [approval_summary(each, self.actor) for each in await self.rows.approvals_of(run)]
        return ActsOfRun(found, await messages_of(self.store, found.row), approvals)

    # --- rows for routes, pages and commands ------------------------------------------------------
    async def run_row(self, run: str) -> Run:
        """Return the row of a run. Raises NotFound."""
        return await self.rows.run(run)

    async def approval_row(self, approval: str) -> Approval:
        """Return the row of an approval. Raises NotFound."""
        return await self.rows.approval(approval)

    async def summary_where(self, run: str, serving: frozenset[str]) -> RunSummary:
        """Return `run_summary`, with these as the lanes that a live worker serves. Raises NotFound."""
        return (await summaries_of(self.rows, [await self.rows.run(run)], serving))[0]

    async def history(self, run: str, *, after: int = 0, limit: int = 0) -> Sequence[Event]:
        """Return at most `limit` events of a run after a number; 0: every event. Raises NotFound."""
        return await self.rows.history(run, after=after, limit=limit) if limit else await self.rows.full_history(run)

    async def runs_below(self, run: str) -> Sequence[str]:
        """Return the ids of all runs below a run, level by level."""
        return await runs_below(self.rows, run)

    async def effect_rows(self, run: str) -> Sequence[Effect]:
        """Return the effects of a run in the order of their intents, shared ones last. Raises NotFound."""
        return await self.rows.effects(run)

    async def assignments(self) -> Assignments:
        """Return the assignments of attention items, by run."""
        return await self.rows.assignments()

    async def serving(self) -> frozenset[str]:
        """Return the lanes that a live worker serves."""
        return await self.rows.serving()

    async def summary_version(self) -> str:
        """Return a text that changes with the figures of `summary` and with assignments, for all callers alike."""
        rows, at = await self.rows.summary()
        assigned = await self.store.load(META, assignments_row(self.tenant))
        version = status_summary(rows, Actor(""), at, self.store.mapping()).version
        return f"{version}.{assigned.version}" if assigned is not None else version

    @override
    async def not_undone(self, run: str) -> Sequence[str]:
        row, effects = await self.rows.run(run), await self.rows.effects(run)
        kept = [e for e in compensation.not_undone(row, effects) if not compensation.can_undo(e)]
        floor = await self.store.load(FLOOR, (row.tenant, row.run))
        return [*compensation.names(kept), *(remaining(floor.purged) if floor is not None else ())]

    @override
    async def to_undo(self, run: str) -> Sequence[str]:
        return compensation.names(compensation.owed(await self.rows.run(run), await self.rows.effects(run)))


BY_HAND: Final = frozenset({run_ops.LIST_WORKFLOWS, run_ops.GET_WORKFLOW, run_ops.LIST_CHECKPOINTS})
"""Operations without a handler: the service has more of them than rows."""
HANDLERS: Final = handlers_of(Operations, {*OPERATIONS} - BY_HAND - {*OF_WEBHOOKS})


def _content(choice: Choice, reason: Reason | None, key: str, text: str, by: Duration | None) -> tuple[object, ...]:
    """Return what distinguishes one answer to attention from another."""
    return choice.value, str(reason), key, text, None if by is None else ms_of("by", by)


def _with_terms(
    asked: ForkRequest, request: fork_ops.PreviewFork | fork_ops.ForkRun | fork_ops.ForkRunLive
) -> ForkRequest:
    """Return the request of a fork with the terms that are the same in each mode."""
    return asked._replace(
        state=None if request.state is None else dict(request.state),
        lookups=request.lookups,
        signals=tuple(request.signals),
        accept_undone=request.accept_undone,
        both_go_on=request.both_go_on,
    )

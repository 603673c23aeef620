"""The client in this process: actions and queries over a store, bound to one tenant and one actor."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any, TypeVar

from typing_extensions import override

from outlast.clocks import new_id
from outlast.core import compensation
from outlast.core.acts import KeyedAct, act_of
from outlast.core.approvals import Actor, PersonDecision
from outlast.core.approver_rule import Rule
from outlast.core.argument_checks import Arguments
from outlast.core.assignments import Assignments, assignment_of, is_assigned_to
from outlast.core.attention import AttentionAnswer, check_for_all, check_many
from outlast.core.commit import Expect
from outlast.core.durations import RUN_CEILING, Duration, Liveness, ms_of, timedelta_of
from outlast.core.lanes import lane_of, version_in
from outlast.core.limits import RUNS_PER_READ, SLOTS_MAX
from outlast.core.machine import Choice, EffectStatus, Reason
from outlast.core.rows.effect_rows import Approval
from outlast.core.rows.run_columns import Attention, What
from outlast.core.rows.run_rows import RUN, STORE, TOPOLOGY, Run, is_over
from outlast.core.usage import NO_LIMITS, Budget, Money, amounts_of
from outlast.engine import commands
from outlast.engine import known_pauses as pauses
from outlast.engine.admission import set_slots
from outlast.errors import NotFound
from outlast.flow.workflow import Workflow
from outlast.insight.agent_steps import step_page
from outlast.insight.answer_schemas import encoder_of
from outlast.insight.approval_reads import approval_detail, approval_page, approval_summary
from outlast.insight.attention_reads import answer_each, answer_page, general_attention, run_attention
from outlast.insight.explanation import explain
from outlast.insight.row_models import active_pause, caller_info, daily_budget, event_list, worker_status
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
    summaries_of,
)
from outlast.insight.run_timeline import timeline_of
from outlast.insight.shown_rows import of_one
from outlast.insight.summary import status_summary
from outlast.insight.tenant_rows import RESULTS_PER_READ, TenantRows, after_commit
from outlast.models import exact_instant
from outlast.models.approvals import ApprovalDetail, ApprovalList, ApprovalSort, ApprovalSummary
from outlast.models.attention import AnsweredRuns, AnswerFor, AnswerList, AttentionList, RunAttention, Verb
from outlast.models.effects import EffectList, EffectRecord
from outlast.models.runs import (
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
)  # fmt: skip
from outlast.models.steps import StepList
from outlast.models.timeline import Timeline
from outlast.runtime import served_versions as versions
from outlast.runtime.client import Client
from outlast.runtime.run_waiters import RunWaiters, follow, updates
from outlast.runtime.webhooks import Webhooks, event_types
from outlast.store.port import Store

EXTENSION = timedelta(milliseconds=RUN_CEILING)  # default of "extend"
RUN_ID_CHARS = 20  # of a run that is started under the key of a request
T = TypeVar("T")


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
    @override
    async def start_run(
        self,
        workflow: Workflow[Any, Any, Any] | str,
        given: bytes | str | dict[str, Any],
        *,
        run_id: str = "",
        key: str = "",
        correlation_id: str = "",
        trace_id: str = "",
        scheduler: str = "",
    ) -> RunStarted:
        started, created = await self._begin(
            workflow, given, run_id=run_id, key=key, correlation_id=correlation_id, trace_id=trace_id,
            scheduler=scheduler or self.scheduler,
        )  # fmt: skip
        return RunStarted(**vars(await after_commit(self.run_summary(started))), created=created)

    @override
    async def _begin(
        self,
        workflow: Workflow[Any, Any, Any] | str,
        given: bytes | str | dict[str, Any],
        *,
        run_id: str,
        **options: str,
    ) -> tuple[str, bool]:
        found = workflow if isinstance(workflow, Workflow) else self._workflows.get(workflow)
        if found is None:
            known = ", ".join(sorted(self._workflows)) or "none"
            fix = "choose one of these, or load the module that declares it"
            raise NotFound(f"no workflow {workflow}", f"loaded here: {known}", fix)
        act = None if run_id else self._act("start_run", "", found.name)
        run = run_id or (f"{found.name[:4]}_{act.id[:RUN_ID_CHARS]}" if act else new_id(f"{found.name[:4]}_"))
        return await commands.start(self.store, found, given, tenant=self.tenant, actor=self.me, run=run, **options)

    def shown(self, run: str, version: int) -> Expect | None:
        """Return the condition that the run still has this version of its row; None for 0 (not checked)."""
        return Expect(RUN, (self.tenant, run), version) if version else None

    @override
    async def signal(
        self, run: str, name: str, payload: Mapping[str, Any], *, signal_id: str = "", version: int = 0
    ) -> bool:
        Arguments("signal", of_call=True).instance(
            "payload", payload, Mapping, 'signal("bid", {"cents": 1})', optional=False
        )
        return await commands.signal(
            self.store,
            tenant=self.tenant,
            run=run,
            name=name,
            payload=dict(payload),
            actor=self.me,
            signal_id=signal_id,
            seen=self.shown(run, version),
        )

    @override
    async def cancel(self, run: str, *, reason: str, version: int = 0, idempotency_key: str = "") -> None:
        seen, act = self.shown(run, version), self._act("cancel_run", idempotency_key, run, reason)
        await commands.cancel(self.store, tenant=self.tenant, run=run, actor=self.me, reason=reason, seen=seen, act=act)

    @override
    async def continue_run(self, run: str, *, reason: str = "", version: int = 0) -> None:
        seen, act = self.shown(run, version), self._act("continue_run", "", run, reason)
        await commands.continue_run(
            self.store, tenant=self.tenant, run=run, actor=self.me, reason=reason, seen=seen, act=act
        )

    @override
    async def extend(self, run: str, *, by: Duration, reason: str, version: int = 0, idempotency_key: str = "") -> None:
        act = self._act("extend_run", idempotency_key, run, ms_of("by", by), reason)
        await self._answer(
            run, Choice.EXTEND, reason=Reason.TOTAL_TIMEOUT, text=reason, by=by, version=version, act=act
        )

    @override
    async def move_run(
        self, run: str, workflow: str, to: int, *, node: str = "", reason: str = "", version: int = 0
    ) -> None:
        shown, act = self.shown(run, version), self._act("move_run", "", run, workflow, to, node, reason)
        await versions.request_version(
            self.rows, self.me, run, workflow, to, node=node, reason=reason, shown=shown, act=act
        )

    @override
    async def unmovable(self, run: str) -> str:
        return await versions.unmovable(self.rows, run)

    @override
    async def move_to(
        self, run: str, scheduler: str, *, reason: str = "", force: bool = False, version: int = 0
    ) -> None:
        shown, act = self.shown(run, version), self._act("move_run_to_scheduler", "", run, scheduler, reason, force)
        await versions.move_to_scheduler(
            self.rows, self.me, run, scheduler, reason=reason, force=force, shown=shown, act=act
        )

    @override
    async def move_runs(
        self, workflow: str, version: int, runs: Sequence[str], *, node: str = "", reason: str
    ) -> AnsweredRuns:
        return await versions.move_runs(self.rows, self.me, workflow, version, runs, node=node, reason=reason)

    # --- approvals ---------------------------------------------------------------------------------
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
        check = Arguments("approvals", of_call=True)
        check.flag("mine", mine)
        check.flag("overdue", overdue)
        rows, further = await approval_page(
            self.rows, self.actor, status=status, run=run, mine=mine, role=role, person=person, overdue=overdue,
            decided_by=decided_by, sort=sort, cursor=cursor, limit=limit,
        )  # fmt: skip
        return ApprovalList(approvals=[approval_summary(row, self.actor) for row in rows], next_cursor=further)

    @override
    @of_one
    async def approval(self, approval: str) -> ApprovalDetail:
        row = await self.rows.approval(approval)
        return await self._detail(row, await self.rows.run(row.run))

    @of_one
    async def approval_and_run(self, approval: str) -> ApprovalOfRun:
        """Return the content of the page of an approval, all of one state of its run."""
        row = await self.rows.approval(approval)
        run = await self.rows.run(row.run)
        return ApprovalOfRun(await self._detail(row, run), (await summaries_of(self.rows, [run]))[0])

    @of_one
    async def approval_in(self, approval: str, run: Run) -> ApprovalDetail:
        """Return an approval of a run whose row was read before."""
        return await self._detail(await self.rows.approval(approval), run)

    async def _detail(self, row: Approval, run: Run) -> ApprovalDetail:
        return await approval_detail(self.rows, row, run, self.actor, self._code_of(run))

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
        choice = PersonDecision("approve", reason, alternative, changes or {}, version)
        return await self._decide(approval, choice, idempotency_key)

    @override
    async def reject(
        self, approval: str, *, reason: str, again: bool = False, version: int = 0, idempotency_key: str = ""
    ) -> ApprovalSummary:
        choice = PersonDecision("again" if again else "reject", reason, version=version)
        return await self._decide(approval, choice, idempotency_key)

    async def _decide(self, approval: str, choice: PersonDecision, idempotency_key: str) -> ApprovalSummary:
        content = (choice.verb, choice.reason, choice.alternative, dict(choice.changes))
        act = self._act("decide_approval", idempotency_key, approval, *content)
        row = await commands.decide_approval(self.store, self.tenant, approval, self.actor, choice, self._code_of, act)
        return approval_summary(row, self.actor)

    @override
    async def claim_approval(self, approval: str, *, version: int = 0) -> ApprovalSummary:
        act = self._act("claim_approval", "", approval)
        row = await commands.acknowledge(self.store, self.tenant, approval, self.actor, version=version, act=act)
        return approval_summary(row, self.actor)

    @override
    async def reassign(self, approval: str, who: Rule | str, *, reason: str, version: int = 0) -> ApprovalSummary:
        rule = Rule.parse(who) if isinstance(who, str) else who
        act = self._act("reassign_approval", "", approval, str(rule), reason)
        row = await commands.reassign(
            self.store, self.tenant, approval, self.actor, rule, reason, version=version, act=act
        )
        return approval_summary(row, self.actor)

    # --- attention ---------------------------------------------------------------------------------
    @override
    async def attention(
        self, *, reason: Reason | None = None, workflow: str = "", assigned_to: str = "", cursor: str = "",
        limit: int = RUNS_PER_READ, assigned: Assignments | None = None,
    ) -> AttentionList:  # fmt: skip
        if assigned is None and assigned_to:
            assigned = await self.rows.assignments()

        def is_for(run: Run, entry: Attention) -> bool:
            if reason not in (None, entry.reason):
                return False
            found = assignment_of(assigned or {}, run, entry)
            return not assigned_to or is_assigned_to(found.to if found else "", assigned_to, self.me)

        rows, further = await self.rows.flagged(
            reason=reason, workflow=workflow, cursor=cursor, limit=limit,
            keep=(lambda run: any(is_for(run, entry) for entry in run.attention)) if assigned_to else None,
        )  # fmt: skip
        items = await general_attention(self.rows, self.webhooks, reason) if not (cursor or assigned_to) else []
        items += await run_attention(self.rows, rows, assigned, is_for)
        return AttentionList(attention=items, next_cursor=further)

    @override
    @of_one
    async def attention_of(self, run: str) -> Sequence[RunAttention]:
        return await run_attention(self.rows, [await self.rows.run(run)])

    @override
    async def assign(
        self, run: str, to: str, *, reason: Reason | None = None, key: str = "", note: str = ""
    ) -> RunAttention:
        item = await commands.assign_attention(
            self.store, tenant=self.tenant, run=run, to=to, actor=self.me, reason=reason, key=key, note=note,
            act=self._act("assign_attention", "", run, to, str(reason), key, note),
        )  # fmt: skip
        named = {run: [item.assignment] if item.assignment is not None else []}
        shown = await run_attention(self.rows, [item.run], named)
        return next(each for each in shown if (each.reason, each.key) == (item.entry.reason.value, item.entry.key))

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
        act = self._act("resolve_attention", "", run, *_content(choice, reason, key, text, by))
        return await self._answer(run, choice, reason=reason, key=key, text=text, by=by, version=version, act=act)

    async def _answer(
        self, run: str, choice: Choice, *, text: str, reason: Reason | None = None, key: str = "",
        by: Duration | None = None, version: int = 0, act: KeyedAct | None = None,
    ) -> Reason:  # fmt: skip
        self.actor.check_person()
        by_ms = ms_of("by", EXTENSION if by is None else by)
        answer = AttentionAnswer(choice, text, reason, key, by_ms if choice is Choice.EXTEND else 0)
        seen = self.shown(run, version)
        return await commands.resolve_attention(
            self.store, tenant=self.tenant, run=run, answer=answer, actor=self.me, seen=seen, act=act
        )

    @override
    async def answer_all(
        self,
        reason: Reason,
        choice: Choice,
        *,
        text: str,
        workflow: str = "",
        node: str = "",
        activity: str = "",
        by: Duration | None = None,
        cursor: str = "",
    ) -> AnsweredRuns:
        longer = None if by is None else timedelta_of("by", by)  # before the first run is answered
        check_for_all(reason, choice)

        async def one(given: AnswerFor) -> None:
            await self._answer(given.run, choice, reason=reason, key=given.key, text=text, by=longer)

        return await answer_page(self.rows, reason, workflow, cursor, one, node=node, activity=activity)

    @override
    async def answer_many(
        self, runs: Sequence[AnswerFor], reason: Reason, choice: Choice, *, text: str, by: Duration | None = None
    ) -> AnswerList:
        self.actor.check_person()
        longer = None if by is None else timedelta_of("by", by)
        check_many(len(runs), reason, choice)

        async def one(given: AnswerFor) -> None:
            each = f"resolve_attention_of_many {given.run} {given.key}"  # because each run has its own outcome
            act = self._act(each, "", *_content(choice, reason, given.key, text, longer))
            await self._answer(
                given.run, choice, reason=reason, key=given.key, text=text, by=longer, version=given.version, act=act
            )

        return await answer_each(runs, one)

    # --- effects -----------------------------------------------------------------------------------
    @override
    @of_one
    async def effects(self, run: str) -> Sequence[EffectRecord]:
        return await effects_of_run(self.rows, run)

    @override
    async def ledger(
        self, *, status: EffectStatus | None = None, activity: str = "", run: str = "", since: Duration | None = None,
        cursor: str = "", limit: int = 50,
    ) -> EffectList:  # fmt: skip
        return await effect_page(
            self.rows, status=status, activity=activity, run=run, since=since, cursor=cursor, limit=limit
        )

    @override
    @of_one
    async def effect(self, run: str, key: str, *, visit: int | None = None) -> EffectRecord:
        return await one_effect(self.rows, run, key, visit=visit)

    @override
    async def resolve_effect(
        self, run: str, key: str, answer: Verb, *, reason: str, external_id: str = "", response: Any = None,
        version: int = 0, visit: int | None = None, correct: bool = False,
    ) -> None:  # fmt: skip
        self.actor.check_person()
        encode = None
        if answer == "happened":
            of = await self.rows.run(run)
            encode = encoder_of(self._code_of(of), await self.rows.answer_schemas_of(of), of.lane, response)
        await commands.resolve_effect(
            self.store,
            tenant=self.tenant,
            run=run,
            key=key,
            verb=answer,
            actor=self.me,
            reason=reason,
            encode=encode,
            external_id=external_id,
            version=version,
            visit=visit,
            correct=correct,
            act=self._act("resolve_effect", "", run, visit, key, answer, reason, external_id, response, correct),
        )

    # --- the store ---------------------------------------------------------------------------------
    @override
    async def summary(self) -> StatusSummary:
        lanes = {lane_of(w.name, w.version) for w in (*self._workflows.values(), *self._versions)}
        rows, now = await self.rows.summary(lanes)
        return status_summary(rows, self.actor, now, self.store.mapping())

    @override
    async def whoami(self) -> CallerInfo:
        return caller_info(self.actor, self.tenant)

    @override
    async def workers(self) -> Sequence[WorkerStatus]:
        now, asked = await self.store.now(), await self.rows.drains()
        rows = await self.rows.workers()
        return [worker_status(row, now, await self.rows.held(row.id), asked.get(row.id)) for row in rows]

    @override
    async def drain_worker(self, worker: str, *, reason: str) -> WorkerStatus:
        row, ask = await commands.drain_worker(self.store, worker, actor=self.me, reason=reason)
        return worker_status(row, await self.store.now(), await self.rows.held(worker), ask)

    @override
    async def input_schema(self, workflow: str) -> Mapping[str, Any]:
        found = self._workflows.get(workflow)
        return found.input_schema() if found is not None else {}

    @override
    async def topology(self, workflow: str, lane: str) -> Mapping[str, Any] | None:
        row = await self.store.load(TOPOLOGY, (STORE, lane))
        return row.structure() if row is not None else None

    @override
    async def versions(self) -> Sequence[VersionStatus]:
        return await versions.versions(self.rows)

    @override
    async def unfinished(self, workflow: str, lane: str, *, limit: int = 0) -> Sequence[str]:
        return [row.run for row in await versions.unfinished(self.rows, workflow, lane, limit)]

    @override
    async def pauses(self) -> Sequence[ActivePause]:
        waiting, business = await self.rows.held_up(), self.store.mapping().business
        return [active_pause(each, waiting.get(each.key, 0), business) for each in await self.rows.pauses()]

    @override
    async def pause(self, what: What, name: str = "", *, reason: str) -> PauseCreated:
        act = self._act("pause", "", what, name, reason)
        key = pauses.pause_key(what, name)
        await pauses.pause(self.store, self.tenant, key, actor=self.me, reason=reason, act=act)
        return PauseCreated(paused=f"{what} {name}".strip(), by=self.me, reason=reason)

    @override
    async def resume(self, what: What, name: str = "") -> PauseEnded:
        act = self._act("resume", "", what, name)
        woken = await pauses.resume(self.store, self.tenant, pauses.pause_key(what, name), actor=self.me, act=act)
        return PauseEnded(resumed=f"{what} {name}".strip(), by=self.me, runs=woken)

    @override
    async def raise_budget(
        self, run: str, *, tokens: int = 0, money: Money = 0, calls: int = 0, minutes: float = 0, reason: str,
        version: int = 0, idempotency_key: str = "",
    ) -> None:  # fmt: skip
        self.actor.check_person()
        amounts = amounts_of(tokens, money, calls, minutes)
        await commands.raise_budget(
            self.store, tenant=self.tenant, run=run, amounts=amounts, actor=self.me, reason=reason,
            seen=self.shown(run, version), act=self._act("raise_budget", idempotency_key, run, *amounts, reason),
        )  # fmt: skip

    @override
    async def budgets(self) -> Sequence[DailyBudget]:
        found = await self.rows.daily_budget()
        return [] if found is None else [daily_budget(*found)]

    @override
    async def set_budget(self, budget: Budget | None, *, reason: str = "") -> None:
        self.actor.check_person()
        Arguments("set_budget", of_call=True).instance("budget", budget, Budget, "Budget(tokens=100_000)")
        limits = budget.limits if budget is not None else NO_LIMITS
        act = self._act("set_budget", "", *limits, reason)
        await commands.set_daily_budget(self.store, self.tenant, limits, actor=self.me, reason=reason, act=act)

    @override
    async def set_slots(self, n: int, *, everywhere: bool = False) -> SlotLimit:
        check = Arguments("set_slots", of_call=True)
        check.number("n", n, 1, SLOTS_MAX)
        check.flag("everywhere", everywhere)
        act = self._act("set_slots", "", n, everywhere)
        slots = await set_slots(self.store, STORE if everywhere else self.tenant, n, act)
        return SlotLimit(slots=len(slots), used=sum(bool(slot.holder) for slot in slots), everywhere=everywhere)

    # --- runs -------------------------------------------------------------------------------------
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
        check = Arguments("runs", of_call=True)
        check.flag("attention", attention)
        for name, text in (("workflow", workflow), ("waiting_for", waiting_for), ("q", q), ("cursor", cursor)):
            check.is_text(name, text, f'{name}="…", or leave it out')
        return await run_page(
            self.rows, status=status, workflow=workflow, attention=attention, waiting_for=waiting_for, q=q, since=since,
            cursor=cursor, limit=limit,
        )  # fmt: skip

    @override
    @of_one
    async def run_summary(self, run: str) -> RunSummary:
        return (await summaries_of(self.rows, [await self.rows.run(run)]))[0]

    @override
    async def ended(self, run: str, *, within_s: float | None = None) -> bool:
        return await self.until_row(run, is_over, within_s=within_s) is not None

    @override
    async def run_end(self, run: str, *, within_s: float | None = None) -> EndedRun | None:
        row = await self.until_row(run, is_over, within_s=within_s)
        return await end_of_run(self.rows, row) if row is not None else None

    async def until_row(self, run: str, condition: Callable[[Run], bool], *, within_s: float | None) -> Run | None:
        """Return the row of a run once it meets the condition; None after `within_s` seconds."""
        return await self._waiters.wait(self.tenant, run, condition, within_s=within_s)

    @override
    @of_one
    async def run(self, run: str) -> RunDetail:
        return await detail_of(self.rows, run)

    @override
    @of_one
    async def run_input(self, run: str) -> Any:
        return await self.rows.input(run)

    @override
    @of_one
    async def results(self, run: str, *, after: int = 0, limit: int = RESULTS_PER_READ) -> ResultList:
        return await result_page(self.rows, run, after=after, limit=limit)

    @override
    @of_one
    async def steps(self, run: str, *, kind: str = "", step: str = "", cursor: str = "", limit: int = 50) -> StepList:
        return step_page(await self.rows.step_rows(run, limit), kind=kind, step=step, cursor=cursor, limit=limit)

    @override
    @of_one
    async def timeline(self, run: str, *, begin: datetime | None = None, end: datetime | None = None) -> Timeline:
        return timeline_of(await self.rows.timeline_rows(run), begin=begin, end=end)

    @override
    @of_one
    async def events(self, run: str, *, after: int = 0, limit: int = 200, of_type: str = "") -> EventList:
        types = event_types((of_type,)) if of_type else ()
        row = await self.rows.run(run)  # read before the events, which then include the end
        return event_list(row, *await self.rows.history_of(run, types, after=after, limit=limit))

    @override
    def follow(self, run: str, *, after: int = 0) -> AsyncGenerator[str]:
        return follow(self.rows, self.until, run, after)

    @override
    def updates(self, run: str, *, after: int = 0) -> AsyncGenerator[str | RunDelta]:
        return updates(self.rows, self.until, run, after)

    @override
    @of_one
    async def explain(self, run: str) -> RunExplanation:
        return explain(await self.rows.run_facts(run))

    @of_one
    async def overview(self, run: str) -> RunOverview:
        """Return the content of the first page of a run, all of one state of the run."""
        facts = await self.rows.run_facts(run)
        items = await run_attention(self.rows, [facts.run]) if facts.run.attention else []
        return RunOverview(facts.run, await detail_from(self.rows, facts), explain(facts), items)

    @of_one
    async def acts(self, run: str) -> ActsOfRun:
        """Return what people and programs did in a run, all of one state of the run."""
        row = await self.rows.run(run)
        approvals = [approval_summary(each, self.actor) for each in await self.rows.approvals_of(run)]
        messages = await messages_of(self.store, row)
        return ActsOfRun((await summaries_of(self.rows, [row]))[0], messages, approvals)

    @override
    async def not_undone(self, run: str) -> Sequence[str]:
        row, effects = await self.rows.run(run), await self.rows.effects(run)
        return compensation.names([e for e in compensation.not_undone(row, effects) if not compensation.can_undo(e)])

    @override
    async def to_undo(self, run: str) -> Sequence[str]:
        return compensation.names(compensation.owed(await self.rows.run(run), await self.rows.effects(run)))


def _content(choice: Choice, reason: Reason | None, key: str, text: str, by: Duration | None) -> tuple[object, ...]:
    """Return what distinguishes one answer to attention from another."""
    return choice.value, str(reason), key, text, None if by is None else ms_of("by", by)

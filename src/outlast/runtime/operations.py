"""Actions and queries on runs, bound to one tenant and one actor."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any, Literal, TypeVar

from outlast.core import compensation
from outlast.core.commit import Expect
from outlast.core.durations import RUN_CEILING, Duration, Liveness, ms_of, timedelta_of
from outlast.core.machine import Choice, Reason
from outlast.core.rows import EFFECT, RUN, STORE, Approval, Effect, Event, Run, is_over, key_of
from outlast.core.run_columns import Attention
from outlast.engine import approvals, commands, pauses
from outlast.engine.admission import set_slots
from outlast.errors import Conflict, Forbidden, InvalidInput, NotFound
from outlast.flow.approval_rule import Rule
from outlast.flow.workflow import Workflow
from outlast.models import exact_instant
from outlast.models.runs import EventList, ResultList, RunDetail, RunList, RunStarted, RunSummary
from outlast.runtime import attention
from outlast.runtime.attention_answers import choice_commands
from outlast.runtime.clocks import new_id
from outlast.runtime.explain import explain
from outlast.runtime.labels import lanes_served
from outlast.runtime.port import Actor
from outlast.runtime.row_models import cloud_event, list_item, result_row, run_detail, run_summary, takeovers_of
from outlast.runtime.run_facts import Explanation, in_order, may_have_pending_requests, messages_of, pending_requests_of
from outlast.runtime.tenant_rows import EVENTS_PER_READ, RESULTS_PER_READ, TenantRows
from outlast.runtime.webhooks import Webhooks
from outlast.store.port import Store

EXTENSION = timedelta(milliseconds=RUN_CEILING)  # default of "extend"
ADMIN = "admin"  # the role that may reassign any approval
T = TypeVar("T")


class Operations:
    """Actions and queries of one actor in one tenant. No call reaches another tenant's rows (RUN-5)."""

    def __init__(self, store: Store, *, tenant: str, actor: Actor, workflows: Mapping[str, Workflow[Any]]) -> None:
        """`workflows`: workflows that can be started here, by name."""
        self.store = store
        self.tenant = tenant
        self.actor = actor
        self.rows = TenantRows(store, tenant)
        self.webhooks = Webhooks(store, tenant, actor)
        self.me = actor.name
        self._workflows = workflows

    async def close(self) -> None:
        await self.store.close()

    async def now(self) -> datetime:
        return exact_instant((await self.store.now()).real)

    async def until(self, read: Callable[[], Awaitable[T | None]], *, within_s: float | None = None) -> T | None:
        from outlast.runtime.stores import until  # imported here, because it loads a driver

        return await until(self.store, read, within_s=within_s)

    def worker(
        self,
        workflows: Sequence[Workflow[Any, Any, Any]],
        *,
        concurrency: int = 100,
        name: str = "",
        live: Liveness | None = None,
    ) -> AbstractAsyncContextManager[None]:
        from outlast.runtime.in_process import serving  # imported here, because most callers serve nothing

        newest = {each.name: each for each in sorted(workflows, key=lambda each: each.version)}
        self._workflows = {**newest, **self._workflows}
        return serving(self.store, workflows, concurrency=concurrency, name=name, live=live)

    # --- start and act on runs --------------------------------------------------------------------
    async def start_run(
        self,
        workflow: Workflow[Any, Any, Any] | str,
        given: bytes | str | dict[str, Any],
        *,
        run_id: str = "",
        key: str = "",
        correlation_id: str = "",
        trace_id: str = "",
    ) -> RunStarted:
        found = workflow if isinstance(workflow, Workflow) else self._workflows.get(workflow)
        if found is None:
            known = ", ".join(sorted(self._workflows)) or "none"
            raise NotFound(
                f"no workflow {workflow}",
                f"loaded here: {known}",
                "choose one of these, or load the module that declares it",
            )
        started = await commands.start(
            self.store,
            found,
            given,
            tenant=self.tenant,
            actor=self.actor.name,
            run=run_id or new_id(f"{found.name[:4]}_"),
            key=key,
            correlation_id=correlation_id,
            trace_id=trace_id,
        )
        (summary,) = await self._summaries([await self.rows.run(started.run)])
        return RunStarted(**vars(summary), created=started.created)

    def shown(self, run: str, version: int) -> Expect | None:
        """Return the condition that the run still has this version of its row; None for 0 (not checked)."""
        return Expect(RUN, (self.tenant, run), version) if version else None

    async def signal(
        self, run: str, name: str, payload: dict[str, Any], *, signal_id: str = "", version: int = 0
    ) -> bool:
        """Send a signal. Return False if a signal of this id was sent before.

        `version`, here and below: of the run's row as it was shown. If the row has changed since, the transaction of
        the action refuses it (Conflict, `moved`). Raises NotFound, Conflict (ended), NotStorable.
        """
        return await commands.signal(
            self.store,
            tenant=self.tenant,
            run=run,
            name=name,
            payload=payload,
            actor=self.actor.name,
            signal_id=signal_id,
            seen=self.shown(run, version),
        )

    async def cancel(self, run: str, *, reason: str, version: int = 0) -> None:
        """Request that the run end. Raises NotFound, Conflict (ended), InvalidInput (no reason)."""
        seen = self.shown(run, version)
        await commands.cancel(self.store, tenant=self.tenant, run=run, actor=self.actor.name, reason=reason, seen=seen)

    async def continue_run(self, run: str, *, reason: str = "", version: int = 0) -> None:
        """Answer the run's attention with "continue". Raises NotFound, Conflict."""
        seen = self.shown(run, version)
        await commands.continue_run(
            self.store, tenant=self.tenant, run=run, actor=self.actor.name, reason=reason, seen=seen
        )

    async def approve(
        self,
        approval: str,
        *,
        reason: str = "",
        alternative: int = 0,
        changes: Mapping[str, Any] | None = None,
        version: int = 0,
    ) -> Approval:
        """Approve the requested plan or an alternative (1, 2, …). If a quorum is required, vote for it.

        `version`: of the approval as it was shown; if it has changed since, the decision is refused (`moved`).
        `changes`: new values of arguments that the approval declares editable. They are checked against the activity's
        types and the workflow's policy, so the code must be loaded. Raises NotFound, Forbidden, Conflict (each with its
        `refusal`), InvalidInput.
        """
        row = await self._may_decide(approval)
        plans = row.plans
        if not 0 <= alternative < len(plans):
            raise NotFound(
                f"approval {approval} has no alternative {alternative}",
                f"it offers {len(plans) - 1} beside the requested plan",
                f"list them with: outlast approvals show {approval}",
            )
        choice = approvals.ChosenPlan(plans[alternative].digest)
        if changes:
            choice = await self._changed(row, alternative, changes)
        return await self._decide(row, "approve", choice, reason=reason, version=version)

    async def _changed(self, row: Approval, alternative: int, changes: Mapping[str, Any]) -> approvals.ChosenPlan:
        run = await self.rows.run(row.run)
        workflow = self._workflows.get(run.workflow)
        if workflow is None or workflow.lane != run.lane:
            raise InvalidInput(
                f"the code of {run.lane} is not loaded here",
                "changed arguments are checked with the activity's types and the workflow's policy",
                "load the module: outlast approvals approve … --module flows.py",
            )
        return await approvals.changed_plan(self.store, workflow, run, row, alternative, changes, by=self.actor.name)

    async def claim_approval(self, approval: str, *, version: int = 0) -> Approval:
        """Record that the actor is reviewing an approval; others may still decide. Raises as `approve`."""
        return await approvals.acknowledge(
            self.store, await self._may_decide(approval), by=self.actor.name, version=version
        )

    async def reassign(self, approval: str, who: Rule, *, reason: str, version: int = 0) -> Approval:
        """Assign an approval to another rule of approvers. Raises NotFound, Forbidden.

        Allowed for actors who may decide it and for the role `admin`.
        """
        self.actor.check_person()
        row = await self.rows.approval(approval)
        if ADMIN not in self.actor.roles:
            row = await self._may_decide(approval)
        return await approvals.reassign(
            self.store, row, who=str(who), by=self.actor.name, reason=reason, version=version
        )

    async def reject(self, approval: str, *, reason: str, again: bool = False, version: int = 0) -> Approval:
        """Reject; `again` requests another round if offered. Raises NotFound, Forbidden, Conflict."""
        row = await self._may_decide(approval)
        verb: approvals.DecisionVerb = "again" if again else "reject"
        return await self._decide(row, verb, approvals.ChosenPlan(""), reason=reason, version=version)

    async def answer(
        self,
        run: str,
        reason: Reason,
        choice: Choice,
        *,
        text: str,
        key: str = "",
        by: Duration | None = None,
        version: int = 0,
    ) -> None:
        """Answer one reason of a run's attention; `by` belongs to "extend". Raises NotFound, Conflict, Forbidden."""
        self.actor.check_person()
        await commands.resolve_attention(
            self.store,
            tenant=self.tenant,
            run=run,
            reason=reason,
            choice=choice,
            actor=self.actor.name,
            text=text,
            key=key,
            by_ms=ms_of("by", EXTENSION if by is None else by) if choice is Choice.EXTEND else 0,
            seen=self.shown(run, version),
        )

    async def answer_entry(
        self, run: Run, entry: Attention, choice: Choice, *, text: str, by: Duration | None = None, version: int = 0
    ) -> None:
        """Answer one entry of a run's attention. Raises as `answer` and `resolve_effect` do.

        `version`: of the run as it was shown.
        """
        if entry.reason is not Reason.EFFECT_UNCERTAIN:
            await self.answer(run.run, entry.reason, choice, text=text, key=entry.key, by=by, version=version)
            return
        if choice is Choice.HAPPENED:
            command = next(each.command for each in choice_commands(run, entry) if each.choice is choice)
            raise Conflict(f"{entry.key} needs the receiver's id", "a call that happened has one", f"run: {command}")
        await self.resolve_effect(run.run, entry.key, attention.verb_of(choice), reason=text, run_version=version)

    async def extend(self, run: str, *, by: Duration, reason: str, version: int = 0) -> None:
        """Extend the ceiling of a run that has passed it. Raises NotFound, Conflict."""
        await self.answer(run, Reason.TOTAL_TIMEOUT, Choice.EXTEND, text=reason, by=by, version=version)

    async def pause(self, what: pauses.What, name: str = "", *, reason: str) -> None:
        """Stop new intents of an activity, a provider, a workflow or the tenant. Raises InvalidInput, Conflict.

        An open circuit breaker of the same name becomes a pause of this actor, which the engine does not end.
        """
        await pauses.pause(self.store, self.tenant, pauses.pause_key(what, name), actor=self.actor.name, reason=reason)

    async def resume(self, what: pauses.What, name: str = "") -> int:
        """End a pause and make its waiting runs due; return their number. Raises NotFound."""
        return await pauses.resume(self.store, self.tenant, pauses.pause_key(what, name), actor=self.actor.name)

    async def answer_all(
        self,
        reason: Reason,
        choice: Choice,
        *,
        text: str,
        workflow: str = "",
        by: Duration | None = None,
        cursor: str = "",
    ) -> attention.AnsweredRuns:
        """Answer each flagged run on one page of runs once; failures are listed.

        Pass the returned cursor to continue. Raises InvalidInput.
        """
        longer = None if by is None else timedelta_of("by", by)  # before the first run is answered

        async def one(run: str, key: str) -> None:
            if reason is Reason.EFFECT_UNCERTAIN:
                await self.resolve_effect(run, key, attention.verb_of(choice), reason=text)
            else:
                await self.answer(run, reason, choice, text=text, by=longer)

        attention.check_for_all(reason, choice)
        return await attention.answer_page(self.rows, reason, workflow, cursor, one)

    async def _may_decide(self, approval: str) -> Approval:
        self.actor.check_person()
        row = await self.rows.approval(approval)
        if not self.may_decide(row):
            raise Forbidden(
                f"{self.actor.name} may not decide {approval}",
                f"this approval requires the role {row.who}",
                "ask an approver who holds this role",
                refusal="role",
            )
        return row

    async def _decide(
        self, row: Approval, verb: approvals.DecisionVerb, choice: approvals.ChosenPlan, *, reason: str, version: int
    ) -> Approval:
        return await approvals.decide_approval(
            self.store,
            row,
            verb=verb,
            chosen=choice.digest,
            changed=choice.changed,
            verdict=choice.verdict,
            by=self.actor.name,
            claims=list(self.actor.claims),
            reason=reason,
            version=version,
        )

    async def resolve_effect(
        self,
        run: str,
        key: str,
        verb: Literal["happened", "did_not_happen", "give_up"],
        *,
        reason: str,
        external_id: str = "",
        response: Any = None,
        version: int = 0,
        run_version: int = 0,
    ) -> None:
        """Record a person's answer about an uncertain effect. Raises NotFound, Conflict (settled, too early),
        Forbidden.

        `version`: of the effect as it was shown; `run_version`: of its run, if that was shown.
        """
        self.actor.check_person()
        effect = await commands.find_effect(self.store, self.tenant, run, key)
        seen = Expect(EFFECT, key_of(EFFECT, effect), version) if version else self.shown(run, run_version)
        answer = None
        if verb == "happened":
            answer = self._response_of(effect, await self.rows.run(run), response)
        await commands.resolve_effect(
            self.store, effect, verb, actor=self.actor.name, reason=reason, response=answer, external_id=external_id,
            seen=seen,
        )  # fmt: skip

    def _response_of(self, effect: Effect, run: Run, response: Any) -> bytes:
        """Encode a response with the activity's type if its code is loaded, else as plain JSON."""
        workflow = self._workflows.get(run.workflow)
        if workflow is None:
            return json.dumps(response).encode()
        codec = workflow.activity(effect.activity).response_codec
        return bytes(
            codec.dump(codec.admit(json.dumps(response)))
        )  # from JSON, so that a string is a value and not a document

    async def set_slots(self, n: int, *, everywhere: bool = False) -> None:
        """Set the maximum of admitted runs of this tenant, or of all tenants together (1 to 10,000).

        The number can be raised, not lowered. Raises InvalidInput, Conflict.
        """
        await set_slots(self.store, STORE if everywhere else self.tenant, n)

    # --- runs -------------------------------------------------------------------------------------
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
        rows, further = await self.rows.runs(
            status=status,
            workflow=workflow,
            attention=attention,
            waiting_for=waiting_for,
            q=q,
            since=since,
            cursor=cursor,
            limit=limit,
        )
        now = await self.store.now()
        found = []
        for row, summary in zip(rows, await self._summaries(rows), strict=True):
            unread = may_have_pending_requests(row, now)
            asked = pending_requests_of(row, await messages_of(self.store, row)) if unread else ()
            found.append(list_item(summary, asked))
        return RunList(runs=found, next_cursor=further)

    async def _summaries(self, rows: Sequence[Run]) -> list[RunSummary]:
        counts, serving = await self.rows.counts_of_results(rows), await self.rows.serving()
        return [run_summary(row, serving, counts[row.run]) for row in rows]

    async def run_summary(self, run: str) -> RunSummary:
        return (await self._summaries([await self.rows.run(run)]))[0]

    async def run(self, run: str) -> RunDetail:
        facts = await self.rows.run_facts(run)
        row, events = facts.run, facts.events
        if len(events) < row.seq:
            events = [event for event in await self.rows.full_history(run) if event.seq <= row.seq]
        results = (await self.rows.counts_of_results([row]))[run]
        asked = [] if is_over(row) or not row.inbox_seq else pending_requests_of(row, facts.messages)
        return run_detail(
            list_item(run_summary(row, lanes_served(facts.workers, facts.now), results), asked),
            row,
            events,
            in_order(run, (*facts.effects, *facts.used)),
            takeovers_of(events, facts.workers, self.store.mapping().real),
            explain(facts).sentence,
        )

    async def run_input(self, run: str) -> Any:
        return await self.rows.input(run)

    async def results(self, run: str, *, after: int = 0, limit: int = RESULTS_PER_READ) -> ResultList:
        rows = await self.rows.results(run, after=after, limit=limit)
        count = await self.rows.count_results(run)  # after the rows, so a reader of all pages gets as many as it says
        last = rows[-1].ordinal if rows else after
        further = str(last) if last < count else ""
        return ResultList(results=[result_row(row) for row in rows], count=count, next_cursor=further)

    async def events(self, run: str, *, after: int = 0, limit: int = 200) -> EventList:
        row = await self.rows.run(run)  # read before the events, which then include the end
        rows = await self.rows.history(run, after=after, limit=limit)
        last = rows[-1].seq if rows else after
        return EventList(
            events=[cloud_event(event) for event in rows],
            last=last,
            ended=is_over(row) and last >= row.seq,
            next_cursor=str(last) if len(rows) == limit else "",
        )

    async def follow(self, run: str, *, after: int = 0) -> AsyncIterator[str]:

        async def look() -> tuple[Sequence[Event], Run] | None:
            row = await self.rows.run(run)  # read before the events, which then include the end
            events = await self.rows.history(run, after=after, limit=EVENTS_PER_READ)
            return (events, row) if events or is_over(row) else None

        while True:
            found = await self.until(look)
            assert found is not None
            if not found[0]:
                return
            for event in found[0]:
                after = event.seq
                yield event.body.decode()

    async def explain(self, run: str) -> Explanation:
        """Explain in one sentence, with facts, why a run is where it is. Raises NotFound."""
        return explain(await self.rows.run_facts(run))

    async def not_undone(self, run: str) -> list[str]:
        """Name the effects of a run that no undo can revert, with reasons, latest first. Raises NotFound."""
        row, effects = await self.rows.run(run), await self.rows.effects(run)
        return compensation.names([e for e in compensation.not_undone(row, effects) if not compensation.can_undo(e)])

    async def to_undo(self, run: str) -> list[str]:
        """Name the effects that ending the run now would undo, in undo order. Raises NotFound."""
        return compensation.names(compensation.owed(await self.rows.run(run), await self.rows.effects(run)))

    def may_decide(self, approval: Approval) -> bool:
        """Return True if this actor holds the roles that the approval's rule requires."""
        return Rule.parse(approval.who).allows(self.actor.roles)

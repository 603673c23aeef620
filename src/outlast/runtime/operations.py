"""Everything people and programs do to runs, bound to one tenant and one actor."""

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal

from outlast.core.budget import RUN_CEILING, SECOND
from outlast.core.commit import Expect
from outlast.core.machine import Choice, Reason
from outlast.core.rows import EFFECT, RUN, STORE, Approval, Effect, Run, key_of
from outlast.engine import approvals, commands, pauses
from outlast.engine.admission import set_slots
from outlast.errors import Conflict, Forbidden, InvalidInput, NotFound
from outlast.flow.people import Rule
from outlast.flow.workflow import Workflow
from outlast.runtime import attention
from outlast.runtime.clocks import new_id
from outlast.runtime.port import Actor
from outlast.runtime.reading import Reading
from outlast.runtime.webhooks import Webhooks
from outlast.store.port import Store

EXTENSION = timedelta(milliseconds=RUN_CEILING)  # what "extend" means where nobody says how long
ADMIN = "admin"  # the role that may hand any approval to others


class Operations(Reading):
    """Acts and reads as one actor of one tenant; no call reaches another tenant's rows (RUN-5)."""

    def __init__(self, store: Store, *, tenant: str, actor: Actor, workflows: Mapping[str, Workflow[Any]]) -> None:
        """`workflows`: those that can be started here, by name."""
        super().__init__(store, tenant=tenant, actor=actor)
        self._workflows = workflows
        self.webhooks = Webhooks(store, tenant, actor)

    async def start(
        self,
        workflow: str,
        given: bytes | str | dict[str, Any],
        *,
        run_id: str = "",
        idempotency_key: str = "",
        correlation_id: str = "",
        trace_id: str = "",
    ) -> commands.StartedRun:
        """Start a run, durably, before this returns. Raises NotFound, InvalidInput (every problem), Conflict."""
        found = self._workflows.get(workflow)
        if found is None:
            known = ", ".join(sorted(self._workflows)) or "none"
            raise NotFound(f"no workflow {workflow}", f"loaded here: {known}", "name one of them, or load its module")
        return await commands.start(
            self.store,
            found,
            given,
            tenant=self.tenant,
            actor=self.actor.name,
            run=run_id or new_id(f"{workflow[:4]}_"),
            key=idempotency_key,
            correlation_id=correlation_id,
            trace_id=trace_id,
        )

    def shown(self, run: str, version: int) -> Expect | None:
        """The condition that a run is as somebody has seen it; None where nobody says so (0)."""
        return Expect(RUN, (self.tenant, run), version) if version else None

    async def signal(
        self, run: str, name: str, payload: dict[str, Any], *, signal_id: str = "", version: int = 0
    ) -> bool:
        """Leave a signal; False when this id was left before. Raises NotFound, Conflict (ended), NotStorable.

        `version`, here and below: of the run's row as it was shown; a change since then refuses the act, in the act's
        own transaction (Conflict, `moved`).
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
        """Ask that the run end. Raises NotFound, Conflict (ended), InvalidInput (no reason)."""
        seen = self.shown(run, version)
        await commands.cancel(self.store, tenant=self.tenant, run=run, actor=self.actor.name, reason=reason, seen=seen)

    async def go_on(self, run: str, *, reason: str = "", version: int = 0) -> None:
        """Answer a run's attention with "continue". Raises NotFound, Conflict."""
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
        """Approve the plan asked for, or one of the alternatives (1, 2, …); where it takes several people, vote for it.

        `version`: of the approval as it was shown; a change since then refuses the decision (`moved`).

        `changes`: arguments to approve with other values, where the approval lets people change them; checked against
        the activity's types and the workflow's policy, whose code has to be loaded here. Raises NotFound, Forbidden,
        Conflict (each with its `refusal`), InvalidInput.
        """
        row = await self._may_decide(approval)
        plans = json.loads(row.plans)
        if not 0 <= alternative < len(plans):
            raise NotFound(
                f"approval {approval} has no alternative {alternative}",
                f"it offers {len(plans) - 1} beside the plan asked for",
                f"see them with: outlast approvals show {approval}",
            )
        choice = approvals.ChosenPlan(plans[alternative]["digest"])
        if changes:
            choice = await self._changed(row, alternative, changes)
        return await self._decide(row, "approve", choice, reason=reason, version=version)

    async def _changed(self, row: Approval, alternative: int, changes: Mapping[str, Any]) -> approvals.ChosenPlan:
        run = await self.run(row.run)
        workflow = self._workflows.get(run.workflow)
        if workflow is None or workflow.lane != run.lane:
            raise InvalidInput(
                f"the code of {run.lane} is not loaded here",
                "changed arguments are checked against the activity's types and the workflow's policy",
                "name the module: outlast approvals approve … --module flows.py",
            )
        return await approvals.changed_plan(self.store, workflow, run, row, alternative, changes, by=self.actor.name)

    async def claim_approval(self, approval: str, *, version: int = 0) -> Approval:
        """Say "I look at it"; it binds nobody. `version` as for `approve`. Raises NotFound, Forbidden, Conflict."""
        return await approvals.acknowledge(
            self.store, await self._may_decide(approval), by=self.actor.name, version=version
        )

    async def reassign(self, approval: str, who: Rule, *, reason: str, version: int = 0) -> Approval:
        """Let others decide. Whoever may decide can hand it on, and the role `admin`. Raises NotFound, Forbidden."""
        self.actor.check_person()
        row = await commands.find_approval(self.store, self.tenant, approval)
        if ADMIN not in self.actor.roles:
            row = await self._may_decide(approval)
        return await approvals.reassign(
            self.store, row, who=str(who), by=self.actor.name, reason=reason, version=version
        )

    async def reject(self, approval: str, *, reason: str, again: bool = False, version: int = 0) -> Approval:
        """Reject it; `again`: and go round once more, where that is offered. Raises NotFound, Forbidden, Conflict."""
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
        by: timedelta | None = None,
        version: int = 0,
    ) -> None:
        """Answer one reason of a run's attention; `by` goes with "extend". Raises NotFound, Conflict, Forbidden."""
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
            by_ms=int((by or EXTENSION).total_seconds() * SECOND) if choice is Choice.EXTEND else 0,
            seen=self.shown(run, version),
        )

    async def extend(self, run: str, *, by: timedelta, reason: str, version: int = 0) -> None:
        """Give a run that has passed its ceiling more time. Raises NotFound, Conflict."""
        await self.answer(run, Reason.TOTAL_TIMEOUT, Choice.EXTEND, text=reason, by=by, version=version)

    async def pause(self, what: pauses.What, name: str = "", *, reason: str) -> None:
        """Stop new intents of an activity, a provider, a workflow or the tenant. Raises InvalidInput, Conflict.

        A circuit breaker that is up there becomes this actor's hold, which the engine does not take down.
        """
        await pauses.pause(self.store, self.tenant, pauses.pause_key(what, name), actor=self.actor.name, reason=reason)

    async def resume(self, what: pauses.What, name: str = "") -> int:
        """Take a hold down and make due every run that waits for it; answers how many. Raises NotFound."""
        return await pauses.resume(self.store, self.tenant, pauses.pause_key(what, name), actor=self.actor.name)

    async def answer_all(
        self,
        reason: Reason,
        choice: Choice,
        *,
        text: str,
        workflow: str = "",
        by: timedelta | None = None,
        cursor: str = "",
    ) -> attention.Answered:
        """Answer every run flagged so in one page of runs, each once; what fails is listed. Go on with the cursor."""

        async def one(run: str, key: str) -> None:
            if reason is Reason.EFFECT_UNCERTAIN:
                await self.resolve_effect(run, key, attention.verb_of(choice), reason=text)
            else:
                await self.answer(run, reason, choice, text=text, by=by)

        attention.check_for_all(reason, choice)
        return await attention.answer_page(self.store, self.tenant, reason, workflow, cursor, one)

    async def _may_decide(self, approval: str) -> Approval:
        self.actor.check_person()
        row = await commands.find_approval(self.store, self.tenant, approval)
        if not self.may_decide(row):
            raise Forbidden(
                f"{self.actor.name} may not decide {approval}",
                f"it takes the role {row.who}",
                "somebody who holds it has to decide",
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
        """A person's answer on an uncertain effect. Raises NotFound, Conflict (settled, too early), Forbidden.

        `version`: of the effect as it was shown; `run_version`: of its run, where that was shown.
        """
        self.actor.check_person()
        effect = await commands.find_effect(self.store, self.tenant, run, key)
        seen = Expect(EFFECT, key_of(EFFECT, effect), version) if version else self.shown(run, run_version)
        answer = None
        if verb == "happened":
            answer = self._response_of(effect, await self.run(run), response)
        await commands.resolve_effect(
            self.store, effect, verb, actor=self.actor.name, reason=reason, response=answer, external_id=external_id,
            seen=seen,
        )  # fmt: skip

    def _response_of(self, effect: Effect, run: Run, response: Any) -> bytes:
        """The response as the activity's type writes it, where its code is loaded; else the JSON as given."""
        workflow = self._workflows.get(run.workflow)
        if workflow is None:
            return json.dumps(response).encode()
        codec = workflow.activity(effect.activity).response_codec
        return bytes(codec.dump(codec.admit(json.dumps(response))))  # as JSON: a string is a value, not a document

    async def set_slots(self, n: int, *, everywhere: bool = False) -> None:
        """At most `n` admitted runs of this tenant (everywhere: of all tenants), 1 to 10,000.

        It can be raised, not lowered. Raises InvalidInput, Conflict.
        """
        await set_slots(self.store, STORE if everywhere else self.tenant, n)


def workflows_by_name(workflows: "list[Workflow[Any]]") -> dict[str, Workflow[Any]]:
    """The newest version of each workflow by name. Raises Conflict for two of the same name and version."""
    found: dict[str, Workflow[Any]] = {}
    for workflow in workflows:
        other = found.get(workflow.name)
        if other is not None and other.version == workflow.version and other is not workflow:
            raise Conflict(
                f"workflow {workflow.name} is declared twice", "same name, same version", "raise the version of one"
            )
        if other is None or other.version < workflow.version:
            found[workflow.name] = workflow
    return found

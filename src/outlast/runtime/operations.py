"""Everything people and programs do to runs, and read of them, bound to one tenant and one actor."""

import json
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Literal

from outlast.core import compensation
from outlast.core.budget import RUN_CEILING, SECOND
from outlast.core.machine import Choice, EffectStatus, Reason
from outlast.core.overlay import waiting_of
from outlast.core.rows import (
    APPROVAL,
    EFFECT,
    EVENT,
    EVIDENCE,
    HOLD,
    RUN,
    SLOT,
    STORE,
    USAGE,
    WORKER,
    Approval,
    Effect,
    Event,
    Evidence,
    Hold,
    Result,
    Run,
    Slot,
    Worker,
    is_over,
)
from outlast.engine import answers, commands, decisions, holds
from outlast.engine.limits import set_slots
from outlast.errors import Conflict, Forbidden, InvalidInput, NotFound
from outlast.flow.people import Rule
from outlast.flow.workflow import Workflow
from outlast.runtime import board, results, verification
from outlast.runtime.asked import asked_of, may_be_unheeded, notes_of
from outlast.runtime.clocks import new_id
from outlast.runtime.explain import explain
from outlast.runtime.port import Actor
from outlast.runtime.seen import Explanation
from outlast.runtime.webhooks import Webhooks
from outlast.runtime.words import is_alive
from outlast.store.pages import cursor_of
from outlast.store.port import Store

EXTENSION = timedelta(milliseconds=RUN_CEILING)  # what "extend" means where nobody says how long
ADMIN = "admin"  # the role that may hand any approval to others
PAGES_PER_CALL = 100  # a filter that finds nothing looks no further at once


class Operations:
    """Acts and reads as one actor of one tenant; no call reaches another tenant's rows (RUN-5)."""

    def __init__(self, store: Store, *, tenant: str, actor: Actor, workflows: Mapping[str, Workflow[Any]]) -> None:
        """`workflows`: those that can be started here, by name."""
        self.store = store
        self.tenant = tenant
        self.actor = actor
        self._workflows = workflows
        self.webhooks = Webhooks(store, tenant, actor)

    # --- acting --------------------------------------------------------------------------------
    async def start(
        self,
        workflow: str,
        given: bytes | str | dict[str, Any],
        *,
        run_id: str = "",
        idempotency_key: str = "",
        correlation_id: str = "",
        trace_id: str = "",
    ) -> commands.Started:
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

    async def signal(self, run: str, name: str, payload: dict[str, Any], *, signal_id: str = "") -> bool:
        """Leave a signal; False when this id was left before. Raises NotFound, Conflict (ended), NotStorable."""
        return await commands.signal(
            self.store,
            tenant=self.tenant,
            run=run,
            name=name,
            payload=payload,
            actor=self.actor.name,
            signal_id=signal_id,
        )

    async def cancel(self, run: str, *, reason: str) -> None:
        """Ask that the run end. Raises NotFound, Conflict (ended), InvalidInput (no reason)."""
        await commands.cancel(self.store, tenant=self.tenant, run=run, actor=self.actor.name, reason=reason)

    async def go_on(self, run: str, *, reason: str = "") -> None:
        """Answer a run's attention with "continue". Raises NotFound, Conflict."""
        await answers.go_on(self.store, tenant=self.tenant, run=run, actor=self.actor.name, reason=reason)

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
        choice = decisions.Choice(plans[alternative]["digest"])
        if changes:
            choice = await self._changed(row, alternative, changes)
        return await self._decide(row, "approve", choice, reason=reason, version=version)

    async def _changed(self, row: Approval, alternative: int, changes: Mapping[str, Any]) -> decisions.Choice:
        run = await self.run(row.run)
        workflow = self._workflows.get(run.workflow)
        if workflow is None or workflow.lane != run.lane:
            raise InvalidInput(
                f"the code of {run.lane} is not loaded here",
                "changed arguments are checked against the activity's types and the workflow's policy",
                "name the module: outlast approvals approve … --module flows.py",
            )
        return await decisions.change(self.store, workflow, run, row, alternative, changes, by=self.actor.name)

    async def claim_approval(self, approval: str) -> Approval:
        """Say "I look at it"; it binds nobody. Raises NotFound, Forbidden, Conflict."""
        return await decisions.claim(self.store, await self._may_decide(approval), by=self.actor.name)

    async def reassign(self, approval: str, who: Rule, *, reason: str) -> Approval:
        """Let others decide. Whoever may decide can hand it on, and the role `admin`. Raises NotFound, Forbidden."""
        self.actor.check_person()
        row = await commands.find_approval(self.store, self.tenant, approval)
        if ADMIN not in self.actor.roles:
            row = await self._may_decide(approval)
        return await decisions.reassign(self.store, row, who=str(who), by=self.actor.name, reason=reason)

    async def reject(self, approval: str, *, reason: str, again: bool = False, version: int = 0) -> Approval:
        """Reject it; `again`: and go round once more, where that is offered. Raises NotFound, Forbidden, Conflict."""
        row = await self._may_decide(approval)
        verb: decisions.Answer = "again" if again else "reject"
        return await self._decide(row, verb, decisions.Choice(""), reason=reason, version=version)

    async def answer(
        self, run: str, reason: Reason, choice: Choice, *, text: str, key: str = "", by: timedelta | None = None
    ) -> None:
        """Answer one reason of a run's attention; `by` goes with "extend". Raises NotFound, Conflict, Forbidden."""
        self.actor.check_person()
        await answers.answer(
            self.store,
            tenant=self.tenant,
            run=run,
            reason=reason,
            choice=choice,
            actor=self.actor.name,
            text=text,
            key=key,
            by_ms=int((by or EXTENSION).total_seconds() * SECOND) if choice is Choice.EXTEND else 0,
        )

    async def extend(self, run: str, *, by: timedelta, reason: str) -> None:
        """Give a run that has passed its ceiling more time. Raises NotFound, Conflict."""
        await self.answer(run, Reason.TOTAL_TIMEOUT, Choice.EXTEND, text=reason, by=by)

    async def hold(self, what: holds.What, name: str = "", *, reason: str) -> None:
        """Stop new intents of an activity, a provider, a workflow or the tenant. Raises InvalidInput, Conflict.

        A circuit breaker that is up there becomes this actor's hold, which the engine does not take down.
        """
        await holds.put_up(self.store, self.tenant, holds.held_key(what, name), actor=self.actor.name, reason=reason)

    async def release(self, what: holds.What, name: str = "") -> int:
        """Take a hold down and make due every run that waits for it; answers how many. Raises NotFound."""
        return await holds.take_down(self.store, self.tenant, holds.held_key(what, name), actor=self.actor.name)

    async def flagged(
        self, *, reason: Reason | None = None, workflow: str = "", cursor: str = "", limit: int = board.PAGE
    ) -> tuple[tuple[Run, ...], str]:
        """Runs a person must look at, for this reason or any, of one page of runs; and the next page's cursor."""
        return await board.flagged(self.store, self.tenant, reason, workflow, cursor, limit)

    async def answer_all(
        self,
        reason: Reason,
        choice: Choice,
        *,
        text: str,
        workflow: str = "",
        by: timedelta | None = None,
        cursor: str = "",
    ) -> board.Answered:
        """Answer every run flagged so in one page of runs, each once; what fails is listed. Go on with the cursor."""

        async def one(run: str, key: str) -> None:
            if reason is Reason.EFFECT_UNCERTAIN:
                await self.resolve_effect(run, key, board.verb_of(choice), reason=text)
            else:
                await self.answer(run, reason, choice, text=text, by=by)

        board.check_for_all(reason, choice)
        return await board.answer_page(self.store, self.tenant, reason, workflow, cursor, one)

    async def held_up(self) -> dict[str, int]:
        """How many runs wait for the release of each hold, by its key."""
        return await board.held_up(self.store, self.tenant)

    async def explain(self, run: str) -> Explanation:
        """Where a run stands and why, in one sentence with its facts. Raises NotFound."""
        return explain(await board.seen(self.store, await self.run(run)))

    async def holds(self) -> tuple[Hold, ...]:
        """The holds that are up."""
        rows = await self.store.rows(HOLD, (self.tenant,))
        return tuple(r for r in rows if isinstance(r, Hold) and r.up)

    async def breakers(self) -> tuple[tuple[Hold, int], ...]:
        """The circuit breakers that are up, each with how many runs wait for it."""
        up = [hold for hold in await self.holds() if hold.kind == holds.BREAKER]
        waiting = await self.held_up() if up else {}
        return tuple((hold, waiting.get(hold.key, 0)) for hold in up)

    def may_decide(self, approval: Approval) -> bool:
        """Does this actor hold what its rule asks for?"""
        return Rule.parse(approval.who).allows(self.actor.roles)

    async def _may_decide(self, approval: str) -> Approval:
        self.actor.check_person()
        row = await commands.find_approval(self.store, self.tenant, approval)
        if not self.may_decide(row):
            raise Forbidden(
                f"{self.actor.name} may not decide {approval}",
                f"it takes the role {row.who}",
                "somebody who holds it has to decide, or act with --role",
                refusal="role",
            )
        return row

    async def _decide(
        self, row: Approval, verb: decisions.Answer, choice: decisions.Choice, *, reason: str, version: int
    ) -> Approval:
        return await decisions.decide(
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
    ) -> None:
        """A person's answer on an uncertain effect. Raises NotFound, Conflict (settled, too early), Forbidden."""
        self.actor.check_person()
        effect = await answers.find_effect(self.store, self.tenant, run, key)
        answer = None
        if verb == "happened":
            answer = self._response_of(effect, await self.run(run), response)
        await answers.resolve_effect(
            self.store, effect, verb, actor=self.actor.name, reason=reason, response=answer, external_id=external_id
        )

    def _response_of(self, effect: Effect, run: Run, response: Any) -> bytes:
        """The response as the activity's type writes it, where its code is loaded; else the JSON as given."""
        workflow = self._workflows.get(run.workflow)
        if workflow is None:
            return json.dumps(response).encode()
        codec = workflow.activity(effect.activity).response_codec
        return bytes(codec.dump(codec.admit(json.dumps(response))))  # as JSON: a string is a value, not a document

    async def set_slots(self, n: int, *, everywhere: bool = False) -> None:
        """At most `n` admitted runs of this tenant (everywhere: of all tenants); 0 lifts the limit."""
        await set_slots(self.store, STORE if everywhere else self.tenant, n)

    # --- reading --------------------------------------------------------------------------------
    async def run(self, run: str) -> Run:
        """The run's row. Raises NotFound."""
        return await commands.find_run(self.store, self.tenant, run)

    async def runs(
        self,
        *,
        status: str = "",
        workflow: str = "",
        attention: bool = False,
        waiting_for: str = "",
        q: str = "",
        cursor: str = "",
        limit: int = 50,
    ) -> tuple[tuple[Run, ...], str]:
        """Runs, newest first, and the cursor of the next page ('' at the end).

        `attention`: only those that a person must look at; `waiting_for`: only those that wait for this kind of
        thing; `q`: only those with this in run id or correlation id. These are looked for page by page, so an answer
        may hold fewer runs than `limit` and still have a cursor.
        """
        where = {k: v for k, v in (("status", status), ("workflow", workflow)) if v}
        found: list[Run] = []
        for _ in range(PAGES_PER_CALL):
            page = await self.store.page(RUN, self.tenant, dict(where), cursor=cursor, limit=limit)
            for row in page.rows:
                assert isinstance(row, Run)
                if (attention and not row.attention) or (waiting_for and not _waits_for(row, waiting_for)):
                    continue
                if q and q not in row.run and q not in row.correlation_id:
                    continue
                found.append(row)
                if len(found) == limit:
                    at_the_end = row is page.rows[-1] and not page.cursor
                    return tuple(found), "" if at_the_end else cursor_of(RUN, row)
            cursor = page.cursor
            if not cursor:
                break
        return tuple(found), cursor

    async def counts(self) -> dict[str, dict[str, int]]:
        """How many runs and how many approvals of the tenant there are of each status."""
        return {kind.name: await self.store.tally(kind, self.tenant, "status") for kind in (RUN, APPROVAL)}

    async def effects(self, run: str) -> tuple[Effect, ...]:
        """The ledger of a run, in the order of its intents, what it shares with others included: another run's
        effect that it uses or waits for says whose it is in `by_run`, and comes last. Raises NotFound."""
        await self.run(run)
        rows = await self.store.rows(EFFECT, (self.tenant, run))
        own = [r for r in rows if isinstance(r, Effect)]
        for used in await self.store.rows(USAGE, (self.tenant, run)):
            row = await self.store.load(EFFECT, (self.tenant, "", 0, str(used[2])))
            own += [row] if isinstance(row, Effect) else []
        return tuple(sorted(own, key=lambda e: (e.by_run not in ("", run), e.ordinal)))

    async def ledger(
        self,
        *,
        status: EffectStatus | None = None,
        activity: str = "",
        run: str = "",
        since: timedelta | None = None,
        cursor: str = "",
        limit: int = 50,
    ) -> tuple[tuple[Effect, ...], str]:
        """The calls of all runs, newest first, and the cursor of the next page; `since`: no older than this."""
        since_real = (await self.store.now()).real - int(since.total_seconds() * SECOND) if since else 0
        return await verification.page(
            self.store,
            self.tenant,
            status=status,
            activity=activity,
            run=run,
            since_real=since_real,
            cursor=cursor,
            limit=limit,
        )

    async def effect(self, run: str, key: str, *, visit: int | None = None) -> verification.Doubt:
        """One effect with its evidence: the uncertain one of this key, else the latest, or that of a visit."""
        effect = await answers.find_effect(self.store, self.tenant, run, key, visit=visit)
        return verification.Doubt(effect, await verification.evidence_of(self.store, effect))

    async def doubts(self, runs: Iterable[Run]) -> dict[verification.EffectName, verification.Doubt]:
        """The uncertain effects for which these runs call a person, with their evidence."""
        return await verification.doubts_of(self.store, runs)

    async def standing(self, run: str) -> list[str]:
        """What the run did and no undo can take back, each with the reason, latest first. Raises NotFound."""
        row, effects = await self.run(run), await self.effects(run)
        return compensation.names([e for e in compensation.standing(row, effects) if not compensation.can_undo(e)])

    async def to_undo(self, run: str) -> list[str]:
        """What would be undone if it ended now, in the order of undoing. Raises NotFound."""
        return compensation.names(compensation.owed(await self.run(run), await self.effects(run)))

    async def evidence(self, run: str) -> tuple[Evidence, ...]:
        """Late answers of holders that had been replaced. Raises NotFound."""
        await self.run(run)
        rows = await self.store.rows(EVIDENCE, (self.tenant, run))
        return tuple(r for r in rows if isinstance(r, Evidence))

    async def history(self, run: str, *, after: int = 0, limit: int = 1_000) -> tuple[Event, ...]:
        """The run's events after a number. Raises NotFound."""
        await self.run(run)
        rows = await self.store.rows(EVENT, (self.tenant, run), after=(self.tenant, run, after), limit=limit)
        return tuple(r for r in rows if isinstance(r, Event))

    async def whole_history(self, run: str) -> tuple[Event, ...]:
        """Every event of the run. Raises NotFound."""
        found: list[Event] = []
        while page := await self.history(run, after=len(found)):
            found += page
        return tuple(found)

    async def asked(self, run: Run) -> list[dict[str, Any]]:
        """What was asked of a run and is not done: a cancel, or a `continue` of its attention."""
        return [] if is_over(run) or not run.mail else asked_of(run, await notes_of(self.store, run))

    async def unheeded(self, runs: Iterable[Run]) -> dict[str, list[dict[str, Any]]]:
        """What was asked of each of these runs and may not have been read by a worker yet."""
        now = await self.store.now()
        return {row.run: await self.asked(row) for row in runs if may_be_unheeded(row, now)}

    async def approval(self, approval: str) -> Approval:
        """One approval. Raises NotFound."""
        return await commands.find_approval(self.store, self.tenant, approval)

    async def approvals(
        self, *, status: str = "", cursor: str = "", limit: int = 50
    ) -> tuple[tuple[Approval, ...], str]:
        """Approvals, newest first, and the cursor of the next page."""
        where: dict[str, str | int] = {"status": status} if status else {}
        page = await self.store.page(APPROVAL, self.tenant, where, cursor=cursor, limit=limit)
        return tuple(r for r in page.rows if isinstance(r, Approval)), page.cursor

    async def approvals_of(self, run: str) -> list[Approval]:
        """Every approval of one run."""
        return await commands.approvals_of(self.store, self.tenant, run)

    async def results(self, run: str, *, after: int = 0, limit: int = results.PAGE) -> tuple[Result, ...]:
        """What a run has produced, in the order of first emission, from after an ordinal. Raises NotFound."""
        await self.run(run)
        return await results.page(self.store, self.tenant, run, after, limit)

    async def count_results(self, run: str) -> int:
        """How many results a run has: its rows are counted at this moment (OUT-5). Raises NotFound."""
        await self.run(run)
        return await results.count(self.store, self.tenant, run)

    async def slots(self) -> tuple[Slot, ...]:
        """The slot rows that bind this tenant, the global ones included."""
        rows = [*await self.store.rows(SLOT, (STORE,)), *await self.store.rows(SLOT, (self.tenant,))]
        return tuple(r for r in rows if isinstance(r, Slot))

    async def workers(self) -> tuple[Worker, ...]:
        """The workers that serve this store, closed ones included."""
        return tuple(r for r in await self.store.rows(WORKER, (STORE,)) if isinstance(r, Worker))

    async def held(self, worker: str) -> int:
        """How many runs a worker holds, whoever's they are."""
        return len(await self.store.owned(worker))

    async def serving(self) -> frozenset[str]:
        """The lanes that some worker serves whose lease still runs."""
        now = await self.store.now()
        return frozenset(lane for w in await self.workers() if is_alive(w, now) for lane in w.lanes.split())


def _waits_for(run: Run, kind: str) -> bool:
    return any(w.kind == kind for w in waiting_of(run))


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

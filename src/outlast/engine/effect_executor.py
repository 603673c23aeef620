"""Executor of one effect: carries out the steps that `core/effect_steps.py` decides (S-4, S-17).

Theory of operation. No transaction covers the receiver of a call. So an intent is durable before the call, and the
record follows the answer. A step is decided from the row, again after each outcome, each wait, and once more right
before a further intent lands. Faults, and why none of them makes a call twice or loses one:

1. *The process dies between intent and record.* The row stays open, and `next_step` decides at `START` for the next
   holder: ask the receiver, call again under the same key, or ask a person. "It was not sent" needs proof of the
   earlier holder (`_as_known`), because a row alone cannot tell.
2. *Another worker holds the run by now.* The store refuses the intent of an old claim. After the intent has landed,
   the thread that sends checks the lease and `not_after` at the last instant (`attempts`). The row's settle
   time is counted from `not_after`, so the next holder believes a "no" only once no such call can arrive.
3. *A cancel arrives with the answer of the intent.* `_send` reads it and refuses the effect, unless an earlier
   attempt may have happened.
4. *A step is carried out although it was decided before a wait.* `_attempt` decides again behind the gates. From the
   last decision to the submission of the intent nothing is awaited.
5. *The answer cannot be stored.* The effect is done without a response. It is never refused or retried, because it
   has happened.
6. *The execution ends between a call and its record.* `drive` commits the usage in `finally`, and an abandoned call
   leaves its answer as evidence.
"""

from typing import Any

from outlast.core import compensation, effect_verbs
from outlast.core.commit import Commit, Instant, Put, When
from outlast.core.conclude import Parked
from outlast.core.durations import INLINE_WAIT_MAX, SECOND, Liveness
from outlast.core.effect_steps import (
    NOTHING,
    Answered,
    AskReceiver,
    Defer,
    Fact,
    Intend,
    Known,
    MarkUncertain,
    Maybe,
    Moment,
    Outcome,
    Purpose,
    ReceiverAnswer,
    RecordResponse,
    Refuse,
    Terms,
    Unsent,
    WaitUntil,
    next_step,
)
from outlast.core.failed_calls import EffectKey
from outlast.core.machine import EffectStatus
from outlast.core.route import cancel_of
from outlast.core.rows.effect_columns import HEAD_CHARS, EffectError, EvidenceAnswer, unstored
from outlast.core.rows.effect_rows import EFFECT, Effect
from outlast.core.rows.limit_rows import Pause
from outlast.core.rows.run_columns import Timer, WaitingFor
from outlast.core.usage import Used
from outlast.engine.call_gates import GatedAttempt
from outlast.engine.commit_chain import RunLost
from outlast.engine.effect_calls import (
    attempt_in_transaction,
    attempt_of,
    check_transaction,
    evidence_of,
    millis,
    reconcile,
)
from outlast.engine.lease import permit, read
from outlast.engine.node_execution import NodeExecution, Unresolved
from outlast.engine.node_result import (
    EffectRefused,
    answer_not_stored,
    refusal_of,
    uncertain,
)
from outlast.engine.permission import UNASKED, Permission
from outlast.engine.send_window import Sending
from outlast.engine.user_code import as_exception, shown_text, text_of
from outlast.errors import AnswerNotStored, LimitExceeded, NotStorable
from outlast.flow.activity import Activity, BoundCall
from outlast.flow.functions import NeverAwaited, never_awaited, unrun_part
from outlast.flow.options import Callee, Resend
from outlast.telemetry import WORKFLOW_COMPENSATIONS
from outlast.telemetry.redact import redact_shown


class CallTerms(dict[Callee, Terms]):
    """Terms of the calls of one worker, built at the first call of each activity or undo.

    `skew` of the store widens the settle margin: another process judges by its own clock whether a call may still
    arrive.
    """

    def __init__(self, live: Liveness, skew: int) -> None:
        super().__init__()
        self._live = live
        self._skew = skew

    def __missing__(self, callee: Callee) -> Terms:
        live, retry, resend = self._live, callee.retry, callee.if_uncertain
        settle_time = millis(callee.settle_time) if callee.settle_time else 0
        activity = callee if isinstance(callee, Activity) else None
        terms = self[callee] = Terms(
            asks_receiver=callee.mode == "reconcile",
            attempts_max=retry.attempts,
            total_wait=millis(retry.total_wait),
            first_wait=millis(retry.first),
            wait_factor=retry.factor,
            backoff_ceiling=live.backoff_ceiling,
            remembered_for=millis(resend.remembered_for) if isinstance(resend, Resend) else 0,
            timeout=millis(callee.timeout) if callee.timeout else live.attempt_timeout,
            settle_margin=max(live.settle_margin, settle_time) + self._skew,
            start_budget=live.start_budget,
            purpose=Purpose.DO if activity is not None else Purpose.UNDO,
            shared=activity is not None and activity.once_per == "tenant",
            keep_ms=millis(activity.keep) if activity is not None and activity.keep else 0,
            in_transaction=bool(callee.transaction),
        )
        return terms


class EffectExecutor:
    """Executor of one effect in one node execution, from its first step to its outcome.

    `callee` is the activity's function or its undo; `undoes` is the effect that an undo undoes. `ending`: the run ends,
    and the effect was left open.
    """

    def __init__(
        self,
        execution: NodeExecution,
        callee: Callee,
        call: BoundCall,
        ident: EffectKey,
        *,
        ending: bool = False,
        undoes: EffectKey | None = None,
    ) -> None:
        """Raises DefinitionError if the store cannot make the call in a transaction."""
        self.execution = execution
        self.session = session = execution.session
        self.held = session.held
        self.callee = callee
        self.call = call
        self.ident = ident
        self.undoes = undoes
        terms = execution.services.terms[callee]
        if undoes is not None:  # the undo of a child is an activity
            terms = terms._replace(purpose=Purpose.UNDO)
        self.terms = terms._replace(purpose=Purpose.SETTLE) if ending else terms
        # gates that each attempt needs; `_meets_fact` tells the others, before each attempt
        self._is_gated = (
            callee.limit is not None
            or not callee.is_async
            or terms.in_transaction
            or self.terms.purpose is not Purpose.DO
            or execution.has_budget
            or execution.workflow.asks_permission
            or self.held.asks is not None
        )
        self.known = Known(restored=True) if self.held.run.restored else NOTHING
        self.used: list[Used] = []  # reported by the call and not stored yet
        self._probe: Pause | None = None  # breaker that lends the attempt the right to try the provider
        self._before = 0  # attempts that a person has settled
        self._returned = 0  # attempts of this executor whose call has returned
        self._watches = False  # opened a breaker or a try failed: checks again as soon as a try is allowed
        if terms.in_transaction:
            check_transaction(callee.name, callee.transaction, session.store)

    async def drive(self) -> Any:
        """Return the response of the effect, making the call if needed.

        Raises Refused for a refusal, AnswerNotStored, Unresolved if this execution gives no answer.
        """
        session = self.session
        outcome: Fact = Moment.START
        effect = self.held.effects.get(self.ident)
        try:
            if effect is not None and effect.status is EffectStatus.INTENDED:
                effect = await self._as_known(effect)  # once: an intent of this executor is judged by its outcome
            elif effect is not None and effect.status is EffectStatus.REFUSED:
                self._before = effect.attempts
            while True:
                now = session.clock.now
                step = next_step(effect, self.terms, outcome, now, self.known)
                if isinstance(step, Intend):
                    effect, outcome = await self._attempt(effect, outcome, step, now)
                    continue
                assert effect is not None, "the first step is an intent"
                if isinstance(step, RecordResponse):
                    try:
                        return self._record(effect, step, now)
                    except NeverAwaited as error:  # its work has not run, or may still run
                        outcome = Maybe("never_awaited", str(error), abandoned=True)
                        continue
                if isinstance(step, Refuse):
                    self._submit(effect_verbs.refuse(self.held.run, effect, *step, now=now))
                    raise EffectRefused(refusal_of(self.held.effects[self.ident]), self.ident)  # as a re-run reads it
                if isinstance(step, Defer):
                    effect, outcome = self._defer(effect, step), Moment.DEFERRED
                elif isinstance(step, AskReceiver):
                    effect = self._defer(effect, step.first) if step.first else effect
                    outcome = await self._ask_receiver(effect)
                elif isinstance(step, WaitUntil):
                    await self._wait(effect, step)
                else:
                    assert isinstance(step, MarkUncertain)
                    self._mark_uncertain(effect, step)
                    raise Unresolved
        finally:
            if self.used:  # the execution ended between the call and its record
                session.submit_usage(self.ident, self.callee.name, self.used)

    def _submit(self, commit: Commit) -> None:
        """Commit without waiting, together with the usage that the call has reported."""
        if self.used:
            puts = self.session.usage_puts(self.ident, self.callee.name, self.used)
            commit = commit._replace(writes=(*commit.writes, *puts))
        self.session.chain.submit(commit)

    # --- an attempt ----------------------------------------------------------------------------
    async def _attempt(
        self, effect: Effect | None, before: Fact, step: Intend, now: Instant
    ) -> tuple[Effect | None, Fact]:
        """Pass the gates, intend and call. Returns the effect and `before` if another step is due after the gates.

        A call that needs nothing but a place waits for it here. If it needs a gate by then, the place is left, and the
        loop of `drive` comes back.
        """
        execution, services = self.execution, self.execution.services
        gated: GatedAttempt | None = None  # None: a call that needs no gate but a free place in the window
        sending: Sending | None = None
        if execution.closing and not execution.may_begin():
            raise Unresolved
        try:
            due: Intend | None = step
            # as `_meets_fact`, without a call
            if self._is_gated or services.pauses.up or services.budgets.tenants or self.held.approvals:
                row = effect or self._of_another_run()
                gated = GatedAttempt(execution, self.callee, self.call, self.terms, row, watches=self._watches)
                due = await gated.pass_all(step, lambda: self._again(effect, before))
                sending = gated.sending
            elif (sending := services.window.enter_now()) is None:
                sending = await services.window.enter()
                due = None if self._meets_fact() else self._again(effect, before)
            if due is None:
                return effect, before
            if due is not step:  # a later `now` than that of the loop above: the intent's times are counted from here
                step, now = due, self.session.clock.now
            probing = gated is not None and gated.probe is not None
            if step.maybe_done or probing or self.known is not NOTHING:
                self.known = self.known._replace(
                    maybe_done=step.maybe_done, in_transit=step.in_transit, probing=probing
                )
            intent = self._intent(effect, UNASKED if gated is None else gated.allowed, now)
            effect = effect_verbs.intended(intent)
            if sending is None:
                outcome: Outcome | Moment = await self._call_in_transaction(intent, effect, gated)
            else:
                outcome = await self._send(intent, effect, sending, gated, lost=step.lost)
        finally:
            if gated is not None:
                await gated.release()
            elif sending is not None:
                sending.leave()
        self._probe = gated.probe if gated is not None else None
        return await self._judged(intent, effect, outcome), outcome

    def _meets_fact(self) -> bool:
        """Return True if a gate is needed now that looks at a fact. Each can come while a call waits for its place."""
        services = self.execution.services
        return bool(services.pauses.up or services.budgets.tenants or self.held.approvals)

    def _check_open(self) -> None:
        if self.execution.closing and not self.execution.may_begin():
            raise Unresolved

    def _again(self, effect: Effect | None, before: Fact) -> Intend | None:
        """Decide again after a wait: return None if another step is due. Raises Unresolved."""
        self._check_open()
        step = next_step(effect, self.terms, before, self.session.clock.now, self.known)
        return step if isinstance(step, Intend) else None

    def _of_another_run(self) -> Effect | None:
        """Return the row of the key if another run of the tenant made the call."""
        return self.held.others.get(self.call.key) if self.terms.shared else None

    def _intent(self, effect: Effect | None, allowed: Permission, now: Instant) -> Commit:
        """Return the commit of the intent. Raises Unresolved if the time of the claim is too short for an attempt."""
        session, terms, callee = self.session, self.terms, self.callee
        run = self.held.run
        if self.execution.observed:
            self.execution.record_observed()
        if (run.due_at or 0) - terms.timeout - now.real <= min(terms.start_budget, SECOND):
            self.execution.hand_back(f"the time left of the claim is too short for an attempt of {callee.name}")
            raise Unresolved
        if allowed.latest_real is not None and allowed.latest_real <= now.real:
            self.execution.run_again("the approval lapsed just now")
            raise Unresolved
        self.execution.intents.add(self.ident)
        what = effect_verbs.Intent(
            visit=self.ident[0],
            key=self.call.key,
            activity=callee.name,
            digest=self.call.digest,
            args=self.call.args_bytes,
            undo=callee.undone_by,
            timeout_ms=terms.timeout,
            start_budget_ms=terms.start_budget,
            settle_margin_ms=terms.settle_margin,
            allowed_by=allowed.by,
            first_at=session.store.mapping().real(run.created_at) if run.restored else 0,
        )
        if terms.shared:
            effect = effect or self._of_another_run()
            what = what._replace(shared=True, keep_ms=terms.keep_ms, noted=self.call.key in self.held.noted)
        mine = effect_verbs.goes_on(effect, run) if effect is not None else None
        ordinal = mine.ordinal if mine else self.held.next_ordinal()
        if self.undoes is not None:
            original = self.held.effects[self.undoes]
            commit = compensation.intend_undo(run, what, effect, original, ordinal=ordinal, now=now)
        else:
            commit = effect_verbs.intend(
                run,
                what,
                effect,
                ordinal=ordinal,
                now=now,
                approval=allowed.approval,
                latest_real=allowed.latest_real,
                mapping=allowed.mapping,
            )
        return _with_record(commit) if terms.in_transaction else commit

    async def _call_in_transaction(self, intent: Commit, effect: Effect, gated: GatedAttempt | None) -> Outcome:
        """Call, and land the intent with the record of the answer and the author's rows."""
        if gated is not None:
            gated.sent = True
        return await attempt_in_transaction(
            self.execution,
            self.callee,
            self.call,
            effect,
            self.used,
            lambda *answer: self._both(intent, effect, *answer),
        )

    async def _send(
        self, intent: Commit, effect: Effect, sending: Sending, gated: GatedAttempt | None, *, lost: bool
    ) -> Outcome | Moment:
        """Land the intent, then call, unless a cancel has arrived with it or a restore may have lost a call."""
        session, services = self.session, self.execution.services
        session.late.intend(self.ident, None if self.known.maybe_done else effect)
        submitted = read(services.clock)
        done = await session.chain.land(intent)
        sending.landed()
        if self.held.has_new_messages and self.terms.purpose is Purpose.DO:  # an end is not stopped by a further cancel
            await self._check_cancel(effect)
        if not session.late.begin_call(self.ident):  # its holder gave it up, and may have recorded that it was not sent
            return Unsent(effect_verbs.TOO_LATE, "its run is no longer held here")
        if lost:
            return Moment.START
        right = permit(submitted, effect.not_after, done.now.real, services.lease)
        attempt = attempt_of(self.execution, self.callee, self.call, effect, self.used, permit=right, sending=sending)
        if gated is not None:
            gated.sent = True
        outcome = await services.caller.attempt(attempt)
        if gated is not None and isinstance(outcome, Unsent) and outcome.code == effect_verbs.TOO_LATE:
            gated.sent = False  # the last check stopped it
        self._returned += not (isinstance(outcome, Maybe) and outcome.abandoned)
        return outcome

    async def _check_cancel(self, effect: Effect) -> None:
        """Stop before the call if a cancel has arrived with the answer of the intent (S-1)."""
        session = self.session
        cancel = cancel_of(await session.new_messages())
        if cancel is None:
            return
        step = next_step(effect, self.terms, Moment.CANCEL, session.clock.now, self.known)
        if isinstance(step, Refuse):
            session.chain.submit(effect_verbs.refuse(self.held.run, effect, *step, now=session.clock.now))
        self.execution.cancelled(cancel)
        raise Unresolved

    # --- after an attempt ------------------------------------------------------------------------
    async def _judged(self, intent: Commit, effect: Effect, outcome: Outcome | Moment) -> Effect:
        """Count an outcome for the provider's breaker, and return the effect with the receiver's id for it."""
        execution, services, run = self.execution, self.execution.services, self.held.run
        if execution.abandoned_calls and execution.is_abandoned():
            await self._record_late_answer(effect, outcome)
            raise Unresolved
        if isinstance(outcome, Moment):
            return effect
        if isinstance(outcome, Answered | Maybe) and outcome.external_id:
            effect = effect._replace(external_id=outcome.external_id)  # each later commit keeps it
        breakers, provider = services.breakers, self.callee.provider
        if self._probe is not None:
            await breakers.probed(self._probe, run.run, outcome)
            self._watches = True
        elif not breakers.is_calm(run.tenant, provider, outcome):
            self._watches = await breakers.record_outcome(run.tenant, provider, run.run, outcome)
        if isinstance(outcome, Answered):
            return effect
        self.known = self.known._replace(jitter=services.chance())
        if self.terms.in_transaction:  # rolled back with it; it counts the attempt
            self.session.chain.submit(intent)
        return effect

    async def _record_late_answer(self, effect: Effect, outcome: Outcome | Moment) -> None:
        """Record the answer of an abandoned call as evidence (S-10)."""
        if self.used:
            await self.session.late.record_usage(self.session.usage_puts(self.ident, self.callee.name, self.used))
        if not isinstance(outcome, Answered):
            return
        codec = self.callee.response_codec
        try:
            answer = EvidenceAnswer(EffectStatus.DONE.value, response_text=codec.dump(outcome.value).decode())
        except BaseException as error:  # as in `_record`
            answer = EvidenceAnswer(EffectStatus.DONE.value, _unstored(outcome.value, codec, error))
        await self.session.late.record_answer(effect, answer)

    async def _as_known(self, effect: Effect) -> Effect:
        """Return an open effect, marked as not sent if its holder proved so."""
        session = self.session
        if session.late.take_unsent(effect):
            why = "the store's answer to its intent came too late or was lost"
        elif effect.epoch != self.held.run.epoch and effect_verbs.is_unsent(
            effect, await evidence_of(self.execution, effect)
        ):
            why = "the worker that intended it was replaced before it called"
        else:
            return effect
        return self._defer(effect, Defer(effect_verbs.TOO_LATE, why, 0, happened=False))

    def _defer(self, effect: Effect, step: Defer) -> Effect:
        """Record an attempt without an outcome; a lease that has run out ends the execution."""
        session, services = self.session, self.execution.services
        self._submit(effect_verbs.defer(self.held.run, effect, **step._asdict(), now=session.clock.now))
        # the next holder reads it in the row, or as evidence if it has claimed the run already
        if step.code == effect_verbs.TOO_LATE and not services.lease.holds(services.clock):
            self.execution.break_off(RunLost())
            raise Unresolved
        return self.held.effects[self.ident]

    async def _ask_receiver(self, effect: Effect) -> ReceiverAnswer:
        execution, asked_at = self.execution, self.session.clock.now.real
        answer = await reconcile(execution, self.callee, self.call, effect, self.used)
        if execution.abandoned_calls and execution.is_abandoned():
            raise Unresolved
        self.known = self.known._replace(asked_at=asked_at, jitter=execution.services.chance())
        return answer

    async def _wait(self, effect: Effect, step: WaitUntil) -> None:
        """Wait up to 5 s here. A longer wait parks the run once the other calls have settled (S-17)."""
        session, name = self.session, self.callee.name
        left = step.until - session.clock.now.real
        if left <= INLINE_WAIT_MAX:
            if left > 0:
                await self.execution.services.clock.sleep(left)
            self._check_open()
            return
        waiting = _waiting(effect, step, name, self.terms.attempts_max)
        until = session.store.mapping().business(step.until)
        waiting = waiting._replace(since=session.clock.now.business, until=until)
        verb = "await_settle" if step.settles else "retry"
        self.execution.park(Parked(verb, waiting, Timer(waiting.what, step.until, real=True)))
        raise Unresolved

    def _record(self, effect: Effect, step: RecordResponse, now: Instant) -> Any:
        codec = self.callee.response_codec
        if self.terms.in_transaction:  # recorded with the author's rows
            return codec.load(step.response)
        try:
            response, value = codec.store(step.response)  # as every later process reads it, before it counts
        except BaseException as error:  # because a serializer of an author may raise anything
            if not step.found and (part := unrun_part(step.response)) is not None:
                raise never_awaited(part, self.callee.fn) from None
            raise self._record_unstored(effect, step, _unstored(step.response, codec, error), now) from None
        recorded = self._recorded(effect, response, step, now)
        if self.used:
            self._submit(recorded)
        else:
            self.session.chain.submit(recorded)
        return value

    def _record_unstored(
        self, effect: Effect, step: RecordResponse, error: EffectError, now: Instant
    ) -> AnswerNotStored:
        """Record the effect as done without a response, and return the error for the node."""
        self._submit(
            effect_verbs.record_unstored(
                self.held.run,
                effect,
                error,
                found=step.found,
                now=now,
                external_id=step.external_id or effect.external_id,
            )
        )
        return answer_not_stored(self.held.effects[self.ident])

    def _recorded(
        self, effect: Effect, response: bytes, step: RecordResponse, now: Instant, intent: Commit | None = None
    ) -> Commit:
        """Return the commit that records a response. `intent`: the commit that lands together with it."""
        run, external_id = self.held.run, step.external_id or effect.external_id
        if self.undoes is None:
            verb = effect_verbs.settle if step.found else effect_verbs.record
            return verb(run, effect, response, now=now, external_id=external_id)
        original = _written(intent, self.undoes) or self.held.effects[self.undoes]
        self.execution.services.counted(WORKFLOW_COMPENSATIONS, run.workflow, original.activity)
        if step.found:
            return compensation.settle_undo(run, effect, original, now=now, external_id=external_id)
        return compensation.record_undo(run, effect, original, now=now)

    def _both(self, intent: Commit, effect: Effect, response: bytes, external_id: str) -> tuple[Commit, Commit]:
        """Return the intent and the record of an answer, which land in one transaction."""
        effect = effect._replace(external_id=external_id)
        recorded = self._recorded(effect, response, RecordResponse(None), self.session.clock.now, intent)
        if self.used:
            puts = self.session.usage_puts(self.ident, self.callee.name, self.used)
            recorded = recorded._replace(writes=(*recorded.writes, *puts))
        return intent, recorded

    def _mark_uncertain(self, effect: Effect, step: MarkUncertain) -> None:
        """Record that a person must decide, and call one."""
        session = self.session
        developed = self.execution.services.errors is not None
        returned = developed and effect.attempts == self._before + self._returned
        self._submit(
            effect_verbs.mark_uncertain(self.held.run, effect, *step, now=session.clock.now, returned=returned)
        )
        self.execution.call_person(uncertain(session, self.held.effects[self.ident]))


def _waiting(effect: Effect, step: WaitUntil, name: str, attempts_max: int) -> WaitingFor:
    """Return the description of a wait for operators."""
    if step.settles:
        return WaitingFor("settle", f"the outcome of {name} {effect.key}", then="asks the receiver")
    what = f"attempt {effect_verbs.tries(effect) + 1} of {attempts_max} of {name}"
    return WaitingFor("retry", what, who=refusal_of(effect).code, then="calls again")


def _why_not(raised: BaseException) -> str:
    """Return why an answer cannot be stored."""
    error = as_exception(raised)
    return f"{error.what}: {error.why}" if isinstance(error, NotStorable | LimitExceeded) else text_of(error)


def _unstored(value: object, codec: Any, raised: BaseException) -> EffectError:
    """Return why an answer cannot be stored, with its size and its head."""
    text = shown_text(value)
    size = len(text.encode(errors="replace"))
    return unstored(
        redact_shown(_why_not(raised)), size=size, limit=codec.bytes_max, head=redact_shown(text[: 2 * HEAD_CHARS])
    )


def _with_record(intent: Commit) -> Commit:
    """Return an intent that lands with its record: the call leaves nothing behind if the process dies."""
    put = intent.writes[0]
    assert isinstance(put, Put)
    row = effect_verbs.intended(intent)._replace(settle_after=0)
    covered_until = (When(row.covered_until, False, "business", "lapsed"),) if row.covered_until else ()
    return intent._replace(writes=(Put(EFFECT, row, put.replaces), *intent.writes[1:]), whens=covered_until)


def _written(commit: Commit | None, ident: EffectKey) -> Effect | None:
    """Return an effect as a commit that has not landed leaves it."""
    puts = [write.row for write in (commit.writes if commit else ()) if isinstance(write, Put)]
    return next((row for row in puts if isinstance(row, Effect) and (row.visit, row.key) == ident), None)

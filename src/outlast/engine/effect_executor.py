"""Executor of one effect: intent, last check, call, record, and how an unknown outcome is settled (S-4, S-17)."""

import asyncio
from contextlib import suppress
from enum import Enum
from typing import Any

from outlast.core import effect_verbs
from outlast.core.commit import Commit, Instant
from outlast.core.conclude import Parked
from outlast.core.durations import INLINE_WAIT_MAX, SECOND, wait_before
from outlast.core.effect_columns import EvidenceAnswer
from outlast.core.effect_steps import CANCELLED, Answered, DidNotHappen, Happened, Maybe, No, Outcome, Unknown, Unsent
from outlast.core.machine import EffectStatus
from outlast.core.recovery import cut_off, used_up
from outlast.core.route import cancel_of
from outlast.core.rows import Effect, Pause
from outlast.core.run_columns import Timer, WaitingFor
from outlast.engine.attempts import Sending
from outlast.engine.lease import permit, read
from outlast.engine.node_execution import NodeExecution, Unresolved
from outlast.engine.node_result import EXHAUSTED, EffectRefused, paused_by, paused_by_breaker, refusal_of, uncertain
from outlast.engine.pauses import BREAKER, key_of_provider
from outlast.engine.permission import Permission, permission
from outlast.engine.rate_limit import CallSlot
from outlast.engine.reconcile import attempt_of, durations, evidence_of, millis, reconcile
from outlast.engine.run_session import EffectKey, RunLost
from outlast.engine.user_code import as_exception, text_of
from outlast.errors import LimitExceeded, NotStorable, StoreError
from outlast.flow.activity import Activity, BoundCall
from outlast.flow.options import Callee, Resend
from outlast.flow.outcomes import Refusal


class Next(Enum):
    """The step that follows an attempt without an answer."""

    CALL = "call"


class EffectExecutor:
    """Executor of one effect in one node execution, from its first intent to its outcome.

    `callee` is the activity's function or its undo. It says how an unknown outcome is settled. Subclasses replace the
    methods in which the two differ: who allows the call, which commit records it, and which reason calls a person.
    """

    def __init__(self, execution: NodeExecution, callee: Callee, call: BoundCall, ident: EffectKey) -> None:
        self.execution = execution
        self.session = execution.session
        self.callee = callee
        self.call = call
        self.ident = ident
        self.times = durations(execution, callee)
        self._place: CallSlot | None = None  # slot of the rate limit, if the callee has one
        self._seat: asyncio.Semaphore | None = None  # semaphore of threads, if it holds a seat
        self._sending: Sending | None = None  # its place in the send window
        self._probe: Pause | None = None  # breaker that lends this attempt the right to try the provider
        self._watches = False  # opened a breaker or a try failed: checks again as soon as a try is allowed
        # an earlier attempt may have happened; an attempt that was not sent does not disprove it
        self._maybe_done = False

    async def drive(self) -> Any:
        """Return the response of the effect, making the call if needed.

        Raises Refused for a refusal, Unresolved if this execution gives no answer.
        """
        effect = self.session.effects.get(self.ident)
        if self._may_be_lost(effect):
            # continue as for an intent of an earlier holder, whose call may have happened
            effect = await self._intend()
        if effect is not None and effect.status is EffectStatus.INTENDED:
            settled = await self.settle_open(await self._as_known(effect))
            if settled is not Next.CALL:
                return settled
        while True:
            effect = await self._intend()
            outcome, effect = await self._attempt(effect)
            result = await self._after(effect, outcome)
            if result is not Next.CALL:
                return result

    async def _as_known(self, effect: Effect) -> Effect:
        """Return an open effect, marked as not sent if its holder proved so."""
        if self.session.unsent.pop(self.ident, None) == effect:
            why = "the store's answer to its intent came too late or was lost"
        elif effect.epoch != self.session.run.epoch and effect_verbs.is_unsent(
            effect, await evidence_of(self.execution, effect)
        ):
            why = "the worker that intended it was replaced before it called"
        else:
            return effect
        run, now = self.session.run, self.session.now
        self.session.submit(effect_verbs.defer(run, effect, effect_verbs.TOO_LATE, why, 0, happened=False, now=now))
        return self.session.effects[self.ident]

    def _may_be_lost(self, effect: Effect | None) -> bool:
        """Return True if a restore may have lost an earlier call of this effect (I42)."""
        return effect is None and self.session.run.restored > 0

    # --- before the call -----------------------------------------------------------------------
    async def _intend(self) -> Effect:
        self._may_begin()
        self._place = await self.execution.call_slot(self.callee)
        try:
            if not self.callee.is_async:
                seats = self.execution.services.caller.seats
                await seats.acquire()
                self._seat = seats
            return await self._intend_inside()
        except BaseException:  # after any failure the reserved slots must be free for other calls
            self._leave()
            raise

    def _leave(self) -> None:
        if self._place is not None:
            self._place.leave()
        if self._sending is not None:
            self._sending.leave()
        if self._seat is not None:
            self._seat.release()
            self._seat = None

    async def _intend_inside(self) -> Effect:
        self._may_begin()
        await self._check_pauses()
        self._may_begin()
        previous = self._previous()
        if previous is not None and previous.settled_at == 0 and self._approval_lapsed(previous):
            self._lapse(previous)
        allowed = await self._allowed(previous)
        if allowed is None:
            raise Unresolved
        self._may_begin()
        return await self._land_intent(previous, allowed)

    def _previous(self) -> Effect | None:
        """Return the row that another attempt replaces."""
        return self.session.effects.get(self.ident)

    async def _allowed(self, previous: Effect | None) -> Permission | None:
        """Return the permission for the intent, or None if the execution has parked or closed."""
        assert isinstance(self.callee, Activity)
        return await permission(self.execution, self.callee, self.call, previous)

    async def _check_pauses(self) -> None:
        """Park if the activity or its provider is paused. One run may try a provider behind a breaker (S-23)."""
        session, services = self.session, self.execution.services
        self._probe = None
        keys = (f"activity/{self.callee.name}", key_of_provider(self.callee.provider))
        pause = await services.pauses.first(session.run.tenant, keys)
        if pause is None:
            return
        lease_ms = services.live.start_budget + self.times.timeout + self.times.settle_margin
        self._probe = await services.breakers.probe(pause, session.now.real, lease_ms)
        if self._probe is not None:
            return
        if pause.kind == BREAKER:
            again_at = max(pause.again_at, session.now.real)
            jitter = 0 if self._watches else round(services.chance() * services.live.breaker_pause)
            self.execution.park(paused_by_breaker(pause, again_at + jitter + 1, session.store.mapping()))
        else:
            self.execution.park(paused_by(pause, session.now.real))
        raise Unresolved

    def _approval_lapsed(self, effect: Effect) -> bool:
        return 0 < effect.covered_until <= self.session.now.business

    def _lapse(self, effect: Effect) -> Any:
        """Refuse or mark uncertain an open effect whose approval has lapsed, in every mode (S-20)."""
        why = "its approval lapsed while its outcome was open"
        if effect.settle_after == 0:
            return self._refuse(effect, "approval_lapsed", why)
        return self._mark_uncertain(effect, "approval_lapsed", why)

    async def _land_intent(self, previous: Effect | None, allowed: Permission) -> Effect:
        session = self.session
        self._sending = await self.execution.services.window.enter()
        self._may_begin()
        commit = self._prepared(previous, allowed)
        effect = effect_verbs.intended(commit)
        lost = session.run.restored and effect.attempts == 1  # a restore may have lost an earlier call
        session.unsent[self.ident] = None if lost or self._maybe_done else effect
        submitted = read(self.execution.services.clock)
        done = await session.land(commit)
        self._sending.landed()
        self._permit = permit(submitted, effect.not_after, done.now.real, self.execution.services.lease)
        if session.has_new_messages:
            await self._check_cancel(effect)
        return effect

    def _prepared(self, previous: Effect | None, allowed: Permission) -> Commit:
        """Return the commit of the intent. Raises Unresolved if the time of the claim is too short for an attempt."""
        session, run, live = self.session, self.session.run, self.execution.services.live
        now = session.now
        time_left = (run.due_at or 0) - self.times.timeout - now.real
        if time_left <= min(live.start_budget, SECOND):
            self.execution.hand_back(f"the time left of the claim is too short for an attempt of {self.callee.name}")
            raise Unresolved
        if allowed.latest_real is not None and allowed.latest_real <= now.real:
            self.execution.run_again("the approval lapsed just now")
            raise Unresolved
        allowed = self._within_the_window(previous, allowed, now.real)
        intent = effect_verbs.Intent(
            visit=self.ident[0],
            key=self.call.key,
            activity=self.callee.name,
            digest=self.call.digest,
            args=self.call.args_bytes,
            undo=self.callee.undone_by,
            timeout_ms=self.times.timeout,
            start_budget_ms=live.start_budget,
            settle_margin_ms=self.times.settle_margin,
            allowed_by=allowed.by,
            first_at=session.store.mapping().real(run.created_at) if run.restored else 0,
        )
        ordinal = previous.ordinal if previous else session.next_ordinal()
        return self._intended(intent, previous, allowed, ordinal, now)

    def _within_the_window(self, previous: Effect | None, allowed: Permission, now_real: int) -> Permission:
        """Return a permission that ends when the receiver may have forgotten the first attempt (S-17).

        The intent carries the deadline, so a process that was suspended does not send too late.
        """
        terms = self.callee.if_uncertain
        if previous is None or not self._maybe_done or not isinstance(terms, Resend):
            return allowed
        closes = previous.first_at + millis(terms.remembered_for) - self.times.timeout - self.times.settle_margin
        if closes <= now_real:
            self._mark_uncertain(previous, "window_over", "the receiver may have forgotten the first attempt")
        return allowed._replace(latest_real=min(closes, allowed.latest_real or closes))

    def _intended(
        self, what: effect_verbs.Intent, previous: Effect | None, allowed: Permission, ordinal: int, now: Instant
    ) -> Commit:
        """Return the commit that must be durable before the call."""
        return effect_verbs.intend(
            self.session.run,
            what,
            previous,
            ordinal=ordinal,
            now=now,
            approval=allowed.approval,
            latest_real=allowed.latest_real,
            mapping=allowed.mapping,
        )

    async def _check_cancel(self, effect: Effect) -> None:
        """Stop before the call if a cancel has arrived with the answer of the intent (S-1)."""
        cancel = cancel_of(await self.session.new_messages())
        lost = self.session.run.restored and effect.attempts == 1  # a restore may have lost an earlier call
        # not refused, because this or an earlier attempt may have happened
        if cancel is not None and (lost or self._maybe_done):
            self.execution.cancelled(cancel)
            raise Unresolved
        if cancel is not None:
            self.session.submit(
                effect_verbs.refuse(
                    self.session.run, effect, CANCELLED, "cancelled before it was sent", now=self.session.now
                )
            )
            self.execution.cancelled(cancel)
            raise Unresolved

    def _may_begin(self) -> None:
        if not self.execution.may_begin():
            raise Unresolved

    # --- the call --------------------------------------------------------------------------------
    async def _attempt(self, effect: Effect) -> tuple[Outcome, Effect]:
        try:
            outcome = await self._make(effect)
        finally:
            self._leave()
        if self.execution.abandoned_calls and self.execution.is_abandoned():
            await self._record_late_answer(effect, outcome)
            raise Unresolved
        if isinstance(outcome, Answered | Maybe) and outcome.external_id:
            effect = effect._replace(external_id=outcome.external_id)  # each later commit keeps it
        breakers, run, provider = self.execution.services.breakers, self.session.run, self.callee.provider
        if self._probe is not None:
            await breakers.probed(self._probe, run.run, outcome)
            self._watches = True
        elif not breakers.is_calm(run.tenant, provider, outcome):
            self._watches = await breakers.record_outcome(run.tenant, provider, run.run, outcome)
        return outcome, effect

    async def _record_late_answer(self, effect: Effect, outcome: Outcome) -> None:
        """Record the answer of an abandoned call as evidence (S-10)."""
        if not isinstance(outcome, Answered):
            return
        with suppress(StoreError, NotStorable, LimitExceeded):
            response = self.callee.response_codec.dump(outcome.value).decode()
            answer = EvidenceAnswer(EffectStatus.DONE.value, response_text=response)
            await self.session.store.commit(effect_verbs.record_late_answer(effect, answer, self.session.now))

    async def _make(self, effect: Effect) -> Outcome:
        if self.ident not in self.session.unsent:  # its holder gave it up, and may have recorded that it was not sent
            return Unsent(effect_verbs.TOO_LATE, "its run is no longer held here")
        del self.session.unsent[self.ident]
        attempt = attempt_of(self.execution, self.callee, self.call.args, self.call.kwargs, effect)
        return await self.execution.services.caller.attempt(
            attempt._replace(permit=self._permit, sending=self._sending)
        )

    async def _after(self, effect: Effect, outcome: Outcome) -> Any:
        if isinstance(outcome, Answered):
            return self._record(effect, outcome.value)
        if isinstance(outcome, No):
            return self._refuse(effect, outcome.code, outcome.detail)
        if isinstance(outcome, Unsent) and outcome.code == effect_verbs.TOO_LATE:
            return self._not_sent(effect, outcome.detail)
        if isinstance(outcome, Unsent):
            again = self._try_again
            return await again(effect, outcome.code, outcome.detail, outcome.after_ms, happened=self._maybe_done)
        if outcome.abandoned:
            return self._mark_uncertain(effect, outcome.code, outcome.detail)
        return await self._maybe_happened(effect, outcome)

    def _not_sent(self, effect: Effect, why: str) -> Any:
        """Record that the last check stopped the call, and intend again while the lease holds.

        The next holder reads this in the row, or as evidence if it has claimed the run already.
        """
        run, happened = self.session.run, self._maybe_done
        deferred = effect_verbs.defer(
            run, effect, effect_verbs.TOO_LATE, why, 0, happened=happened, now=self.session.now
        )
        self.session.submit(deferred)
        if not self.execution.services.lease.holds(self.execution.services.clock):
            self.execution.break_off(RunLost())
            raise Unresolved
        return Next.CALL

    def _record(self, effect: Effect, value: Any) -> Any:
        codec = self.callee.response_codec
        try:
            response = codec.dump(value)
        except BaseException as error:  # because a serializer of an author may raise anything
            return self._mark_uncertain(effect, "response_not_storable", f"it was done, but {_why_not(error)}")
        self.session.submit(self._recorded(effect, response))
        return codec.load(response)

    def _recorded(self, effect: Effect, response: bytes) -> Commit:
        """Return the commit that records the response."""
        return effect_verbs.record(
            self.session.run, effect, response, now=self.session.now, external_id=effect.external_id
        )

    def _refuse(self, effect: Effect, code: str, detail: str) -> Any:
        self.session.submit(effect_verbs.refuse(self.session.run, effect, code, detail, now=self.session.now))
        raise EffectRefused(Refusal(code, detail), self.ident)

    def _mark_uncertain(self, effect: Effect, code: str, detail: str) -> Any:
        self.session.submit(effect_verbs.mark_uncertain(self.session.run, effect, code, detail, now=self.session.now))
        self._call_person(self.session.effects[self.ident])
        raise Unresolved

    def _call_person(self, effect: Effect) -> None:
        self.execution.call_person(uncertain(self.session, effect))

    async def _maybe_happened(self, effect: Effect, outcome: Maybe) -> Any:
        mode = self.callee.mode
        if mode == "reconcile":  # ask the receiver at once; a wait that it asked for (408) precedes the next call
            code, detail, wait = outcome.code, outcome.detail, outcome.after_ms
            if why := self._too_long(effect, wait, wait):
                code, detail, wait = EXHAUSTED, f"{code}: {detail}; {why}", 0
            run = self.session.run
            self.session.submit(
                effect_verbs.defer(run, effect, code, detail, wait, happened=True, now=self.session.now)
            )
            return await self._after_settling(self.session.effects[self.ident])
        if mode == "resend" and self._window_open(effect):
            return await self._try_again(effect, outcome.code, outcome.detail, outcome.after_ms, happened=True)
        return self._mark_uncertain(effect, outcome.code, outcome.detail)

    # --- further attempts ---------------------------------------------------------------------------
    async def _try_again(self, effect: Effect, code: str, detail: str, after_ms: int, *, happened: bool) -> Any:
        if self._probe is not None:  # a try for all waiting runs does not count as an attempt of this effect
            probed = effect_verbs.defer(
                self.session.run, effect, code, detail, 0, happened=happened, counts=False, now=self.session.now
            )
            self.session.submit(probed)
            self._maybe_done = happened
            return Next.CALL
        retry = self.callee.retry
        ended = effect.attempts - effect.interrupted  # including this one
        if ended >= retry.attempts:
            return self._exhausted(effect, code, detail, happened=happened)
        wait = wait_before(
            ended + 1,
            self.execution.services.chance(),
            first_ms=millis(retry.first),
            ceiling_ms=self.execution.services.live.backoff_ceiling,
            factor=retry.factor,
        )
        wait = max(wait, after_ms)
        if why := self._too_long(effect, wait, after_ms):
            return self._exhausted(effect, code, f"{detail}; {why}", happened=happened)
        deferred = effect_verbs.defer(
            self.session.run, effect, code, detail, wait, happened=happened, now=self.session.now
        )
        self.session.submit(deferred)
        self._maybe_done = happened
        await self._wait_for_next(self.session.effects[self.ident])
        if happened and not self._window_open(effect):
            return self._mark_uncertain(self.session.effects[self.ident], code, detail)
        return Next.CALL

    def _too_long(self, effect: Effect, wait_ms: int, asked_ms: int) -> str:
        """Return why there is no time for a wait, or '' if there is."""
        left = millis(self.callee.retry.total_wait) - effect.waited_ms
        if wait_ms <= left:
            return ""
        what = "the receiver asks to wait" if asked_ms == wait_ms else "the next wait is"
        return f"{what} {wait_ms / SECOND:g} s, and retry.total_wait leaves {left / SECOND:g} s"

    def _exhausted(self, effect: Effect, code: str, detail: str, *, happened: bool) -> Any:
        tries = f"{effect.attempts} attempt{'' if effect.attempts == 1 else 's'}"
        detail = f"after {tries}: {code}: {detail}"
        if happened:
            return self._mark_uncertain(effect, EXHAUSTED, detail)
        return self._refuse(effect, EXHAUSTED, detail)

    async def _wait_for_next(self, effect: Effect) -> None:
        """Wait until the next attempt is due, also if a message began this execution earlier."""
        what = f"attempt {effect.attempts + 1} of {self.callee.retry.attempts} of {self.callee.name}"
        waiting = WaitingFor("retry", what, who=refusal_of(effect).code, then="calls again")
        await self._wait(effect_verbs.deferred_until(effect), "retry", waiting)

    async def _wait(self, until_real: int, verb: str, waiting: WaitingFor) -> None:
        """Wait up to 5 s here. A longer wait parks the run once the other calls have settled (S-17)."""
        left = until_real - self.session.now.real
        if left <= INLINE_WAIT_MAX:
            if left > 0:
                await self.execution.services.clock.sleep(left)
            self._may_begin()
            return
        mapping = self.session.store.mapping()
        waiting = waiting._replace(since=self.session.now.business, until=mapping.business(until_real))
        self.execution.park(Parked(verb, waiting, Timer(waiting.what, until_real, real=True)))
        raise Unresolved

    # --- settling what may have happened --------------------------------------------------------------
    def _window_open(self, effect: Effect) -> bool:
        """Return True if a repeated call would arrive while the receiver remembers the first one (S-17)."""
        terms = self.callee.if_uncertain
        if not isinstance(terms, Resend):
            return False
        lands_by = (
            self.session.now.real
            + self.execution.services.live.start_budget
            + self.times.timeout
            + self.times.settle_margin
        )
        return lands_by < effect.first_at + millis(terms.remembered_for)

    async def settle_open(self, effect: Effect) -> Any:
        """Settle an effect that was intended earlier (S-17).

        Returns the response, or Next.CALL if the call is to be made again. Raises Unresolved.
        """
        await self._wait_for_next(effect)
        if effect.settle_after == 0:  # the last attempt had no effect
            return (
                Next.CALL if effect_verbs.tries(effect) < self.callee.retry.attempts else self._exhausted_open(effect)
            )
        if self._approval_lapsed(effect):
            return self._lapse(effect)
        mode = self.callee.mode
        if mode == "reconcile":
            return await self._after_settling(effect)
        if mode == "resend" and self._window_open(effect):
            if effect_verbs.tries(effect) >= self.callee.retry.attempts:
                return self._mark_uncertain(effect, *used_up(effect))
            self._maybe_done = True
            return Next.CALL
        return self._mark_uncertain(effect, *cut_off(effect, restored=self.session.run.restored > 0))

    def _exhausted_open(self, effect: Effect) -> Any:
        error = refusal_of(effect)
        return self._exhausted(effect, error.code, error.detail, happened=False)

    async def _after_settling(self, effect: Effect) -> Any:
        """Ask the receiver whether the call happened.

        A yes is proof at any time, a no only after the settle time, when no call can arrive any more.
        """
        asked_at = self.session.now.real  # the answer holds for the time of the question
        answer = await self._ask_receiver(effect)
        if not isinstance(answer, Happened) and effect.settle_after > asked_at:
            what = f"the outcome of {self.callee.name} {effect.key}"
            await self._wait(effect.settle_after, "await_settle", WaitingFor("settle", what, then="asks the receiver"))
            answer = await self._ask_receiver(effect)
        if isinstance(answer, Happened):
            return self._settle(effect, answer)
        if isinstance(answer, DidNotHappen):
            return await self._did_not_happen(effect)
        if self._window_open(effect):
            return await self._try_again(effect, "unknown_outcome", answer.why, 0, happened=True)
        return self._mark_uncertain(effect, "unknown_outcome", answer.why)

    async def _did_not_happen(self, effect: Effect) -> Any:
        """Call again, because the receiver does not know the call and none can arrive any more."""
        self._maybe_done = False
        said = refusal_of(effect)
        if said.code == EXHAUSTED:  # the receiver asked for more time than is left
            return self._refuse(effect, EXHAUSTED, f"the receiver does not know it; {said.detail}")
        if effect_verbs.tries(effect) >= self.callee.retry.attempts:
            return self._exhausted(effect, "not_found", "the receiver does not know it", happened=False)
        await self._wait_for_next(effect)
        return Next.CALL

    async def _ask_receiver(self, effect: Effect) -> Happened[Any] | DidNotHappen | Unknown:
        answer = await reconcile(self.execution, self.callee, self.call.args, self.call.kwargs, effect)
        if self.execution.abandoned_calls and self.execution.is_abandoned():
            raise Unresolved
        return answer

    def _settle(self, effect: Effect, found: Happened[Any]) -> Any:
        codec = self.callee.response_codec
        try:
            response = codec.dump(found.response)
        except BaseException as error:  # because a serializer of an author may raise anything
            return self._mark_uncertain(effect, "response_not_storable", f"it was found, but {_why_not(error)}")
        self.session.submit(self._found(effect, response, found.external_id or effect.external_id))
        return codec.load(response)

    def _found(self, effect: Effect, response: bytes, external_id: str) -> Commit:
        """Return the commit that records a response of the reconcile."""
        return effect_verbs.settle(self.session.run, effect, response, now=self.session.now, external_id=external_id)


def _why_not(raised: BaseException) -> str:
    """Return why an answer cannot be stored."""
    error = as_exception(raised)
    return f"{error.what}: {error.why}" if isinstance(error, NotStorable | LimitExceeded) else text_of(error)

"""Calls of activities and lookups in a node execution: answered from the ledger, or made (S-17, S-18).

An executor makes each call: plain, shared by a tenant, or inside a database transaction.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from typing_extensions import override

from outlast.core import effect_verbs
from outlast.core.commit import Commit, Instant, Put, When
from outlast.core.conclude import Parked
from outlast.core.durations import SHARED_LOOK_AGAIN, wait_before
from outlast.core.effect_columns import ERROR, EffectError
from outlast.core.effect_steps import Answered, Maybe, No, Outcome, Unsent
from outlast.core.effect_verbs import Intent
from outlast.core.limits import TEXT_CHARS_MAX
from outlast.core.machine import EffectStatus
from outlast.core.route import cancel_of
from outlast.core.rows import EFFECT, USED, Effect, Memo
from outlast.core.run_columns import Timer, WaitingFor
from outlast.engine.attempts import CallAttempt
from outlast.engine.call_outcome import asked_to_wait, is_transient, judge
from outlast.engine.effect_executor import EffectExecutor, Next
from outlast.engine.node_execution import NodeExecution, Unresolved
from outlast.engine.node_result import (
    EXHAUSTED,
    EffectRefused,
    contradiction,
    is_reopened,
    recorded_call,
    refusal_of,
    uncertain,
    under_way,
    uses_recorded,
)
from outlast.engine.permission import Permission
from outlast.engine.reconcile import attempt_of, durations, millis
from outlast.engine.run_session import ConditionFailed, EffectKey, RunLost, StoreAway
from outlast.engine.user_code import as_exception
from outlast.errors import DefinitionError, LimitExceeded, NotStorable, StoreError
from outlast.flow.activity import Activity, BoundCall
from outlast.flow.outcomes import Declared, Refused
from outlast.flow.workflow import Workflow
from outlast.store.batch import INBOX_SEQ
from outlast.store.port import Store, Transaction, TransactionEnded, Transactions
from outlast.telemetry.redact import redact


class SharedExecutor(EffectExecutor):
    """Executor of an effect that all runs of a tenant share. The run that makes it also settles it."""

    @override
    def _previous(self) -> Effect | None:
        return self.session.effects.get(self.ident) or self.session.others.get(self.call.key)

    @override
    async def _allowed(self, previous: Effect | None) -> Permission | None:
        return await super()._allowed(effect_verbs.goes_on(previous, self.session.run))

    @override
    def _intended(
        self, what: Intent, previous: Effect | None, allowed: Permission, ordinal: int, now: Instant
    ) -> Commit:
        assert isinstance(self.callee, Activity)
        keep, noted = self.callee.keep, self.call.key in self.session.noted
        what = what._replace(shared=True, keep_ms=millis(keep) if keep else 0, noted=noted)
        if previous is not None and effect_verbs.goes_on(previous, self.session.run) is None:
            ordinal = self.session.next_ordinal()
        return super()._intended(what, previous, allowed, ordinal, now)


async def shared_answer(
    execution: NodeExecution, activity: Activity[Any, Any], call: BoundCall, make: Callable[[], EffectExecutor]
) -> Any:
    """Return the answer of a shared effect: recorded by another run, or made now by `make`.

    Raises Refused for a recorded refusal, Unresolved if this execution gives no answer.
    """
    session = execution.session
    effect = session.others.get(call.key)
    # otherwise this run has used it before
    if effect is None or effect.shared != USED or call.key not in session.noted:
        effect = await _load_shared(execution, call.key)
    if effect is None or effect.status is EffectStatus.UNDONE:
        return await make().drive()
    if effect.digest != call.digest and (
        effect.activity != activity.name or not uses_recorded(execution.session, (0, call.key), call.digest)
    ):
        execution.call_person(contradiction(execution.session, activity, call, effect))
        raise Unresolved
    if is_reopened(effect):
        return await make().drive()
    if effect.status is EffectStatus.REFUSED:
        raise EffectRefused(refusal_of(effect), (0, call.key))
    if not effect_verbs.is_usable(effect):
        await _wait_for_shared(execution, effect)
    if effect.shared != USED or call.key not in session.noted:
        if not execution.may_begin():
            raise Unresolved
        await session.land(effect_verbs.use(session.run, effect, noted=call.key in session.noted, now=session.now))
    return activity.response_codec.load(effect.response or b"null")


async def _load_shared(execution: NodeExecution, key: str) -> Effect | None:
    """Read the row of a shared effect; None if no run has made the call."""
    session = execution.session
    row = await session.store.load(EFFECT, (session.run.tenant, "", 0, key))
    if row is None:
        return None
    assert row.by_run != session.run.run or row.status is EffectStatus.UNDONE, "a run knows its own from the claim on"
    session.others[key] = row
    return row


async def _wait_for_shared(execution: NodeExecution, effect: Effect) -> None:
    """Park until the other run has settled the effect, because that run alone may settle or undo it."""
    session = execution.session
    if effect.key not in session.noted:
        if not execution.may_begin():
            raise Unresolved
        await session.land(effect_verbs.wait_for(session.run, effect, session.now))
    then = "continues with its answer"
    what = f"{effect.activity} {effect.key}"
    waiting = WaitingFor("effect", what, who=f"run {effect.by_run}", since=session.now.business, then=then)
    execution.park(Parked("park", waiting, Timer(what, session.now.real + SHARED_LOOK_AGAIN, real=True)))
    raise Unresolved


ENDED_ITSELF: Final = "ended_transaction"


def executor_for(
    execution: NodeExecution, activity: Activity[Any, Any], call: BoundCall, ident: EffectKey
) -> Callable[[], EffectExecutor]:
    """Return a function that creates the executor of a call. Raises DefinitionError if the store cannot do it."""
    shared = activity.once_per == "tenant"
    if not activity.transaction:
        plain = SharedExecutor if shared else EffectExecutor
        return lambda: plain(execution, activity, call, ident)
    if not isinstance(execution.session.store, Transactions):
        raise _cannot(activity, execution.session.store)
    inside = _SharedTransactional if shared else TransactionalExecutor
    return lambda: inside(execution, activity, call, ident)


def check_served(store: Store, workflows: Iterable[Workflow[Any]]) -> None:
    """Raise DefinitionError if an activity needs a transaction that the store cannot offer."""
    for workflow in workflows:
        for activity in workflow.activities.values():
            undo = activity.undoing is not None and activity.undoing.transaction
            if (activity.transaction or undo) and not isinstance(store, Transactions):
                raise _cannot(activity, store)


def _cannot(activity: Activity[Any, Any], store: Store) -> DefinitionError:
    return DefinitionError(
        f"{activity.title} is declared with transaction=True",
        f"its own rows and its effect commit together; the store {store.url} cannot do that",
        "open the PostgreSQL store in the database of those rows, or take transaction=True away",
        where=activity.where,
    )


class TransactionalExecutor(EffectExecutor):
    """Executor of an activity whose rows and effect commit in one database transaction.

    The intent is not durable before the call: if the process dies, all of it is lost or nothing. A failed attempt is
    recorded as an open effect without an outcome, so that attempts and waits are counted.
    """

    _begun: Commit | None = None
    """Intent, which lands together with the record."""

    @override
    def _may_be_lost(self, effect: Effect | None) -> bool:
        return False

    @override
    async def _land_intent(self, previous: Effect | None, allowed: Permission) -> Effect:
        commit = self._prepared(previous, allowed)
        put = commit.writes[0]
        assert isinstance(put, Put)
        row = effect_verbs.intended(commit)._replace(settle_after=0)
        covered = (When(row.covered_until, False, "business", "lapsed"),) if row.covered_until else ()
        self._begun = commit._replace(writes=(Put(EFFECT, row, put.replaces), *commit.writes[1:]), whens=covered)
        return row

    @override
    async def settle_open(self, effect: Effect) -> Any:
        await self._wait_for_next(effect)
        if self._approval_lapsed(effect):
            return self._lapse(effect)
        return Next.CALL if effect_verbs.tries(effect) < self.callee.retry.attempts else self._exhausted_open(effect)

    @override
    async def _make(self, effect: Effect) -> Outcome:
        store, serializable = self.session.store, self.callee.transaction == "serializable"
        assert isinstance(store, Transactions)
        try:
            async with store.transaction(self.times.timeout, serializable=serializable) as transaction:
                return await self._made(effect, transaction)
        except StoreError as error:
            raise self.session.why(error) from error

    async def _made(self, effect: Effect, transaction: Transaction) -> Outcome:
        """Run the body and commit its effect. Returns an outcome that says why, if neither happened."""
        attempt = attempt_of(self.execution, self.callee, self.call.args, self.call.kwargs, effect)
        try:
            answer = await self.execution.services.caller.inside(attempt._replace(connection=transaction.connection))
            response = self.callee.response_codec.dump(answer.value)
            await self._land(effect._replace(external_id=answer.external_id), response, transaction)
        except (NotStorable, LimitExceeded) as error:
            return No(EXHAUSTED, f"its answer cannot be stored, so it was rolled back: {error.what}: {error.why}")
        except TransactionEnded as error:
            return Maybe(ENDED_ITSELF, str(error)) if error.may_be_committed else No(EXHAUSTED, str(error))
        except (Unresolved, RunLost, ConditionFailed, StoreAway, StoreError):
            raise
        except BaseException as error:  # judged, not raised: an error of the author's function or of the database
            return self._rolled_back(as_exception(error), transaction)
        return Answered(response)

    def _rolled_back(self, error: Exception, transaction: Transaction) -> Outcome:
        """Return the outcome of a rollback: another attempt for passing errors, else an operator."""
        judged = judge(error, self.execution.services.clock.wall())
        if isinstance(error, Declared) and not isinstance(judged, Maybe):
            return judged
        if isinstance(judged, Unsent) or transaction.is_passing(error) or is_transient(error):
            return Unsent("rolled_back", judged.detail, judged.after_ms if not isinstance(judged, No) else 0)
        return No(EXHAUSTED, f"rolled back, and not tried again: {judged.detail}")

    async def _land(self, effect: Effect, response: bytes, transaction: Transaction) -> None:
        """Commit the transaction with the effect, unless a cancel was accepted before (S-1)."""
        session = self.session
        assert self._begun is not None
        commits = (self._begun, self._recorded(effect, response))
        inbox_seq = None if session.run.ending else session.inbox_read  # a run that is ending ignores a further cancel
        while True:
            named = [c._replace(fence=c.fence._replace(inbox_seq=inbox_seq)) for c in commits if c.fence is not None]
            try:
                return await session.land_within(transaction, named)
            except ConditionFailed as moved:
                if moved.reason != INBOX_SEQ or inbox_seq is None:
                    raise
            messages = await session.new_messages()  # no message can arrive, because the run row is locked
            if (cancel := cancel_of(messages)) is not None:
                self.execution.cancelled(cancel)
                raise Unresolved
            inbox_seq = max(n.n for n in messages)

    @override
    async def _after(self, effect: Effect, outcome: Outcome) -> Any:
        if isinstance(outcome, Answered):
            return self.callee.response_codec.load(outcome.value)
        assert self._begun is not None
        self.session.submit(self._begun)
        return await super()._after(effect, outcome)


class _SharedTransactional(TransactionalExecutor, SharedExecutor):
    """Executor of a shared effect in a transaction. If two runs make it at once, the second rolls back."""


async def perform(execution: NodeExecution, activity: Activity[Any, Any], call: BoundCall) -> Any:
    """Return the answer of an activity call: recorded, or made now.

    Raises Refused for a recorded refusal.
    """
    execution.note_progress()
    if execution.closing:
        await execution.never()
    visit = execution.session.run.visit if activity.once_per == "visit" else 0
    ident = (visit, call.key)
    effect = execution.session.effects.get(ident)
    if effect is not None and effect.digest != call.digest:
        if effect.activity != activity.name or not uses_recorded(execution.session, ident, call.digest):
            execution.call_person(contradiction(execution.session, activity, call, effect))
            await execution.never()
        call = recorded_call(activity, effect)
    first = execution.begun.setdefault(ident, call.digest)
    if first != call.digest and not (
        ident in execution.calls_in_flight and uses_recorded(execution.session, ident, call.digest)
    ):
        execution.call_person(under_way(execution.session, activity, call, ident))
        await execution.never()
    make = executor_for(execution, activity, call, ident)
    if activity.once_per == "tenant" and (effect is None or effect.status is EffectStatus.UNDONE):
        return await execution.deduplicate(ident, lambda: shared_answer(execution, activity, call, make))
    if effect is None or effect.status is EffectStatus.INTENDED or is_reopened(effect):
        return await execution.deduplicate(ident, lambda: make().drive())
    if effect.status is EffectStatus.DONE:
        return activity.response_codec.load(effect.response or b"null")
    if effect.status is EffectStatus.UNCERTAIN:
        execution.call_person(uncertain(execution.session, effect))
        await execution.never()
    raise EffectRefused(refusal_of(effect), ident)


async def look_up(execution: NodeExecution, activity: Activity[Any, Any], call: BoundCall) -> Any:
    """Return the value of a lookup: recorded, or looked up now and recorded.

    Raises the error of the function if no further attempt may help.
    """
    execution.note_progress()
    if execution.closing:
        await execution.never()
    visit = execution.session.run.visit if activity.once_per == "visit" else 0
    memo = execution.session.memos.get((visit, call.key))
    if memo is None:
        # The key has the activity's name, so a lookup never waits for a call of an activity.
        flight = (visit, f"{activity.name}?{call.key}")
        return await execution.deduplicate(flight, lambda: _make_lookup(execution, activity, call, (visit, call.key)))
    if memo.digest != call.digest and not uses_recorded(execution.session, (visit, memo.key), call.digest):
        execution.call_person(contradiction(execution.session, activity, call, memo))
        await execution.never()
    return _value(activity, memo)


def _value(activity: Activity[Any, Any], memo: Memo) -> Any:
    if (error := memo.error) is not None:
        raise Refused(error.code, error.detail)
    return activity.response_codec.load(memo.response or b"null")


async def _make_lookup(
    execution: NodeExecution, activity: Activity[Any, Any], call: BoundCall, ident: EffectKey
) -> Any:
    run = execution.session.run
    response: bytes | None = None
    error: EffectError | None = None
    await execution.session.entered()
    try:
        response = activity.response_codec.dump(await _call_lookup(execution, activity, call))
    except Refused as refused:
        error = _redacted_error(refused.code, refused.detail)
    except (RunLost, ConditionFailed, StoreAway, StoreError, Unresolved):
        raise
    except Exception as raised:  # raised into the author's code, which may catch it; the next execution asks again
        _keep_trace(execution, activity, call, ident, raised)
        raise
    if execution.abandoned_calls and execution.is_abandoned():
        raise Unresolved
    memo = _memo(execution, activity, call, ident, response, error)
    commit = effect_verbs.remember(run, memo)
    if activity.durable:
        await execution.session.land(commit)
    else:
        execution.session.submit(commit)
    return _value(activity, memo)


def _memo(
    execution: NodeExecution,
    activity: Activity[Any, Any],
    call: BoundCall,
    ident: EffectKey,
    response: bytes | None,
    error: EffectError | None,
) -> Memo:
    return Memo(
        tenant=execution.session.run.tenant,
        run=execution.session.run.run,
        visit=ident[0],
        key=ident[1],
        activity=activity.name,
        digest=call.digest,
        response=response,
        error_text=ERROR.encode(error),
        at=execution.session.now.business,
    )


def _keep_trace(
    execution: NodeExecution, activity: Activity[Any, Any], call: BoundCall, ident: EffectKey, raised: Exception
) -> None:
    """Record a failed lookup if the workflow counts failures when it ends (OUT-4)."""
    visit, key = ident
    if execution.workflow.when_empty == "complete" or (visit, effect_verbs.UNANSWERED + key) in execution.session.memos:
        return
    error = _redacted_error(type(raised).__name__, str(raised)[:TEXT_CHARS_MAX])
    execution.session.submit(
        effect_verbs.unanswered(execution.session.run, _memo(execution, activity, call, ident, None, error))
    )


def _redacted_error(code: str, detail: str) -> EffectError:
    return EffectError(code, redact(detail))


async def _call_lookup(execution: NodeExecution, activity: Activity[Any, Any], call: BoundCall) -> Any:
    """Call the function, and again after transient errors."""
    run, retry = execution.session.run, activity.retry
    timeout = durations(execution, activity).timeout
    for number in range(1, retry.attempts + 1):
        attempt = CallAttempt(
            callee=activity,
            args=call.args,
            kwargs=call.kwargs,
            key=call.key,
            idempotency_key="",
            tenant=run.tenant,
            run_id=run.run,
            number=number,
            timeout_ms=timeout,
            permit=None,
            label=f"{run.run} lookup {call.key}",
        )
        slot = await execution.call_slot(activity)
        try:
            return await execution.services.caller.look_up(attempt)
        except BaseException as raised:  # raised unless another attempt may help
            error = as_exception(raised)
            asked = asked_to_wait(error, execution.services.clock.wall())
            if number == retry.attempts or asked > millis(retry.total_wait) or not is_transient(error):
                raise error  # noqa: B904 - it names its cause
        finally:
            if slot is not None:
                slot.leave()
        wait = wait_before(number + 1, execution.services.chance(), first_ms=millis(retry.first), factor=retry.factor)
        await execution.services.clock.sleep(max(wait, asked))
    raise AssertionError("the last attempt returns or raises")

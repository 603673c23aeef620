"""Calls of activities and lookups in a node execution: answered from the ledger, or made (S-17, S-18).

`EffectExecutor` makes each call of an activity; lookups are made here.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

from outlast.core import effect_verbs
from outlast.core.conclude import Parked
from outlast.core.durations import SHARED_LOOK_AGAIN, wait_before
from outlast.core.effect_columns import ERROR, EffectError
from outlast.core.effect_rows import EFFECT, STATED, USED, Effect, Memo
from outlast.core.keys import idempotency_key
from outlast.core.limits import TEXT_CHARS_MAX
from outlast.core.machine import EffectStatus
from outlast.core.route import cancel_of
from outlast.core.rows import RUN, is_over
from outlast.core.run_columns import Timer, WaitingFor
from outlast.core.run_transition import LogEntry
from outlast.core.usage import Used
from outlast.engine import user_code
from outlast.engine.attempts import CallAttempt, Endless
from outlast.engine.call_outcome import asked_to_wait, is_transient, may_be_paid
from outlast.engine.effect_calls import millis, needs_transactions
from outlast.engine.effect_executor import EffectExecutor
from outlast.engine.former_digests import call_as_offered, is_same_call
from outlast.engine.node_execution import NodeExecution, Unresolved
from outlast.engine.node_result import (
    EffectRefused,
    answer_not_stored,
    contradiction,
    is_reopened,
    recorded_call,
    refusal_of,
    uncertain,
    under_way,
    uses_recorded,
)
from outlast.engine.permission import check_budget
from outlast.engine.run_session import ConditionFailed, EffectKey, RunLost, StoreAway
from outlast.engine.stated_answers import given_answer, load_answer
from outlast.engine.user_code import as_exception, text_of
from outlast.errors import NotStorable, StoreError
from outlast.flow.activity import Activity, BoundCall
from outlast.flow.calls import Plan, RecordedCall
from outlast.flow.outcomes import Refused
from outlast.flow.workflow import Workflow
from outlast.store.port import Store, Transactions
from outlast.telemetry.redact import redact_shown


async def shared_answer(
    execution: NodeExecution, activity: Activity[Any, Any], call: BoundCall, executor: EffectExecutor
) -> Any:
    """Return the answer of a shared effect: recorded by another run, or made now by `executor`.

    Raises Refused for a recorded refusal, AnswerNotStored, Unresolved if this execution gives no answer.
    """
    session = execution.session
    effect = session.others.get(call.key)
    # otherwise this run has used it before
    if effect is None or effect.shared != USED or call.key not in session.noted:
        effect = await _load_shared(execution, call.key)
    if effect is None or effect.status is EffectStatus.UNDONE:
        return await executor.drive()
    if not (effect.digest == call.digest or is_same_call(activity, effect, call.args_bytes, call.digest)) and (
        effect.activity != activity.name or not uses_recorded(execution.session, (0, call.key), call.digest)
    ):
        execution.call_person(contradiction(execution.session, activity, call, effect))
        raise Unresolved
    if is_reopened(effect):
        return await executor.drive()
    if effect.status is EffectStatus.REFUSED:
        if execution.workflow.counts_failures:
            await _note_shared(execution, effect)
        if effect.shared == STATED:
            return await given_answer(execution, activity, effect)
        raise EffectRefused(refusal_of(effect), (0, call.key))
    if not effect_verbs.is_usable(effect):
        await _wait_for_shared(execution, effect)
    value = None
    try:
        if effect.response is not None:
            value = load_answer(activity, effect)
    except NotStorable:
        if effect.shared == STATED and await _is_unfinished(execution, effect.by_run):
            await _wait_for_shared(execution, effect)  # its own run finds the same, and asks a person again
        raise
    if effect.shared != USED or call.key not in session.noted:
        if not execution.may_begin():
            raise Unresolved
        if execution.observed:
            execution.record_observed()
        await session.land(effect_verbs.use(session.run, effect, noted=call.key in session.noted, now=session.now))
    if effect.response is None:
        raise answer_not_stored(effect)
    return value


async def _is_unfinished(execution: NodeExecution, run: str) -> bool:
    row = await execution.session.store.load(RUN, (execution.session.run.tenant, run))
    return row is not None and not is_over(row)


async def _load_shared(execution: NodeExecution, key: str) -> Effect | None:
    """Read the row of a shared effect; None if no run has made the call."""
    session = execution.session
    row = await session.store.load(EFFECT, (session.run.tenant, "", 0, key))
    if row is None:
        return None
    assert row.by_run != session.run.run or row.status is EffectStatus.UNDONE, "a run knows its own from the claim on"
    session.held.add_shared(row)
    return row


async def _note_shared(execution: NodeExecution, effect: Effect) -> None:
    """Record that this run waits for another run's effect, or was refused by it. Raises Unresolved."""
    session = execution.session
    if effect.key not in session.noted:
        if not execution.may_begin():
            raise Unresolved
        await session.land(effect_verbs.wait_for(session.run, effect, session.now))


async def _wait_for_shared(execution: NodeExecution, effect: Effect) -> None:
    """Park until the other run has settled the effect, because that run alone may settle or undo it."""
    await _note_shared(execution, effect)
    session = execution.session
    then = "continues with its answer"
    what = f"{effect.activity} {effect.key}"
    waiting = WaitingFor("effect", what, who=f"run {effect.by_run}", since=session.now.business, then=then)
    execution.park(Parked("park", waiting, Timer(what, session.now.real + SHARED_LOOK_AGAIN, real=True)))
    raise Unresolved


def check_served(store: Store, workflows: Iterable[Workflow[Any]]) -> None:
    """Raise DefinitionError if an activity needs a transaction that the store cannot offer."""
    for workflow in workflows:
        for activity in workflow.activities.values():
            undo = activity.undoing is not None and activity.undoing.transaction
            if (activity.transaction or undo) and not isinstance(store, Transactions):
                raise needs_transactions(activity.title, store, activity.where)


async def perform(execution: NodeExecution, activity: Activity[Any, Any], call: BoundCall) -> Any:
    """Return the answer of an activity call: recorded, or made now.

    Raises Refused for a recorded refusal, AnswerNotStored for a call that was done without a stored answer.
    """
    execution.note_progress()
    if execution.closing:
        await execution.never()
    visit = execution.session.run.visit if activity.once_per == "visit" else 0
    ident = (visit, call.key)
    effect = execution.session.effects.get(ident)
    if effect is None and activity.once_per == "run" and (visit := execution.session.visit_of(activity.name, call.key)):
        ident = (visit, call.key)
        effect = execution.session.effects[ident]
    if effect is None:
        if execution.session.approvals and activity.has_sets:
            call = call_as_offered(activity, call, execution.session.run, execution.session.approvals.values())
    elif effect.digest != call.digest and is_same_call(activity, effect, call.args_bytes, call.digest):
        call = call._replace(args_bytes=effect.args, digest=effect.digest)
    elif effect.digest != call.digest:
        if effect.activity != activity.name or not uses_recorded(execution.session, ident, call.digest):
            execution.call_person(contradiction(execution.session, activity, call, effect))
            await execution.never()
        call = recorded_call(activity, effect)._replace(proposed=call.proposed)
    expected = execution.expected
    if expected is not None:
        if effect is None and expected.holds(activity.name) and call.key not in execution.session.noted:
            await expected.hold(activity.name, call)
        if expected.lingering and not (effect is not None and effect.settled_at and not is_reopened(effect)):
            await execution.never()
    first = execution.begun.setdefault(ident, call.digest)
    if first != call.digest and not (
        ident in execution.calls_in_flight and uses_recorded(execution.session, ident, call.digest)
    ):
        execution.call_person(under_way(execution.session, activity, call, ident))
        await execution.never()
    if activity.once_per == "tenant" and (effect is None or effect.status is EffectStatus.UNDONE):
        executor = EffectExecutor(execution, activity, call, ident)
        return await execution.deduplicate(ident, partial(shared_answer, execution, activity, call, executor))
    if effect is None or effect.status is EffectStatus.INTENDED or is_reopened(effect):
        return await execution.deduplicate(ident, EffectExecutor(execution, activity, call, ident).drive)
    if effect.shared == STATED:
        return await execution.deduplicate(ident, partial(given_answer, execution, activity, effect))
    if effect.status is EffectStatus.DONE:
        return load_answer(activity, effect)
    if effect.status is EffectStatus.UNCERTAIN:
        execution.call_person(uncertain(execution.session, effect))
        await execution.never()
    raise EffectRefused(refusal_of(effect), ident)


async def recorded_calls(
    execution: NodeExecution, activity: Activity[Any, Any], plan: Plan[Any]
) -> list[RecordedCall[Any]]:
    """Return the calls of a run, or of its tenant, with the activity and the key of a plan.

    A person's answer among them is given to the body. Raises StoreError, Unresolved.
    """
    session = execution.session
    rows: dict[int, Effect | Memo] = {
        visit: effect for (visit, key), effect in session.effects.items() if key == plan.key
    }
    if activity.kind == "lookup":
        rows = {visit: memo for (visit, key), memo in session.memos.items() if key == plan.key}
    elif activity.once_per == "tenant" and 0 not in rows:
        shared = await session.store.load(EFFECT, (session.run.tenant, "", 0, plan.key))
        rows |= {0: shared} if shared is not None else {}
    found: list[RecordedCall[Any]] = []
    for visit, row in sorted(rows.items()):
        if row.activity != activity.name:
            if visit not in (0, session.run.visit):
                continue
            found.append(RecordedCall(visit, same=False, done=False, response=None))
            continue
        done = row.response is not None if isinstance(row, Memo) else row.status is EffectStatus.DONE
        unstored = answer_not_stored(row) if done and isinstance(row, Effect) and row.response is None else None
        response = await _recorded_response(execution, activity, row) if done and unstored is None else None
        same = is_same_call(activity, row, plan.arguments, plan.digest)
        made_in = visit or (row.first_visit if isinstance(row, Effect) and not row.by_run else 0)
        found.append(RecordedCall(visit, same, done, response, unstored, made_in))
    return found


async def _recorded_response(execution: NodeExecution, activity: Activity[Any, Any], row: Effect | Memo) -> Any:
    if isinstance(row, Memo):
        return activity.response_codec.load(row.response or b"null")
    if row.shared == STATED and row.by_run in ("", execution.session.run.run):
        return await given_answer(execution, activity, row)
    return load_answer(activity, row)


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
        expected = execution.expected
        if expected is not None:
            if activity.durable and activity.name in expected.missing:
                await expected.hold(activity.name, call)
            if expected.lingering:
                await execution.never()
        observed = (visit, effect_verbs.observed_key(call.key, execution.continued_after))
        if (caught := execution.session.memos.get(observed)) is not None:
            assert caught.error is not None
            raise user_code.rebuilt(caught.error)
        # The key has the activity's name, so a lookup never waits for a call of an activity.
        flight = (visit, f"{activity.name}?{call.key}")
        once = execution.deduplicate if activity.durable or not activity.is_async else execution.look_up
        return await once(flight, lambda: _make_lookup(execution, activity, call, (visit, call.key)))
    if memo.digest != call.digest and (differs := _difference(execution, activity, call, memo)) is not None:
        execution.call_person(contradiction(execution.session, activity, call, memo, differs))
        await execution.never()
    return _value(activity, memo)


def _difference(execution: NodeExecution, activity: Activity[Any, Any], call: BoundCall, memo: Memo) -> str | None:
    """Return how a lookup differs from the recorded one ('' if not known); None if the recorded answer is used."""
    ident = (memo.visit, memo.key)
    if activity.compare is None:
        same = is_same_call(activity, memo, call.args_bytes, call.digest)
        return None if same or uses_recorded(execution.session, ident, call.digest) else ""
    if uses_recorded(execution.session, ident, None):
        return None
    return activity.compare(memo.digest, memo.response) if memo.response is not None else None


def _value(activity: Activity[Any, Any], memo: Memo) -> Any:
    if (error := memo.error) is not None:
        raise Refused(error.code, error.detail)
    return activity.response_codec.load(memo.response or b"null")


async def _make_lookup(
    execution: NodeExecution, activity: Activity[Any, Any], call: BoundCall, ident: EffectKey
) -> Any:
    if not execution.may_begin():
        raise Unresolved
    run = execution.session.run
    response: bytes | None = None
    value: Any = None
    error: EffectError | None = None
    await execution.session.entered()
    if activity.durable and execution.session.has_new_messages:
        await _check_cancel(execution)
    used: list[Used] = []
    try:
        answer = await _call_lookup(execution, activity, call, ident, used)
        response, value = activity.response_codec.store(answer)  # what a re-run reads, before it counts
    except Refused as refused:
        error = _redacted_error(refused.code, refused.detail)
    except (RunLost, ConditionFailed, StoreAway, StoreError, Unresolved):
        raise
    except Exception as raised:  # raised into the author's code, which may catch it; the next execution asks again
        if used:  # its answer cannot be stored
            execution.session.submit_usage(ident, activity.name, used)
        _keep_trace(execution, activity, call, ident, raised)
        _observe(execution, activity, call, ident, raised)
        raise
    memo = _memo(execution, activity, call, ident, response, error)
    commit = effect_verbs.remember(run, memo)
    if used:
        puts = execution.session.usage_puts(ident, activity.name, used)
        commit = commit._replace(writes=(*commit.writes, *puts))
    if activity.durable:
        if execution.observed:
            execution.record_observed()
        await execution.session.land(commit)
    else:
        execution.session.submit(commit)
    return value if error is None else _value(activity, memo)


async def _check_cancel(execution: NodeExecution) -> None:
    """Stop before a durable lookup, which may cost money, if a cancel has arrived with an earlier commit (S-1)."""
    if (cancel := cancel_of(await execution.session.new_messages())) is not None:
        execution.cancelled(cancel)
        raise Unresolved


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
    if not execution.workflow.counts_failures or (visit, effect_verbs.UNANSWERED + key) in execution.session.memos:
        return
    error = _redacted_error(type(raised).__name__, str(raised)[:TEXT_CHARS_MAX])
    execution.session.submit(
        effect_verbs.unanswered(execution.session.run, _memo(execution, activity, call, ident, None, error))
    )


def _observe(
    execution: NodeExecution, activity: Activity[Any, Any], call: BoundCall, ident: EffectKey, raised: Exception
) -> None:
    """Note an error that the body may catch, so that each execution of the visit takes the same way (S-13)."""
    path, text = user_code.class_and_text(raised)
    key = (ident[0], effect_verbs.observed_key(call.key, execution.continued_after))
    memo = _memo(execution, activity, call, key, None, _redacted_error(path, text[:TEXT_CHARS_MAX]))
    execution.observe(key, memo._replace(digest=""))


def _log_uncertain(
    execution: NodeExecution, activity: Activity[Any, Any], call: BoundCall, number: int, error: Exception
) -> None:
    """Add to the history that a durable lookup may have been paid although no answer came."""
    key = f"uncertain/{call.digest[:16]}/{number}"
    text = f"{activity.name}: attempt {number} may have been paid, and no answer came"
    data: dict[str, object] = {"activity": activity.name, "error": redact_shown(text_of(error))[:TEXT_CHARS_MAX]}
    execution.log_entries.setdefault(key, LogEntry(key, text, data))


def _redacted_error(code: str, detail: str) -> EffectError:
    return EffectError(code, redact_shown(detail))


async def _call_lookup(
    execution: NodeExecution, activity: Activity[Any, Any], call: BoundCall, ident: EffectKey, used: list[Used]
) -> Any:
    """Call the function, and again after transient errors.

    `used` has the usage of the attempt that answered or refused. That of other attempts is stored here.
    """
    run, retry = execution.session.run, activity.retry
    timeout = execution.services.terms[activity].timeout
    # Durable, because its answer costs money: a receiver that knows such keys answers again without charging again.
    key = idempotency_key(run.tenant, run.run, ident[0], call.key) if activity.durable else ""
    uncertain = False
    for number in range(1, retry.attempts + 1):
        attempt = CallAttempt(
            callee=activity,
            args=call.args,
            kwargs=call.kwargs,
            key=call.key,
            idempotency_key=key,
            tenant=run.tenant,
            run_id=run.run,
            number=number,
            timeout_ms=timeout,
            permit=None,
            label=f"{run.run} lookup {call.key}",
            stream=execution.stream,
            used=used,
        )
        if execution.workflow.budget is not None or execution.services.budgets.tenants:
            await check_budget(execution, activity.name)
        slot = await execution.call_slot(activity) if activity.limit is not None else None
        try:
            return await execution.services.caller.look_up(attempt)
        except BaseException as raised:  # raised unless another attempt may help
            error = as_exception(raised)
            if used and not isinstance(error, Refused):
                execution.session.submit_usage(ident, activity.name, used)
            asked = asked_to_wait(error, execution.services.clock.wall())
            last = number == retry.attempts or isinstance(error, Endless)
            if activity.durable and may_be_paid(error):
                last, uncertain = last or uncertain, True  # at most one that may have been paid is asked again
                _log_uncertain(execution, activity, call, number, error)
            if last or asked > millis(retry.total_wait) or not is_transient(error):
                raise error  # noqa: B904 - it names its cause
        finally:
            if slot is not None:
                slot.leave()
        wait = wait_before(number + 1, execution.services.chance(), first_ms=millis(retry.first), factor=retry.factor)
        await execution.services.clock.sleep(max(wait, asked))
    raise AssertionError("the last attempt returns or raises")

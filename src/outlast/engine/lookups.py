"""Lookups in a node execution: answered from the ledger, or made and recorded (S-13, S-18)."""

from functools import partial
from typing import Any

from outlast.core import effect_verbs
from outlast.core.durations import wait_before
from outlast.core.failed_calls import EffectKey
from outlast.core.first_answer import (
    FIRST,
    NOTHING,
    Compare,
    Drive,
    Hold,
    Linger,
    RaiseObserved,
    RaiseRefused,
    Replay,
    VisitFacts,
    answer_of,
)
from outlast.core.forks import PREFIX
from outlast.core.keys import idempotency_key
from outlast.core.limits import TEXT_CHARS_MAX
from outlast.core.route import cancel_of
from outlast.core.rows.effect_columns import ERROR, EffectError
from outlast.core.rows.effect_rows import Memo
from outlast.core.run_transition import LogEntry
from outlast.core.usage import Used
from outlast.engine import user_code
from outlast.engine.activity_calls import compared, reason_of
from outlast.engine.attempts import CallAttempt
from outlast.engine.budget_checks import check_budget
from outlast.engine.call_outcome import asked_to_wait, is_transient, may_be_paid
from outlast.engine.call_timeouts import Endless
from outlast.engine.commit_chain import ConditionFailed, RunLost, StoreAway
from outlast.engine.effect_calls import millis
from outlast.engine.fork_calls import recorded_lookup
from outlast.engine.limit_seats import CallSeat
from outlast.engine.node_execution import NodeExecution, Unresolved
from outlast.engine.user_code import as_exception, text_of
from outlast.errors import StoreError
from outlast.flow.activity import Activity, BoundCall
from outlast.flow.outcomes import Refused
from outlast.telemetry.redact import redact_shown


async def look_up(execution: NodeExecution, activity: Activity[Any, Any], call: BoundCall) -> Any:
    """Return the value of a lookup: recorded, or looked up now and recorded.

    Raises the error of the function if no further attempt may help.
    """
    execution.note_progress()
    if execution.closing:
        await execution.never()
    session, expected = execution.session, execution.expected
    visit = session.held.run.visit if activity.once_per == "visit" else 0
    ident = (visit, call.key)
    memo = session.held.memos.get(ident)
    facts, gathered = FIRST, NOTHING
    if memo is None and session.held.fork is not None:
        decide = partial(recorded_lookup, execution, session.held.fork, activity, call)
        memo = await execution.deduplicate((visit, f"{PREFIX}{call.digest}"), decide)
    while True:
        if memo is None:
            observed = session.held.memos.get((visit, effect_verbs.observed_key(call.key, execution.continued_after)))
            if expected is not None or observed is not None:
                holds = expected is not None and activity.name in expected.missing
                facts = VisitFacts(holds=holds, lingering=execution.lingering, observed=observed)
        answer = answer_of(memo, call, activity, facts, gathered)
        if isinstance(answer, Compare):
            gathered = compared(session, activity, call, answer.row, ident)
        elif isinstance(answer, Hold):
            assert expected is not None
            await expected.hold(activity.name, call)
            gathered = gathered._replace(held=True)
        else:
            break
    match answer:
        case Drive():
            # The key has the activity's name, so a lookup never waits for a call of an activity.
            flight = (visit, f"{activity.name}?{call.key}")
            once = execution.deduplicate if activity.durable or not activity.is_async else execution.look_up
            return await once(flight, lambda: _make_lookup(execution, activity, call, ident))
        case Replay(row):
            return activity.response_codec.load(row.response or b"null")
        case RaiseRefused(Memo() as row):
            raise _refused(row)
        case RaiseObserved(row):
            assert row.error is not None
            raise user_code.rebuilt(row.error)
        case Linger():
            await execution.never()
    execution.call_person(reason_of(session, activity, call, ident, answer))
    return await execution.never()


async def _make_lookup(
    execution: NodeExecution, activity: Activity[Any, Any], call: BoundCall, ident: EffectKey
) -> Any:
    if not execution.may_begin():
        raise Unresolved
    run = execution.session.held.run
    response: bytes | None = None
    value: Any = None
    error: EffectError | None = None
    await execution.session.chain.entered()
    if activity.durable and execution.session.held.has_new_messages:
        await _check_cancel(execution)
    used: list[Used] = []
    try:
        answer = await _call_lookup(execution, activity, call, ident, used)
        response, value = activity.response_codec.store(answer)  # as a re-run reads it, before it counts
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
    reports: list[Used] = []
    if used:
        reports = [*used]
        puts = execution.session.usage_puts(ident, activity.name, used)
        commit = commit._replace(writes=(*commit.writes, *puts))
    if activity.durable:
        if execution.observed:
            execution.record_observed()
        await execution.session.chain.land(commit)
    else:
        execution.session.chain.submit(commit)
    if reports:
        await _keep_texts(execution, reports)
    if error is not None:
        raise _refused(memo)
    return value


async def _keep_texts(execution: NodeExecution, reports: list[Used]) -> None:
    """Store the texts of requests to models that are not stored yet."""
    session = execution.session
    await execution.services.model_texts.keep(session.held.run, reports, session.clock.now.business)


async def _check_cancel(execution: NodeExecution) -> None:
    """Stop before a durable lookup, which may cost money, if a cancel has arrived with an earlier commit (S-1)."""
    if (cancel := cancel_of(await execution.session.new_messages())) is not None:
        execution.cancelled(cancel)
        raise Unresolved


async def _call_lookup(
    execution: NodeExecution, activity: Activity[Any, Any], call: BoundCall, ident: EffectKey, used: list[Used]
) -> Any:
    """Call the function, and again after transient errors.

    `used` has the usage of the attempt that answered or refused. That of other attempts is stored here.
    """
    run, retry = execution.session.held.run, activity.retry
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
        seat = await _seat_of_lookup(execution, activity)
        try:
            return await execution.services.caller.look_up(attempt)
        except BaseException as raised:  # raised unless another attempt may help
            error = as_exception(raised)
            if used and not isinstance(error, Refused):
                reports = [*used]
                execution.session.submit_usage(ident, activity.name, used)
                if isinstance(raised, Exception):  # not at the end of the execution
                    await _keep_texts(execution, reports)
            asked = asked_to_wait(error, execution.services.clock.wall())
            last = number == retry.attempts or isinstance(error, Endless)
            if activity.durable and may_be_paid(error):
                last, uncertain = last or uncertain, True  # at most one that may have been paid is asked again
                _log_uncertain(execution, activity, call, number, error)
            if last or asked > millis(retry.total_wait) or not is_transient(error):
                raise error  # noqa: B904 - it names its cause
        finally:
            if seat is not None:
                seat.leave()
        wait = wait_before(number + 1, execution.services.chance(), first_ms=millis(retry.first), factor=retry.factor)
        await execution.services.clock.sleep(max(wait, asked))
    raise AssertionError("the last attempt returns or raises")


async def _seat_of_lookup(execution: NodeExecution, activity: Activity[Any, Any]) -> CallSeat | None:
    """Return the seat of a lookup under its rate limit, if it has one, once the budget allows the call.

    The budget is looked at again after the wait for the seat. The other gates are for calls that change something
    (`call_gates`). Raises Unresolved, StoreError.
    """
    has_budget = execution.has_budget or execution.services.budgets.tenants
    if has_budget:
        await check_budget(execution, activity.name)
    if activity.limit is None:
        return None
    seat = await execution.call_seat(activity)
    if seat is not None and has_budget:
        try:
            await check_budget(execution, activity.name)
        except BaseException:  # parked, or cancelled
            seat.leave()
            raise
    return seat


def _memo(
    execution: NodeExecution,
    activity: Activity[Any, Any],
    call: BoundCall,
    ident: EffectKey,
    response: bytes | None,
    error: EffectError | None,
) -> Memo:
    return Memo(
        tenant=execution.session.held.run.tenant,
        run=execution.session.held.run.run,
        visit=ident[0],
        key=ident[1],
        activity=activity.name,
        digest=call.digest,
        response=response,
        error_text=ERROR.encode(error),
        at=execution.session.clock.now.business,
    )


def _keep_trace(
    execution: NodeExecution, activity: Activity[Any, Any], call: BoundCall, ident: EffectKey, raised: Exception
) -> None:
    """Record a failed lookup if the workflow counts failures when it ends (OUT-4)."""
    visit, key = ident
    if not execution.workflow.counts_failures or (visit, effect_verbs.UNANSWERED + key) in execution.session.held.memos:
        return
    error = _redacted_error(type(raised).__name__, str(raised)[:TEXT_CHARS_MAX])
    execution.session.chain.submit(
        effect_verbs.unanswered(execution.session.held.run, _memo(execution, activity, call, ident, None, error))
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


def _refused(memo: Memo) -> Refused:
    assert memo.error is not None
    return Refused(memo.error.code, memo.error.detail)

"""Calls of activities and lookups in a node execution: answered from the ledger, or made (S-17, S-18).

`EffectExecutor` makes each call of an activity; lookups are made here.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

from outlast.core import effect_verbs
from outlast.core.conclude import Parked
from outlast.core.durations import SHARED_LOOK_AGAIN, wait_before
from outlast.core.failed_calls import EffectKey
from outlast.core.first_answer import (
    FIRST,
    NOTHING,
    AskPerson,
    Compare,
    Compared,
    Contradiction,
    Drive,
    DriveWith,
    FirstAnswer,
    Gathered,
    GiveStated,
    Hold,
    Linger,
    RaiseObserved,
    RaiseRefused,
    RaiseUnfit,
    ReadOwner,
    ReadShared,
    Replay,
    SharedFacts,
    UnderWay,
    UseShared,
    VisitFacts,
    WaitForOther,
    answer_of,
    is_chosen,
)
from outlast.core.keys import idempotency_key
from outlast.core.limits import TEXT_CHARS_MAX
from outlast.core.machine import EffectStatus
from outlast.core.route import cancel_of
from outlast.core.rows.effect_columns import ERROR, EffectError
from outlast.core.rows.effect_rows import EFFECT, STATED, Effect, Memo
from outlast.core.rows.run_columns import Attention, Timer, WaitingFor
from outlast.core.rows.run_rows import RUN, is_over
from outlast.core.run_transition import LogEntry
from outlast.core.usage import Used
from outlast.engine import user_code
from outlast.engine.attempts import CallAttempt
from outlast.engine.call_outcome import asked_to_wait, is_transient, may_be_paid
from outlast.engine.call_timeouts import Endless
from outlast.engine.commit_chain import ConditionFailed, RunLost, StoreAway
from outlast.engine.effect_calls import millis, needs_transactions
from outlast.engine.effect_executor import EffectExecutor
from outlast.engine.former_digests import call_as_offered, is_same_call
from outlast.engine.limit_seats import CallSlot
from outlast.engine.node_execution import NodeExecution, Unresolved
from outlast.engine.node_result import (
    EffectRefused,
    answer_not_stored,
    contradiction,
    recorded_call,
    refusal_of,
    uncertain,
    under_way,
)
from outlast.engine.permission import check_budget
from outlast.engine.run_session import RunSession
from outlast.engine.stated_answers import given_answer, load_answer
from outlast.engine.user_code import as_exception, text_of
from outlast.errors import NotStorable, StoreError
from outlast.flow.activity import Activity, BoundCall
from outlast.flow.calls import Plan, RecordedCall
from outlast.flow.outcomes import Refused
from outlast.flow.workflow import Workflow
from outlast.store.port import Store, Transactions
from outlast.telemetry.redact import redact_shown


async def _shared_answer(
    execution: NodeExecution, activity: Activity[Any, Any], call: BoundCall, executor: EffectExecutor
) -> Any:
    """Return the answer of a shared effect: recorded by another run, or made now by `executor`.

    Raises Refused for a recorded refusal, AnswerNotStored, Unresolved if this execution gives no answer.
    """
    session, ident = execution.session, (0, call.key)
    shared, gathered = SharedFacts(session.held.others.get(call.key)), NOTHING
    unfit: NotStorable | None = None
    while True:
        facts = VisitFacts(noted=call.key in session.held.noted, counts_failures=execution.workflow.counts_failures)
        answer = answer_of(None, call, activity, facts, gathered._replace(shared=shared))
        match answer:
            case ReadShared():
                shared = SharedFacts(await _load_shared(execution, call.key), fresh=True)
            case ReadOwner(run):
                shared = shared._replace(owner_is_over=await _is_over(execution, run))
            case Compare(row):
                gathered = _compared(session, activity, call, row, ident)
            case UseShared(row):
                try:
                    value = None if row.response is None else load_answer(activity, row)
                except NotStorable as error:
                    unfit, shared = error, shared._replace(unfit=True)
                    continue
                if answer.records:
                    await _record_use(execution, row)
                if row.response is None:
                    raise answer_not_stored(row)
                return value
            case RaiseUnfit():
                assert unfit is not None
                raise unfit
            case Drive():
                return await executor.drive()
            case GiveStated(row, notes) | RaiseRefused(row, notes):
                assert isinstance(row, Effect)
                if notes:
                    await _note_shared(execution, row)
                if isinstance(answer, GiveStated):
                    return await given_answer(execution, activity, row)
                raise EffectRefused(refusal_of(row), ident)
            case WaitForOther(row):
                await _wait_for_shared(execution, row)
            case _:
                execution.call_person(_reason(session, activity, call, ident, answer))
                raise Unresolved


async def _record_use(execution: NodeExecution, effect: Effect) -> None:
    """Record that this run uses the answer of another run's effect. Raises Unresolved."""
    if not execution.may_begin():
        raise Unresolved
    if execution.observed:
        execution.record_observed()
    session = execution.session
    await session.chain.land(
        effect_verbs.use(session.held.run, effect, noted=effect.key in session.held.noted, now=session.clock.now)
    )


async def _is_over(execution: NodeExecution, run: str) -> bool:
    row = await execution.session.store.load(RUN, (execution.session.held.run.tenant, run))
    return row is None or is_over(row)


async def _load_shared(execution: NodeExecution, key: str) -> Effect | None:
    """Read the row of a shared effect; None if no run has made the call."""
    session = execution.session
    row = await session.store.load(EFFECT, (session.held.run.tenant, "", 0, key))
    if row is None:
        return None
    assert row.by_run != session.held.run.run or row.status is EffectStatus.UNDONE, (
        "a run knows its own from the claim on"
    )
    session.held.add_shared(row)
    return row


async def _note_shared(execution: NodeExecution, effect: Effect) -> None:
    """Record that this run waits for another run's effect, or was refused by it. Raises Unresolved."""
    session = execution.session
    if effect.key not in session.held.noted:
        if not execution.may_begin():
            raise Unresolved
        await session.chain.land(effect_verbs.wait_for(session.held.run, effect, session.clock.now))


async def _wait_for_shared(execution: NodeExecution, effect: Effect) -> None:
    """Park until the other run has settled the effect, because that run alone may settle or undo it."""
    await _note_shared(execution, effect)
    session = execution.session
    then = "continues with its answer"
    what = f"{effect.activity} {effect.key}"
    waiting = WaitingFor("effect", what, who=f"run {effect.by_run}", since=session.clock.now.business, then=then)
    execution.park(Parked("park", waiting, Timer(what, session.clock.now.real + SHARED_LOOK_AGAIN, real=True)))
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
    session, expected = execution.session, execution.expected
    visit = session.held.run.visit if activity.once_per == "visit" else 0
    ident = (visit, call.key)
    effect = session.held.effects.get(ident)
    if effect is None and activity.once_per == "run" and (visit := session.held.visit_of(activity.name, call.key)):
        ident = (visit, call.key)
        effect = session.held.effects[ident]
    if effect is None and session.held.approvals and activity.has_sets:
        call = call_as_offered(activity, call, session.held.run, session.held.approvals.values())
    served, gathered = call, NOTHING  # `served`: the call as its row has it
    while True:
        begun = execution.begun.get(ident)
        facts = FIRST if begun is None and expected is None else _facts(execution, activity, served, ident, effect)
        answer = answer_of(effect, call, activity, facts, gathered)
        if isinstance(answer, Compare):
            assert effect is not None
            gathered = _compared(session, activity, call, effect, ident)
            served = _as_recorded(activity, call, effect, gathered)
        elif isinstance(answer, Hold):
            assert expected is not None
            await expected.hold(activity.name, served)
            gathered = gathered._replace(held=True)
        else:
            break
    if begun is None and not isinstance(answer, Contradiction | Linger):
        execution.begun[ident] = served.digest
    match answer:
        case Drive(arguments):
            made = call if arguments is DriveWith.REQUESTED else served
            return await execution.deduplicate(ident, EffectExecutor(execution, activity, made, ident).drive)
        case ReadShared():
            executor = EffectExecutor(execution, activity, served, ident)
            return await execution.deduplicate(ident, partial(_shared_answer, execution, activity, served, executor))
        case Replay(Effect() as row):
            return load_answer(activity, row)
        case GiveStated(row):
            return await execution.deduplicate(ident, partial(given_answer, execution, activity, row))
        case RaiseRefused(Effect() as row):
            raise EffectRefused(refusal_of(row), ident)
        case Linger():
            await execution.never()
    execution.call_person(_reason(session, activity, served, ident, answer))
    return await execution.never()


def _facts(
    execution: NodeExecution, activity: Activity[Any, Any], call: BoundCall, ident: EffectKey, effect: Effect | None
) -> VisitFacts:
    """Return what an execution that is not the first one of its visit, or has begun the call, knows about a key."""
    session, expected, begun = execution.session, execution.expected, execution.begun.get(ident, "")
    joins = begun != call.digest and ident in execution.calls_in_flight
    return VisitFacts(
        holds=effect is None and expected is not None and expected.holds(activity.name),
        lingering=expected is not None and expected.lingering,
        begun=begun,
        joins=joins and is_chosen(session.held.messages, *ident, call.digest),
        noted=call.key in session.held.noted,
    )


def _compared(
    session: RunSession, activity: Activity[Any, Any], call: BoundCall, row: Effect | Memo, ident: EffectKey
) -> Gathered:
    """Compare a call with the row of its key, whose digest is another one."""
    if activity.compare is None:
        if is_same_call(activity, row, call.args_bytes, call.digest):
            return Gathered(Compared.SAME)
        chosen = is_chosen(session.held.messages, *ident, call.digest)
        return Gathered(Compared.CHOSEN if chosen else Compared.DIFFERS)
    if is_chosen(session.held.messages, *ident, None):
        return Gathered(Compared.CHOSEN)
    differs = activity.compare(row.digest, row.response) if row.response is not None else None
    return Gathered(Compared.SAME) if differs is None else Gathered(Compared.DIFFERS, differs)


def _as_recorded(activity: Activity[Any, Any], call: BoundCall, effect: Effect, gathered: Gathered) -> BoundCall:
    """Return the call that a row serves, as the row has it. Raises NotStorable as `recorded_call`."""
    if gathered.compared is Compared.SAME:
        return call._replace(args_bytes=effect.args, digest=effect.digest)
    if gathered.compared is Compared.CHOSEN:
        return recorded_call(activity, effect)._replace(proposed=call.proposed)
    return call


def _reason(
    session: RunSession, activity: Activity[Any, Any], call: BoundCall, ident: EffectKey, answer: FirstAnswer
) -> Attention:
    """Return the reason with which a person is asked about a call."""
    if isinstance(answer, Contradiction):
        return contradiction(session, activity, call, answer.row, answer.differs)
    if isinstance(answer, AskPerson):
        return uncertain(session, answer.row)
    assert isinstance(answer, UnderWay)
    return under_way(session, activity, call, ident)


async def recorded_calls(
    execution: NodeExecution, activity: Activity[Any, Any], plan: Plan[Any]
) -> list[RecordedCall[Any]]:
    """Return the calls of a run, or of its tenant, with the activity and the key of a plan.

    A person's answer among them is given to the body. Raises StoreError, Unresolved.
    """
    session = execution.session
    rows: dict[int, Effect | Memo] = {
        visit: effect for (visit, key), effect in session.held.effects.items() if key == plan.key
    }
    if activity.kind == "lookup":
        rows = {visit: memo for (visit, key), memo in session.held.memos.items() if key == plan.key}
    elif activity.once_per == "tenant" and 0 not in rows:
        shared = await session.store.load(EFFECT, (session.held.run.tenant, "", 0, plan.key))
        rows |= {0: shared} if shared is not None else {}
    found: list[RecordedCall[Any]] = []
    for visit, row in sorted(rows.items()):
        if row.activity != activity.name:
            if visit not in (0, session.held.run.visit):
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
    if row.shared == STATED and row.by_run in ("", execution.session.held.run.run):
        return await given_answer(execution, activity, row)
    return load_answer(activity, row)


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
    while True:
        if memo is None:
            observed = session.held.memos.get((visit, effect_verbs.observed_key(call.key, execution.continued_after)))
            if expected is not None or observed is not None:
                holds = expected is not None and activity.name in expected.missing
                facts = VisitFacts(holds=holds, lingering=execution.lingering, observed=observed)
        answer = answer_of(memo, call, activity, facts, gathered)
        if isinstance(answer, Compare):
            gathered = _compared(session, activity, call, answer.row, ident)
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
    execution.call_person(_reason(session, activity, call, ident, answer))
    return await execution.never()


def _refused(memo: Memo) -> Refused:
    assert memo.error is not None
    return Refused(memo.error.code, memo.error.detail)


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
        await execution.session.chain.land(commit)
    else:
        execution.session.chain.submit(commit)
    if error is not None:
        raise _refused(memo)
    return value


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


async def _seat_of_lookup(execution: NodeExecution, activity: Activity[Any, Any]) -> CallSlot | None:
    """Return the seat of a lookup under its rate limit, if it has one, once the budget allows the call.

    The budget is looked at again after the wait for the seat. The other gates are for calls that change something
    (`call_gates`). Raises Unresolved, StoreError.
    """
    has_budget = execution.workflow.budget is not None or execution.services.budgets.tenants
    if has_budget:
        await check_budget(execution, activity.name)
    if activity.limit is None:
        return None
    slot = await execution.call_slot(activity)
    if slot is not None and has_budget:
        try:
            await check_budget(execution, activity.name)
        except BaseException:  # parked, or cancelled
            slot.leave()
            raise
    return slot


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
        slot = await _seat_of_lookup(execution, activity)
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

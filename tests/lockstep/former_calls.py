"""The decision of a call's first answer as it was before `core/first_answer.py`, to compare both (decision 0160).

A frozen copy of `engine/activity_calls.py` of 28 November. It is never corrected: a rule that changes on purpose is
named in `test_first_answers.py`. Executors and lookups are made by the execution that a test gives.
"""

from functools import partial
from typing import Any

from outlast.core import effect_verbs
from outlast.core.conclude import Parked
from outlast.core.durations import SHARED_LOOK_AGAIN
from outlast.core.failed_calls import EffectKey
from outlast.core.machine import EffectStatus, Reason
from outlast.core.mailbox import REOPENED
from outlast.core.rows.effect_rows import EFFECT, STATED, USED, Effect, Memo
from outlast.core.rows.run_columns import Timer, WaitingFor
from outlast.core.rows.run_rows import RUN, is_over
from outlast.engine import user_code
from outlast.engine.former_digests import call_as_offered, is_same_call
from outlast.engine.node_execution import Unresolved
from outlast.engine.node_result import (
    EffectRefused,
    answer_not_stored,
    contradiction,
    recorded_call,
    refusal_of,
    uncertain,
    under_way,
)
from outlast.engine.stated_answers import given_answer, load_answer
from outlast.errors import NotStorable
from outlast.flow.activity import Activity, BoundCall
from outlast.flow.outcomes import Refused


def is_reopened(effect: Effect) -> bool:
    """Return True if an operator answered that the effect did not happen or may be tried again."""
    return effect.status is EffectStatus.REFUSED and effect.code == REOPENED


def uses_recorded(session: Any, ident: EffectKey, digest: str | None) -> bool:
    """Return True if a person chose the recorded answer of this key for exactly this call; None stands for any."""
    return any(
        (visit, key) == ident and digest in (None, of)
        for message in session.messages
        if message.kind == "answer" and message.name == Reason.CONTRADICTION
        for visit, key, of in message.answer.recorded
    )


async def shared_answer(execution: Any, activity: Activity[Any, Any], call: BoundCall, executor: Any) -> Any:
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


async def _is_unfinished(execution: Any, run: str) -> bool:
    row = await execution.session.store.load(RUN, (execution.session.run.tenant, run))
    return row is not None and not is_over(row)


async def _load_shared(execution: Any, key: str) -> Effect | None:
    """Read the row of a shared effect; None if no run has made the call."""
    session = execution.session
    row = await session.store.load(EFFECT, (session.run.tenant, "", 0, key))
    if row is None:
        return None
    assert row.by_run != session.run.run or row.status is EffectStatus.UNDONE, "a run knows its own from the claim on"
    session.others[key] = row
    return row


async def _note_shared(execution: Any, effect: Effect) -> None:
    """Record that this run waits for another run's effect, or was refused by it. Raises Unresolved."""
    session = execution.session
    if effect.key not in session.noted:
        if not execution.may_begin():
            raise Unresolved
        await session.land(effect_verbs.wait_for(session.run, effect, session.now))


async def _wait_for_shared(execution: Any, effect: Effect) -> None:
    """Park until the other run has settled the effect, because that run alone may settle or undo it."""
    await _note_shared(execution, effect)
    session = execution.session
    then = "continues with its answer"
    what = f"{effect.activity} {effect.key}"
    waiting = WaitingFor("effect", what, who=f"run {effect.by_run}", since=session.now.business, then=then)
    execution.park(Parked("park", waiting, Timer(what, session.now.real + SHARED_LOOK_AGAIN, real=True)))
    raise Unresolved


async def perform(execution: Any, activity: Activity[Any, Any], call: BoundCall) -> Any:
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
    first = execution.first_digests.setdefault(ident, call.digest)
    if first != call.digest and not (
        ident in execution.calls_in_flight and uses_recorded(execution.session, ident, call.digest)
    ):
        execution.call_person(under_way(execution.session, activity, call, ident))
        await execution.never()
    if activity.once_per == "tenant" and (effect is None or effect.status is EffectStatus.UNDONE):
        executor = execution.executor_of(execution, activity, call, ident)
        return await execution.deduplicate(ident, partial(shared_answer, execution, activity, call, executor))
    if effect is None or effect.status is EffectStatus.INTENDED or is_reopened(effect):
        return await execution.deduplicate(ident, execution.executor_of(execution, activity, call, ident).drive)
    if effect.shared == STATED:
        return await execution.deduplicate(ident, partial(given_answer, execution, activity, effect))
    if effect.status is EffectStatus.DONE:
        return load_answer(activity, effect)
    if effect.status is EffectStatus.UNCERTAIN:
        execution.call_person(uncertain(execution.session, effect))
        await execution.never()
    raise EffectRefused(refusal_of(effect), ident)


async def look_up(execution: Any, activity: Activity[Any, Any], call: BoundCall) -> Any:
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
        return await once(flight, lambda: execution.make_lookup(execution, activity, call, (visit, call.key)))
    if memo.digest != call.digest and (differs := _difference(execution, activity, call, memo)) is not None:
        execution.call_person(contradiction(execution.session, activity, call, memo, differs))
        await execution.never()
    return _value(activity, memo)


def _difference(execution: Any, activity: Activity[Any, Any], call: BoundCall, memo: Memo) -> str | None:
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

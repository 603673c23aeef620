"""Lookups: remembered under their key, made anew only where no walk of their scope has an answer."""

import json
from typing import Any

from outlast.core import ledger as moves
from outlast.core.backoff import wait_before
from outlast.core.limits import TEXT_CHARS_MAX
from outlast.core.rows import Memo
from outlast.engine.calls import CallAttempt
from outlast.engine.conflict import contradiction, uses_recorded
from outlast.engine.inquiry import durations, millis
from outlast.engine.ledger import ConditionFailed, EffectKey, RunLost, StoreAway
from outlast.engine.outcome import asked_to_wait, is_transient
from outlast.engine.room import room
from outlast.engine.user_code import as_exception
from outlast.engine.walk import NodeExecution, Unresolved
from outlast.errors import StoreError
from outlast.flow.activity import Activity, BoundCall
from outlast.flow.outcomes import ActivityFailed, Refusal, Refused
from outlast.telemetry.redact import redact


async def look_up(walk: NodeExecution, activity: Activity[Any, Any], call: BoundCall) -> Any:
    """The value of a lookup: the recorded one, or the function's, recorded. Raises what it raised for good."""
    walk.stir()
    if walk.closing:
        await walk.hang()
    visit = walk.ledger.run.visit if activity.scope == "visit" else 0
    memo = walk.ledger.memos.get((visit, call.key))
    if memo is None:
        # A lookup and a write never share a flight: a lookup's key carries its activity's name.
        flight = (visit, f"{activity.name}?{call.key}")
        return await walk.share(flight, lambda: _make(walk, activity, call, (visit, call.key)))
    if memo.digest != call.digest and not uses_recorded(walk, (visit, memo.key), call.digest):
        walk.call_person(contradiction(walk, activity, call, memo))
        await walk.hang()
    return _value(activity, memo)


def _value(activity: Activity[Any, Any], memo: Memo) -> Any:
    if memo.error:
        error = json.loads(memo.error)
        raise ActivityFailed(Refusal(error["code"], error["detail"]))
    return activity.response_codec.load(memo.response or b"null")


async def _make(walk: NodeExecution, activity: Activity[Any, Any], call: BoundCall, ident: EffectKey) -> Any:
    run = walk.ledger.run
    response: bytes | None = None
    error = ""
    await walk.ledger.entered()
    try:
        response = activity.response_codec.dump(await _call(walk, activity, call))
    except Refused as refused:
        error = _error(refused.code, refused.detail)
    except (RunLost, ConditionFailed, StoreAway, StoreError, Unresolved):
        raise
    except Exception as raised:  # raised into the author's code, which may catch it; the next walk asks again
        _keep_trace(walk, activity, call, ident, raised)
        raise
    if walk.left_behind and walk.is_left_behind():
        raise Unresolved
    memo = _memo(walk, activity, call, ident, response, error)
    commit = moves.remember(run, memo)
    if activity.paid:
        await walk.ledger.land(commit)
    else:
        walk.ledger.submit(commit)
    return _value(activity, memo)


def _memo(
    walk: NodeExecution,
    activity: Activity[Any, Any],
    call: BoundCall,
    ident: EffectKey,
    response: bytes | None,
    error: str,
) -> Memo:
    return Memo(
        tenant=walk.ledger.run.tenant,
        run=walk.ledger.run.run,
        visit=ident[0],
        key=ident[1],
        activity=activity.name,
        digest=call.digest,
        response=response,
        error=error,
        at=walk.ledger.now.business,
    )


def _keep_trace(
    walk: NodeExecution, activity: Activity[Any, Any], call: BoundCall, ident: EffectKey, raised: Exception
) -> None:
    """Keep one row of a lookup that failed for good, if its workflow counts failures at its end (OUT-4)."""
    visit, key = ident
    if walk.workflow.no_results == "complete" or (visit, moves.UNANSWERED + key) in walk.ledger.memos:
        return
    error = _error(type(raised).__name__, str(raised)[:TEXT_CHARS_MAX])
    walk.ledger.submit(moves.unanswered(walk.ledger.run, _memo(walk, activity, call, ident, None, error)))


def _error(code: str, detail: str) -> str:
    return json.dumps({"code": code, "detail": redact(detail)})


async def _call(walk: NodeExecution, activity: Activity[Any, Any], call: BoundCall) -> Any:
    """The function's answer; what changes nothing may be asked again, bugs may not."""
    run, retry = walk.ledger.run, activity.retry
    timeout = durations(walk, activity).timeout
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
        place = await room(walk, activity)
        try:
            return await walk.around.caller.look_up(attempt)
        except BaseException as raised:  # raised again unless another attempt may help
            error = as_exception(raised)
            asked = asked_to_wait(error, walk.around.clock.wall())
            if number == retry.attempts or asked > millis(retry.total_wait) or not is_transient(error):
                raise error  # noqa: B904 - it names its cause
        finally:
            if place is not None:
                place.leave()
        wait = wait_before(number + 1, walk.around.chance(), first_ms=millis(retry.first), factor=retry.factor)
        await walk.around.clock.sleep(max(wait, asked))
    raise AssertionError("the last attempt returns or raises")

"""Reconcile: ask the receiver whether an effect happened (S-17)."""

from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from outlast.core.durations import SECOND
from outlast.core.effect_columns import NO_ERROR
from outlast.core.effect_steps import DidNotHappen, Happened, ReceiverAnswer, Unknown
from outlast.core.keys import idempotency_key
from outlast.core.rows import EVIDENCE, Effect, Evidence
from outlast.engine.attempts import CallAttempt
from outlast.engine.node_execution import NodeExecution
from outlast.engine.user_code import as_exception, text_of
from outlast.flow.calls import LateAnswer
from outlast.flow.options import Callee

RECONCILE_TRIES: Final = 3


def millis(value: Any) -> int:
    """Return a timedelta in milliseconds."""
    return int(value.total_seconds() * SECOND)


class Durations(NamedTuple):
    """Timeout and settle margin of a callee's attempts, in ms."""

    timeout: int
    settle_margin: int


def durations(execution: NodeExecution, callee: Callee) -> Durations:
    """Return the callee's durations, or the defaults of the deployment."""
    live = execution.services.live
    timeout = millis(callee.timeout) if callee.timeout else live.attempt_timeout
    quiet = max(live.settle_margin, millis(callee.settle_time) if callee.settle_time else 0)
    return Durations(timeout, quiet)


def attempt_of(
    execution: NodeExecution, callee: Callee, args: tuple[Any, ...], kwargs: dict[str, Any], effect: Effect
) -> CallAttempt:
    """Return one attempt of an effect, without its permit."""
    run = execution.session.run
    return CallAttempt(
        callee=callee,
        args=args,
        kwargs=kwargs,
        key=effect.key,
        idempotency_key=idempotency_key(effect.tenant, effect.run, effect.visit or effect.redone, effect.key),
        tenant=run.tenant,
        run_id=run.run,
        number=effect.attempts,
        timeout_ms=durations(execution, callee).timeout,
        permit=None,
        label=f"{run.run} call {effect.key}",
    )


async def reconcile(
    execution: NodeExecution, callee: Callee, args: tuple[Any, ...], kwargs: dict[str, Any], effect: Effect
) -> ReceiverAnswer:
    """Ask the receiver whether it has the effect.

    Three errors in a row mean Unknown.

    The receiver's function gets the late answers of earlier holders; they settle nothing by themselves (S-10). Raises
    StoreError.
    """
    assert callee.reconcile_fn is not None
    evidence = await late_answers(execution, effect)
    attempt = attempt_of(execution, callee, args, kwargs, effect)
    why = ""
    for n in range(RECONCILE_TRIES):
        if n:
            await execution.services.clock.sleep(SECOND)
        try:
            answer = await execution.services.caller.as_call(attempt, callee.reconcile_fn, evidence)
        except BaseException as raised:  # counts as Unknown; `why` names the error of the author's function
            why = text_of(as_exception(raised))
            continue
        if isinstance(answer, Happened | DidNotHappen | Unknown):
            return answer
        why = f"it answered {answer!r}, not Happened, DidNotHappen or Unknown"
    return Unknown(f"reconcile of {callee.name} failed: {why}")


async def late_answers(execution: NodeExecution, effect: Effect) -> tuple[LateAnswer, ...]:
    """Return the evidence of an effect, in the form that a reconcile function gets."""
    return tuple(_late_answer(row) for row in await evidence_of(execution, effect))


async def evidence_of(execution: NodeExecution, effect: Effect) -> tuple[Evidence, ...]:
    """Read the evidence of an effect. It may have come after this holder read its rows."""
    return await execution.session.store.rows(
        EVIDENCE, (effect.tenant, effect.by_run or effect.run, effect.visit, effect.key)
    )


def _late_answer(row: Evidence) -> LateAnswer:
    answer = row.answer
    error = answer.error or NO_ERROR
    return LateAnswer(
        epoch=row.epoch,
        status=answer.status,
        response=answer.response(),
        code=error.code,
        detail=error.detail,
        at=datetime.fromtimestamp(row.at / SECOND, UTC),
    )

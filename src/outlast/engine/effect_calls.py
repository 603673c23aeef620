"""Calls of one effect: an attempt, an attempt in a transaction, and the question to its receiver (S-4, S-17)."""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from outlast.core.commit import Commit
from outlast.core.durations import SECOND
from outlast.core.effect_steps import (
    EXHAUSTED,
    Answered,
    DidNotHappen,
    Happened,
    Maybe,
    No,
    Outcome,
    ReceiverAnswer,
    Unknown,
    Unsent,
)
from outlast.core.events import utc
from outlast.core.keys import idempotency_key
from outlast.core.route import cancel_of
from outlast.core.rows.effect_columns import NO_ERROR
from outlast.core.rows.effect_rows import EVIDENCE, Effect, Evidence
from outlast.core.usage import Used
from outlast.engine.attempts import CallAttempt
from outlast.engine.call_outcome import is_transient, judge
from outlast.engine.commit_chain import ConditionFailed, RunLost, StoreAway
from outlast.engine.lease import Permit
from outlast.engine.node_execution import NodeExecution, Unresolved
from outlast.engine.send_window import Sending
from outlast.engine.user_code import as_exception, text_of
from outlast.errors import DefinitionError, LimitExceeded, NotStorable, StoreError
from outlast.flow.activity import BoundCall
from outlast.flow.calls import LateAnswer
from outlast.flow.functions import refuse_unrun
from outlast.flow.options import Callee
from outlast.flow.outcomes import Declared
from outlast.store.batch import INBOX_SEQ
from outlast.store.port import Store, Transaction, TransactionEnded, Transactions

RECONCILE_TRIES: Final = 3


def millis(value: Any) -> int:
    """Return a timedelta in milliseconds."""
    return int(value.total_seconds() * SECOND)


def attempt_of(
    execution: NodeExecution,
    callee: Callee,
    call: BoundCall,
    effect: Effect,
    used: list[Used],
    *,
    permit: Permit | None = None,
    sending: Sending | None = None,
    connection: Any = None,
) -> CallAttempt:
    """Return one attempt of an effect."""
    run = execution.session.held.run
    return CallAttempt(
        callee=callee,
        args=call.args,
        kwargs=call.kwargs,
        key=effect.key,
        idempotency_key=idempotency_key(effect.tenant, effect.run, effect.visit or effect.redone, effect.key),
        tenant=run.tenant,
        run_id=run.run,
        number=effect.attempts,
        timeout_ms=execution.services.terms[callee].timeout,
        permit=permit,
        label=f"{run.run} call {effect.key}",
        stream=execution.stream,
        used=used,
        connection=connection,
        sending=sending,
    )


async def reconcile(
    execution: NodeExecution, callee: Callee, call: BoundCall, effect: Effect, used: list[Used]
) -> ReceiverAnswer:
    """Ask the receiver whether it has the effect.

    Three errors in a row mean Unknown.

    The receiver's function gets the late answers of earlier holders; they settle nothing by themselves (S-10). Raises
    StoreError.
    """
    assert callee.reconcile_fn is not None
    evidence = await late_answers(execution, effect)
    attempt = attempt_of(execution, callee, call, effect, used)
    why = ""
    for n in range(RECONCILE_TRIES):
        if n:
            await execution.services.clock.sleep(SECOND)
        try:
            answer = await execution.services.caller.as_call(attempt, callee.reconcile_fn, evidence)
            refuse_unrun(answer, callee.reconcile_fn)
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
        at=utc(row.at),
    )


# --- attempts in a transaction -----------------------------------------------------------------------
def check_transaction(name: str, wanted: bool | str, store: Store, where: str = "") -> None:
    """Raise DefinitionError if the store cannot offer the transaction that an activity is declared with."""
    if not wanted or (isinstance(store, Transactions) and (wanted is True or store.serializes)):
        return
    shown = "True" if wanted is True else f'"{wanted}"'
    raise DefinitionError(
        f"{name} is declared with transaction={shown}",
        f"its own rows and its effect commit together; the store {store.url} cannot do that",
        "open a SQLite or PostgreSQL store that has those rows, or take transaction= away"
        if wanted is True
        else "open the PostgreSQL store in the database of those rows, or write transaction=True",
        where=where,
    )


Commits: TypeAlias = Callable[[bytes, str], tuple[Commit, Commit]]
"""Return the intent and the record of an answer, from the stored response and the receiver's id."""


async def attempt_in_transaction(
    execution: NodeExecution, callee: Callee, call: BoundCall, effect: Effect, used: list[Used], commits: Commits
) -> Outcome:
    """Run an activity whose rows and effect commit in one database transaction.

    The intent is not durable before the call: if the process dies, all of it is lost or nothing.
    """
    session, serializable = execution.session, callee.transaction == "serializable"
    timeout = execution.services.terms[callee].timeout
    assert isinstance(session.store, Transactions)
    try:
        async with session.store.transaction(timeout, serializable=serializable) as transaction:
            return await _made(execution, callee, call, effect, used, commits, transaction)
    except StoreError as error:
        raise session.chain.why(error) from error


async def _made(
    execution: NodeExecution,
    callee: Callee,
    call: BoundCall,
    effect: Effect,
    used: list[Used],
    commits: Commits,
    transaction: Transaction,
) -> Outcome:
    """Run the body and commit its effect. Returns an outcome that says why, if neither happened."""
    attempt = attempt_of(execution, callee, call, effect, used, connection=transaction.connection)
    try:
        answer = await execution.services.caller.inside(attempt)
        response: bytes = callee.response_codec.store(answer.value)[0]
        await _land(execution, commits(response, answer.external_id), transaction)
    except (NotStorable, LimitExceeded) as error:
        return No(EXHAUSTED, f"its answer cannot be stored, so it was rolled back: {error.what}: {error.why}")
    except TransactionEnded as error:
        return Maybe("ended_transaction", str(error)) if error.may_be_committed else No(EXHAUSTED, str(error))
    except (Unresolved, RunLost, ConditionFailed, StoreAway, StoreError):
        raise
    except BaseException as error:  # judged, not raised: an error of the author's function or of the database
        return _rolled_back(as_exception(error), execution.services.clock.wall(), transaction)
    return Answered(response)


def _rolled_back(error: Exception, wall_ms: int, transaction: Transaction) -> Outcome:
    """Return the outcome of a rollback: another attempt for passing errors, else an operator."""
    judged = judge(error, wall_ms)
    if isinstance(error, Declared) and not isinstance(judged, Maybe):
        return judged
    if isinstance(judged, Unsent) or transaction.is_passing(error) or is_transient(error):
        return Unsent("rolled_back", judged.detail, judged.after_ms if not isinstance(judged, No) else 0)
    return No(EXHAUSTED, f"rolled back, and not tried again: {judged.detail}")


async def _land(execution: NodeExecution, commits: tuple[Commit, Commit], transaction: Transaction) -> None:
    """Commit the transaction with the effect, unless a cancel was accepted before (S-1)."""
    session = execution.session
    held, inbox_seq = session.held, None
    if not held.run.ending:  # a run that is ending ignores a further cancel
        inbox_seq = held.inbox_read
    while True:
        named = [c._replace(fence=c.fence._replace(inbox_seq=inbox_seq)) for c in commits if c.fence is not None]
        try:
            return await session.chain.land_within(transaction, named)
        except ConditionFailed as moved:
            if moved.reason != INBOX_SEQ or inbox_seq is None:
                raise
        messages = await session.new_messages()  # no message can arrive, because the run row is locked
        if (cancel := cancel_of(messages)) is not None:
            execution.cancelled(cancel)
            raise Unresolved
        inbox_seq = max(n.n for n in messages)

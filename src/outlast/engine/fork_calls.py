"""Calls of a fork: answered from the calls that its start copied, or made by the fork (S-28).

`core/forks.py` decides the answer. This module compares calls, records the use of an answer and reads the run that has
yet to settle a call.
"""

from typing import Any, NamedTuple

from outlast.core.children import ChildCall, child_id_of
from outlast.core.commit import Commit, Put
from outlast.core.conclude import Parked
from outlast.core.durations import SECOND, SHARED_LOOK_AGAIN
from outlast.core.effect_verbs import Intent, take_over
from outlast.core.first_answer import is_chosen
from outlast.core.forks import (
    CopiedCall,
    ForkAnswer,
    ForkLedger,
    FromRecording,
    RecordedOtherwise,
    WaitForAncestor,
    answer_in_fork,
    is_later,
    known_calls,
    use_of,
)
from outlast.core.keys import OncePer, lineage_key
from outlast.core.machine import EffectStatus
from outlast.core.mailbox import is_reopened
from outlast.core.rows.effect_rows import EFFECT, MEMO, Effect, Memo
from outlast.core.rows.run_columns import Timer, WaitingFor
from outlast.core.rows.run_rows import RUN, Run, is_over
from outlast.core.run_transition import LogEntry, fence
from outlast.engine.node_execution import NodeExecution, Unresolved
from outlast.engine.node_result import EffectRefused, contradiction, refusal_of
from outlast.engine.run_session import RunSession
from outlast.engine.stated_answers import load_answer
from outlast.errors import Conflict
from outlast.flow.activity import Activity, BoundCall


class CallInFork(NamedTuple):
    """A call that the fork makes itself: as it was asked for, or under the key that its lineage shares."""

    activity: Activity[Any, Any]
    call: BoundCall


async def answer_of_fork(
    execution: NodeExecution, ledger: ForkLedger, activity: Activity[Any, Any], call: BoundCall
) -> CallInFork | CopiedCall:
    """Return the copied call that answers a write, or the call to make.

    Raises Unresolved if the execution parks or a person is asked.
    """
    answer = _decided(execution, ledger, activity, call)
    if isinstance(answer, WaitForAncestor):
        answer = await _settled(execution, ledger, activity, call, answer.call)
    if answer is None:
        return _to_make(execution, ledger, activity, call)
    if isinstance(answer, RecordedOtherwise):
        _ask_person(execution, activity, call, answer.call)
        raise Unresolved
    assert isinstance(answer, FromRecording)
    if answer.records:
        await _land(execution, _use(execution, activity, answer.call))
    return answer.call


def given(execution: NodeExecution, activity: Activity[Any, Any], copied: CopiedCall) -> Any:
    """Return the response of a copied call, and say in the history of the fork where it comes from.

    Raises Refused as the ancestor's node got it, AnswerNotStored.
    """
    run = execution.session.held.run
    visit = f" visit {copied.visit}" if copied.visit else ""
    key, text = f"outlast/answered/{copied.n}", f"{copied.activity} {copied.key}: answered from {copied.of}{visit}"
    execution.log_entries[key] = LogEntry(key, text, {"run": copied.of, "of_visit": copied.visit})
    effect = copied.as_effect(run, 0 if activity.once_per == "run" else run.visit)
    if effect.status is EffectStatus.REFUSED:
        raise EffectRefused(refusal_of(effect), (effect.visit, effect.key))
    return load_answer(activity, effect)


async def recorded_lookup(
    execution: NodeExecution, ledger: ForkLedger, activity: Activity[Any, Any], call: BoundCall
) -> Memo | None:
    """Return the memo of a lookup that a copied one answers, as the fork keeps it; None if the fork makes it.

    Raises Unresolved if a person is asked.
    """
    answer = _decided(execution, ledger, activity, call)
    if answer is None:
        return None
    if isinstance(answer, RecordedOtherwise):
        _ask_person(execution, activity, call, answer.call)
        raise Unresolved
    assert isinstance(answer, FromRecording), "a lookup is settled"
    run, now = execution.session.held.run, execution.session.clock.now
    memo = answer.call.as_memo(run, run.visit if activity.once_per == "visit" else 0, now.business)
    more = (_use(execution, activity, answer.call),) if answer.records else ()
    await _land(execution, memo, *more)
    return memo


async def answer_of_child(execution: NodeExecution, ledger: ForkLedger, call: ChildCall) -> Effect | None:
    """Return the row of a child of the ancestor that answers a start in the fork; None if the fork starts its own.

    The row is stored nowhere. Raises Conflict if the key is that of another child, Unresolved.
    """
    run = execution.session.held.run
    answer = copied_answer(ledger, call)
    if answer is None:
        return None
    if isinstance(answer, RecordedOtherwise):
        what = (
            f"key {call.key} is recorded for {answer.call.activity}, as run {answer.call.external_id} of the ancestor"
        )
        raise Conflict(what, "the same key means the same child, so the input must be the same", "give it another key=")
    assert isinstance(answer, FromRecording), "a child that has not ended is not inherited"
    if answer.records:
        await _land(execution, use_of(run, answer.call, call.visit, execution.session.clock.now.business))
    return answered_by_child(execution, answer.call.as_effect(run, call.visit))


def copied_answer(ledger: ForkLedger, call: ChildCall) -> ForkAnswer:
    """Return how a child of the ancestor answers a start in the fork; None if the fork starts its own."""
    once_per: OncePer = "visit" if call.visit else "run"
    return answer_in_fork(ledger, "child", once_per, call.visit, call.key, lambda copied: copied.digest == call.digest)


def answered_by_child(execution: NodeExecution, row: Effect) -> Effect:
    """Return the row of a child of the ancestor, and say in the history of the fork where its outcome comes from."""
    fork = execution.session.held.fork
    assert fork is not None
    key, of = f"outlast/child/{row.visit}/{row.key}", fork.terms.of
    text = f"{row.activity} {row.key}: answered from {of}, by run {row.external_id}"
    execution.log_entries[key] = LogEntry(key, text, {"run": of, "child": row.external_id})
    return row


def copied_children(ledger: ForkLedger, run: Run, key: str) -> list[Effect]:
    """Return the children of a key that the body of a fork may know: of before the point, or used since.

    One that had not ended has the id that it gets in the fork, and its end is open.
    """
    found: dict[int, Effect] = {}
    for call, visit, _ in known_calls(ledger, "child", key):
        row = call.as_effect(run, visit)
        if call.is_open:
            row = row._replace(external_id=child_id_of(run, visit, key), status=EffectStatus.INTENDED, settled_at=0)
        if visit not in found or not found[visit].settled_at:
            found[visit] = row
    return list(found.values())


def rows_known_in_fork(
    session: RunSession, activity: Activity[Any, Any], key: str
) -> dict[int, tuple[Effect | Memo, int]]:
    """Return the copied calls that the body may have asked for, as rows by visit, with the visit that made each.

    Empty for a run that is no fork.
    """
    ledger, run = session.held.fork, session.held.run
    if ledger is None:
        return {}
    if activity.kind == "lookup":
        known = known_calls(ledger, "lookup", key)
        return {visit: (call.as_memo(run, visit, 0), made_in) for call, visit, made_in in known}
    return {visit: (call.as_effect(run, visit), made_in) for call, visit, made_in in known_calls(ledger, "write", key)}


def shared_key_of(session: RunSession, activity: Activity[Any, Any], key: str) -> str:
    """Return the key of the row that other runs share with this one; '' if the activity has none.

    A call once per root is shared in another way (`tree_calls.py`).
    """
    if activity.once_per == "run" and activity.kind == "write":
        if session.held.fork is not None:
            return lineage_key(session.held.fork.terms.root, key)
        if session.held.fork_notes:
            return lineage_key(session.held.run.run, key)
    return key if activity.once_per == "tenant" else ""


def is_new_to_fork(session: RunSession, effect: Effect) -> bool:
    """Return True if the run is a fork that has yet to ask for a call that its ancestor made after the point."""
    ledger = session.held.fork
    return ledger is not None and effect.key not in session.held.noted and is_later(ledger, effect)


def _decided(execution: NodeExecution, ledger: ForkLedger, activity: Activity[Any, Any], call: BoundCall) -> ForkAnswer:
    session = execution.session
    visit = session.held.run.visit
    scope = visit if activity.once_per == "visit" else 0

    def same(copied: CopiedCall) -> bool:
        if copied.activity != activity.name:
            return False
        if copied.digest == call.digest or is_chosen(session.held.messages, scope, call.key, call.digest):
            return True
        compare, response = activity.compare, copied.response
        return compare is not None and response is not None and compare(copied.digest, response) is None

    return answer_in_fork(ledger, activity.kind, activity.once_per, visit, call.key, same)


def _to_make(execution: NodeExecution, ledger: ForkLedger, activity: Activity[Any, Any], call: BoundCall) -> CallInFork:
    if activity.once_per != "run":
        return CallInFork(activity, call)
    return shared_in_lineage(execution, ledger.terms.root, activity, call)


def shared_in_lineage(execution: NodeExecution, root: str, activity: Activity[Any, Any], call: BoundCall) -> CallInFork:
    """Return a call once per run under the key that its lineage shares. `root`: the oldest ancestor."""
    shared = call._replace(key=lineage_key(root, call.key))
    execution.count_as(f"{activity.name}?{shared.key}")
    return CallInFork(activity.for_lineage(), shared)


def _use(execution: NodeExecution, activity: Activity[Any, Any], copied: CopiedCall) -> Memo:
    run, now = execution.session.held.run, execution.session.clock.now
    return use_of(run, copied, run.visit if activity.once_per == "visit" else 0, now.business)


async def _land(execution: NodeExecution, *memos: Memo) -> None:
    """Record memos before the body gets an answer that they hold. Raises Unresolved."""
    if not execution.may_begin():
        raise Unresolved
    if execution.observed:
        execution.record_observed()
    run = execution.session.held.run
    puts = tuple(Put(MEMO, memo, 0) for memo in memos)
    await execution.session.chain.land(Commit(puts, fence(run), label=f"{run.run} reuse {memos[0].key}"))


def _ask_person(execution: NodeExecution, activity: Activity[Any, Any], call: BoundCall, copied: CopiedCall) -> None:
    visit = execution.session.held.run.visit if activity.once_per == "visit" else 0
    row = copied.as_effect(execution.session.held.run, visit)
    execution.call_person(contradiction(execution.session, activity, call, row))


async def _settled(
    execution: NodeExecution, ledger: ForkLedger, activity: Activity[Any, Any], call: BoundCall, copied: CopiedCall
) -> FromRecording | None:
    """Return the answer of a call that its run had not settled at the start of the fork.

    None if the row that the lineage shares decides: the call may be made, or that row is there. Raises Unresolved while
    the call is open, reopened or uncertain there. A reopened one is not made any more by a run that has ended. If the
    row was purged, the lineage gets an uncertain one, about which a person is asked.
    """
    session = execution.session
    tenant = session.held.run.tenant
    row = await session.store.load(EFFECT, (tenant, copied.of, 0, copied.key))
    if row is None:
        shared = shared_in_lineage(execution, ledger.terms.root, activity, call)
        if await session.store.load(EFFECT, (tenant, "", 0, shared.call.key)) is None:
            await _take_over(execution, shared, copied.of)
        return None
    if row.status is EffectStatus.DONE:
        found = copied._replace(status=row.status.value, response=row.response, error=row.error_text)
        return FromRecording(found, records=False)
    if row.settled_at and not (is_reopened(row) and await _may_act(session, copied.of)):
        return None
    now = session.clock.now
    then = "continues once it is known whether the call happened"
    waiting = WaitingFor("effect", copied.text, who=f"run {copied.of}", since=now.business, then=then)
    execution.park(Parked("park", waiting, Timer(copied.text, now.real + SHARED_LOOK_AGAIN, real=True)))
    raise Unresolved


async def _take_over(execution: NodeExecution, shared: CallInFork, of: str) -> None:
    """Record a call of a run whose ledger was purged as an uncertain one of the lineage. Raises Unresolved."""
    if not execution.may_begin():
        raise Unresolved
    if execution.observed:
        execution.record_observed()
    session, (activity, call) = execution.session, shared
    what = Intent(
        visit=0,
        key=call.key,
        activity=activity.name,
        digest=call.digest,
        args=call.args_bytes,
        undo="",
        timeout_ms=0,
        start_budget_ms=SECOND,
        settle_margin_ms=0,
        shared=True,
        noted=call.key in session.held.noted,
    )
    ordinal, now = session.held.next_ordinal(), session.clock.now
    await session.chain.land(take_over(session.held.run, what, of=of, ordinal=ordinal, now=now))


async def _may_act(session: RunSession, run: str) -> bool:
    """Return True if a run has not ended."""
    row = await session.store.load(RUN, (session.held.run.tenant, run))
    return row is not None and not is_over(row)

"""Calls of activities in a node execution: answered from the ledger, or made (S-17, S-18).

`core/first_answer.py` decides the answer, and `EffectExecutor` makes a call. Lookups are in `lookups.py`.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any

from outlast.core import effect_verbs
from outlast.core.conclude import Parked
from outlast.core.durations import SHARED_LOOK_AGAIN
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
from outlast.core.forks import PREFIX, CopiedCall
from outlast.core.keys import tree_key
from outlast.core.machine import EffectStatus
from outlast.core.rows.effect_rows import EFFECT, STATED, USED, Effect, Memo
from outlast.core.rows.run_columns import Attention, Timer, WaitingFor
from outlast.core.rows.run_rows import RUN, is_over
from outlast.engine.effect_calls import check_transaction
from outlast.engine.effect_executor import EffectExecutor
from outlast.engine.fork_calls import (
    answer_of_fork,
    given,
    is_new_to_fork,
    rows_known_in_fork,
    shared_in_lineage,
    shared_key_of,
)
from outlast.engine.former_digests import call_as_offered, is_same_call
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
from outlast.engine.run_session import RunSession
from outlast.engine.stated_answers import given_answer, load_answer
from outlast.engine.tree_calls import call_in_tree, scope_of, tree_of
from outlast.errors import NotStorable
from outlast.flow.activity import Activity, BoundCall
from outlast.flow.calls import Plan, RecordedCall
from outlast.flow.workflow import Workflow
from outlast.store.port import Store


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
                gathered = compared(session, activity, call, row, ident)
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
                execution.call_person(reason_of(session, activity, call, ident, answer))
                raise Unresolved


async def _record_use(execution: NodeExecution, effect: Effect, *, asked: bool = True) -> None:
    """Record that this run uses the answer of another run's effect. `asked`: the body calls it. Raises Unresolved."""
    if not execution.may_begin():
        raise Unresolved
    if execution.observed:
        execution.record_observed()
    session = execution.session
    noted, now = effect.key in session.held.noted, session.clock.now
    await session.chain.land(effect_verbs.use(session.held.run, effect, noted=noted, now=now, asked=asked))


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
            check_transaction(activity.title, activity.transaction, store, activity.where)
            if activity.undoing is not None:
                check_transaction(activity.title, activity.undoing.transaction, store, activity.where)


async def perform(execution: NodeExecution, activity: Activity[Any, Any], call: BoundCall) -> Any:
    """Return the answer of an activity call: recorded, or made now.

    Raises Refused for a recorded refusal, AnswerNotStored for a call that was done without a stored answer.
    """
    execution.note_progress()
    if execution.closing:
        await execution.never()
    session, expected = execution.session, execution.expected
    if (activity.once_per_in_child if session.held.run.root else activity.once_per) == "root":  # as `scope_of`
        activity, call = await call_in_tree(execution, activity, call)
    visit = session.held.run.visit if activity.once_per == "visit" else 0
    ident = (visit, call.key)
    effect = session.held.effects.get(ident)
    if effect is None and activity.once_per == "run" and (visit := session.held.visit_of(activity.name, call.key)):
        ident = (visit, call.key)
        effect = session.held.effects[ident]
    if effect is None and session.held.fork is not None:
        decide = partial(answer_of_fork, execution, session.held.fork, activity, call)
        decided = await execution.deduplicate((visit, f"{PREFIX}{call.digest}"), decide)
        if isinstance(decided, CopiedCall):
            return given(execution, activity, decided)
        activity, call = decided
        ident = (0 if activity.once_per == "tenant" else visit, call.key)
        effect = session.held.effects.get(ident)
    elif effect is None and session.held.fork_notes and activity.once_per == "run":
        activity, call = shared_in_lineage(execution, session.held.run.run, activity, call)
        ident = (0, call.key)
        effect = session.held.effects.get(ident)
    if effect is None and session.held.approvals and activity.has_sets:
        call = call_as_offered(activity, call, session.held.run, session.held.approvals.values())
    served, gathered = call, NOTHING  # `served`: the call as its row has it
    while True:
        first = execution.first_digests.get(ident)
        facts = FIRST if first is None and expected is None else _facts(execution, activity, served, ident, effect)
        answer = answer_of(effect, call, activity, facts, gathered)
        if isinstance(answer, Compare):
            assert effect is not None
            gathered = compared(session, activity, call, effect, ident)
            served = _as_recorded(activity, call, effect, gathered)
        elif isinstance(answer, Hold):
            assert expected is not None
            await expected.hold(activity.name, served)
            gathered = gathered._replace(held=True)
        else:
            break
    if first is None and not isinstance(answer, Contradiction | Linger):
        execution.first_digests[ident] = served.digest
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
    execution.call_person(reason_of(session, activity, served, ident, answer))
    return await execution.never()


def _facts(
    execution: NodeExecution, activity: Activity[Any, Any], call: BoundCall, ident: EffectKey, effect: Effect | None
) -> VisitFacts:
    """Return what an execution that is not the first one of its visit, or has begun the call, knows about a key."""
    session, expected, first = execution.session, execution.expected, execution.first_digests.get(ident, "")
    joins = first != call.digest and ident in execution.calls_in_flight
    return VisitFacts(
        holds=effect is None and expected is not None and expected.holds(activity.name),
        lingering=expected is not None and expected.lingering,
        first_digest=first,
        joins=joins and is_chosen(session.held.messages, *ident, call.digest),
        noted=call.key in session.held.noted,
    )


def compared(
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


def reason_of(
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
    """Return the calls of a run, or of its tree or tenant, with the activity and the key of a plan.

    A person's answer among them is given to the body. An answer of another run is used, so that it is not undone.
    Raises StoreError, Unresolved.
    """
    session = execution.session
    copied, shared_key = rows_known_in_fork(session, activity, plan.key), shared_key_of(session, activity, plan.key)
    if scope_of(session, activity) == "root":
        shared_key = tree_key(await tree_of(session), plan.key)
    rows = {visit: row for visit, (row, _) in copied.items()}
    if activity.kind == "lookup":
        rows |= {visit: memo for (visit, key), memo in session.held.memos.items() if key == plan.key}
    else:
        keys = (plan.key, shared_key)
        rows |= {visit: effect for (visit, key), effect in session.held.effects.items() if key in keys}
    if shared_key and 0 not in rows:
        shared = await session.store.load(EFFECT, (session.held.run.tenant, "", 0, shared_key))
        rows |= {0: shared} if shared is not None and not is_new_to_fork(session, shared) else {}
    found: list[RecordedCall[Any]] = []
    for visit, row in sorted(rows.items()):
        if row.activity != activity.name:
            if visit not in (0, session.held.run.visit):
                continue
            found.append(RecordedCall(visit, same=False, done=False, response=None))
            continue
        done = row.response is not None if isinstance(row, Memo) else row.status is EffectStatus.DONE
        same = is_same_call(activity, row, plan.arguments, plan.digest)
        mine = isinstance(row, Memo) or row.by_run in ("", session.held.run.run)
        if done and same and isinstance(row, Effect) and not mine:
            done = effect_verbs.is_usable(row)
            if done and (row.shared != USED or row.key not in session.held.noted):
                await _record_use(execution, row, asked=False)
        unstored = answer_not_stored(row) if done and isinstance(row, Effect) and row.response is None else None
        response = await _recorded_response(execution, activity, row) if done and unstored is None else None
        made_in = visit or (row.first_visit if isinstance(row, Effect) and mine else 0)
        if visit in copied and row is copied[visit][0]:
            made_in = copied[visit][1]
        under_way = isinstance(row, Effect) and bool(row.child_text) and not row.settled_at
        found.append(RecordedCall(visit, same, done, response, unstored, made_in, under_way))
    return found


async def _recorded_response(execution: NodeExecution, activity: Activity[Any, Any], row: Effect | Memo) -> Any:
    if isinstance(row, Memo):
        return activity.response_codec.load(row.response or b"null")
    if row.shared == STATED and row.by_run in ("", execution.session.held.run.run):
        return await given_answer(execution, activity, row)
    return load_answer(activity, row)

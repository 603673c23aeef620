"""The end of a run: open effects settle, its children end, then its effects are undone, the latest first (S-19).

No forward call begins here. An undo is an effect with its own key, intent and record. Its record and the mark on the
undone effect land in one commit. A failed undo stops the rest and calls an operator.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

from outlast.core import compensation as core
from outlast.core import effect_verbs
from outlast.core.codec import digest
from outlast.core.failed_calls import EffectKey
from outlast.core.living_forks import kept_by_forks
from outlast.core.machine import EffectStatus
from outlast.core.mailbox import is_reopened
from outlast.core.rows.effect_columns import ANSWER_NOT_STORED, NO_ERROR, ChildUndo
from outlast.core.rows.effect_rows import STATED, USED, Effect
from outlast.engine.child_runs import end_children, undone_by_run
from outlast.engine.effect_executor import EffectExecutor
from outlast.engine.node_execution import LeftOpen, NodeExecution, Unresolved
from outlast.engine.node_result import EffectRefused, uncertain, undo_failed
from outlast.engine.stated_answers import ask_again, load_answer
from outlast.errors import AnswerNotStored, Conflict, DefinitionError, LimitExceeded, NotFound, NotStorable
from outlast.flow.activity import BoundCall


async def unwind(execution: NodeExecution) -> None:
    """Settle open effects and undo the others; return when nothing is left."""
    await _settle_all(execution)
    session = execution.session
    if session.held.children:
        await end_children(execution)
    for effect in core.owed(session.held.run, session.held.effects.values()):
        if execution.services.lease.draining:
            execution.hand_back("the worker drains")
            await execution.never()
        await _undo(execution, effect)


# --- open effects ------------------------------------------------------------------------------------
async def _settle_all(execution: NodeExecution) -> None:
    """Settle each open effect before the first undo (EFF-8)."""
    settling = [
        asyncio.ensure_future(_settled(execution, ident, make)) for ident, make in left_open(execution, ending=True)
    ]
    for effect in execution.session.held.open_effects():
        if effect.status is EffectStatus.UNCERTAIN and core.is_own(execution.session.held.run, effect):
            execution.call_person(uncertain(execution.session, effect))
    await asyncio.gather(*settling)
    if execution.closing:
        await execution.never()


async def _settled(execution: NodeExecution, ident: EffectKey, make: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    with suppress(EffectRefused, AnswerNotStored):  # it did not happen, or it was done without a stored response
        await execution.deduplicate(ident, make)


def left_open(execution: NodeExecution, *, ending: bool, sent_only: bool = False) -> list[LeftOpen]:
    """Return the effects that earlier executions left open, each with a function that settles it.

    `ending`: the run ends, so they are not made any more. `sent_only`: without those that are known not to have
    happened, because the code may not ask for them any more.
    """
    run = execution.session.held.run
    mine = [
        e for e in execution.session.held.open_effects() if e.status is EffectStatus.INTENDED and core.is_own(run, e)
    ]
    if sent_only:
        mine = [e for e in mine if e.settle_after]
    return [((e.visit, e.key), partial(_find_outcome, execution, e, ending)) for e in mine]


async def _find_outcome(execution: NodeExecution, effect: Effect, ending: bool) -> Any:
    session, ident = execution.session, (effect.visit, effect.key)
    try:
        activity = execution.workflow.activity(effect.activity)
        args, kwargs = activity.load_args(effect.args)
    except (NotFound, DefinitionError) as error:
        session.chain.submit(
            effect_verbs.mark_uncertain(session.held.run, effect, "activity_gone", error.what, now=session.clock.now)
        )
    except (NotStorable, LimitExceeded) as error:
        session.chain.submit(
            effect_verbs.mark_uncertain(
                session.held.run, effect, "unknown_outcome", f"{error.what}: {error.why}", now=session.clock.now
            )
        )
    else:
        call = BoundCall(args, kwargs, effect.key, effect.args, effect.digest)
        return await EffectExecutor(execution, activity, call, ident, ending=ending).drive()
    execution.call_person(uncertain(execution.session, session.held.effects[ident]))
    raise Unresolved


# --- undoing -----------------------------------------------------------------------------------------
async def _undo(execution: NodeExecution, original: Effect) -> None:
    """Undo one effect. Never returns if it fails."""
    ident = core.undo_ident(original)
    row = execution.session.held.effects.get(ident)
    assert row is None or row.undoes == f"{original.visit}:{original.key}", "keys under undo/ are the engine's own"
    if original.child.undo is not None and original.child.undo.is_run:
        await _undo_by_run(execution, original, row, original.child.undo)
        return
    if row is None or row.status is EffectStatus.INTENDED or is_reopened(row):
        undoing = _prepared(execution, original, row)
        if undoing is None:
            await execution.never()
            return
        if isinstance(undoing, EffectExecutor):
            try:
                await execution.deduplicate(ident, undoing.drive)
                return
            except EffectRefused:
                pass  # the row shows it to the operator who is called now
        else:
            await _withhold(execution, original, row, *undoing)
    execution.call_person(undo_failed(execution.session, execution.session.held.effects[ident]))
    await execution.never()


async def _undo_by_run(execution: NodeExecution, original: Effect, row: Effect | None, undo: ChildUndo) -> None:
    """Undo a completed child by a run. Never returns while it lives, or if it has failed."""
    why = kept_by_forks(execution.session.held.fork_notes, original)
    if row is None and why:
        await _withhold(execution, original, row, "used_by_others", why)
    elif row is None or not core.is_refused(row):
        try:
            if await undone_by_run(execution, original, undo):
                return
        except (NotFound, DefinitionError, LimitExceeded, Conflict) as error:
            await _withhold(execution, original, row, "not_started", f"{error.what}: {error.why}")
    execution.call_person(undo_failed(execution.session, execution.session.held.effects[core.undo_ident(original)]))
    await execution.never()


def _prepared(
    execution: NodeExecution, original: Effect, row: Effect | None
) -> EffectExecutor | tuple[str, str] | None:
    """Return the executor of an undo, or the code and the reason why it must not be called.

    None: the answer that a person stated does not fit, so the effect is uncertain again and a person is called.
    """
    why = kept_by_others(original) or kept_by_forks(execution.session.held.fork_notes, original)
    if why and not (row is not None and is_reopened(row)):
        return "used_by_others", why
    plan = original.child.undo if original.child_text else None
    try:
        activity = execution.workflow.activity(original.activity if plan is None else plan.activity)
        args, kwargs = activity.load_args(original.args if plan is None else plan.arguments.encode())
    except (NotFound, DefinitionError) as error:
        return "activity_gone", error.what
    except (NotStorable, LimitExceeded) as error:
        return "not_loadable", f"{error.what}: {error.why}"
    key, undoes = core.undo_ident(original)[1], (original.visit, original.key)
    if plan is not None:
        call = BoundCall(args, kwargs, key, plan.arguments.encode(), digest("undo", original.key, plan.digest))
        return EffectExecutor(execution, activity, call, core.undo_ident(original), undoes=undoes)
    if original.response is None:
        return ANSWER_NOT_STORED, f"its undo needs the answer, which is not stored: {(original.error or NO_ERROR).text}"
    try:
        done = load_answer(activity, original)
    except NotStorable as error:
        if original.shared != STATED:
            return "not_loadable", f"{error.what}: {error.why}"
        ask_again(execution, original, error)
        return None
    if activity.undoing is None:
        return "undo_gone", f"{activity.title} has no undo any more"
    call = BoundCall((done, *args), kwargs, key, original.args, digest("undo", original.key, original.digest))
    return EffectExecutor(execution, activity.undoing, call, core.undo_ident(original), undoes=undoes)


def kept_by_others(original: Effect) -> str:
    """Return why an operator must decide about an undo: another run relies on the effect; else '' (S-18)."""
    return "another run of this tenant has used its result" if original.shared == USED else ""


async def _withhold(execution: NodeExecution, original: Effect, row: Effect | None, code: str, detail: str) -> None:
    """Record that an undo is not called. If an earlier holder may have called it, it is uncertain."""
    session = execution.session
    if row is not None and row.status is EffectStatus.INTENDED:
        session.chain.submit(effect_verbs.mark_uncertain(session.held.run, row, code, detail, now=session.clock.now))
        return
    ordinal = row.ordinal if row is not None else session.held.next_ordinal()
    commit = core.withhold(session.held.run, original, row, code, detail, ordinal=ordinal, now=session.clock.now)
    session.chain.submit(commit)

"""The end of a run: open effects settle, then its effects are undone, the latest first (S-19).

No forward call begins here. An undo is an effect with its own key, intent and record. Its record and the mark on the
undone effect land in one commit. A failed undo stops the rest and calls an operator.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

from typing_extensions import override

from outlast.core import compensation as core
from outlast.core import effect_verbs
from outlast.core.codec import digest
from outlast.core.commit import Commit, Instant, Put
from outlast.core.effect_steps import CANCELLED
from outlast.core.machine import EffectStatus, Reason
from outlast.core.recovery import used_up
from outlast.core.rows import USED, Effect
from outlast.core.run_columns import Attention
from outlast.engine.activity_calls import TransactionalExecutor, executor_for
from outlast.engine.effect_executor import EffectExecutor, Next
from outlast.engine.node_execution import LeftOpen, NodeExecution, Unresolved
from outlast.engine.node_result import EffectRefused, attention, is_reopened, refusal_of, uncertain
from outlast.engine.permission import Permission, covered
from outlast.engine.run_session import EffectKey
from outlast.errors import DefinitionError, LimitExceeded, NotFound, NotStorable
from outlast.flow.activity import BoundCall
from outlast.flow.undo import UndoTerms
from outlast.telemetry import WORKFLOW_COMPENSATIONS

BY_THE_ENGINE = "outlast: the run ends"
SHOWN_MAX = 10


async def unwind(execution: NodeExecution) -> None:
    """Settle open effects and undo the others; return when nothing is left."""
    await _settle_all(execution)
    session = execution.session
    for effect in core.owed(session.run, session.effects.values()):
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
    for effect in execution.session.open_effects():
        if effect.status is EffectStatus.UNCERTAIN and core.is_own(execution.session.run, effect):
            execution.call_person(uncertain(execution.session, effect))
    await asyncio.gather(*settling)
    if execution.closing:
        await execution.never()


async def _settled(execution: NodeExecution, ident: EffectKey, make: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    with suppress(EffectRefused):  # it did not happen, so there is nothing to undo
        await execution.deduplicate(ident, make)


def left_open(execution: NodeExecution, *, ending: bool) -> list[LeftOpen]:
    """Return the effects that earlier executions left open, each with a function that settles it.

    `ending`: the run ends, so they are not made any more.
    """
    run = execution.session.run
    mine = [e for e in execution.session.open_effects() if e.status is EffectStatus.INTENDED and core.is_own(run, e)]
    return [((e.visit, e.key), partial(_find_outcome, execution, e, ending)) for e in mine]


async def _find_outcome(execution: NodeExecution, effect: Effect, ending: bool) -> Any:
    session, ident = execution.session, (effect.visit, effect.key)
    try:
        activity = execution.workflow.activity(effect.activity)
        args, kwargs = activity.load_args(effect.args)
    except (NotFound, DefinitionError) as error:
        session.submit(effect_verbs.mark_uncertain(session.run, effect, "activity_gone", error.what, now=session.now))
    except (NotStorable, LimitExceeded) as error:
        session.submit(
            effect_verbs.mark_uncertain(
                session.run, effect, "unknown_outcome", f"{error.what}: {error.why}", now=session.now
            )
        )
    else:
        call = BoundCall(args, kwargs, effect.key, effect.args, effect.digest)
        make = (
            partial(_SettlingExecutor, execution, activity, call, ident)
            if ending
            else executor_for(execution, activity, call, ident)
        )
        return await make().drive()
    execution.call_person(uncertain(execution.session, session.effects[ident]))
    raise Unresolved


class _SettlingExecutor(EffectExecutor):
    """Executor that finds out the outcome of an open effect of a run that ends.

    It calls again only if that tells the outcome and can be undone: `resend`, within its limits.
    """

    @override
    async def settle_open(self, effect: Effect) -> Any:
        if effect.settle_after == 0:
            return self._refuse(effect, CANCELLED, "the run ended before another attempt")
        if self.callee.mode == "reconcile":
            return await self._after_settling(effect)
        if self._approval_lapsed(effect):
            return self._lapse(effect)
        if self._window_open(effect):
            await self._wait_for_next(effect)
            if effect_verbs.tries(effect) < self.callee.retry.attempts:
                self._maybe_done = True
                return Next.CALL
            return self._mark_uncertain(effect, *used_up(effect))
        return self._mark_uncertain(effect, "interrupted", "its outcome is not known and the run ends")

    @override
    def _window_open(self, effect: Effect) -> bool:
        return core.can_undo(effect) and super()._window_open(effect)

    @override
    async def _did_not_happen(self, effect: Effect) -> Any:
        return self._refuse(effect, CANCELLED, "the receiver does not know it")

    @override
    async def _allowed(self, previous: Effect | None) -> Permission | None:
        """Return the permission of the first attempt, without asking the policy again."""
        assert previous is not None
        if previous.covered_until:
            return covered(self.execution, previous.allowed_by, previous.covered_until)
        return Permission(previous.allowed_by)

    @override
    async def _check_cancel(self, effect: Effect) -> None:
        """Ignore a cancel, because the run is ending."""


# --- undoing -----------------------------------------------------------------------------------------
async def _undo(execution: NodeExecution, original: Effect) -> None:
    """Undo one effect. Never returns if it fails."""
    ident = core.undo_ident(original)
    row = execution.session.effects.get(ident)
    assert row is None or row.undoes == f"{original.visit}:{original.key}", "keys under undo/ are the engine's own"
    if row is None or row.status is EffectStatus.INTENDED or is_reopened(row):
        undoing = _prepared(execution, original, row)
        if isinstance(undoing, _UndoExecutor):
            try:
                await execution.deduplicate(ident, undoing.drive)
                return
            except EffectRefused:
                pass  # the row shows it to the operator who is called now
        else:
            await _withhold(execution, original, row, *undoing)
    execution.call_person(undo_failed(execution, execution.session.effects[ident]))
    await execution.never()


def _prepared(execution: NodeExecution, original: Effect, row: Effect | None) -> "_UndoExecutor | tuple[str, str]":
    """Return the executor of an undo, or the code and the reason why it must not be called."""
    if (why := kept_by_others(original)) and not (row is not None and is_reopened(row)):
        return "used_by_others", why
    try:
        activity = execution.workflow.activity(original.activity)
        args, kwargs = activity.load_args(original.args)
        done = activity.response_codec.load(original.response or b"null")
    except (NotFound, DefinitionError) as error:
        return "activity_gone", error.what
    except (NotStorable, LimitExceeded) as error:
        return "not_loadable", f"{error.what}: {error.why}"
    if activity.undoing is None:
        return "undo_gone", f"{activity.title} has no undo any more"
    key = core.undo_ident(original)[1]
    call = BoundCall((done, *args), kwargs, key, original.args, digest("undo", original.key, original.digest))
    undoing = _TransactionalUndo if activity.undoing.transaction else _UndoExecutor
    return undoing(execution, activity.undoing, call, original)


def kept_by_others(original: Effect) -> str:
    """Return why an operator must decide about an undo: another run relies on the effect; else '' (S-18)."""
    return "another run of this tenant has used its result" if original.shared == USED else ""


async def _withhold(execution: NodeExecution, original: Effect, row: Effect | None, code: str, detail: str) -> None:
    """Record that an undo is not called. If an earlier holder may have called it, it is uncertain."""
    session = execution.session
    if row is not None and row.status is EffectStatus.INTENDED:
        session.submit(effect_verbs.mark_uncertain(session.run, row, code, detail, now=session.now))
        return
    ordinal = row.ordinal if row is not None else session.next_ordinal()
    commit = core.withhold(session.run, original, row, code, detail, ordinal=ordinal, now=session.now)
    session.submit(commit)


class _UndoExecutor(EffectExecutor):
    """Executor of the undo of one effect."""

    def __init__(self, execution: NodeExecution, terms: UndoTerms, call: BoundCall, original: Effect) -> None:
        super().__init__(execution, terms, call, core.undo_ident(original))
        self._of: EffectKey = (original.visit, original.key)

    @property
    def _original(self) -> Effect:
        """Return the undone effect, which the intent of the undo may have marked."""
        return self.session.effects[self._of]

    @override
    async def _allowed(self, previous: Effect | None) -> Permission | None:
        """Allow it: the policy allowed the effect that is undone (S-19)."""
        return Permission(BY_THE_ENGINE)

    @override
    def _intended(
        self, what: effect_verbs.Intent, previous: Effect | None, allowed: Permission, ordinal: int, now: Instant
    ) -> Commit:
        return core.intend_undo(self.session.run, what, previous, self._original, ordinal=ordinal, now=now)

    @override
    async def _check_cancel(self, effect: Effect) -> None:
        """Ignore a cancel, because the run is ending."""

    @override
    def _recorded(self, effect: Effect, response: bytes) -> Commit:
        self._counted()
        return core.record_undo(self.session.run, effect, self._original, now=self.session.now)

    @override
    def _found(self, effect: Effect, response: bytes, external_id: str) -> Commit:
        self._counted()
        return core.settle_undo(self.session.run, effect, self._original, now=self.session.now, external_id=external_id)

    def _counted(self) -> None:
        self.execution.services.counted(WORKFLOW_COMPENSATIONS, self.session.run.workflow, self._original.activity)

    @override
    def _call_person(self, effect: Effect) -> None:
        self.execution.call_person(undo_failed(self.execution, effect))


class _TransactionalUndo(TransactionalExecutor, _UndoExecutor):
    """Executor of an undo in a transaction: one COMMIT marks the effect undone."""

    @override
    @property
    def _original(self) -> Effect:
        """Return the undone effect as the intent leaves it before it has landed."""
        puts = [write for write in (self._begun.writes if self._begun else ()) if isinstance(write, Put)]
        rows = [put.row for put in puts if isinstance(put.row, Effect) and (put.row.visit, put.row.key) == self._of]
        return rows[0] if rows else super()._original


def undo_failed(execution: NodeExecution, undo: Effect) -> Attention:
    """Return the reason to call an operator: the undo, its outcome, and the effects that remain."""
    run, effects = execution.session.run, execution.session.effects.values()
    error = refusal_of(undo)
    became = "it is not known whether it happened" if undo.status is EffectStatus.UNCERTAIN else "it was not done"
    of = undo.undoes.partition(":")[2]
    detail = (
        f"the undo of {undo.activity} {of}: {became}: {error.code}: {error.detail}; "
        f"undone: {_shown(core.undone(run, effects))}; to undo: {_shown(core.owed(run, effects))}"
    )
    return attention(execution.session, Reason.UNDO_FAILED, detail, undo)


def _shown(effects: list[Effect]) -> str:
    more = f" and {len(effects) - SHOWN_MAX} more" if len(effects) > SHOWN_MAX else ""
    return (", ".join(f"{e.activity} {e.key}" for e in effects[:SHOWN_MAX]) or "nothing") + more

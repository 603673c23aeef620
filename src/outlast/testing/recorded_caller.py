"""The caller of a replay: it answers each call from a recording in place of calling."""

import inspect
import json
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python
from typing_extensions import override

from outlast.core.crash_points import point
from outlast.core.keys import ADMISSION
from outlast.core.rows.effect_columns import EffectError
from outlast.core.rows.run_rows import RUN
from outlast.engine.attempts import ActivityCaller, CallAttempt, PendingCall
from outlast.engine.thread_pool import DaemonPool
from outlast.engine.user_code import rebuilt
from outlast.flow.activity import Activity, KeyedLookup
from outlast.flow.calls import this_call
from outlast.flow.options import Callee
from outlast.flow.outcomes import Refused
from outlast.flow.undo import UndoTerms
from outlast.store.port import Store
from outlast.testing.recorded_calls import Difference, MadeCall, RecordedAnswers
from outlast.upkeep.recording import AnsweredCall, CallKind

DIFFERS = "recording_differs"


class RecordedCaller(ActivityCaller):
    """A caller that answers from a recording in place of calling."""

    def __init__(self, clock: Any, store: Store, answers: RecordedAnswers) -> None:
        super().__init__(clock, DaemonPool(1))
        self._store = store
        self._answers = answers

    @override
    async def _look_up(self, attempt: CallAttempt, call: PendingCall) -> Any:
        if attempt.callee.name == ADMISSION:  # the engine's own record of a decision
            return await attempt.callee.fn(*attempt.args, **attempt.kwargs)
        point("call:before", (attempt.label,))
        value = await self._answer(attempt, "lookup")
        point("call:after", (attempt.label,))
        return value

    @override
    async def _run(self, attempt: CallAttempt) -> Any:
        point("call:before", (attempt.label,))
        self._check(attempt.permit)
        if attempt.sending is not None:
            attempt.sending.started()
        value = await self._answer(attempt, kind_of(attempt.callee))
        point("call:after", (attempt.label,))
        return value

    async def _answer(self, attempt: CallAttempt, kind: CallKind) -> Any:
        made = await self._made(attempt, kind)
        found = self._answers.answer(made)
        if isinstance(found, Difference):
            await self.differs(found)
            raise Refused(DIFFERS, str(found))
        await self.receive(attempt, made, found)
        attempt.used.extend(found.used)
        if found.external_id:
            this_call().set_external_id(found.external_id)
        if found.error is not None:
            code, detail = found.error
            raise rebuilt(EffectError(code, detail)) if found.observed else Refused(code, detail)
        return attempt.callee.response_codec.load(found.response)

    async def _made(self, attempt: CallAttempt, kind: CallKind) -> MadeCall:
        run = await self._store.load(RUN, (attempt.tenant, attempt.run_id))
        assert run is not None
        arguments = arguments_of(attempt)
        return MadeCall(kind, attempt.callee.name, attempt.key, run.node, run.visit, arguments)

    async def differs(self, difference: Difference) -> None:
        """Learn that a call differs from the recording."""

    async def receive(self, attempt: CallAttempt, made: MadeCall, found: AnsweredCall) -> None:
        """Do what a receiver does before it answers."""


def kind_of(callee: Callee) -> CallKind:
    """Return the kind of an activity, or of its undo."""
    return "undo" if isinstance(callee, UndoTerms) else "activity"


def arguments_of(attempt: CallAttempt) -> dict[str, Any] | None:
    """Return the arguments of a call as plain data; None for an undo, whose key has the effect."""
    callee = attempt.callee
    if isinstance(callee, UndoTerms) or not isinstance(callee, Activity):
        return None
    if isinstance(callee, KeyedLookup):
        names = list(inspect.signature(callee.fn).parameters)[1:]
        given = {**dict(zip(names, attempt.args[1:], strict=False)), **attempt.kwargs}
        return {name: _plain(value) for name, value in given.items()}
    return dict(json.loads(callee.plan(*attempt.args, **attempt.kwargs).arguments))


def _plain(value: Any) -> Any:
    """Return a value of this process as plain data. An object that is no data is its name."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, str | int | float | bool | list | tuple | dict | None):
        return to_jsonable_python(value, fallback=_named)
    return _named(value)


def _named(value: Any) -> str:
    name = getattr(value, "name", None)
    return name if isinstance(name, str) else type(value).__name__

"""Calls that an execution must ask for, because earlier ones of the visit have recorded them (S-27, EFF-9).

`core/divergence.py` has the rule. An execution has `ExpectedCalls` only if the visit has recorded something, so a first
execution pays nothing for it.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from outlast.core import divergence, effect_verbs
from outlast.core.divergence import HeldCall, Missing, Requested
from outlast.core.durations import FOREIGN_AWAIT_GRACE, SECOND
from outlast.core.failed_calls import EffectKey
from outlast.core.machine import EffectStatus, Reason
from outlast.core.rows.run_columns import Attention
from outlast.engine.body_tasks import calling_line, knows_context_of
from outlast.engine.run_session import RunSession
from outlast.errors import DefinitionError, NotFound
from outlast.flow.activity import BoundCall
from outlast.flow.calls import Plan
from outlast.flow.workflow import Workflow


class CallInFlight(Protocol):
    """A call that an execution has started."""

    @property
    def task(self) -> asyncio.Task[Any]:
        """Return the task that makes the call."""
        ...


class ExecutingNode(Protocol):
    """Execution of a node as its expected calls see it (`NodeExecution`)."""

    session: RunSession
    workflow: Workflow[Any]
    closing: bool
    asked: set[str]

    @property
    def calls_in_flight(self) -> Mapping[EffectKey, CallInFlight]:
        """Calls that have started and have not ended."""
        ...

    def wake(self) -> None:
        """Look again at whether the body is at rest."""
        ...

    def waiting_at(self) -> str:
        """Return the line of the body that waits."""
        ...

    def give_up_held(self, diverged: Attention) -> None:
        """Ask a person, because the body gave up a call that was held."""
        ...

    async def never(self) -> Any:
        """Wait until the execution is cancelled."""
        ...

    async def woken_within(self, seconds: float) -> Any:
        """Wait until `wake` is called, at most for this time."""
        ...

    def waits_forever(self, task: asyncio.Task[Any]) -> bool:
        """Return True if only the execution can wake a task."""
        ...


class ExpectedCalls:
    """Names for which an execution has yet to ask, and its new calls that are held in the meantime."""

    def __init__(
        self, execution: ExecutingNode, missing: Missing, requested: Mapping[str, Requested] | None = None
    ) -> None:
        self.missing = missing
        self.requested = dict(requested or {})  # requests for approval that it has not asked for, by name
        self.held: list[tuple[HeldCall, asyncio.Future[None]]] = []
        self.lingering = False
        """The body has returned, and a task that it left behind may still ask for what is missing."""
        self._execution = execution
        self._asked: set[str] = set()
        run = execution.session.held.run
        self._claim_ms = (run.due_at or 0) - execution.session.clock.now.real

    def ask_for(self, names: Iterable[str]) -> None:
        """Note that the body asks for these names. New calls that waited for the last of them may begin."""
        for name in names:
            self._asked.add(name)
            activity = name.partition("?")[0]
            group = self.missing.get(activity)
            if group is None:
                if self.requested and self.requested.pop(name, None) is not None:
                    self._let_go()
                continue
            self.requested.pop(name, None)
            group.discard(name)
            if not group:
                del self.missing[activity]
                if self.lingering:
                    self._execution.wake()
            self._let_go()

    def _let_go(self) -> None:
        if self._execution.closing:
            return
        for held, future in self.held:
            if not future.done() and not self.holds(held.activity, is_request=held.is_request):
                future.set_result(None)

    def holds(self, activity: str, *, is_request: bool = False) -> bool:
        """Return True if a new call of an activity must wait. `is_request`: it is a request for approval of a call."""
        if not is_request and activity in self.missing:
            return True
        left = [each for each in self.requested.values() if each.activity == activity] if self.requested else ()
        return divergence.asks_again(left)

    async def hold(self, activity: str, call: BoundCall | Plan[Any], *, is_request: bool = False) -> None:
        """Wait until this execution has asked for all recorded calls of an activity.

        Nothing is decided, asked or recorded for the call before. If the body can go no further, a person is asked.
        """
        execution = self._execution
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        where = calling_line() or execution.waiting_at()
        arguments = call.arguments if isinstance(call, Plan) else call.args_bytes
        each = (HeldCall(activity, call.key, arguments, where, is_request), future)
        self.held.append(each)
        execution.wake()
        try:
            await future
        except asyncio.CancelledError:
            if not execution.closing:  # the author's code gave it up: what it does next would follow from that
                execution.give_up_held(self.diverged())
            raise
        finally:
            self.held.remove(each)
        if execution.closing or self.lingering:
            await execution.never()

    def is_held(self, waiter: object) -> bool:
        """Return True if a future is that of a held call."""
        return any(waiter is future for _, future in self.held)

    def diverged(self) -> Attention:
        """Return the reason to ask a person, because this execution asks for other keys than the one before."""
        session, missing = self._execution.session, self.missing
        node, path = session.held.run.node, divergence.reopened_in(session.held.run, session.held.messages)
        if self.held:
            calls = [call for call, _ in self.held]
            missing = self._held_by(calls)
            detail = divergence.held_too_long(node, calls, missing, path)
        else:
            detail = divergence.not_asked_for(node, missing, session.held.effects, path)
        return self._to_person(detail, missing)

    def _held_by(self, calls: Iterable[HeldCall]) -> Missing:
        """Return the names for which these calls wait, by activity."""
        found: Missing = {}
        for call in calls:
            names = () if call.is_request else self.missing.get(call.activity, ())
            asked = (each.name for each in self.requested.values() if each.activity == call.activity)
            found.setdefault(call.activity, set()).update(names, asked)
        return found

    def stuck(self) -> Attention | None:
        """Return the reason to ask a person about a body that rests: its new calls are held, or it waits in a loop."""
        return self.diverged() if self.held else self._waits_in_a_loop()

    def _waits_in_a_loop(self) -> Attention | None:
        left, execution = self.missing.get("", ()), self._execution
        if not left:
            return None
        session = execution.session
        run, waits, messages = session.held.run, session.held.waits.values(), session.held.messages
        if not divergence.waits_in_a_loop(run, waits, messages, left, execution.asked):
            return None
        return self._to_person(divergence.never_returns(run.node, left, execution.waiting_at()), {"": set(left)})

    def _to_person(self, detail: str, missing: Missing) -> Attention:
        session = self._execution.session
        entry = Attention(Reason.NODE_DIVERGED, session.clock.now.business, detail, seen=session.held.inbox_read)
        return entry._replace(missing=divergence.in_order(missing))

    def patience(self) -> float:
        """Return the seconds until half of the claim's time is left, 0 if less is left already."""
        session = self._execution.session
        left = (session.held.run.due_at or 0) - session.clock.now.real
        return max(0.0, (left - self._claim_ms / 2) / SECOND)

    async def linger(self, body: asyncio.Task[Any]) -> None:
        """Let tasks that a returned body left behind ask for what is missing. They begin nothing new (S-16)."""
        if body.cancelled() or body.exception() is not None:
            return
        self.lingering = True
        loop, execution = asyncio.get_running_loop(), self._execution
        until = loop.time() + self.patience()
        while self.missing and not execution.closing and loop.time() < until and self._left_behind(body):
            await execution.woken_within(FOREIGN_AWAIT_GRACE / SECOND / 10)

    def _left_behind(self, body: asyncio.Task[Any]) -> bool:
        """Return True if a task that knows the context of this execution may still go on."""
        execution = self._execution
        calls = {flight.task for flight in execution.calls_in_flight.values()}
        others = asyncio.all_tasks() - calls - {body, asyncio.current_task()}
        return any(
            knows_context_of(task.get_coro(), execution) and not execution.waits_forever(task) for task in others
        )

    def refuse_dropped(self) -> None:
        """Refuse effects that were not sent and that the code, as a person or a migration said, asks for no more."""
        session = self._execution.session
        for effect in session.held.open_effects():
            name = f"{effect.activity}?{effect.key}"
            if effect.status is EffectStatus.INTENDED and not effect.undoes and name not in self._asked:
                why = "it was not sent, and its node does not make it any more"
                session.chain.submit(
                    effect_verbs.refuse(session.held.run, effect, "dropped", why, now=session.clock.now)
                )


def expected_by(execution: ExecutingNode) -> ExpectedCalls | None:
    """Return what the execution of a node must ask for, None for the first one of a run.

    The rows of the session were read in the present visit.
    """
    session, workflow = execution.session, execution.workflow
    seen = session.held.effects or session.held.memos or session.held.waits or session.held.approvals
    if not seen:
        return None

    def is_paid(name: str) -> bool:
        try:
            return workflow.activity(name).durable
        except (NotFound, DefinitionError):
            return False

    return ExpectedCalls(execution, session.held.missing_calls(is_paid), session.held.requested_approvals())

"""Watch over executors whose call or node does not end, or whose time is over (S-5)."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from outlast.core import effect_verbs
from outlast.core.durations import INLINE_WAIT_MAX, SECOND
from outlast.core.failed_calls import EffectKey
from outlast.core.machine import EffectStatus, Reason
from outlast.engine.call_timeouts import CallTimeout, Endless
from outlast.engine.commit_chain import RunLost
from outlast.engine.node_execution import NodeExecution, WorkerServices
from outlast.engine.node_result import attention, uncertain
from outlast.engine.run_executor import RunExecutor
from outlast.store.port import Store

log = logging.getLogger("outlast.engine")
# after its timeout has cancelled it, because it may have a connection to close
CALL_ENDS_WITHIN: Final = INLINE_WAIT_MAX
GIVEN_UP_AFTER: Final = 2 * INLINE_WAIT_MAX  # an executor asks a store that was away again within half of it
ENDLESS: Final = "the call did not end, although its time was over and it was cancelled"


class OverrunWatch:
    """Watch over executors whose call or node does not end, or whose time is over.

    Without it such a run would stay `running`, appear in no list, and occupy a place.
    """

    def __init__(self, store: Store, services: WorkerServices, claim_ms: int) -> None:
        live = services.live
        self._store = store
        self._lease = services.lease
        self._clock = services.clock
        self._caller = services.caller
        self._claim_ms = claim_ms
        self._margin = min(2 * live.heartbeat_every + live.checkpoint_write, claim_ms // 2)
        self._late = 2 * live.heartbeat_every
        self._looked = self._clock.mono()
        self._since: dict[asyncio.Task[None], int] = {}
        # executions without a call in flight at the last check, with their progress then
        self._seen_before: dict[NodeExecution, int] = {}

    async def look(self, executors: Mapping[asyncio.Task[None], RunExecutor]) -> None:
        """End calls, nodes and executors that take too long. Raises StoreError.

        No executor is given up while the store takes no commit: it may wait to record an answer, and no other worker
        can claim its run.
        """
        if not self._lease.holds(self._clock):
            self._since.clear()
        now = (await self._store.now()).real
        self._since = {task: since for task, since in self._since.items() if task in executors}
        seen_before, self._seen_before = self._seen_before, {}
        looked, self._looked = self._looked, self._clock.mono()
        if self._looked - looked > self._late:  # this process was suspended, and so were its nodes
            seen_before = {}
        # Read once, because a worker may hold 10,000 calls.
        overdue = self._caller.overdue(CALL_ENDS_WITHIN / SECOND)
        for task, executor in list(executors.items()):
            if executor.execution is not None:
                _end_calls(executor.execution, overdue)
                self._end_execution(executor.execution, (executor.session.held.run.due_at or now) - now, seen_before)
            self._give_up(task, executor, now)

    def _end_execution(self, execution: NodeExecution, left_ms: int, seen_before: dict[NodeExecution, int]) -> None:
        """Call a person for a node that does not return; release a run whose calls outlast its time."""
        if execution.closing:
            return
        if execution.calls_in_flight:
            if left_ms <= 0:
                execution.hand_back("the time of its claim is over")
            return
        self._seen_before[execution] = execution.progress
        if left_ms <= self._margin and seen_before.get(execution) == execution.progress:
            run = execution.session.held.run
            what = f"node {run.node} does not return: after {(self._claim_ms - left_ms) / SECOND:g} s it still waits"
            why = f"at {execution.waiting_at()}; the execution budget of its worker is {self._claim_ms / SECOND:g} s"
            fix = "put what takes so long into an activity with timeout=, or wait with ctx.receive or ctx.sleep"
            execution.call_person(attention(execution.session, Reason.EXCEPTION, f"{what} {why} → {fix}"))

    def _give_up(self, task: "asyncio.Task[None]", executor: RunExecutor, now: int) -> None:
        """Cancel an executor some time after its claim has ended. The run is due, so any worker claims it."""
        run = executor.session.held.run
        if not run.due_at or run.due_at > now:
            self._since.pop(task, None)
            return
        mono = self._clock.mono()
        if mono - self._since.setdefault(task, mono) < GIVEN_UP_AFTER:
            return
        log.error("run %s is given up: its time is over, and a call or commit does not end", run.run)
        if executor.execution is not None:
            executor.execution.break_off(RunLost())
        task.cancel()


def _end_calls(execution: NodeExecution, overdue: Mapping[asyncio.Task[Any], CallTimeout]) -> None:
    """Abandon calls that swallow the cancellation of their timeout. They may still act, like an abandoned thread."""
    for ident, flight in list(execution.calls_in_flight.items()) if overdue else ():
        if (limit := overdue.get(flight.task)) is not None and not limit.abandon(Endless(ENDLESS)):
            _leave_behind(execution, ident)


def _leave_behind(execution: NodeExecution, ident: EffectKey) -> None:
    session = execution.session
    effect = session.held.effects.get(ident)
    if effect is None or effect.status is not EffectStatus.INTENDED:
        execution.abandon_call(ident, TimeoutError(ENDLESS))
        return
    session.chain.submit(
        effect_verbs.mark_uncertain(session.held.run, effect, "timeout", ENDLESS, now=session.clock.now)
    )
    execution.call_person(uncertain(execution.session, session.held.effects[ident]))
    execution.abandon_call(ident, TimeoutError(ENDLESS))

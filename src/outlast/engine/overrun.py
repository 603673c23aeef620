"""Limits of what a holder waits for: a call that does not end, a node that does not return, a slice that is over.

The worker looks at each heartbeat. Without this, such a run stays `running` in no list, and its place is lost.
"""

import asyncio
import logging
from typing import Final

from outlast.core import ledger as moves
from outlast.core.budget import INLINE_WAIT_MAX, SECOND, Liveness
from outlast.core.clock import Clock
from outlast.core.machine import EffectStatus, Reason
from outlast.engine.guard import Lease
from outlast.engine.holder import RunExecutor
from outlast.engine.ledger import EffectKey, RunLost
from outlast.engine.reasons import attention, uncertain
from outlast.engine.walk import NodeExecution
from outlast.store.port import Store

log = logging.getLogger("outlast.engine")
CALL_ENDS_WITHIN: Final = INLINE_WAIT_MAX  # after its timeout has cancelled it: it may have a connection to close
GIVEN_UP_AFTER: Final = 2 * INLINE_WAIT_MAX  # a holder asks a store that was away again within half of it
ENDLESS: Final = "the call did not end, although its time was over and it was cancelled"


class OverrunWatch:
    """The holders of one worker, and since when each of them is beyond its slice."""

    def __init__(self, store: Store, clock: Clock, lease: Lease, live: Liveness, budget_ms: int) -> None:
        self._store = store
        self._lease = lease
        self._clock = clock
        self._budget_ms = budget_ms
        self._margin = min(2 * live.heartbeat_every + live.checkpoint_write, budget_ms // 2)
        self._held: dict[asyncio.Task[None], RunExecutor] = {}
        self._since: dict[asyncio.Task[None], int] = {}
        self._standing: dict[
            NodeExecution, int
        ] = {}  # walks without a call under way at the last look, and their stirs then

    def watch(self, task: asyncio.Task[None], holder: RunExecutor) -> None:
        """Look at this holder from now on."""
        self._held[task] = holder

    def forget(self, task: asyncio.Task[None]) -> None:
        """Look no longer: the task is done. Its rows must not stay in memory until the next look."""
        self._held.pop(task, None)
        self._since.pop(task, None)

    async def look(self) -> None:
        """End what overruns. Raises StoreError.

        While the store takes no commit, no holder is given up: it may wait to record an answer, and no other worker can
        take its run.
        """
        if not self._lease.holds(self._clock):
            self._since.clear()
        now = (await self._store.now()).real
        standing, self._standing = self._standing, {}
        for task, holder in list(self._held.items()):
            if holder.walk is not None:
                _end_calls(holder.walk)
                self._end_walk(holder.walk, (holder.ledger.run.due_at or now) - now, standing)
            self._give_up(task, holder, now)

    def _end_walk(self, walk: NodeExecution, left_ms: int, standing: dict[NodeExecution, int]) -> None:
        """Call a person for a node that does not return; hand a run back whose calls outlast its slice."""
        if walk.closing:
            return
        if walk.flights:
            if left_ms <= 0:
                walk.hand_back("its slice is over")
            return
        self._standing[walk] = walk.stirs
        if left_ms <= self._margin and standing.get(walk) == walk.stirs:
            run = walk.ledger.run
            what = f"node {run.node} does not return: after {(self._budget_ms - left_ms) / SECOND:g} s it still waits"
            why = f"at {walk.waits_at()}; the execution budget of its worker is {self._budget_ms / SECOND:g} s"
            fix = "put what takes so long into an activity with timeout=, or wait with ctx.receive or ctx.sleep"
            walk.call_person(attention(walk, Reason.EXCEPTION, f"{what} {why} → {fix}"))

    def _give_up(self, task: "asyncio.Task[None]", holder: RunExecutor, now: int) -> None:
        """End a holder that is still there some time after its slice; the run is due, so any worker takes it."""
        run = holder.ledger.run
        if not run.due_at or run.due_at > now:
            self._since.pop(task, None)
            return
        mono = self._clock.mono()
        if mono - self._since.setdefault(task, mono) < GIVEN_UP_AFTER:
            return
        log.error("run %s is given up: its slice is over, and its holder waits for what does not end", run.run)
        if holder.walk is not None:
            holder.walk.break_off(RunLost())
        task.cancel()


def _end_calls(walk: NodeExecution) -> None:
    """Leave calls behind that swallow the cancellation by their timeout: they may still act, as an abandoned thread."""
    latest = asyncio.get_running_loop().time() - CALL_ENDS_WITHIN / SECOND
    under_way = walk.around.caller.under_way
    for ident, flight in list(walk.flights.items()):
        limit = under_way.get(flight.task)
        if limit is not None and (limit.when() or latest) < latest:
            _leave_behind(walk, ident)


def _leave_behind(walk: NodeExecution, ident: EffectKey) -> None:
    ledger = walk.ledger
    effect = ledger.effects.get(ident)
    if effect is None or effect.status is not EffectStatus.INTENDED:
        walk.leave_behind(ident, TimeoutError(ENDLESS))
        return
    ledger.submit(moves.doubt(ledger.run, effect, "timeout", ENDLESS, now=ledger.now))
    walk.call_person(uncertain(walk, ledger.effects[ident]))
    walk.leave_behind(ident, TimeoutError(ENDLESS))

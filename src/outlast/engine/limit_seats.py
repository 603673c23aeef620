"""Rate limits on calls, shared by all workers of a store: concurrent calls and calls a second (S-23).

An activity without a limit never comes here. One meta row holds each limit. Waiting calls of a worker enter together
with one compare-and-set, so a batch of calls costs a commit or two.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from outlast.clocks import sleep_unless
from outlast.core.clock_port import Clock
from outlast.core.commit import Commit, Put
from outlast.core.durations import INLINE_WAIT_MAX, SECOND
from outlast.core.machine import LeaseStatus
from outlast.core.rate_limit import BookedCalls, RateLimitState, book_calls, limit_row, rate_limit_of
from outlast.core.rows.run_columns import WaitingFor
from outlast.core.rows.store_rows import META, STORE, WORKER
from outlast.engine.lease import Lease
from outlast.errors import Stale, StoreError
from outlast.flow.options import Callee, RateLimit
from outlast.store.port import Store

log = logging.getLogger("outlast.engine")
LOOK_MS: Final = 20  # first wait before a full limit is read again; doubled up to the next
LOOK_MAX_MS: Final = 500
USUAL_MS: Final = SECOND  # assumed duration of a call until one was measured


class _LimitQueue:
    """Calls of this worker that wait for one limit, and those that have entered."""

    def __init__(self) -> None:
        self.waiting: deque[asyncio.Future[None]] = deque()
        self.inside = 0
        self.log_entries = 0  # number of entered calls in the row
        self.version = 0
        self.usual_ms = float(USUAL_MS)
        self.parked_until = 0  # time at which the last parked run tries again
        self.moved = asyncio.Event()
        self.keeper: asyncio.Task[None] | None = None


class RateLimiter:
    """Rate limits of one worker."""

    def __init__(self, store: Store, clock: Clock, lease: Lease, chance: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._lease = lease
        self._chance = chance
        self._lines: dict[str, _LimitQueue] = {}

    async def enter(self, name: str, limit: RateLimit) -> "CallSeat | None":
        """Return a seat for one call, or None if none came free within the inline wait."""
        line = self._lines.setdefault(name, _LimitQueue())
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.waiting.append(turn)
        self._keep(name, line, limit)
        sleeper = asyncio.ensure_future(self._clock.sleep(INLINE_WAIT_MAX))
        try:
            await asyncio.wait([turn, sleeper], return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeper.cancel()
            if not turn.done():
                line.waiting.remove(turn)
            elif asyncio.current_task().cancelling():  # type: ignore[union-attr]
                self._leave(name, line, limit, 0.0)
        return CallSeat(self, name, line, limit, self._clock.mono()) if turn.done() else None

    def wait(self, name: str, limit: RateLimit, now_real: int) -> tuple[WaitingFor, int]:
        """Return the wait of a run that found the limit full, and when it tries again.

        Runs get different times, spaced as seats come free.
        """
        line = self._lines.setdefault(name, _LimitQueue())
        gaps = [line.usual_ms / limit.concurrent if limit.concurrent else 0.0]
        gaps += [SECOND / limit.per_second if limit.per_second else 0.0]
        line.parked_until = round(max(line.parked_until, now_real + INLINE_WAIT_MAX) + max(gaps))
        return WaitingFor("limit", f"{name}: {limit.words}", then="calls as soon as a slot is free"), line.parked_until

    def _keep(self, name: str, line: _LimitQueue, limit: RateLimit) -> None:
        """Run the keeper of this limit while calls wait or the row is out of date."""
        line.moved.set()
        if line.keeper is None or line.keeper.done():
            line.keeper = asyncio.create_task(self._keeper(name, line, limit))

    def _leave(self, name: str, line: _LimitQueue, limit: RateLimit, took_ms: float) -> None:
        assert line.inside > 0, "a seat is left once"
        line.inside -= 1
        if took_ms:
            line.usual_ms += (took_ms - line.usual_ms) / 4
        if limit.concurrent:
            self._keep(name, line, limit)

    # --- the row -----------------------------------------------------------------------
    async def _keeper(self, name: str, line: _LimitQueue, limit: RateLimit) -> None:
        """Let waiting calls enter as seats come free. Ends when none waits and the row is up to date."""
        pause = LOOK_MS
        while line.waiting or (limit.concurrent and line.log_entries != line.inside):
            line.moved.clear()
            try:
                entered = await self._pass(name, line, limit)
            except StoreError as error:
                log.warning("the limit of %s cannot be read: %s", name, error)
                entered = None
            if entered is not None and entered.n:
                pause = LOOK_MS
                await self._let_in(line, entered)
                if entered.limit_state.wanting:  # a random pause, so that another waiting worker may enter first
                    await self._clock.sleep(round(LOOK_MS * 2 * self._chance()))
            elif line.waiting or entered is None:
                await sleep_unless(line.moved, self._clock.sleep(round(pause * (0.5 + self._chance()))))
                pause = min(pause * 2, LOOK_MAX_MS)

    async def _pass(self, name: str, line: _LimitQueue, limit: RateLimit) -> BookedCalls | None:
        """Try one change of the row; None if another worker was first. Raises StoreError."""
        row = await self._store.load(META, limit_row(name))
        limit_state, now, worker = rate_limit_of(row), (await self._store.now()).real, self._lease.worker
        version = row.version if row is not None else 0

        def entry(living: set[str] | None = None) -> BookedCalls:
            return book_calls(
                limit_state,
                worker,
                line.inside,
                len(line.waiting),
                concurrent=limit.concurrent,
                per_second=limit.per_second,
                now=now,
                living=living,
            )

        found = entry()
        if not found.n and line.waiting and len(limit_state.inside) > (worker in limit_state.inside):
            found = entry(await self._living())
        if (
            not found.n
            and line.inside == limit_state.inside.get(worker, 0)
            and not self._says_more(found.limit_state, limit_state, now)
        ):
            line.log_entries = line.inside
            return found
        try:
            await self._store.commit(
                Commit((Put(META, found.limit_state.row(name, version + 1), version),), label=f"limit {name}")
            )
        except Stale:
            return None
        line.log_entries = line.inside + found.n
        line.inside += found.n
        return found

    def _says_more(self, after: RateLimitState, before: RateLimitState, now: int) -> bool:
        """Return True if the row should say that this worker waits, for the first time or again."""
        me = self._lease.worker
        return me in after.wanting and before.wanting.get(me, 0) - now < SECOND

    async def _living(self) -> set[str]:
        rows = await self._store.rows(WORKER, (STORE,))
        return {row.id for row in rows if row.status is LeaseStatus.ALIVE}

    async def _let_in(self, line: _LimitQueue, entered: BookedCalls) -> None:
        """Start the entered calls, each at its time. If a call no longer waits, its seat is free again."""
        ahead = entered.first_at - (await self._store.now()).real if entered.gap_ms else 0
        started = self._clock.mono()  # after the store's answer, because a slow one would let calls in early
        for n in range(entered.n):
            left = ahead + n * entered.gap_ms - (self._clock.mono() - started)
            if left > 0:
                await self._clock.sleep(round(left))
            if line.waiting:
                line.waiting.popleft().set_result(None)
            else:
                line.inside -= 1

    async def close(self) -> None:
        """Stop. The seats of this worker are free once its row is closed."""
        keepers = [line.keeper for line in self._lines.values() if line.keeper is not None]
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)


class CallSeat:
    """Seat of one call under a rate limit, until it is left."""

    def __init__(self, throttle: RateLimiter, name: str, line: _LimitQueue, limit: RateLimit, since: int) -> None:
        self._throttle = throttle
        self._name = name
        self._line = line
        self._limit = limit
        self._since = since
        self._left = False

    def leave(self) -> None:
        """Free the seat when the call has ended or is not made. A second call has no effect."""
        if not self._left:
            self._left = True
            took = self._throttle._clock.mono() - self._since
            self._throttle._leave(self._name, self._line, self._limit, max(took, 1))


def limit_name(callee: Callee) -> str:
    """Return the key under which calls are counted: the provider if it is named, else the activity."""
    shared = callee.provider != callee.name
    return f"provider/{callee.provider}" if shared else f"activity/{callee.name}"

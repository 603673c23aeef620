"""The bound of a worker's intents that are durable and not yet sent: a death in between is a question to a person.

A holder enters the window before it commits an intent. It leaves when its call has ended or is not made, and at the
latest GRACE_S after the activity's function has begun. The window halves when calls take long to get away, because the
event loop is busy, and grows while they do not (decision 0041).
"""

import asyncio
from collections import deque
from typing import Final

from outlast.core.limits import UNSENT_MAX

UNSENT_MIN: Final = 4
GRACE_S: Final = 0.05
TURNS: Final = 8  # of the loop, which a client needs to write its request; long ones if the loop is busy
SLOW_S: Final = 0.1


class SendWindow:
    """Bound of the unsent intents of one worker."""

    def __init__(self) -> None:
        self._inside = 0
        self._most: float = UNSENT_MIN
        self._halved_at = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> "Sending":
        """Wait for a place, in the order of the calls of this method."""
        if self._inside < self._most and not self._waiting:
            self._inside += 1
            return Sending(self)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._let_in(-1)
            raise
        return Sending(self)

    def left(self, landed_at: float, *, ended: bool) -> None:
        """Free the place of an intent that was durable at `landed_at`, 0: never. `ended`: its call has ended.

        Intents that were durable before the window was halved do not halve it again.
        """
        now = asyncio.get_running_loop().time()
        if landed_at and now - landed_at <= SLOW_S:
            self._most = min(self._most + (1 if ended else 1 / self._most), UNSENT_MAX)
        elif landed_at > self._halved_at:
            self._most, self._halved_at = max(self._most / 2, UNSENT_MIN), now
        self._let_in(-1)

    def _let_in(self, change: int) -> None:
        self._inside += change
        while self._waiting and self._inside < self._most:
            turn = self._waiting.popleft()
            if not turn.done():
                self._inside += 1
                turn.set_result(None)


class Sending:
    """Place of one intent in the window, until it is left."""

    __slots__ = ("_landed_at", "_timer", "_turns", "_window")

    def __init__(self, window: SendWindow) -> None:
        self._window: SendWindow | None = window
        self._landed_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._turns = TURNS

    def landed(self) -> None:
        """Note that the intent is durable now."""
        self._landed_at = asyncio.get_running_loop().time()

    def begun(self) -> None:
        """Leave GRACE_S from now, because the activity's function begins."""
        if self._window is not None:
            self._timer = asyncio.get_running_loop().call_later(GRACE_S, self._turn)

    def _turn(self) -> None:
        self._turns -= 1
        if self._turns > 0 and self._window is not None:
            asyncio.get_running_loop().call_soon(self._turn)
        else:
            self.leave(ended=False)

    def leave(self, *, ended: bool = True) -> None:
        """Free the place. A second time changes nothing."""
        window, self._window = self._window, None
        if window is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        window.left(self._landed_at, ended=ended)

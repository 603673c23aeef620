"""Send window: the bound of the intents of a worker that are durable and not yet sent.

Each of them becomes a question to a person if the worker dies. The window halves while calls take long to start,
because the event loop is busy, and grows otherwise (decision 0041)."""

import asyncio
import contextvars
from collections import deque
from collections.abc import Sequence
from typing import Final

from outlast.core.limits import UNSENT_MAX

UNSENT_MIN: Final = 4
GRACE_S: Final = 0.05
TURNS: Final = 8  # turns of the loop that a client needs to write its request
SLOW_S: Final = 0.1
ROUNDING_S: Final = 1e-6  # a timer of the loop may fire so much too early


class SendWindow:
    """Bound of the unsent intents of one worker."""

    def __init__(self) -> None:
        self._inside = 0
        self._most: float = UNSENT_MIN
        self._halved_at = 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._leaving: deque[tuple[float, Sending]] = deque()  # places by the time at which they are left
        self._timer: asyncio.TimerHandle | None = None  # for the first of them
        self._context = contextvars.Context()  # of the timer, which would keep the node that has set it

    def enter_now(self) -> "Sending | None":
        """Return a place if one is free and none waits for it."""
        if self._inside >= self._most or self._waiting:
            return None
        self._inside += 1
        return Sending(self)

    async def enter(self) -> "Sending":
        """Wait for a place, in the order of the calls of this method."""
        if (free := self.enter_now()) is not None:
            return free
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
        """Free the place of an intent that was durable at `landed_at`; 0 if it never was.

        `ended`: its call has ended. Intents that were durable before the window was halved do not halve it again.
        """
        now = asyncio.get_running_loop().time()
        if landed_at and now - landed_at <= SLOW_S:
            self._most = min(self._most + (1 if ended else 1 / self._most), UNSENT_MAX)
        elif landed_at > self._halved_at:
            self._most, self._halved_at = max(self._most / 2, UNSENT_MIN), now
        self._let_in(-1)

    def started(self, place: "Sending") -> None:
        """Free a place GRACE_S and some turns of the loop from now. One timer serves all places."""
        loop = asyncio.get_running_loop()
        at = loop.time() + GRACE_S
        self._leaving.append((at, place))
        if self._timer is None:
            self._timer = loop.call_at(at, self._look, context=self._context)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        latest = loop.time() + ROUNDING_S
        due: list[Sending] = []
        while self._leaving and (self._leaving[0][0] <= latest or self._leaving[0][1].is_left):
            due.append(self._leaving.popleft()[1])
        self._timer = loop.call_at(self._leaving[0][0], self._look, context=self._context) if self._leaving else None
        if due := [place for place in due if not place.is_left]:
            self._turn(due, TURNS)

    def _turn(self, due: "Sequence[Sending]", turns: int) -> None:
        if turns > 1:
            asyncio.get_running_loop().call_soon(self._turn, due, turns - 1)
            return
        for place in due:
            place.leave(ended=False)

    def _let_in(self, change: int) -> None:
        self._inside += change
        while self._waiting and self._inside < self._most:
            turn = self._waiting.popleft()
            if not turn.done():
                self._inside += 1
                turn.set_result(None)


class Sending:
    """Place of one intent in the window, until it is left."""

    __slots__ = ("_landed_at", "_window", "is_left")

    def __init__(self, window: SendWindow) -> None:
        self._window: SendWindow | None = window
        self._landed_at = 0.0
        self.is_left = False
        """The place is free again."""

    def landed(self) -> None:
        """Note that the intent is durable now."""
        self._landed_at = asyncio.get_running_loop().time()

    def started(self) -> None:
        """Leave the window GRACE_S from now, because the activity's function begins."""
        if self._window is not None:
            self._window.started(self)

    def leave(self, *, ended: bool = True) -> None:
        """Free the place. A second call has no effect."""
        window, self._window, self.is_left = self._window, None, True
        if window is not None:
            window.left(self._landed_at, ended=ended)

"""Order of the writers of one thread of LangGraph in this process.

A checkpoint replaces the row of its namespace, and what a task writes expects the version of that row. LangGraph sends
both at once. Without an order, the writes of a task lose against one checkpoint after the other, until their attempts
are used up, though no other process writes the thread. So a checkpoint waits for the writes that were sent before it,
and later writes wait for the checkpoint. Writes do not wait for each other.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from threading import Lock
from weakref import WeakKeyDictionary


class ThreadTurns:
    """Turns of the writers of each key, in the order of their requests. Writers of two event loops have no order."""

    def __init__(self) -> None:
        self._lock = Lock()  # savers are used from several threads, each with its loop
        self._of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, _Turns]] = WeakKeyDictionary()

    @property
    def kept(self) -> int:
        """Number of keys of which a turn is held or waited for, in this event loop."""
        return len(self._of_loop.get(asyncio.get_running_loop(), ()))

    @asynccontextmanager
    async def take(self, key: Hashable, *, alone: bool) -> AsyncIterator[None]:
        """Hold a turn of this key for the block: `alone`, or together with others that are not."""
        with self._lock:
            of_key = self._of_loop.setdefault(asyncio.get_running_loop(), {})
        turns = of_key.setdefault(key, _Turns())
        try:
            await turns.begin(alone=alone)
            try:
                yield
            finally:
                turns.end()
        finally:
            if turns.is_unused:
                of_key.pop(key, None)


class _Turns:
    """Turns of one key, in one event loop."""

    __slots__ = ("_holders", "_is_alone", "_waiting")

    def __init__(self) -> None:
        self._holders = 0
        self._is_alone = False
        self._waiting: deque[tuple[asyncio.Future[None], bool]] = deque()

    @property
    def is_unused(self) -> bool:
        """True if no writer holds a turn or waits for one."""
        return not self._holders and not self._waiting

    async def begin(self, *, alone: bool) -> None:
        """Return when this writer holds a turn."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, alone))
        self._grant()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was granted just before
                self.end()
            self._grant()  # to those behind it
            raise

    def end(self) -> None:
        """Give a turn back, and grant the next ones."""
        self._holders -= 1
        self._is_alone = False
        self._grant()

    def _grant(self) -> None:
        while self._waiting:
            turn, alone = self._waiting[0]
            if not turn.cancelled():
                if self._is_alone or (alone and self._holders):
                    return
                self._holders += 1
                self._is_alone = alone
                turn.set_result(None)
            self._waiting.popleft()

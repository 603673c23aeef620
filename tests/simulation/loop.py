"""Event loop with virtual time, whose interleaving the seed chooses.

Each simulated process has a queue. Within it callbacks run in the order that asyncio promises, because authors and the
engine may rely on it. The seed chooses which process runs next, so any interleaving of processes can happen between two
callbacks. Time moves only when no process can run.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar
from heapq import heappop
from math import ceil
from random import Random
from typing import Any, Final

SECOND: Final = 1_000
TURNS_MAX: Final = 400_000  # of one seed: more means that something spins
STILL_MAX: Final = 20_000  # turns at one instant


class Killed(BaseException):
    """The process dies at this crash point."""


class Spins(Exception):
    """A callback loop does not end."""


class Proc:
    """Simulated process: its queue, and whether it may run."""

    __slots__ = ("dead", "frozen", "index", "listed", "name", "ready", "worker")

    def __init__(self, name: str, index: int, *, worker: bool = False) -> None:
        self.name = name
        self.index = index
        self.worker = worker
        self.ready: deque[asyncio.Handle] = deque()
        self.frozen = self.dead = self.listed = False


PROC: ContextVar[Proc] = ContextVar("simulated process")


class _SimTask(asyncio.Task[Any]):
    """A task with a reference to its simulated process."""

    def __init__(self, loop: asyncio.AbstractEventLoop, coro: Any, **more: Any) -> None:
        self.proc = PROC.get(None)
        super().__init__(coro, loop=loop, **more)


class SimLoop(asyncio.BaseEventLoop):
    """Event loop without selector, threads or real time."""

    def __init__(self, rng: Random, home: Proc) -> None:
        super().__init__()
        self._clock_resolution = 0.0002
        self.rng = rng
        self.home = home  # current process outside of any other: the world
        self.now = 0  # ms
        self.turns = 0
        self.trace = 0
        self.countdown = 1 << 60  # turns until `on_event`
        self.on_event: Callable[[Proc], None] = lambda proc: None
        self.over = False
        self.broken: list[dict[str, Any]] = []
        self._active: list[Proc] = []
        self.set_exception_handler(lambda loop, context: self._note(context))
        self.set_task_factory(_SimTask)

    def time(self) -> float:
        return self.now / SECOND

    def _note(self, context: dict[str, Any]) -> None:
        """Record an error, unless it comes from a task of a killed process."""
        task = context.get("task")
        if not (isinstance(task, _SimTask) and task.proc is not None and task.proc.dead):
            self.broken.append(context)

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._give(handle)
        return handle

    call_soon_threadsafe = call_soon

    def _give(self, handle: asyncio.Handle) -> None:
        proc = handle._context.get(PROC, self.home)
        if proc.dead:
            return
        proc.ready.append(handle)
        if not proc.listed and not proc.frozen:
            proc.listed = True
            self._active.append(proc)

    def later(self, ms: int, callback: Callable[..., object], *args: Any, context: Context | None = None) -> None:
        """Call it `ms` from now in the process of `context` (default: the caller's)."""
        if ms <= 0:
            self.call_soon(callback, *args, context=context)
        else:
            self.call_at((self.now + ms) / SECOND, callback, *args, context=context)

    # --- processes ---------------------------------------------------------------------------
    def kill(self, proc: Proc) -> None:
        """Run none of its callbacks any more."""
        proc.dead = True
        proc.ready.clear()
        self._unlist(proc)

    def freeze(self, proc: Proc) -> None:
        """Suspend the process until it is thawed."""
        proc.frozen = True
        self._unlist(proc)

    def thaw(self, proc: Proc) -> None:
        """Resume the process where it stopped."""
        proc.frozen = False
        if proc.ready and not proc.dead:
            proc.listed = True
            self._active.append(proc)

    def _unlist(self, proc: Proc) -> None:
        if proc.listed:
            proc.listed = False
            self._active.remove(proc)

    # --- running -----------------------------------------------------------------------------
    def drive(self) -> None:
        """Run until `over` is set or no callback is left."""
        asyncio._set_running_loop(self)
        self._thread_id = threading.get_ident()
        try:
            while not self.over and self._active_or_later():
                self._turn()
        finally:
            self._thread_id = None
            asyncio._set_running_loop(None)

    def _active_or_later(self) -> bool:
        """Queue due callbacks, or jump to the next timer. Returns False if none is left."""
        timers = self._scheduled
        while True:
            while timers and (timers[0]._cancelled or timers[0]._when * SECOND <= self.now + 1e-4):
                timer = heappop(timers)
                timer._scheduled = False
                if not timer._cancelled:
                    self._give(timer)
            if self._active:
                return True
            if not timers:
                return False
            self.now = max(self.now, ceil(timers[0]._when * SECOND - 1e-4))
            self._still = self.turns

    _still = 0

    def _turn(self) -> None:
        active = self._active
        at = int(self.rng.random() * len(active)) if len(active) > 1 else 0
        proc = active[at]
        self.countdown -= 1
        if self.countdown <= 0:
            self.on_event(proc)
            if not proc.listed:
                return
            at = active.index(proc)
        handle = proc.ready.popleft()
        if not proc.ready:
            active[at] = active[-1]
            active.pop()
            proc.listed = False
        self.turns += 1
        self.trace = (self.trace * 1_000_003 + proc.index * 31 + self.now) & 0xFFFF_FFFF_FFFF_FFFF
        if self.turns > TURNS_MAX or self.turns - self._still > STILL_MAX:
            raise Spins(f"{self.turns} turns, {self.turns - self._still} of them at one instant, by {proc.name}")
        if not handle._cancelled:
            try:
                handle._context.run(handle._callback, *handle._args)
            except Killed:
                pass
            except Exception as error:  # a callback that failed: as asyncio does, and it is a finding
                self.broken.append({"message": "a callback failed", "exception": error})

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: a cancelled timer leaves the heap at its time."""


def process_of(context: Context, proc: Proc) -> Context:
    """Return a context that belongs to the process."""
    context.run(PROC.set, proc)
    return context

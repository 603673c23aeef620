"""An event loop whose time is virtual and whose interleaving is the seed's choice.

Every simulated process has a queue of its own: within it, callbacks run in the order asyncio promises (authors and the
engine may rely on that); which process runs next is drawn. One that is frozen keeps its queue and gets no turn; one
that is dead loses it, so a crash can come between any two callbacks. Time moves only when nobody can run.
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
    """The process has died at this very place."""


class Spins(Exception):
    """Something runs in a circle."""


class Proc:
    """A simulated process: its queue, and whether it gets turns."""

    __slots__ = ("dead", "frozen", "index", "listed", "name", "ready", "worker")

    def __init__(self, name: str, index: int, *, worker: bool = False) -> None:
        self.name = name
        self.index = index
        self.worker = worker
        self.ready: deque[asyncio.Handle] = deque()
        self.frozen = self.dead = self.listed = False


PROC: ContextVar[Proc] = ContextVar("simulated process")


class _SimTask(asyncio.Task[Any]):
    """A task that knows its process."""

    def __init__(self, loop: asyncio.AbstractEventLoop, coro: Any, **more: Any) -> None:
        self.proc = PROC.get(None)
        super().__init__(coro, loop=loop, **more)


class SimLoop(asyncio.BaseEventLoop):
    """No selector, no thread, no real time."""

    def __init__(self, rng: Random, home: Proc) -> None:
        super().__init__()
        self._clock_resolution = 0.0002
        self.rng = rng
        self.home = home  # whose turn it is outside of any process: the world itself
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
        """A mistake, but for what a killed process had under way: nobody is left there to read how its tasks ended."""
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
        """Call it `ms` from now, in the process of `context` (default: of the caller)."""
        if ms <= 0:
            self.call_soon(callback, *args, context=context)
        else:
            self.call_at((self.now + ms) / SECOND, callback, *args, context=context)

    # --- processes ---------------------------------------------------------------------------
    def kill(self, proc: Proc) -> None:
        """From here on none of its callbacks runs."""
        proc.dead = True
        proc.ready.clear()
        self._unlist(proc)

    def freeze(self, proc: Proc) -> None:
        """It gets no turn until it is thawed."""
        proc.frozen = True
        self._unlist(proc)

    def thaw(self, proc: Proc) -> None:
        """It goes on where it stood."""
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
        """Run until `over` is set, or nothing is left to run."""
        asyncio._set_running_loop(self)
        self._thread_id = threading.get_ident()
        try:
            while not self.over and self._active_or_later():
                self._turn()
        finally:
            self._thread_id = None
            asyncio._set_running_loop(None)

    def _active_or_later(self) -> bool:
        """Move what is due into its queue; with nobody to run, jump to the next timer. False: nothing is left."""
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
        """Cancelled timers leave the heap when their instant comes."""


def process_of(context: Context, proc: Proc) -> Context:
    """This context, belonging to the process."""
    context.run(PROC.set, proc)
    return context

"""Timeouts of calls, and the lookups that they close (decision 0068)."""

import asyncio
import contextvars
import math
from collections.abc import Coroutine, Generator
from typing import Any, Final

from outlast.engine.send_window import ROUNDING_S

LATE_S: Final = 0.01  # between two looks, so that one finds all timeouts that end together


class Endless(TimeoutError):
    """A lookup ignored the end of its timeout, and is not made again."""


class CallTimeout:
    """Timeout of one call, and the task that it cancels."""

    __slots__ = ("_cancels", "_timeouts", "ends", "fired", "lookup", "task")

    def __init__(self, timeouts: "CallTimeouts", task: asyncio.Task[Any], ends: float) -> None:
        self._timeouts: CallTimeouts | None = timeouts
        self._cancels = task.cancelling()
        self.task = task
        self.ends = ends
        self.fired = False
        self.lookup: InlineLookup | None = None
        """The lookup that runs in `task`, if it is one."""

    def abandon(self, error: Exception) -> bool:
        """Close a lookup that ignored the end of its timeout; its task continues with `error`. False for others."""
        if self.lookup is None:
            return False
        if self.lookup.abandoned is None:
            self.lookup.abandoned = error
            self.task.cancel()
        return True

    def stop(self) -> bool:
        """End the timeout. Returns True if it has cancelled the call, and nothing else has."""
        timeouts, self._timeouts = self._timeouts, None
        if timeouts is None:
            return False
        timeouts.under_way.pop(self, None)
        if self.lookup is not None and self.lookup.abandoned is not None:
            self.task.uncancel()
        return self.fired and self.task.uncancel() <= self._cancels


class CallTimeouts:
    """Timeouts of the calls of one worker, with one timer for all. They are up to 10 ms late and never early."""

    def __init__(self) -> None:
        self.under_way: dict[CallTimeout, None] = {}  # in the order of their starts
        self._timer: asyncio.TimerHandle | None = None
        self._context = contextvars.Context()  # of the timer, which would keep the node that has set it
        self._looks_at = math.inf

    def start(self, seconds: float) -> CallTimeout:
        """Start a timeout for the current task."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        limit = CallTimeout(self, task, loop.time() + seconds)
        self.under_way[limit] = None
        if limit.ends < self._looks_at:
            self._look_at(limit.ends, loop)
        return limit

    def _look_at(self, at: float, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._looks_at = at
        self._timer = loop.call_at(at, self._look, context=self._context)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        latest = loop.time() + ROUNDING_S
        for limit in self.under_way:
            if limit.ends <= latest and not limit.fired:
                limit.fired = True
                limit.task.cancel()
        self._timer, self._looks_at = None, math.inf
        if ends := [limit.ends for limit in self.under_way if not limit.fired]:
            self._look_at(max(min(ends), latest + LATE_S), loop)


class InlineLookup:
    """The coroutine of a lookup in a separate context, run by the task that awaits it (decision 0068)."""

    __slots__ = ("_coroutine", "_run", "abandoned")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], context: contextvars.Context) -> None:
        self._coroutine = coroutine
        self._run = context.run
        self.abandoned: Exception | None = None
        """If set, the next cancellation closes the coroutine and raises this error."""

    def __await__(self) -> Generator[Any, None, Any]:
        run, send = self._run, self._coroutine.send
        thrown: BaseException | None = None
        while True:
            try:
                awaited = run(send, None) if thrown is None else run(self._coroutine.throw, thrown)
            except StopIteration as end:
                return end.value
            try:
                if type(awaited) is asyncio.Future or not isinstance(awaited, asyncio.Future):
                    yield awaited
                else:
                    yield from self._ended(awaited)
                thrown = None
            except GeneratorExit:  # its task is collected
                self._close()
                raise
            except BaseException as error:  # passed on to the function, which may handle it
                if self.abandoned is not None:
                    self._close()
                    raise self.abandoned from error
                thrown = error

    def _ended(self, awaited: asyncio.Future[Any]) -> Generator[Any, None, None]:
        """Wait for a task or a gather, which can ignore the cancellation of this task."""
        awaited._asyncio_future_blocking = False  # because this task waits for another future
        while not awaited.done():
            try:
                yield from asyncio.wait([awaited]).__await__()
            except asyncio.CancelledError:
                if self.abandoned is not None or not awaited.cancel():
                    raise

    def _close(self) -> None:
        try:
            self._coroutine.close()
        except BaseException:  # as it ignored its cancellation, it may ignore this
            pass

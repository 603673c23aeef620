"""Calls between threads and event loops."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Lock
from typing import Generic, TypeVar, TypeVarTuple

Wake = Callable[[], None]
Ts = TypeVarTuple("Ts")


class WakeSubscribers:
    """Callbacks by event loop.

    `fire` may be called from any thread. A loop gets one call for many changes.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._subscribers: dict[asyncio.AbstractEventLoop, list[Wake]] = {}
        self._scheduled: set[asyncio.AbstractEventLoop] = set()  # loops with a pending call

    def subscribe(self, wake: Wake) -> Callable[[], None]:
        """Call `wake` in the current event loop from now on. Return the function that unsubscribes."""
        loop = asyncio.get_running_loop()
        with self._lock:
            self._subscribers.setdefault(loop, []).append(wake)

        def end() -> None:
            with self._lock:
                mine = self._subscribers.get(loop, [])
                if wake in mine:
                    mine.remove(wake)
                if not mine:
                    self._subscribers.pop(loop, None)

        return end

    def has_any(self) -> bool:
        """Return True if there is at least one subscriber."""
        return bool(self._subscribers)

    def fire(self) -> None:
        """Schedule every callback in its event loop."""
        if not self._subscribers:
            return
        with self._lock:
            loops = [loop for loop in self._subscribers if loop not in self._scheduled]
            self._scheduled.update(loops)
        for loop in loops:
            try:
                if _is_current(loop):
                    loop.call_soon(self._call, loop)
                else:
                    loop.call_soon_threadsafe(self._call, loop)
            except RuntimeError:  # the loop is closed, and its subscribers with it
                self._forget(loop)

    def _call(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            self._scheduled.discard(loop)
            wakes = list(self._subscribers.get(loop, []))
        for wake in wakes:
            wake()

    def _forget(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            self._scheduled.discard(loop)
            self._subscribers.pop(loop, None)


class Subscribers(Generic[*Ts]):
    """Callbacks, each called in the event loop in which it was subscribed."""

    def __init__(self) -> None:
        self._subscribers: tuple[tuple[asyncio.AbstractEventLoop, Callable[[*Ts], None]], ...] = ()

    def subscribe(self, callback: Callable[[*Ts], None]) -> Callable[[], None]:
        """Call `callback` in the current event loop from now on. Return the function that unsubscribes."""
        entry = (asyncio.get_running_loop(), callback)
        self._subscribers = (*self._subscribers, entry)

        def end() -> None:
            self._subscribers = tuple(each for each in self._subscribers if each is not entry)

        return end

    def has_any(self) -> bool:
        """Return True if there is at least one subscriber."""
        return bool(self._subscribers)

    def report(self, news: Sequence[tuple[*Ts]]) -> None:
        """Call every callback with each of the `news`: at once in this thread's loop, soon in another."""
        for loop, callback in self._subscribers:
            current = _is_current(loop)
            for each in news:
                if current:
                    callback(*each)
                else:
                    with contextlib.suppress(RuntimeError):  # the loop is closed, and its subscriber with it
                        loop.call_soon_threadsafe(callback, *each)


def _is_current(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


T = TypeVar("T")


async def run_in_thread(call: Callable[[], T]) -> T:
    """Call a blocking function in a daemon thread and return its result.

    Unlike the threads of `asyncio.to_thread`, a daemon thread does not delay the end of the process: Ctrl-C ends a
    command that waits for a file's write lock.
    """
    answer: Future[T] = Future()
    answer.set_running_or_notify_cancel()  # cancelling the caller does not stop the call
    threading.Thread(target=_answer, args=(call, answer), name="outlast-aside", daemon=True).start()
    return await asyncio.wrap_future(answer)


def _answer(call: Callable[[], T], answer: "Future[T]") -> None:
    try:
        answer.set_result(call())
    except BaseException as error:  # re-raised in the caller
        answer.set_exception(error)

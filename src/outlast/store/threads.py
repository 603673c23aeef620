"""Who wants to hear that a run may have become due, each told in its own event loop."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock
from typing import TypeVar

Wake = Callable[[], None]


class WakeSubscribers:
    """Subscribers by event loop. `fire` may be called from any thread; a loop hears of many changes at once."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._subscribers: dict[asyncio.AbstractEventLoop, list[Wake]] = {}
        self._told: set[asyncio.AbstractEventLoop] = set()  # a call is on its way and has not run yet

    def subscribe(self, wake: Wake) -> Callable[[], None]:
        """Call `wake` in the running loop from now on. Answers the function that ends it."""
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

    def anybody(self) -> bool:
        """Is there a subscriber?"""
        return bool(self._subscribers)

    def fire(self) -> None:
        """Tell every subscriber, in its loop, soon."""
        if not self._subscribers:
            return
        with self._lock:
            loops = [loop for loop in self._subscribers if loop not in self._told]
            self._told.update(loops)
        for loop in loops:
            try:
                if _runs_here(loop):
                    loop.call_soon(self._tell, loop)
                else:
                    loop.call_soon_threadsafe(self._tell, loop)
            except RuntimeError:  # the loop is closed: its subscribers are gone with it
                self._forget(loop)

    def _tell(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            self._told.discard(loop)
            wakes = list(self._subscribers.get(loop, []))
        for wake in wakes:
            wake()

    def _forget(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            self._told.discard(loop)
            self._subscribers.pop(loop, None)


def _runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


T = TypeVar("T")


async def run_in_thread(call: Callable[[], T]) -> T:
    """What `call` answers or raises, from a thread of its own, which the end of the process does not wait for, as it
    does for those of `asyncio.to_thread`: Ctrl-C ends a command that waits for its turn to write a file."""
    answer: Future[T] = Future()
    answer.set_running_or_notify_cancel()  # whoever stops waiting leaves it to its end
    threading.Thread(target=_answer, args=(call, answer), name="outlast-aside", daemon=True).start()
    return await asyncio.wrap_future(answer)


def _answer(call: Callable[[], T], answer: "Future[T]") -> None:
    try:
        answer.set_result(call())
    except BaseException as error:  # it belongs to whoever waits
        answer.set_exception(error)

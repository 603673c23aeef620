"""Daemon threads for functions without `async`. A caller holds one of their seats before its intent is durable.

The pool of the standard library waits for its threads when the process ends. A call that hangs would keep a dead
worker alive, and its runs with it. So these threads are daemons: the process ends without them (S-4).
"""

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from outlast.engine.local_limits import NO_THREAD, NoPlace


class DaemonPool:
    """Pool of daemon threads. A call that hangs is abandoned; the process exits without it (S-4)."""

    def __init__(self, size: int) -> None:
        self.seats = asyncio.Semaphore(size)
        self._size = size
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._idle = 0  # idle threads minus functions that wait for one: negative if a thread is needed
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    @property
    def threads(self) -> Sequence[threading.Thread]:
        """Return the threads that were started, also those that a call has outlived."""
        return self._threads

    def submit(self, fn: Callable[[], Any], context: contextvars.Context) -> "Future[Any]":
        """Run `fn` in a thread, in this context. The future can be cancelled only until it begins.

        Raises NoPlace if there is no thread and none can be started.
        """
        future: Future[Any] = Future()
        with self._lock:
            self._idle -= 1
            self._start()
        self._work.put((future, lambda: context.run(fn)))
        return future

    def abandon(self) -> None:
        """Give up a thread that outlived its call's timeout, and allow another one."""
        with self._lock:
            self._size += 1
            self._start()

    def _start(self) -> None:
        if self._idle < 0 and len(self._threads) < self._size:
            thread = threading.Thread(target=self._serve, name=f"outlast-activity_{len(self._threads)}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # no memory or id for a thread: one that ends its work takes this, too
                if not self._threads:
                    self._idle += 1
                    raise NoPlace(NO_THREAD) from error
                return
            self._threads.append(thread)
            self._idle += 1

    def close(self) -> None:
        """Let all idle threads end."""
        for _ in self._threads:
            self._work.put(None)

    def _serve(self) -> None:
        while (item := self._work.get()) is not None:
            future, fn = item
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn())
                except StopIteration as error:  # because no asyncio future can carry it
                    future.set_exception(RuntimeError(f"StopIteration: {error}"))
                except BaseException as error:  # the caller awaits the future and gets it
                    future.set_exception(error)
            with self._lock:
                self._idle += 1

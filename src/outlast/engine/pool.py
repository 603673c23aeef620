"""Threads for activities written as plain functions: daemons, as many as the worker's runs.

A caller holds one of `seats` while it needs a thread, so no call waits for a thread once its intent is durable.
"""

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


class DaemonPool:
    """Runs functions in daemon threads: a call that hangs is abandoned, never waited for at exit (S-4)."""

    def __init__(self, size: int) -> None:
        self.seats = asyncio.Semaphore(size)
        self._size = size
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._idle = 0  # threads that wait for work, less the work that waits for a thread
        self._threads = 0
        self._lock = threading.Lock()

    def submit(self, fn: Callable[[], Any]) -> "Future[Any]":
        """Run `fn` in a thread, in the caller's context. Cancelling the future succeeds only until it begins."""
        future: Future[Any] = Future()
        context = contextvars.copy_context()
        with self._lock:
            self._idle -= 1
            self._start()
        self._work.put((future, lambda: context.run(fn)))
        return future

    def abandon(self) -> None:
        """A thread outlived its call's timeout: it is given up, and another takes its place if one is needed."""
        with self._lock:
            self._size += 1
            self._start()

    def _start(self) -> None:
        if self._idle < 0 and self._threads < self._size:
            self._threads += 1
            self._idle += 1
            threading.Thread(target=self._serve, name="outlast-activity", daemon=True).start()

    def close(self) -> None:
        """Let idle threads end."""
        for _ in range(self._threads):
            self._work.put(None)

    def _serve(self) -> None:
        while (item := self._work.get()) is not None:
            future, fn = item
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn())
                except StopIteration as error:  # which no asyncio future can carry
                    future.set_exception(RuntimeError(f"StopIteration: {error}"))
                except BaseException as error:  # it belongs to the caller, who awaits the future
                    future.set_exception(error)
            with self._lock:
                self._idle += 1

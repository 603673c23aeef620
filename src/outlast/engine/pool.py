"""Threads for activities written as plain functions: daemons, as many as the worker's runs, so none ever queues."""

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
        self._size = size
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._idle = 0
        self._threads = 0
        self._lock = threading.Lock()

    def submit(self, fn: Callable[[], Any]) -> "asyncio.Future[Any]":
        """Run `fn` in a thread, in the caller's context; awaitable in the caller's loop."""
        future: Future[Any] = Future()
        context = contextvars.copy_context()
        with self._lock:
            if self._idle == 0 and self._threads < self._size:
                self._threads += 1
                threading.Thread(target=self._serve, name="outlast-activity", daemon=True).start()
            else:
                self._idle -= 1
        self._work.put((future, lambda: context.run(fn)))
        return asyncio.wrap_future(future)

    def abandon(self) -> None:
        """A thread outlived its call's timeout: it is given up, and another may be started in its place."""
        with self._lock:
            self._size += 1

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
                except BaseException as error:  # it belongs to the caller, who awaits the future
                    future.set_exception(error)
            with self._lock:
                self._idle += 1

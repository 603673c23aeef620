"""An event loop in a thread, in which a client without `await` runs its calls.

A call waits for another thread, which no longer runs once the interpreter ends, and which may wait for a lock of the
caller while the garbage collector runs. So a wait looks at both, and what is closed by the collector waits for nothing.
"""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakSet

from outlast.core.argument_checks import client_is_closed
from outlast.errors import Misplaced, OutlastError, Unavailable

R = TypeVar("R")
CLOSE_S = 30.0
LOOK_S = 0.5
"""Time after which a wait looks whether the thread that it waits for still runs."""


class LoopThread:
    """One event loop in a daemon thread. Any thread may run coroutines in it."""

    def __init__(self) -> None:
        ready: Future[asyncio.AbstractEventLoop] = Future()
        self._stop = asyncio.Event()
        self._streams: WeakSet[AsyncGenerator[Any]] = WeakSet()
        self._running: set[Coroutine[Any, Any, Any]] = set()
        self._pid = os.getpid()
        self._open = True
        self._thread = threading.Thread(target=self._work, args=(ready,), name="outlast-client", daemon=True)
        self._thread.start()
        self._loop = ready.result()

    def _work(self, ready: Future[asyncio.AbstractEventLoop]) -> None:
        try:
            asyncio.run(self._serve(ready))
        finally:
            for coroutine in [*self._running]:  # handed over as the loop ended, which has dropped them
                coroutine.close()

    async def _serve(self, ready: Future[asyncio.AbstractEventLoop]) -> None:
        ready.set_result(asyncio.get_running_loop())
        await self._stop.wait()
        calls = asyncio.all_tasks() - {asyncio.current_task()}
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        for stream in [*self._streams]:  # one after the other; the end of the loop would close their parts at once
            await asyncio.gather(stream.aclose(), return_exceptions=True)

    def run(self, work: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Run a coroutine in the loop and return its result. Ctrl-C cancels it. Raises Misplaced."""
        self.check()
        return self.result(self.begin(work))

    def begin(self, work: Callable[[], Coroutine[Any, Any, R]]) -> Future[R]:
        """Begin a coroutine in the loop. Raises Misplaced if another thread has ended the loop."""
        coroutine = work()
        self._running.add(coroutine)
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError as error:  # the loop is closed
            self._running.discard(coroutine)
            coroutine.close()
            raise client_is_closed() from error
        future.add_done_callback(lambda _: self._running.discard(coroutine))
        return future

    def result(self, future: Future[R]) -> R:
        """Return the result of what `begin` began. Ctrl-C cancels it. Raises Misplaced if the loop ends before."""
        try:
            while True:
                try:
                    return future.result(LOOK_S)
                except TimeoutError:
                    if future.done():  # since then, or the coroutine raised this
                        return future.result()
                    if sys.is_finalizing() or not self._thread.is_alive():
                        raise _interrupted() from None
        except BaseException as error:  # also Ctrl-C in this thread; `cancel` has no effect on what has ended
            future.cancel()
            known = isinstance(error, OutlastError) and not isinstance(error, Unavailable)
            if (self._stop.is_set() or not self._open) and isinstance(error, Exception) and not known:
                raise _interrupted() from error
            raise

    def owns(self, stream: AsyncGenerator[Any]) -> None:
        """Note a stream that ends with the loop unless it is closed before."""
        if self._open:
            self._streams.add(stream)

    def submit(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Run a coroutine in the loop without waiting for it. It is left out if the loop has ended."""
        if self.usable:
            try:
                self.begin(work)
            except Misplaced:
                pass  # another thread has ended the loop, which closes what is open in it

    def stop(self, last: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Run a `last` coroutine, then end the loop and its thread. A second call has no effect."""
        if last is not None:
            self._check_place()
        if not self.usable:
            return
        self._open = False
        try:
            if last is not None:
                self.result(self.begin(last))
        finally:
            with suppress(RuntimeError):  # another thread has ended the loop
                self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(CLOSE_S)

    @property
    def usable(self) -> bool:
        """True until it is stopped, in the process that made it, while its thread can run."""
        here = self._open and os.getpid() == self._pid
        return here and self._thread.is_alive() and not sys.is_finalizing()

    def check(self) -> None:
        """Raise Misplaced unless a call may wait here for the loop."""
        if os.getpid() != self._pid:
            raise Misplaced(
                "this client was made in another process",
                f"process {os.getpid()} was forked from {self._pid}; threads and connections do not survive a fork",
                "connect after the fork: in Celery at worker_process_init, in gunicorn in post_fork, or at first use",
            )
        if not self._open:
            raise client_is_closed()
        self._check_place()

    def _check_place(self) -> None:
        if threading.current_thread() is self._thread:
            raise Misplaced(
                "a sync client was called in its own event loop",
                "the call would wait for itself",
                "use outlast.connect, and await its methods",
            )


def _interrupted() -> Misplaced:
    return Misplaced(
        "this client was closed during a call",
        "what was sent before may have been carried out",
        "check whether it was done, and connect again; under the same key it is done once",
    )

"""Streams and worker blocks of the client without `await`."""

import asyncio
import functools
import threading
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import Any, Self, TypeVar

from typing_extensions import override

from outlast.client.loop_thread import LoopThread

T = TypeVar("T")


class WorkerBlock(AbstractContextManager[None]):
    """A worker that serves during the block. Streams that are left open end with the client."""

    def __init__(self, loop: LoopThread, serving: AbstractAsyncContextManager[None]) -> None:
        self._loop = loop
        self._serving = serving

    @override
    def __enter__(self) -> None:
        async def enter() -> None:
            await self._serving.__aenter__()

        self._loop.run(enter)

    @override
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async def leave() -> None:
            await self._serving.__aexit__(None, None, None)

        self._loop.run(leave)


class SyncStream(Iterator[T]):
    """Items of a run, as `SyncRunHandle.events` and the like return them: iterate, and `close` it to stop early.

    One that is left open ends with the program or its client.
    """

    def __init__(self, loop: LoopThread, stream: AsyncGenerator[T]) -> None:
        """Read `stream` in `loop`. Programs call `run.events`, `run.updates`, `client.follow` or `client.updates`."""
        self._loop = loop
        self._stream = stream
        self._turn = threading.Lock()
        self._awaited: Future[tuple[T] | None] | None = None
        self._ended = threading.Event()
        self._inside = asyncio.Lock()
        """Held by what runs in the loop: a call that was cancelled ends before its stream is closed."""
        self._last = functools.partial(_close, stream, self._inside)
        loop.owns(stream)

    @override
    def __next__(self) -> T:
        with self._turn:  # one thread after the other
            if self._ended.is_set():
                raise StopIteration
            self._loop.check()
            self._awaited = self._loop.begin(self._one)
            if self._ended.is_set():  # by `close`, which has seen the future before this one
                self._awaited.cancel()
            try:
                found = self._loop.result(self._awaited)
            except BaseException as error:  # as with a generator, an exception ends the iteration
                self._loop.submit(self._last)
                if self._ended.is_set() and isinstance(error, CancelledError):  # by `close` in another thread
                    raise StopIteration from None
                self._ended.set()
                raise
            if found is None:
                self._ended.set()
                raise StopIteration
            return found[0]

    async def _one(self) -> tuple[T] | None:
        async with self._inside:
            async for item in self._stream:
                return (item,)
        return None

    def close(self) -> None:
        """Stop the iteration and its connection, also for a thread that waits. A second call has no effect."""
        if self._ended.is_set():
            return
        self._ended.set()
        if self._awaited is not None:
            self._awaited.cancel()
        if self._loop.usable:
            with self._turn:
                self._loop.run(self._last)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not self._ended.is_set():  # the collector runs in any thread, and never waits
            self._loop.submit(self._last)


async def _close(stream: AsyncGenerator[Any], inside: asyncio.Lock) -> None:
    async with inside:
        await stream.aclose()

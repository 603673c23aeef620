"""Base of stores whose batches are landed by another thread than the callers'."""

import asyncio
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, ClassVar, Final

from typing_extensions import override

from outlast.core.commit import AppendMessage, Chain, Commit, Done, Put
from outlast.core.rows import Run
from outlast.errors import Rejected, Unavailable
from outlast.store.bounds import check
from outlast.store.fair_queueing import NONE_HELD, HeldCounts
from outlast.store.port import CommitNotifier, RunCallback, Step, Store
from outlast.store.tickets import Take, Task, Ticket

URGENT_WAIT_S: Final = 60.0
_process = os.getpid()  # cached, because every read and every commit compares it


def _forked() -> None:
    global _process
    _process = os.getpid()


if hasattr(os, "register_at_fork"):  # absent on platforms without fork
    os.register_at_fork(after_in_child=_forked)


class BatchingStore(Store, CommitNotifier, ABC):
    """The writing half of a durable store. Queues work of all event loops for one writer."""

    not_inherited: ClassVar[str]  # reason why a forked child cannot use the store

    def __init__(self) -> None:
        self._closed = False
        self._process = _process
        self._lock = threading.Lock()
        self._unsent: dict[asyncio.AbstractEventLoop, list[Ticket]] = {}  # submitted by each loop in its present turn
        self._hurried: set[asyncio.AbstractEventLoop] = set()  # loops that have asked to hasten
        self._callbacks: tuple[tuple[asyncio.AbstractEventLoop, RunCallback], ...] = ()  # callbacks of on_moved

    # --- hooks of the stores -----------------------------------------------------------------
    @abstractmethod
    def _send(self, tickets: list[Ticket]) -> None:
        """Append tickets to the writer's queue. Every ticket is answered, even after the writer ended."""

    @abstractmethod
    def _send_first(self, ticket: Ticket) -> None:
        """Have the writer land a ticket in its own transaction before its next batch."""

    @abstractmethod
    def _hasten(self) -> None:
        """Stop the writer from waiting for further commits."""

    # --- the port ------------------------------------------------------------------------
    @override
    def submit(self, commit: Commit, *, chain: Chain | None = None, linger: bool = False) -> "asyncio.Future[Done]":
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Done] = loop.create_future()
        ticket = Ticket(commit, future, loop, chain, linger)
        try:
            check(commit)
        except Rejected as error:
            ticket.out_of_bounds = error
        try:
            self._check_process()
        except Unavailable as error:
            if chain is not None:
                chain.broken = True
            future.set_exception(error)
            future.exception()  # marks it as retrieved: the caller need not await it
        else:
            self._queue(ticket, loop)
            if self._callbacks:
                future.add_done_callback(partial(self._report_landed, commit))
        return future

    @override
    def hasten(self) -> None:
        loop = asyncio.get_running_loop()
        if loop not in self._hurried:  # hundreds of runs may call this in one turn of the loop
            self._hurried.add(loop)
            loop.call_soon(self._hasten_once, loop)

    def _hasten_once(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop in self._unsent:  # the loop submitted more since: hasten after that is handed over
            loop.call_soon(self._hasten_once, loop)
        else:
            self._hurried.discard(loop)
            self._hasten()

    @override
    def urgent_sync(self, commit: Commit) -> Done:
        check(commit)
        self._check_process()
        future: Future[Done] = Future()
        self._send_first(Ticket(commit, future, None))
        try:
            return future.result(URGENT_WAIT_S)
        except TimeoutError as error:
            if future.cancel():
                raise Unavailable("the store's writer does not answer") from error
            return future.result()

    @override
    async def take(
        self, lanes: Sequence[str], n: int, step: Step, *, owners: Sequence[str] = (), held: HeldCounts = NONE_HELD
    ) -> tuple[Run, ...]:
        taken: tuple[Run, ...] = await self._queued(Take(lanes, n, step, owners, held))
        if self._callbacks:
            self._report([(row.tenant, row.run, row.seq) for row in taken])
        return taken

    @override
    def on_commit(self, callback: RunCallback) -> Callable[[], None]:
        entry = (asyncio.get_running_loop(), callback)
        self._callbacks = (*self._callbacks, entry)

        def end() -> None:
            self._callbacks = tuple(each for each in self._callbacks if each is not entry)

        return end

    def _report_landed(self, commit: Commit, done: "asyncio.Future[Done]") -> None:
        if not done.cancelled() and done.exception() is None:
            rows = [each.row for each in commit.writes if isinstance(each, Put)]
            messages = [each.message for each in commit.writes if isinstance(each, AppendMessage)]
            self._report(
                [
                    *((row.tenant, row.run, row.seq) for row in rows if isinstance(row, Run)),
                    *((message.tenant, message.run, 0) for message in messages),
                ]
            )

    def _report(self, moved: Sequence[tuple[str, str, int]]) -> None:
        current = asyncio.get_running_loop()
        for loop, callback in self._callbacks:
            for each in moved:
                if loop is current:
                    callback(*each)
                elif not loop.is_closed():
                    loop.call_soon_threadsafe(callback, *each)

    # --- for the stores ------------------------------------------------------------------
    async def _alone(self, run: Callable[[Any], Any], label: str) -> Any:
        """Run `run` with the writer's session, in order with the commits, and return its result."""
        return await self._queued(Task(run, label))

    async def _queued(self, work: Take | Task) -> Any:
        self._check_process()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._queue(Ticket(work, future, loop), loop)
        return await future

    def _check_process(self) -> None:
        if self._closed:
            raise Unavailable("the store is closed")
        if _process != self._process:
            raise Unavailable("this process was forked from the one that opened the store",
                              self.not_inherited, "open the store after the fork")  # fmt: skip

    def _queue(self, ticket: Ticket, loop: asyncio.AbstractEventLoop) -> None:
        """Collect a ticket with the others that its loop submits in this turn.

        If the first ticket woke the writer's thread at once, that thread would take the interpreter from the loop again
        and again, for a commit or two each time. That cost a quarter of all CPU (bench/journal.md).
        """
        with self._lock:
            turn = self._unsent.setdefault(loop, [])
            turn.append(ticket)
        if len(turn) == 1:
            loop.call_soon(self._hand_over, loop)

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            turn = self._unsent.pop(loop, [])
        if turn:
            self._send(turn)

    def _hand_over_all(self) -> None:
        for loop in list(self._unsent):
            self._hand_over(loop)

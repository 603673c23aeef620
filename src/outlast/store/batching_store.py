"""Where the callers of a durable store hand in their work and wait for its answer; each store adds its writer."""

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
from outlast.store.port import Moved, Step, Store, Telling
from outlast.store.tickets import Take, Task, Ticket

URGENT_WAIT_S: Final = 60.0
_process = os.getpid()  # asked once: every read and every commit compares it


def _forked() -> None:
    global _process
    _process = os.getpid()


if hasattr(os, "register_at_fork"):  # not where nothing forks
    os.register_at_fork(after_in_child=_forked)


class BatchingStore(Store, Telling, ABC):
    """The writing half of store/port.py for a store whose batches are landed by another thread than its callers'."""

    not_inherited: ClassVar[str]  # why a forked child cannot go on with the store

    def __init__(self) -> None:
        self._closed = False
        self._process = _process
        self._lock = threading.Lock()
        self._turns: dict[asyncio.AbstractEventLoop, list[Ticket]] = {}  # what each loop has submitted in this turn
        self._hurried: set[asyncio.AbstractEventLoop] = set()  # loops of which somebody awaits what lingers
        self._ears: tuple[tuple[asyncio.AbstractEventLoop, Moved], ...] = ()  # who hears what is moved here

    # --- what a store adds ---------------------------------------------------------------
    @abstractmethod
    def _send(self, tickets: list[Ticket]) -> None:
        """To the end of the writer's queue. Every ticket is answered, also by a writer that has ended."""

    @abstractmethod
    def _send_first(self, ticket: Ticket) -> None:
        """To the writer, by itself, before its next batch."""

    @abstractmethod
    def _hasten(self) -> None:
        """Tell the writer that somebody awaits what lingers."""

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
            future.exception()  # read: a refused commit that nobody awaits is no mistake
        else:
            self._queue(ticket, loop)
            if self._ears:
                future.add_done_callback(partial(self._tell_landed, commit))
        return future

    @override
    async def commit(self, commit: Commit, *, chain: Chain | None = None) -> Done:
        return await self.submit(commit, chain=chain)

    @override
    def hasten(self) -> None:
        loop = asyncio.get_running_loop()
        if loop not in self._hurried:  # a hundred runs may say so in one turn: the writer hears it once
            self._hurried.add(loop)
            loop.call_soon(self._hasten_once, loop)

    def _hasten_once(self, loop: asyncio.AbstractEventLoop) -> None:
        if loop in self._turns:  # submitted since: that is handed over next, and hastened after it
            loop.call_soon(self._hasten_once, loop)
        else:
            self._hurried.discard(loop)
            self._hasten()

    @override
    async def urgent(self, commit: Commit) -> Done:
        check(commit)
        self._check_process()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Done] = loop.create_future()
        self._send_first(Ticket(commit, future, loop))
        return await future

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
        taken: tuple[Run, ...] = await self._in_turn(Take(lanes, n, step, owners, held))
        if self._ears:
            self._tell([(row.tenant, row.run, row.seq) for row in taken])
        return taken

    @override
    def on_moved(self, hear: Moved) -> Callable[[], None]:
        ear = (asyncio.get_running_loop(), hear)
        self._ears = (*self._ears, ear)

        def end() -> None:
            self._ears = tuple(each for each in self._ears if each is not ear)

        return end

    def _tell_landed(self, commit: Commit, done: "asyncio.Future[Done]") -> None:
        if not done.cancelled() and done.exception() is None:
            rows = [each.row for each in commit.writes if isinstance(each, Put)]
            messages = [each.message for each in commit.writes if isinstance(each, AppendMessage)]
            self._tell(
                [
                    *((row.tenant, row.run, row.seq) for row in rows if isinstance(row, Run)),
                    *((message.tenant, message.run, 0) for message in messages),
                ]
            )

    def _tell(self, moved: Sequence[tuple[str, str, int]]) -> None:
        here = asyncio.get_running_loop()
        for loop, hear in self._ears:
            for each in moved:
                if loop is here:
                    hear(*each)
                elif not loop.is_closed():
                    loop.call_soon_threadsafe(hear, *each)

    # --- for the stores ------------------------------------------------------------------
    async def _alone(self, run: Callable[[Any], Any], label: str) -> Any:
        """Have the writer give its session to `run`, in order with the commits; the answer is the task's."""
        return await self._in_turn(Task(run, label))

    async def _in_turn(self, work: Take | Task) -> Any:
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
        """To the writer, together with all that this loop submits in this turn.

        A thread that was woken by the first would take the interpreter from the loop again and again, for a commit or
        two each time: a quarter of all CPU (bench/journal.md).
        """
        with self._lock:
            turn = self._turns.setdefault(loop, [])
            turn.append(ticket)
        if len(turn) == 1:
            loop.call_soon(self._hand_over, loop)

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            turn = self._turns.pop(loop, [])
        if turn:
            self._send(turn)

    def _hand_over_all(self) -> None:
        for loop in list(self._turns):
            self._hand_over(loop)

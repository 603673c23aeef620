"""Base of stores whose batches are landed by another thread than the callers'."""

import asyncio
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, ClassVar, Final, Protocol, TypeAlias, TypeVar

from typing_extensions import override

from outlast.core.commit import AppendMessage, Chain, Commit, Done, Put
from outlast.core.durations import LINGER, SECOND
from outlast.core.rows.run_rows import Run
from outlast.errors import Rejected, StoreUnusable, Unavailable
from outlast.store.bounds import check
from outlast.store.fair_queueing import NONE_HELD, HeldCounts
from outlast.store.port import CommitNotifier, RunCallback, Step, Store
from outlast.store.threads import Subscribers
from outlast.store.tickets import Take, Task, Ticket, deliver, refuse

T = TypeVar("T")
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
        self._unsent: dict[asyncio.AbstractEventLoop, _Turn] = {}  # tickets of each loop that the writer has not got
        self._landings = Subscribers[str, str, Run | None]()

    # --- hooks of the stores -----------------------------------------------------------------
    @abstractmethod
    def _send(self, tickets: list[Ticket]) -> None:
        """Append tickets to the writer's queue. Every ticket is answered, even after the writer ended."""

    @abstractmethod
    def _send_first(self, ticket: Ticket) -> None:
        """Have the writer land a ticket in its own transaction before its next batch."""

    def _land_here(self, tickets: list[Ticket]) -> bool:
        """Land the tickets of a turn in the thread of their loop and return True, if the store can do so at once."""
        return False

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
        if self._closed or _process != self._process:
            if chain is not None:
                chain.broken = True
            future.set_exception(self._unusable())
            future.exception()  # marks it as retrieved: the caller need not await it
        else:
            self._queue(ticket, loop)
            if self._landings.has_any():
                future.add_done_callback(partial(self._report_landed, commit))
        return future

    @override
    def hasten(self) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            turn = self._unsent.get(loop)
            if turn is not None:
                turn.end_soon(loop, self._hand_over)

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
        if self._landings.has_any():
            self._landings.report([(row.tenant, row.run, row) for row in taken])
        return taken

    @override
    def on_commit(self, callback: RunCallback) -> Callable[[], None]:
        return self._landings.subscribe(callback)

    def _report_landed(self, commit: Commit, done: "asyncio.Future[Done]") -> None:
        if not done.cancelled() and done.exception() is None:
            rows = [each.row for each in commit.writes if isinstance(each, Put)]
            messages = [each.message for each in commit.writes if isinstance(each, AppendMessage)]
            self._landings.report(
                [
                    *((row.tenant, row.run, row) for row in rows if isinstance(row, Run)),
                    *((message.tenant, message.run, None) for message in messages),
                ]
            )

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
        if self._closed or _process != self._process:
            raise self._unusable()

    def _unusable(self) -> Unavailable:
        if self._closed:
            return Unavailable("the store is closed")
        return Unavailable(
            "this process was forked from the one that opened the store",
            self.not_inherited,
            "open the store after the fork",
        )

    def _queue(self, ticket: Ticket, loop: asyncio.AbstractEventLoop) -> None:
        """Collect a ticket with the others that its loop submits in this turn.

        If the first ticket woke the writer's thread at once, that thread would take the interpreter from the loop again
        and again, for a commit or two each time. That cost a quarter of all CPU (bench/journal.md). Tickets that linger
        wait here, because each would wake the writer for nothing.
        """
        with self._lock:
            turn = self._unsent.get(loop)
            if turn is None:
                turn = self._unsent[loop] = _Turn()
            turn.tickets.append(ticket)
            if not ticket.linger:
                turn.end_soon(loop, self._hand_over)
            elif turn.end is None:
                turn.end = loop.call_later(LINGER / SECOND, self._hand_over, loop)

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            turn = self._unsent.pop(loop, None)
        if turn is not None and not self._land_here(turn.tickets):
            self._send(turn.tickets)

    def _hand_over_all(self) -> None:
        with self._lock:
            turns = list(self._unsent.values())
            self._unsent.clear()
        for turn in turns:
            self._send(turn.tickets)


class LoopWriter(Protocol):
    """Writer of a store, used in the store's own event loop. It answers every ticket."""

    def submit(self, tickets: list[Ticket]) -> None:
        """Append tickets to the queue."""

    async def submit_first(self, ticket: Ticket) -> None:
        """Land a ticket by itself, so that no other commit delays it."""

    async def close(self) -> None:
        """Land earlier tickets and refuse later ones."""


Errors: TypeAlias = tuple[type[Exception], ...]
Unusable: TypeAlias = Callable[[Exception], StoreUnusable]


class LoopStore(BatchingStore):
    """A store whose writer and reads run in one thread with its own event loop."""

    def __init__(self, thread_name: str) -> None:
        super().__init__()
        self._tasks: LoopWriter | None = None  # set when the store is open
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=thread_name, daemon=True)
        self._thread.start()

    @abstractmethod
    async def _close_in_loop(self) -> None:
        """Land what was submitted and release every resource of the store's loop."""

    async def _close_here(self) -> None:
        """Release what belongs to the caller's loop, before the writer ends."""

    async def _opened(self, work: Coroutine[Any, Any, None], away: Errors, unusable: Unusable) -> None:
        """Open in the store's own event loop. After any error, end the thread; `unusable` says what an outage means."""
        try:
            await self._in_loop(work)
        except away as error:
            await self.close()
            raise unusable(error) from error
        except BaseException:  # end the thread on any error
            await self.close()
            raise

    async def _in_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Await a coroutine in the store's own event loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    @override
    async def close(self) -> None:
        if self._closed or os.getpid() != self._process:
            return
        self._closed = True
        try:
            self._hand_over_all()
            await self._close_here()
            await self._in_loop(self._close_in_loop())
        finally:  # end the thread on any error
            self._loop.call_soon_threadsafe(self._loop.stop)
            await asyncio.to_thread(self._thread.join)
            self._loop.close()

    @override
    def _send(self, tickets: list[Ticket]) -> None:
        assert self._tasks is not None, "the store is open"
        try:
            self._loop.call_soon_threadsafe(self._tasks.submit, tickets)
        except RuntimeError:  # the store was closed
            _refuse_closed(tickets)

    @override
    def _send_first(self, ticket: Ticket) -> None:
        assert self._tasks is not None, "the store is open"
        work = self._tasks.submit_first(ticket)
        try:
            asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:  # the store was closed
            work.close()
            _refuse_closed([ticket])


def _refuse_closed(tickets: list[Ticket]) -> None:
    refuse(tickets, Unavailable("the store is closed"))
    deliver(tickets)


class _Turn:
    """Tickets that a loop has submitted since it last handed tickets over."""

    __slots__ = ("end", "ends_soon", "tickets")

    def __init__(self) -> None:
        self.tickets: list[Ticket] = []
        self.end: asyncio.Handle | None = None  # the scheduled hand-over
        self.ends_soon = False  # it is part of the present turn of the loop, and waits for no LINGER

    def end_soon(self, loop: asyncio.AbstractEventLoop, hand_over: Callable[[asyncio.AbstractEventLoop], None]) -> None:
        """Hand the tickets over at the end of the present turn."""
        if not self.ends_soon:
            self.ends_soon = True
            if self.end is not None:
                self.end.cancel()
            self.end = loop.call_soon(hand_over, loop)

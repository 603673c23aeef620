"""The thread that writes a SQLite store: gather pending tickets, land them together, answer them."""

import sqlite3
import threading
from collections import deque
from queue import Empty, SimpleQueue
from typing import Final

from outlast.core.clock import Clock
from outlast.core.durations import CHANGE_POLL, FILE_CHECK, SECOND
from outlast.errors import OutlastError, StoreError, Unavailable, Uncertain
from outlast.store.database import unavailable
from outlast.store.session import SqliteSession
from outlast.store.threads import WakeSubscribers
from outlast.store.tickets import PAUSE_S, Task, Ticket, deliver, refuse

BATCH_MAX: Final = 1_000  # approximate commits per transaction; a lease renewal may wait for one
TURN_MAX: Final = BATCH_MAX // 4  # commits of one turn of a loop that are queued together
LOOK_S: Final = CHANGE_POLL / SECOND  # interval at which commits of other processes are noticed
TIDY_PAGES: Final = 500  # estimated pages in the log after which an idle writer copies it into the database
FULL_PAGES: Final = 3_500  # … after which a busy writer does


class WriterThread:
    """A queue and the daemon thread that empties it. Every ticket is answered, whatever happens."""

    def __init__(self, session: SqliteSession, wakes: WakeSubscribers, clock: Clock) -> None:
        self._clock = clock
        self._check_at = 0  # monotonic time of the next check of the file
        self._session = session
        self._wakes = wakes
        self._queue: SimpleQueue[list[Ticket] | None] = SimpleQueue()  # None: check for urgent tickets or for closing
        self._urgent: deque[Ticket] = deque()
        self._closing = threading.Event()
        self._hurry = False  # land lingering commits at once
        self._thread = threading.Thread(target=self._run, name="outlast-writer", daemon=True)
        self._thread.start()

    def submit(self, tickets: list[Ticket]) -> None:
        """Append the tickets of one turn of a loop to the queue."""
        for at in range(0, len(tickets), TURN_MAX):
            self._queue.put(tickets[at : at + TURN_MAX])
        if self._closing.is_set() and not self._thread.is_alive():
            self._answer_rest()

    def hasten(self) -> None:
        """Land lingering commits without waiting for further ones."""
        self._hurry = True
        self._queue.put([])

    def submit_first(self, ticket: Ticket) -> None:
        """Land a ticket by itself before the next batch."""
        self._urgent.append(ticket)
        self._queue.put(None)
        if self._closing.is_set() and not self._thread.is_alive():
            self._answer_rest()

    def watch(self) -> None:
        """Start watching for commits of other processes. Called when the first callback subscribes."""
        self._queue.put(None)

    def close(self) -> None:
        """Land earlier tickets, then end the thread. Blocks until it has ended."""
        self._closing.set()
        self._queue.put(None)
        self._thread.join()
        self._answer_rest()

    # --- the thread ----------------------------------------------------------------------
    def _run(self) -> None:
        ended = False
        while not ended:
            tickets, ended = self._gather()
            self._check_file()
            self._land_urgent()
            if tickets:
                self._land(tickets)
            elif not ended:
                self._when_idle()
        self._land_urgent()

    def _check_file(self) -> None:
        now = self._clock.mono()
        if now >= self._check_at or self._session.database.lost is not None:
            self._check_at = now + FILE_CHECK
            self._session.check_file()

    def _gather(self) -> tuple[list[Ticket], bool]:
        """Return the next tickets to land, and True if they are the last."""
        tickets: list[Ticket] = []
        try:
            looks = self._wakes.has_any() or self._session.written > TIDY_PAGES
            first = self._queue.get(timeout=LOOK_S if looks else None)
        except Empty:
            return tickets, False
        tickets += first or ()
        pause = PAUSE_S
        while len(tickets) < BATCH_MAX and not self._urgent:
            try:
                more = self._queue.get_nowait()
            except Empty:
                if not tickets or self._hurry or not all(t.linger for t in tickets) or pause < 0.001:
                    break
                more = self._wait(pause)
                pause /= 2
            tickets += more or ()
        self._hurry = False
        return tickets, self._closing.is_set() and self._queue.empty()

    def _wait(self, seconds: float) -> list[Ticket] | None:
        try:
            return self._queue.get(timeout=seconds)
        except Empty:
            return None

    def _land_urgent(self) -> None:
        while self._urgent:
            self._land([self._urgent.popleft()])

    def _land(self, tickets: list[Ticket]) -> None:
        """Land tickets in order. A task runs in its own transaction between those before and after it."""
        together: list[Ticket] = []
        for ticket in tickets:
            if isinstance(ticket.work, Task):
                self._land_together(together)
                self._do(ticket, ticket.work)
                together = []
            else:
                together.append(ticket)
        self._land_together(together)

    def _land_together(self, tickets: list[Ticket]) -> None:
        if tickets:
            try:
                self._session.land(tickets)
            except Exception as error:  # a bug must not leave callers waiting
                self._give_up(tickets, error)
            deliver(tickets)
            self._after()

    def _do(self, ticket: Ticket, task: Task) -> None:
        try:
            ticket.answer = task.run(self._session)
        except OutlastError as error:
            ticket.answer = error
        except sqlite3.Error as error:
            self._session.drop()
            ticket.answer = unavailable(error)
        except Exception as error:  # re-raised in the caller of the task
            self._session.drop()
            ticket.answer = error
        deliver((ticket,))
        self._after()

    def _give_up(self, tickets: list[Ticket], error: Exception) -> None:
        self._session.drop()
        refuse(tickets, error if isinstance(error, StoreError) else Uncertain("the writer failed", repr(error)))

    def _after(self) -> None:
        """Wake subscribers and keep the log short after a batch."""
        if self._session.woken:
            self._session.woken = False
            self._wakes.fire()
        self._session.preallocate_log()
        if self._session.written > FULL_PAGES:
            self._copy_log()

    def _when_idle(self) -> None:
        try:
            if self._wakes.has_any():
                self._session.see_writes()
        except (sqlite3.Error, OutlastError):
            self._session.drop()  # the next batch raises the error
        self._after()
        if self._session.written > TIDY_PAGES and self._queue.empty():
            self._copy_log()

    def _copy_log(self) -> None:
        try:
            self._session.checkpoint("PASSIVE")
        except (sqlite3.Error, OutlastError):
            self._session.written = 0  # the log grows until the next attempt
            self._session.drop()

    def _answer_rest(self) -> None:
        """Refuse tickets that came after the last batch."""
        rest = list(self._urgent)
        self._urgent.clear()
        while True:
            try:
                rest += self._queue.get_nowait() or ()
            except Empty:
                break
        refuse(rest, Unavailable("the store is closed"))
        deliver(rest)

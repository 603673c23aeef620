"""The thread that writes a SQLite store: gather pending tickets, land them together, answer them.

Possible faults, and why every ticket is answered once, in order:

- *A bug or an error of the machine in a batch.* `_land_batch` catches it and refuses the tickets of the batch. The
  thread goes on with a new connection.
- *A loop lands its own tickets while the thread writes.* Both hold `_turn` while they use the session. A loop does so
  only if no ticket is unlanded, so it overtakes none.
- *Ctrl-C in a loop that lands.* The transaction may have landed and the cache may lack it, so the connection and its
  cache are dropped.
- *The store is closed while tickets arrive.* A ticket that comes after the thread has ended is refused by its caller;
  one that was queued before is landed or refused by `close`.
"""

import sqlite3
import threading
from collections import deque
from queue import Empty, SimpleQueue
from typing import Final

from outlast.core.clock_port import Clock
from outlast.core.commit import Chain
from outlast.core.durations import CHANGE_POLL, FILE_CHECK, SECOND
from outlast.errors import OutlastError, StoreError, Unavailable, Uncertain
from outlast.store.sqlite.database import unavailable
from outlast.store.sqlite.session import SqliteSession
from outlast.store.threads import WakeSubscribers
from outlast.store.tickets import Task, Ticket, deliver, refuse, resolve

BATCH_MAX: Final = 1_000  # approximate commits per transaction; a lease renewal may wait for one
TURN_MAX: Final = BATCH_MAX // 4  # commits of one turn of a loop that are queued together
LOOK_S: Final = CHANGE_POLL / SECOND  # interval at which commits of other processes are noticed
TIDY_PAGES: Final = 500  # estimated pages in the log after which an idle writer copies it into the database
FULL_PAGES: Final = 3_500  # … after which a busy writer does
HERE_MAX: Final = 16  # commits of a turn that its loop lands itself
HERE_MAX_MS: Final = 2  # duration of the last batch above which a loop lands nothing itself


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
        self._turn = threading.Lock()  # held while a thread uses the session
        self._count = threading.Lock()
        self._unlanded = 0  # tickets that were submitted and have not landed
        self._chain: Chain | None = None  # of the last turn, if one run alone submitted it
        self._slow = True  # the last batch took more than HERE_MAX_MS
        self._landed_here = False  # since the thread was last idle
        self._thread = threading.Thread(target=self._run, name="outlast-writer", daemon=True)
        self._thread.start()

    def submit(self, tickets: list[Ticket]) -> None:
        """Append the tickets of one turn of a loop to the queue."""
        with self._count:
            self._unlanded += len(tickets)
        for at in range(0, len(tickets), TURN_MAX):
            self._queue.put(tickets[at : at + TURN_MAX])
        if self._closing.is_set() and not self._thread.is_alive():
            self._answer_rest()

    def land_here(self, tickets: list[Ticket]) -> bool:
        """Land the tickets of one turn of a loop in its thread, and return True, if that is cheaper for all.

        A run that executes alone waits for each of its commits, and two changes of threads cost about as much as the
        commit. So the loop lands them itself if the run submitted the previous turn, too, the thread has nothing to do,
        and the loop is not blocked for long: no other process holds the write lock, and the last batch was fast.
        """
        chain = tickets[0].chain
        alone = chain is not None and len(tickets) <= HERE_MAX and all(ticket.chain is chain for ticket in tickets)
        before, self._chain = self._chain, chain if alone else None
        if before is not chain or not alone or self._slow or self._unlanded or self._urgent:
            return False
        if self._clock.mono() >= self._check_at or not self._turn.acquire(timeout=HERE_MAX_MS / SECOND):
            return False  # the thread checks the file, or copies the log
        try:
            if self._closing.is_set() or not self._land_batch(tickets, waits=False):
                return False
        except BaseException:  # Ctrl-C: the cache may lack what has landed
            self._session.drop()
            raise
        finally:
            self._turn.release()
        resolve(tickets)
        self._landed_here = True
        self._wake()
        if self._session.written > FULL_PAGES or self._session.needs_log():
            self._queue.put(None)  # the thread tends the log
        return True

    def submit_first(self, ticket: Ticket) -> None:
        """Land a ticket by itself before the next batch."""
        with self._count:
            self._unlanded += 1
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
        with self._turn:
            pass  # a loop has landed its last tickets
        self._answer_rest()

    # --- the thread ----------------------------------------------------------------------
    def _run(self) -> None:
        ended = False
        while not ended:
            tickets, ended = self._gather()
            with self._turn:
                self._check_file()
                self._land_urgent()
                if tickets:
                    self._land(tickets)
                elif not ended:
                    self._when_idle()
        with self._turn:
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
        while len(tickets) < BATCH_MAX and not self._urgent:
            try:
                tickets += self._queue.get_nowait() or ()
            except Empty:
                break
        return tickets, self._closing.is_set() and self._queue.empty()

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
            self._land_batch(tickets)
            self._deliver(tickets)

    def _land_batch(self, tickets: list[Ticket], *, waits: bool = True) -> bool:
        started = self._clock.mono()
        landed = True
        try:
            landed = self._session.land(tickets, waits=waits)
        except Exception as error:  # a bug must not leave callers waiting
            self._give_up(tickets, error)
        self._slow = self._clock.mono() - started > HERE_MAX_MS
        return landed

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
        self._deliver([ticket])

    def _deliver(self, tickets: list[Ticket]) -> None:
        """Answer tickets. The loop may land the next ones as soon as it has the answers."""
        with self._count:
            self._unlanded -= len(tickets)
        deliver(tickets)
        self._after()

    def _give_up(self, tickets: list[Ticket], error: Exception) -> None:
        self._session.drop()
        refuse(tickets, error if isinstance(error, StoreError) else Uncertain("the writer failed", repr(error)))

    def _after(self) -> None:
        """Wake subscribers and keep the log short after a batch."""
        self._wake()
        self._session.preallocate_log()
        if self._session.written > FULL_PAGES:
            self._copy_log()

    def _wake(self) -> None:
        if self._session.woken:
            self._session.woken = False
            self._wakes.fire()

    def _when_idle(self) -> None:
        try:
            if self._wakes.has_any():
                self._session.see_writes()
        except (sqlite3.Error, OutlastError):
            self._session.drop()  # the next batch raises the error
        self._after()
        if self._session.written > TIDY_PAGES and self._queue.empty() and not self._landed_here:
            self._copy_log()
        self._landed_here = False

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

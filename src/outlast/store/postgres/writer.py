"""The task that writes a PostgreSQL store: gather pending tickets, land them together, answer them."""

import asyncio
import logging
from collections import deque
from typing import Final

import asyncpg

from outlast.errors import OutlastError, StoreError, Unavailable, Uncertain
from outlast.store.postgres.connection import AWAY
from outlast.store.postgres.session import PostgresSession
from outlast.store.threads import WakeSubscribers
from outlast.store.tickets import Task, Ticket, deliver, refuse

log = logging.getLogger("outlast.store")
BATCH_MAX: Final = 1_000  # approximate commits per transaction
BATCH_LEAST: Final = (
    64  # above it, half of the pending commits land: callers answered first continue while the rest lands
)
HELD_S: Final = 0.002  # first wait for rows that others hold; doubled up to the next
HELD_MAX_S: Final = 0.1
HELD_TRIES: Final = 200  # … and attempts before a commit is refused as busy


class WriterTask:
    """A queue and the task that empties it, in the store's own event loop. Every ticket is answered."""

    def __init__(self, session: PostgresSession, urgent: PostgresSession, wakes: WakeSubscribers) -> None:
        self._session = session
        self._first = urgent
        self._wakes = wakes
        self._queue: deque[Ticket] = deque()
        self._held: list[Ticket] = []
        self._held_for = 0
        self._something = asyncio.Event()
        self._urgent_turn = asyncio.Lock()
        self._closing = False
        self._task = asyncio.create_task(self._run(), name="outlast-writer")

    def submit(self, tickets: list[Ticket]) -> None:
        """Append tickets to the queue."""
        if self._closing:
            _close(tickets)
            return
        self._queue += tickets
        self._something.set()

    async def submit_first(self, ticket: Ticket) -> None:
        """Land a ticket by itself over its own connection, so that no batch delays it."""
        if self._closing:
            _close([ticket])
            return
        async with self._urgent_turn:
            try:
                held = await self._first.land((ticket,))
                for _ in range(HELD_TRIES):
                    if not held:
                        break
                    await asyncio.sleep(HELD_MAX_S)
                    held = await self._first.land(held)
                refuse(held, Unavailable("the store is busy", "another transaction holds the row"))
            except Exception as error:  # a bug must not leave callers waiting
                await self._give_up(self._first, [ticket], error)
        deliver((ticket,))
        self._announce(self._first)

    async def close(self) -> None:
        """Land earlier tickets, then end the task."""
        self._closing = True
        self._something.set()
        await self._task

    # --- the task ------------------------------------------------------------------------
    async def _run(self) -> None:
        while True:
            tickets = await self._gather()
            if not tickets:
                return
            await self._land(tickets)

    async def _gather(self) -> list[Ticket]:
        """Return the next tickets: first those that waited for rows of others. Empty if the writer is closed."""
        if self._held:
            await asyncio.sleep(min(HELD_S * 2**self._held_for, HELD_MAX_S))
        while not (self._queue or self._held):
            if self._closing:
                return []
            self._something.clear()
            await self._something.wait()
        tickets, self._held = self._held, []
        most = min(BATCH_MAX, max(BATCH_LEAST, len(self._queue) // 2))
        while self._queue and len(tickets) < most:
            tickets.append(self._queue.popleft())
        return tickets

    async def _land(self, tickets: list[Ticket]) -> None:
        """Land tickets in order. A task runs in its own transaction between those before and after it."""
        together: list[Ticket] = []
        for ticket in tickets:
            if isinstance(ticket.work, Task):
                await self._land_together(together)
                await self._do(ticket, ticket.work)
                together = []
            else:
                together.append(ticket)
        await self._land_together(together)

    async def _land_together(self, tickets: list[Ticket]) -> None:
        if not tickets:
            return
        held: list[Ticket] = []
        try:
            held = await self._session.land(tickets)
        except Exception as error:  # a bug must not leave callers waiting
            await self._give_up(self._session, tickets, error)
        self._held_for = self._held_for + 1 if held and len(held) == len(tickets) else 0
        if self._held_for > HELD_TRIES:
            refuse(held, Unavailable("the store is busy", "another transaction holds the rows"))
            held = []
        waiting = set(map(id, held))
        self._held += held
        deliver(ticket for ticket in tickets if id(ticket) not in waiting)
        self._announce(self._session)

    async def _do(self, ticket: Ticket, task: Task) -> None:
        try:
            ticket.answer = await task.run(self._session)
        except OutlastError as error:
            ticket.answer = error
        except (*AWAY, asyncpg.PostgresError) as error:
            await self._session.drop()
            ticket.answer = Unavailable("the store is not available", str(error))
        except Exception as error:  # re-raised in the caller of the task
            await self._session.drop()
            ticket.answer = error
        deliver((ticket,))
        self._announce(self._session)

    async def _give_up(self, session: PostgresSession, tickets: list[Ticket], error: Exception) -> None:
        log.exception("the writer failed")
        await session.drop()
        refuse(tickets, error if isinstance(error, StoreError) else Uncertain("the writer failed", repr(error)))

    def _announce(self, session: PostgresSession) -> None:
        if session.woken:
            session.woken = False
            self._wakes.fire()


def _close(tickets: list[Ticket]) -> None:
    refuse(tickets, Unavailable("the store is closed"))
    deliver(tickets)

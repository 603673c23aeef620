"""Delivery of one cursor's events in order: event n + 1 is sent after n was accepted or given up.

Webhooks and messages to approvers share the order, the claim, the retries and the end. `EventSender` and
`MessageSender` decide which request an event leads to.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from outlast.core.clock_port import Clock
from outlast.core.commit import Put
from outlast.core.machine import DeliveryStatus
from outlast.core.rows.outbox_rows import DELIVERY, Delivery, Subscription
from outlast.core.rows.run_rows import EVENT, RUN, Event
from outlast.core.webhooks import deliveries
from outlast.core.webhooks.deliveries import Attempt
from outlast.errors import Conflict, NotFound
from outlast.outbox import subscriptions
from outlast.outbox.claimed_cursor import ClaimedCursor, CursorLost, Release
from outlast.outbox.receiver_pause import ReceiverPause
from outlast.store.port import Store
from outlast.telemetry import Counters
from outlast.telemetry.metrics import ACCEPTED, DEAD, GONE, RETRIED, WEBHOOK_DELIVERIES

Client = TypeVar("Client")
EVENTS_AT_ONCE: Final = 20  # events per read
Settled: TypeAlias = tuple[int | None, tuple[Put, ...]]
"""Instant of the next attempt of an event (None: it is settled), and the row to write, if any."""


class DispatcherServices(NamedTuple):
    """Store, name, clock and randomness that a dispatcher shares with its senders."""

    store: Store
    dispatcher: str
    clock: Clock
    chance: Callable[[], float]
    counters: Counters
    stopping: Callable[[], bool]
    public_url: str = ""
    """Address of the service for people, for links in messages to approvers."""


class CursorSender(ABC, Generic[Client]):
    """Sends the events of one cursor that this dispatcher holds."""

    def __init__(
        self,
        tools: DispatcherServices,
        client: Client,
        subscription: Callable[[], Subscription],
        pause: ReceiverPause,
        cursor: ClaimedCursor,
    ) -> None:
        """`subscription`: returns the latest row, read before each attempt, because it may change; `pause`: of its
        receiver.
        """
        self._tools = tools
        self._client = client
        self._subscription = subscription
        self._pause = pause
        self._cursor = cursor
        self._gone = False

    @abstractmethod
    async def _first(self, event: Event, before: Delivery | None) -> Settled:
        """Send the request that an event leads to, and settle it. `before`: row of an earlier attempt."""

    @abstractmethod
    async def _again(self, event: Event, before: Delivery) -> Settled:
        """Send an event again that failed, is scheduled or was requested, and settle it."""

    async def run(self) -> None:
        """Send until nothing is owed, an attempt fails or the dispatcher stops. Raises CursorLost, StoreError."""
        retries = await self._repeat() if self._cursor.stored.again else []
        own_at, puts = await self._deliver()
        await self._cursor.write(*puts, release=Release(own_at, tuple(retries), tuple(self._cursor.reminders)))

    # --- new events ------------------------------------------------------------------------
    async def _deliver(self) -> Settled:
        """Send new events in order. Return when more is due (None: nothing is owed), and writes to commit with that."""
        store, cursor = self._tools.store, self._cursor
        failed = await store.rows(DELIVERY, cursor.key, after=(*cursor.key, cursor.seq), limit=1)
        before = failed[0] if failed else None
        while True:
            known = cursor.stored.upto  # later events, learned from a write, are read in the next round
            run = cursor.key[:2]
            events = await store.rows(EVENT, run, after=(*run, cursor.seq), limit=EVENTS_AT_ONCE)
            for event in events:
                if not deliveries.wants_event(self._subscription(), event):
                    cursor.skip(event.seq)
                    continue
                if self._stopping():
                    return 0, ()
                mine = before if before is not None and before.seq == event.seq else None
                at, put = await self._first(event, mine)
                if at is not None:
                    return at, put
                await cursor.settle(event, *put)
            if len(events) < EVENTS_AT_ONCE:
                cursor.skip(max(cursor.seq, known))  # a purged run has fewer events
                if cursor.seq >= cursor.stored.upto:
                    return None, ()

    async def _settle(self, event: Event, before: Delivery | None, attempt: Attempt) -> Settled:
        """Return when the next attempt is due (None: the event is settled), and the row to write, if any."""
        self._tools.counters.add(WEBHOOK_DELIVERIES, _outcome(before, attempt))
        self._pause.note(attempt)
        if not attempt.error and before is None:
            return None, ()
        if attempt.gone:
            await self._disable()
            return 0, ()
        now, name = await self._tools.store.now(), self._cursor.key[2]
        at = None
        if not attempt.error:
            assert before is not None
            after = deliveries.close(before, event, attempt, now)
        elif deliveries.is_over(before, attempt):
            after = deliveries.dead_letter(name, event, before, attempt, now)
        else:
            after = deliveries.send(name, event, before, attempt, self._tools.chance(), now)
            at = after.due_at
        return at, (Put(DELIVERY, after, after.version - 1),)

    async def _disable(self) -> None:
        """Disable a subscription whose receiver answered 410, in a separate commit; concurrent senders race for it."""
        self._gone = True
        by = self._tools.dispatcher
        tenant, _, name = self._cursor.key
        try:
            await subscriptions.change(
                self._tools.store,
                tenant,
                name,
                lambda row, now: deliveries.disable(row, deliveries.GONE, by=by, now=now),
                "disable",
            )
        except (Conflict, NotFound):
            pass  # already disabled or removed

    def _stopping(self) -> bool:
        """Return True if this dispatcher or this subscription sends nothing more, or the receiver asked to wait."""
        if self._gone or self._pause.left_ms or self._tools.stopping():
            return True
        return not deliveries.is_active(self._subscription())

    # --- requested redeliveries --------------------------------------------------------------
    async def _repeat(self) -> list[int]:
        """Send each requested redelivery and each reminder that is due once. Return when further attempts are due."""
        cursor = self._cursor
        asked = [
            row
            for row in await self._tools.store.rows(DELIVERY, cursor.key)
            if row.status in (DeliveryStatus.OWED, DeliveryStatus.SCHEDULED) and deliveries.event_seq(row) <= cursor.seq
        ]
        later: list[int] = []
        for before in asked:
            now = await self._tools.store.now()
            if before.due_at > now.real or self._stopping():
                waiting = cursor.reminders if before.status is DeliveryStatus.SCHEDULED else later
                waiting.append(before.due_at)
                continue
            event = await self._tools.store.load(EVENT, (*cursor.key[:2], deliveries.event_seq(before)))
            if event is None:
                if await self._tools.store.load(RUN, cursor.key[:2]) is None:
                    raise CursorLost  # the run was purged, its cursor too
                now = await self._tools.store.now()
                await cursor.write(Put(DELIVERY, deliveries.give_up_purged(before, now), before.version))
                continue  # it was behind the window of the history of the run
            at, put = await self._again(event, before)
            if at is None:
                cursor.repeated += 1
            else:
                later.append(at)
            await cursor.write(*put)
        if not asked:
            cursor.repeated = cursor.stored.again  # the requests were settled in another way
        return later


def _outcome(before: Delivery | None, attempt: Attempt) -> str:
    if not attempt.error:
        return ACCEPTED
    if attempt.gone:
        return GONE
    return DEAD if deliveries.is_over(before, attempt) else RETRIED

"""Delivery of one cursor's events in order: event n + 1 is sent after n was accepted or given up.

The dispatcher claims the cursor: `due_at` is the end of its claim, `epoch` the fence. Accepted events are
recorded by the next commit, at the latest after SENT_AT_ONCE events. If the dispatcher dies first, they are sent again
under the same webhook-id. A message to approvers is recorded by its own commit, with the reminder that follows it.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from outlast.core.clock_port import Clock
from outlast.core.commit import Commit, Instant, Put
from outlast.core.crash_points import point
from outlast.core.durations import DELIVERY_CLAIM, DELIVERY_TIMEOUT
from outlast.core.machine import DeliveryStatus
from outlast.core.rows.outbox_rows import CURSOR, DELIVERY, Cursor, Delivery, Subscription
from outlast.core.rows.run_rows import EVENT, Event
from outlast.core.webhooks import approval_notices, deliveries
from outlast.core.webhooks.approval_notices import ASKED, REMINDER, Notice, NoticeId
from outlast.core.webhooks.deliveries import Attempt, webhook_id
from outlast.errors import Conflict, NotFound, Stale
from outlast.outbox import notices, signing, subscriptions
from outlast.outbox.channel_client import ChannelClient
from outlast.outbox.delivery_client import DeliveryClient
from outlast.outbox.receiver_pause import ReceiverPause
from outlast.outbox.subscriptions import redacted_attempt
from outlast.store.port import Store
from outlast.telemetry import Counters
from outlast.telemetry.metrics import ACCEPTED, DEAD, GONE, RETRIED, WEBHOOK_DELIVERIES


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


Poster = DeliveryClient | ChannelClient
"""Client of one subscription: of a webhook, or of messages to approvers."""
EVENTS_AT_ONCE: Final = 20  # events per read
SENT_AT_ONCE: Final = 20  # accepted events that a crash may repeat
MARGIN_MS: Final = DELIVERY_TIMEOUT + DELIVERY_TIMEOUT // 2  # claim that must be left when an event is sent
BACK_MAX: Final = 50  # events searched for the predecessor of a repeated one
TRIES: Final = 10
SUMMED: Final = Attempt(0, "an earlier message told of it, together with others", "", 0)


class CursorLost(Exception):
    """Another dispatcher holds the cursor, or it is deleted."""


class CursorSender:
    """Sends the events of one cursor that this dispatcher holds."""

    def __init__(
        self,
        tools: DispatcherServices,
        poster: Poster,
        subscription: Callable[[], Subscription],
        pause: ReceiverPause,
        held: Cursor,
        until: int,
    ) -> None:
        """`subscription`: returns the latest row, read before each attempt, because it may change; `pause`: of its
        receiver; `until`: the end of the claim on the local monotonic clock, measured from before the claim was
        requested.
        """
        self._tools = tools
        self._poster = poster
        self._subscription = subscription
        self._pause = pause
        self._stored = held
        self._until = until
        self._key = (held.tenant, held.run, held.subscription)
        self._seq, self._last = held.seq, held.last  # settled, whether committed or not
        self._repeated = 0  # requested redeliveries settled, less reminders scheduled, since the last commit
        self._reminders: list[int] = []  # real; when those scheduled here are due
        self._unwritten = 0  # accepted events since the last commit
        self._gone = False

    async def run(self) -> None:
        """Send until nothing is owed, an attempt fails or the dispatcher stops. Raises CursorLost, StoreError."""
        retries = await self._repeat() if self._stored.again else []
        own_at, puts = await self._deliver()
        await self._write(*puts, release=_Release(own_at, tuple(retries), tuple(self._reminders)))

    # --- new events ------------------------------------------------------------------------
    async def _deliver(self) -> tuple[int | None, tuple[Put, ...]]:
        """Send new events in order. Return when more is due (None: nothing is owed), and writes to commit with that."""
        store, (tenant, run, _) = self._tools.store, self._key
        failed = await store.rows(DELIVERY, self._key, after=(*self._key, self._seq), limit=1)
        before = failed[0] if failed else None
        while True:
            known = self._stored.upto  # later events, learned from a write, are read in the next round
            place = (tenant, run, self._seq)
            events = await store.rows(EVENT, place[:2], after=place, limit=EVENTS_AT_ONCE)
            for event in events:
                if not deliveries.wants_type(self._subscription(), event.type):
                    self._seq = event.seq
                    continue
                if self._stopping():
                    return 0, ()
                mine = before if before is not None and before.seq == event.seq else None
                if self._subscription().audience:
                    at, put = await self._inform(event, mine)
                else:
                    at, put = await self._settle(event, mine, await self._send(event, self._last))
                if at is not None:
                    return at, put
                self._seq = self._last = event.seq
                self._unwritten += 1
                if put or self._unwritten >= SENT_AT_ONCE:
                    await self._write(*put)
            if len(events) < EVENTS_AT_ONCE:
                self._seq = max(self._seq, known)  # a purged run has fewer events
                if self._seq >= self._stored.upto:
                    return None, ()

    async def _settle(
        self, event: Event, before: Delivery | None, attempt: Attempt
    ) -> tuple[int | None, tuple[Put, ...]]:
        """Return when the next attempt is due (None: the event is settled), and the row to write, if any."""
        self._tools.counters.add(WEBHOOK_DELIVERIES, _outcome(before, attempt))
        self._pause.note(attempt)
        if not attempt.error and before is None:
            return None, ()
        if attempt.gone:
            await self._disable()
            return 0, ()
        now, name = await self._tools.store.now(), self._key[2]
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
        tenant, _, name = self._key
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

    # --- messages to approvers -----------------------------------------------------------------
    async def _inform(self, event: Event, before: Delivery | None) -> tuple[int | None, tuple[Put, ...]]:
        """Send the message that an event leads to, if any, and schedule its reminder. Return as `_settle`."""
        store, row = self._tools.store, self._subscription()
        notice = await notices.after_event(store, row, event, before)
        if not notice.approvals:
            return None, await self._spared(before)
        first = before or deliveries.message_delivery(row.subscription, event, notice, await store.now())
        if notice.kind not in deliveries.kinds_of(row):  # only its reminder is wanted
            return None, await self._scheduled(first, notice)
        at, put = await self._settle(event, first, await self._tell(first, notice))
        return (at, put) if at is not None else (at, (*put, *await self._scheduled(first, notice)))

    async def _scheduled(self, announced: Delivery, notice: Notice) -> tuple[Put, ...]:
        """Return the write that schedules the reminder of announced approvals, if there is one."""
        due = approval_notices.first_reminder(notice.approvals)
        if notice.kind != ASKED or due is None or REMINDER not in deliveries.kinds_of(self._subscription()):
            return ()
        if approval_notices.is_reminder(announced.seq) or self._gone:
            return ()
        store = self._tools.store
        due_at = store.mapping().real(due)
        row = deliveries.schedule(announced, notice, due_at, await store.now())
        if await store.load(DELIVERY, (*self._key, row.seq)) is not None:
            return ()
        self._repeated -= 1
        self._reminders.append(due_at)
        return (Put(DELIVERY, row, 0),)

    async def _spared(self, before: Delivery | None) -> tuple[Put, ...]:
        """Return the write that records that a message is not needed any more."""
        if before is None:
            return ()
        store = self._tools.store
        row = deliveries.spare(before, await notices.why_spared(store, before), await store.now())
        return (Put(DELIVERY, row, before.version),)

    async def _tell(self, before: Delivery, notice: Notice) -> Attempt:
        """Attempt to send one message; first renew the claim if it could end before the attempt.

        The first message after a pause takes the place of all that have gathered.
        """
        if self._pause.settles(notice):
            return SUMMED
        await self._extend()
        row, label = self._subscription(), (f"{before.run} delivery {before.seq}",)
        now = await self._tools.store.now()
        waiting = frozenset[NoticeId]()
        if self._pause.probing:
            waiting = await notices.waiting(self._tools.store, row, now.business)
        more = len(self._pause.not_summed(waiting) - notice.ids)
        text = approval_notices.write(notice, now.business, self._tools.public_url, more)
        assert isinstance(self._poster, ChannelClient)
        point("outbox.delivery:before", label)
        attempt = await self._poster.post(row.secret.key, text._replace(key=before.event))
        point("outbox.delivery:after", label)
        if more and not attempt.error:
            self._pause.sum_up(waiting)
        return redacted_attempt(attempt, row)

    async def _inform_again(self, before: Delivery, event: Event) -> tuple[int | None, tuple[Put, ...]]:
        """Send a message that is scheduled, failed or was requested again, if it is still needed."""
        store = self._tools.store
        notice = await notices.once_more(store, self._subscription(), before)
        if not notice.approvals:
            return None, await self._spared(before)
        due = approval_notices.first_reminder(notice.approvals)
        early = due is not None and (await store.now()).business < due
        if before.status is DeliveryStatus.SCHEDULED and due is not None and early:
            row = deliveries.postpone(before, store.mapping().real(due))
            return row.due_at, (Put(DELIVERY, row, before.version),)
        return await self._settle(event, before, await self._tell(before, notice))

    # --- requested redeliveries --------------------------------------------------------------
    async def _repeat(self) -> list[int]:
        """Send each requested redelivery and each reminder that is due once. Return when further attempts are due."""
        asked = [
            row for row in await self._tools.store.rows(DELIVERY, self._key)
            if row.status in (DeliveryStatus.OWED, DeliveryStatus.SCHEDULED) and deliveries.event_seq(row) <= self._seq
        ]  # fmt: skip
        later: list[int] = []
        for before in asked:
            now = await self._tools.store.now()
            if before.due_at > now.real or self._stopping():
                waiting = self._reminders if before.status is DeliveryStatus.SCHEDULED else later
                waiting.append(before.due_at)
                continue
            event = await self._tools.store.load(EVENT, (*self._key[:2], deliveries.event_seq(before)))
            if event is None:
                raise CursorLost  # the run was purged, its cursor too
            if self._subscription().audience:
                at, put = await self._inform_again(before, event)
            else:
                at, put = await self._settle(event, before, await self._send(event, await self._previous(event)))
            if at is None:
                self._repeated += 1
            else:
                later.append(at)
            await self._write(*put)
        if not asked:
            self._repeated = self._stored.again  # the requests were settled in another way
        return later

    async def _previous(self, event: Event) -> int:
        """Return the number of the previous event that this subscription was sent; 0 if there was none."""
        seqs = range(event.seq - 1, max(0, event.seq - 1 - BACK_MAX), -1)
        for row in await self._tools.store.load_many(EVENT, [(*self._key[:2], seq) for seq in seqs]):
            if row is not None and deliveries.wants_type(self._subscription(), row.type):
                return row.seq if row.at >= self._subscription().since else 0
        return 0

    # --- send and keep the claim -----------------------------------------------------------
    async def _send(self, event: Event, previous: int) -> Attempt:
        """Attempt one delivery; first renew the claim if it could end before the attempt."""
        await self._extend()
        clock, row = self._tools.clock, self._subscription()
        assert isinstance(self._poster, DeliveryClient)
        label = (f"{event.run} delivery {event.seq}",)
        point("outbox.delivery:before", label)
        wall, body = clock.wall(), event.body
        signed = signing.headers(
            webhook_id(event),
            body,
            deliveries.secrets_of(row, wall),
            wall,
            sequence=event.seq,
            previous=previous,
            subscription=row.subscription,
        )
        attempt = await self._poster.post(row.url, {**deliveries.headers_of(row), **signed}, body)
        point("outbox.delivery:after", label)
        return redacted_attempt(attempt, row)

    async def _extend(self) -> None:
        """Renew the claim if it could end before an attempt does."""
        if self._tools.clock.mono() + MARGIN_MS > self._until:
            await self._write()

    async def _write(self, *more: Put, release: "_Release | None" = None) -> None:
        """Commit settled events with `more`, and keep the claim or release it.

        If more events are owed by now, the cursor is due at once. Raises CursorLost.
        """
        for _ in range(TRIES):
            base, begun = self._stored, self._tools.clock.mono()  # before the commit, which may be slow
            now = await self._tools.store.now()
            settled = base._replace(
                seq=self._seq,
                last=self._last,
                upto=max(base.upto, self._seq),
                again=max(0, base.again - self._repeated),
            )
            after = deliveries.keep(settled, now) if release is None else release.applied(settled, now)
            label = f"{base.run} told {self._seq}"
            try:
                await self._tools.store.commit(Commit((*more, Put(CURSOR, after, base.version)), label=label))
            except Stale:
                row = await self._tools.store.load(CURSOR, self._key)
                if row is None or (row.owner, row.epoch) != (base.owner, base.epoch):
                    raise CursorLost from None
                self._stored = row  # more events are owed by now
                continue
            self._stored, self._until = after, begun + DELIVERY_CLAIM
            self._repeated = self._unwritten = 0
            return
        raise CursorLost


class _Release(NamedTuple):
    """When a released cursor is due again (real)."""

    own_at: int | None  # the next new event; None: all that were known are settled
    retries: tuple[int, ...]  # requested redeliveries and failed reminders
    reminders: tuple[int, ...]  # scheduled ones

    def applied(self, settled: Cursor, now: Instant) -> Cursor:
        """Return the cursor as it is released, due at the earliest of these times; None if nothing is owed."""
        new = self.own_at is None and settled.seq < settled.upto  # events found by another process
        owed = [now.real] if new else [] if self.own_at is None else [self.own_at or now.real]
        owed += [at or now.real for at in self.retries]
        if settled.seq >= settled.upto and not settled.again:
            return deliveries.let_go(settled, now, again_at=None)
        due = min([*owed, *self.reminders], default=now.real)
        return deliveries.let_go(settled, now, again_at=due, scheduled=not owed and bool(self.reminders))


def _outcome(before: Delivery | None, attempt: Attempt) -> str:
    if not attempt.error:
        return ACCEPTED
    if attempt.gone:
        return GONE
    return DEAD if deliveries.is_over(before, attempt) else RETRIED

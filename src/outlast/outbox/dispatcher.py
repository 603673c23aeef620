"""Dispatcher of a process: assigns unpublished events to cursors, and has one sender for each subscription.

Several dispatchers may serve one store. If one dies, others take its cursors after DELIVERY_CLAIM.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from outlast.core.addresses import PUBLIC, AddressPolicy
from outlast.core.clock_port import Clock
from outlast.core.codec import canonical
from outlast.core.commit import Commit, Put, When
from outlast.core.durations import DELIVERY_CLAIM, DELIVERY_LOOK, DELIVERY_SIGN, IDLE_LOOK, SECOND, STORE_RETRY
from outlast.core.events import iso
from outlast.core.machine import SWEPT
from outlast.core.rows.outbox_rows import CURSOR, SUBSCRIPTION, Cursor, Subscription
from outlast.core.rows.store_rows import META
from outlast.core.webhooks import deliveries
from outlast.core.webhooks.approval_notices import NoticeText
from outlast.core.webhooks.deliveries import DISPATCHER_HEARTBEAT, SUBSCRIBED_TENANTS, Attempt, is_active, tenants_of
from outlast.errors import Corrupt, Stale, StoreError, StoreReplaced
from outlast.outbox import signing, subscriptions, unpublished
from outlast.outbox.address import Resolver, SystemResolver
from outlast.outbox.channel_address import refusal_of
from outlast.outbox.channel_client import ChannelClient
from outlast.outbox.claimed_cursor import ClaimedCursor, CursorLost
from outlast.outbox.cursor_sender import DispatcherServices
from outlast.outbox.delivery_client import DeliveryClient
from outlast.outbox.event_sender import EventSender
from outlast.outbox.message_sender import MessageSender
from outlast.outbox.receiver_pause import ReceiverPause
from outlast.outbox.subscriptions import redacted_attempt
from outlast.store.port import Store, lost
from outlast.store.queries import Owing
from outlast.telemetry import Counters
from outlast.telemetry.logs import Outage

log = logging.getLogger("outlast.outbox")
WIDTH: Final = 8
AHEAD: Final = 4  # due cursors read for each claimed one, because dispatchers choose at random
DUE: Final = "due"
Poster = DeliveryClient | ChannelClient
"""Client of one subscription: of a webhook, or of messages to approvers."""


class SubscriptionSender:
    """Claims due cursors of one subscription and sends them, at most WIDTH runs at once."""

    def __init__(
        self, tools: DispatcherServices, row: Subscription, make: Callable[[Subscription], Poster], width: int = WIDTH
    ) -> None:
        self._tools = tools
        self._row = row
        self._poster = make(row)
        self._outage = Outage(f"webhook {row.subscription}", tools.clock)
        self._width = width
        self._pause = ReceiverPause(tools.clock, tools.chance)
        self._streams: dict[str, asyncio.Task[None]] = {}  # key: run
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Look for due cursors now."""
        self._wake.set()

    async def run(self) -> None:
        """Send until the subscription is inactive or the dispatcher stops; then finish open deliveries."""
        try:
            while not self._tools.stopping():
                self._wake.clear()
                try:
                    pause = await self._round()
                    self._outage.over()
                except StoreError as error:
                    self._outage.met("receives nothing", error)
                    pause = STORE_RETRY
                if pause is None:
                    break
                try:
                    async with asyncio.timeout(pause / SECOND):
                        await self._wake.wait()
                except TimeoutError:
                    pass
        finally:
            if self._streams:
                await asyncio.wait(set(self._streams.values()), timeout=DELIVERY_CLAIM / SECOND)
            for task in self._streams.values():
                task.cancel()
            await self._poster.close()

    async def _round(self) -> int | None:
        """Claim as many cursors as there is capacity. Return ms until the next round; None if inactive."""
        store = self._tools.store
        row = await store.load(SUBSCRIPTION, (self._row.tenant, self._row.subscription))
        assert row is not None, "a subscription is marked as removed, never deleted"
        self._row = row  # running senders use the new row, too
        if not deliveries.is_active(row):
            return None
        if left := self._pause.left_ms:
            return min(left, IDLE_LOOK)
        width = 1 if self._pause.probing else self._width
        free = width - len(self._streams)
        if free <= 0:
            return IDLE_LOOK  # the end of a sender wakes this loop
        owing = await store.query(Owing(row.tenant, row.subscription, AHEAD * self._width))
        now = await store.now()
        at = [(c, deliveries.takeable_at(c, store.skew)) for c in owing if c.due_at is not None]
        due = [c for c, real in at if real <= now.real and c.run not in self._streams]
        await asyncio.gather(*(self._take(cursor) for cursor in self._chosen(due, free)))
        if len(due) > free:
            return IDLE_LOOK if len(self._streams) >= width else 1
        later = [real for c, real in at if real > now.real and not self._mine(c)]
        return max(1, min([IDLE_LOOK, *(real - now.real for real in later)]))

    def _mine(self, cursor: Cursor) -> bool:
        return cursor.run in self._streams

    def _chosen(self, due: Sequence[Cursor], free: int) -> Sequence[Cursor]:
        """Choose at random among the earliest, so that dispatchers seldom compete for a cursor."""
        return sorted(due[: AHEAD * free], key=lambda _: self._tools.chance())[:free]

    async def _take(self, cursor: Cursor) -> None:
        started, now = self._tools.clock.mono(), await self._tools.store.now()
        held = deliveries.hold(cursor, self._tools.dispatcher, now)
        still = When(deliveries.takeable_at(cursor, self._tools.store.skew), True, "real", DUE)
        commit = Commit((Put(CURSOR, held, cursor.version),), whens=(still,), label=f"{cursor.run} take cursor")
        try:
            await self._tools.store.commit(commit)
        except Stale:
            return  # another dispatcher has claimed it
        task = asyncio.create_task(self._send(held, started + DELIVERY_CLAIM))
        self._streams[cursor.run] = task
        task.add_done_callback(lambda _: self._ended(cursor.run))

    def _ended(self, run: str) -> None:
        self._streams.pop(run, None)
        self._wake.set()

    async def _send(self, held: Cursor, until: int) -> None:
        tools, client, pause = self._tools, self._poster, self._pause
        cursor = ClaimedCursor(tools.store, tools.clock, held, until)
        try:
            if isinstance(client, ChannelClient):
                await MessageSender(tools, client, lambda: self._row, pause, cursor).run()
            else:
                await EventSender(tools, client, lambda: self._row, pause, cursor).run()
        except CursorLost:
            pass  # the new holder of the cursor sends
        except StoreError as error:
            log.warning(
                "webhook %s, run %s: its cursor waits for the end of the claim: %s",
                held.subscription,
                held.run,
                error.what,
            )
        except Exception:  # a bug: the claim expires and the cursor is retried; other cursors must not stop
            log.exception("webhook %s, run %s", held.subscription, held.run)


TEST_TYPE: Final = "dev.outlast.webhook.test"
TEST_TEXT: Final = NoticeText("Test", "Messages about approvals arrive here. There is nothing to decide now.", "test")
FIRST_LOOK: Final = 1_000  # delay until the first subscription of a store is noticed
SENDERS_LOOK: Final = 1_000  # delay until further subscriptions are noticed
BREATH: Final = 10  # between two rounds while commits arrive, to batch their events


class Dispatcher:
    """Sends events to webhooks, from `run` until `drain`."""

    def __init__(
        self,
        store: Store,
        name: str,
        *,
        clock: Clock,
        chance: Callable[[], float],
        poster: Callable[[Subscription], Poster],
        counters: Counters | None = None,
        public_url: str = "",
    ) -> None:
        """`name`: new at each start; `poster`: makes the client of one subscription; `public_url`: address of the
        service for people.
        """
        self.name = name
        self.counters = counters or Counters()
        self._stopping = False
        self._tools = DispatcherServices(store, name, clock, chance, self.counters, lambda: self._stopping, public_url)
        self._store = store
        self._poster = poster
        self._outage = Outage(f"dispatcher {name}", clock)
        self._senders: dict[tuple[str, str], tuple[SubscriptionSender, asyncio.Task[None]]] = {}
        self._changed, self._drained = asyncio.Event(), asyncio.Event()
        self._look_at = 0  # monotonic; next read of the subscriptions
        self._sign_at = 0  # monotonic; next heartbeat

    def drain(self) -> None:
        """Send nothing new, and return from `run` once open deliveries have ended."""
        self._stopping = True
        self._changed.set()
        self._drained.set()
        for sender, _ in self._senders.values():
            sender.wake()

    async def run(self) -> None:
        """Serve until drained. Retries while the store is unavailable. Raises StoreReplaced if it is gone."""
        end = self._store.on_change(self._changed.set)
        try:
            while not self._stopping:
                self._changed.clear()
                try:
                    pause = await self._look()
                    self._outage.over()
                except StoreReplaced:
                    raise
                except Stale:
                    pause = BREATH  # another dispatcher was faster
                except (StoreError, Corrupt) as error:
                    self._outage.met("cannot find all events", error)
                    pause = STORE_RETRY
                await self._rest(pause)
        finally:
            end()
            tasks = [task for _, task in self._senders.values()]
            self.drain()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _rest(self, pause: int) -> None:
        """Wait for a change. Without subscribers, wait the full pause, so that an idle dispatcher costs nothing."""
        event = self._drained if pause >= FIRST_LOOK else self._changed
        try:
            async with asyncio.timeout(pause / SECOND):
                if event is self._changed:
                    await asyncio.sleep(BREATH / SECOND)
                await event.wait()
        except TimeoutError:
            pass

    async def _look(self) -> int:
        """Process every tenant once. Return ms until the next round. Raises StoreError."""
        if (gone := lost(self._store)) is not None:
            raise gone
        tenants = sorted(tenants_of(await self._store.load(META, SUBSCRIBED_TENANTS)))
        now, damaged = self._tools.clock.mono(), list[Corrupt]()
        if now >= self._look_at:
            self._look_at = now + SENDERS_LOOK
            for tenant in tenants:
                with _kept(damaged):
                    await self._open_senders(tenant)
            for key in [key for key, (_, task) in self._senders.items() if task.done()]:
                del self._senders[key]
        if not tenants:
            return FIRST_LOOK
        if now >= self._sign_at:
            await self._sign()
            self._sign_at = now + DELIVERY_SIGN
        busy = False
        for tenant in tenants:
            with _kept(damaged):
                busy = await self._find(tenant) or busy
        if damaged:
            raise damaged[0]
        return 0 if busy else DELIVERY_LOOK

    async def _find(self, tenant: str) -> bool:
        """Assign a tenant's unpublished events once. Return True if there may be more."""
        found, owed = await unpublished.assign_unpublished(self._store, tenant)
        if any((tenant, name) not in self._senders for name in owed):
            await self._open_senders(tenant)
        for name in owed:
            if (tenant, name) in self._senders:
                self._senders[tenant, name][0].wake()
        return found == unpublished.AT_ONCE

    async def _sign(self) -> None:
        """Write the heartbeat, unless another dispatcher has just done so."""
        row, now = await self._store.load(META, DISPATCHER_HEARTBEAT), await self._store.now()
        if now.real - deliveries.sign_of(row)[1] < DELIVERY_SIGN // 2:
            return
        after = deliveries.sign(row, self.name, now)
        try:
            await self._store.commit(Commit((Put(META, after, after.version - 1),), label=f"{self.name} lives"))
        except Stale:
            pass  # another dispatcher wrote it

    async def _open_senders(self, tenant: str) -> None:
        """Start a sender for each active subscription; backfill events from before it began."""
        for row in await subscriptions.of_tenant(self._store, tenant):
            key = (tenant, row.subscription)
            if not is_active(row):
                continue
            if key not in self._senders or self._senders[key][1].done():
                sender = SubscriptionSender(self._tools, row, self._poster)
                self._senders[key] = (sender, asyncio.create_task(sender.run()))
            if row.swept != SWEPT:
                self._look_at = 0  # until the backfill is complete
                if await unpublished.backfill(self._store, row):
                    self._senders[key][0].wake()


def dispatcher_of(
    store: Store,
    name: str,
    *,
    clock: Clock,
    chance: Callable[[], float],
    reach: AddressPolicy = PUBLIC,
    resolve: Resolver | None = None,
    counters: Counters | None = None,
    public_url: str = "",
) -> Dispatcher:
    """Return a dispatcher that is not started.

    `reach`: addresses the operator allows besides https:// on the internet; `resolve`: replaces the system's resolver;
    `public_url`: address of the service for people, for links in messages to approvers.
    While the store has no subscription, the dispatcher reads one row a second.
    """

    def poster(row: Subscription) -> Poster:
        if row.audience and (why := refusal_of(row, reach)):
            log.error(
                "webhook %s of tenant %s sends no message, because its address is not accepted: %s. Add it again "
                "with: outlast notify add, then: outlast notify rm %s",
                row.subscription,
                row.tenant,
                why,
                row.subscription,
            )
        own = SystemResolver()  # one for each receiver, so that a slow name server delays no other receiver
        kind = ChannelClient if row.audience else DeliveryClient
        return kind(reach, resolve or own, clock, ended=own.close)

    return Dispatcher(store, name, clock=clock, chance=chance, poster=poster, counters=counters, public_url=public_url)


async def send_test(
    row: Subscription, message: str, *, clock: Clock, reach: AddressPolicy, resolve: Resolver | None = None
) -> Attempt:
    """Send a signed event of TEST_TYPE that is in no history, or a message to approvers that is about no approval.

    Return the receiver's answer.
    """
    wall = clock.wall()
    body = canonical({
        "specversion": "1.0",
        "id": message,
        "source": f"/{row.tenant}",
        "type": TEST_TYPE,
        "subject": row.subscription,
        "time": iso(wall),
        "datacontenttype": "application/json",
        "data": {"webhook": row.subscription},
    })  # fmt: skip
    own = SystemResolver()
    if row.audience:
        channel = ChannelClient(reach, resolve or own, clock, ended=own.close)
        try:
            return redacted_attempt(await channel.post(row.secret.key, TEST_TEXT), row)
        finally:
            await channel.close()
    poster = DeliveryClient(reach, resolve or own, clock, ended=own.close)
    try:
        secrets = deliveries.secrets_of(row, wall)
        signed = signing.headers(message, body, secrets, wall, sequence=0, previous=0, subscription=row.subscription)
        return redacted_attempt(await poster.post(row.url, {**deliveries.headers_of(row), **signed}, body), row)
    finally:
        await poster.close()


@contextmanager
def _kept(damaged: list[Corrupt]) -> Iterator[None]:
    """Collect an unreadable row as an error of its tenant, so that other tenants are served."""
    try:
        yield
    except Corrupt as error:
        damaged.append(error)

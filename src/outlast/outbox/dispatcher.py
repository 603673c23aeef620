"""The dispatcher of a process: finds what is untold, and keeps a lane for each subscription.

Several may serve one store. What one of them holds when it dies is taken by others after DELIVERY_CLAIM.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from outlast.core import deliveries
from outlast.core.clock import Clock
from outlast.core.codec import canonical
from outlast.core.commit import Commit, Put, When
from outlast.core.deliveries import DISPATCHER_HEARTBEAT, SUBSCRIBED_TENANTS, Attempt, is_active, tenants_of
from outlast.core.durations import DELIVERY_CLAIM, DELIVERY_LOOK, DELIVERY_SIGN, IDLE_LOOK, SECOND, STORE_RETRY
from outlast.core.events import iso
from outlast.core.machine import SWEPT
from outlast.core.rows import CURSOR, META, SUBSCRIPTION, Cursor, Subscription
from outlast.errors import Corrupt, Stale, StoreError, StoreReplaced
from outlast.outbox import signing, subscriptions, unpublished
from outlast.outbox.address import PUBLIC, AddressPolicy, Resolver, SystemResolver
from outlast.outbox.client import DeliveryClient
from outlast.outbox.cursor_sender import CursorLost, CursorSender, DispatcherServices
from outlast.outbox.subscriptions import redacted_attempt
from outlast.store.port import Store, lost
from outlast.telemetry import Counters
from outlast.telemetry.logs import Outage

log = logging.getLogger("outlast.outbox")
WIDTH: Final = 8
AHEAD: Final = 4  # due cursors looked at for each that is taken: dispatchers choose among them by lot
DUE: Final = "due"


class SubscriptionSender:
    """Takes what is due of one subscription, and sends it."""

    def __init__(
        self, tools: DispatcherServices, row: Subscription, make: Callable[[], DeliveryClient], width: int = WIDTH
    ) -> None:
        self._tools = tools
        self._row = row
        self._poster = make()
        self._outage = Outage(f"webhook {row.subscription}", tools.clock)
        self._width = width
        self._streams: dict[str, asyncio.Task[None]] = {}  # by run
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """There may be something to send."""
        self._wake.set()

    async def run(self) -> None:
        """Send until the subscription is not active any more, or the dispatcher stops; then end what is under way."""
        try:
            while not self._tools.stopping():
                self._wake.clear()
                try:
                    pause = await self._round()
                    self._outage.over()
                except StoreError as error:
                    self._outage.met("is told nothing", error)
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
        """Take what there is room for. Answers after how many ms to look again; None where it is not active."""
        store = self._tools.store
        row = await store.load(SUBSCRIPTION, (self._row.tenant, self._row.subscription))
        assert isinstance(row, Subscription), "it is removed, never deleted"
        self._row = row  # what is under way goes on by it, too
        if not deliveries.is_active(row):
            return None
        room = self._width - len(self._streams)
        if room <= 0:
            return IDLE_LOOK  # the end of a stream wakes
        owing = await store.owing(row.tenant, row.subscription, AHEAD * self._width)
        now = await store.now()
        due = [c for c in owing if (c.due_at or 0) <= now.real and c.run not in self._streams]
        await asyncio.gather(*(self._take(cursor) for cursor in self._chosen(due, room)))
        if len(due) > room:
            return IDLE_LOOK if len(self._streams) >= self._width else 1
        later = [c.due_at for c in owing if c.due_at is not None and c.due_at > now.real and not self._mine(c)]
        return max(1, min([IDLE_LOOK, *(at - now.real for at in later)]))

    def _mine(self, cursor: Cursor) -> bool:
        return cursor.run in self._streams

    def _chosen(self, due: Sequence[Cursor], room: int) -> Sequence[Cursor]:
        """By lot among the earliest, so that several dispatchers seldom want the same."""
        return sorted(due[: AHEAD * room], key=lambda _: self._tools.chance())[:room]

    async def _take(self, cursor: Cursor) -> None:
        begun, now = self._tools.clock.mono(), await self._tools.store.now()
        held = deliveries.hold(cursor, self._tools.dispatcher, now)
        still = When(cursor.due_at or 0, True, "real", DUE)
        commit = Commit((Put(CURSOR, held, cursor.version),), whens=(still,), label=f"{cursor.run} take cursor")
        try:
            await self._tools.store.commit(commit)
        except Stale:
            return  # another dispatcher was faster
        task = asyncio.create_task(self._send(held, begun + DELIVERY_CLAIM))
        self._streams[cursor.run] = task
        task.add_done_callback(lambda _: self._ended(cursor.run))

    def _ended(self, run: str) -> None:
        self._streams.pop(run, None)
        self._wake.set()

    async def _send(self, held: Cursor, until: int) -> None:
        try:
            await CursorSender(self._tools, self._poster, lambda: self._row, held, until).run()
        except CursorLost:
            pass  # whoever has the cursor sends from it
        except StoreError as error:
            log.warning("webhook %s, run %s: its cursor waits for the end of the claim: %s",
                        held.subscription, held.run, error.what)  # fmt: skip
        except Exception:  # a mistake of ours: the claim runs out and it is tried again, the lane goes on
            log.exception("webhook %s, run %s", held.subscription, held.run)


TEST_TYPE: Final = "dev.outlast.webhook.test"
NOBODY_LOOK: Final = 1_000  # how soon the first subscription of a store is noticed
LANES_LOOK: Final = 1_000  # how soon a further one is
BREATH: Final = 10  # between two looks while commits come: what they tell is found together


class Dispatcher:
    """Tells the world of events, from `run` until `drain`."""

    def __init__(
        self,
        store: Store,
        name: str,
        *,
        clock: Clock,
        chance: Callable[[], float],
        poster: Callable[[], DeliveryClient],
        counters: Counters | None = None,
    ) -> None:
        """`name`: new at each start; `poster` makes the connections of one subscription."""
        self.name = name
        self.counters = counters or Counters()
        self._stopping = False
        self._tools = DispatcherServices(store, name, clock, chance, self.counters, lambda: self._stopping)
        self._store = store
        self._poster = poster
        self._outage = Outage(f"dispatcher {name}", clock)
        self._lanes: dict[tuple[str, str], tuple[SubscriptionSender, asyncio.Task[None]]] = {}
        self._changed, self._drained = asyncio.Event(), asyncio.Event()
        self._look_at = 0  # monotonic; when the subscriptions are looked at again
        self._sign_at = 0  # monotonic; when it says again that it lives

    def drain(self) -> None:
        """Send nothing new, and return from `run` once what is under way has ended."""
        self._stopping = True
        self._changed.set()
        self._drained.set()
        for lane, _ in self._lanes.values():
            lane.wake()

    async def run(self) -> None:
        """Serve until drained. A store that is away is asked until it answers. Raises StoreReplaced: it is gone."""
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
                    pause = BREATH  # others were faster
                except (StoreError, Corrupt) as error:
                    self._outage.met("cannot look for all events", error)
                    pause = STORE_RETRY
                await self._rest(pause)
        finally:
            end()
            tasks = [task for _, task in self._lanes.values()]
            self.drain()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _rest(self, pause: int) -> None:
        """Until something has changed; while there is nobody to tell, for the whole pause, so that it costs nothing."""
        event = self._drained if pause >= NOBODY_LOOK else self._changed
        try:
            async with asyncio.timeout(pause / SECOND):
                if event is self._changed:
                    await asyncio.sleep(BREATH / SECOND)
                await event.wait()
        except TimeoutError:
            pass

    async def _look(self) -> int:
        """One round over all tenants. Answers after how many ms to look again. Raises StoreError."""
        if (gone := lost(self._store)) is not None:
            raise gone
        tenants = sorted(tenants_of(await self._store.load(META, SUBSCRIBED_TENANTS)))
        now, damaged = self._tools.clock.mono(), list[Corrupt]()
        if now >= self._look_at:
            self._look_at = now + LANES_LOOK
            for tenant in tenants:
                with _kept(damaged):
                    await self._open_lanes(tenant)
            for key in [key for key, (_, task) in self._lanes.items() if task.done()]:
                del self._lanes[key]
        if not tenants:
            return NOBODY_LOOK
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
        """A pass over a tenant's untold events. True: there may be more at once."""
        found, owed = await unpublished.assign_unpublished(self._store, tenant)
        if any((tenant, name) not in self._lanes for name in owed):
            await self._open_lanes(tenant)
        for name in owed:
            if (tenant, name) in self._lanes:
                self._lanes[tenant, name][0].wake()
        return found == unpublished.AT_ONCE

    async def _sign(self) -> None:
        """Say that somebody sends, unless another dispatcher has just said so."""
        row, now = await self._store.load(META, DISPATCHER_HEARTBEAT), await self._store.now()
        if now.real - deliveries.sign_of(row)[1] < DELIVERY_SIGN // 2:
            return
        after = deliveries.sign(row, self.name, now)
        try:
            await self._store.commit(Commit((Put(META, after, after.version - 1),), label=f"{self.name} lives"))
        except Stale:
            pass  # another one said it

    async def _open_lanes(self, tenant: str) -> None:
        """A lane for each active subscription; what is there from before is looked through."""
        for row in await subscriptions.of_tenant(self._store, tenant):
            key = (tenant, row.subscription)
            if not is_active(row):
                continue
            if key not in self._lanes or self._lanes[key][1].done():
                lane = SubscriptionSender(self._tools, row, self._poster)
                self._lanes[key] = (lane, asyncio.create_task(lane.run()))
            if row.swept != SWEPT:
                self._look_at = 0  # until all of it is looked through
                if await unpublished.backfill(self._store, row):
                    self._lanes[key][0].wake()


def dispatcher_of(
    store: Store,
    name: str,
    *,
    clock: Clock,
    chance: Callable[[], float],
    reach: AddressPolicy = PUBLIC,
    resolve: Resolver | None = None,
    counters: Counters | None = None,
) -> Dispatcher:
    """Return a dispatcher that is not started.

    `reach`: addresses the operator allows besides https:// on the internet; `resolve`: replaces the system's resolver.
    While the store has no subscription, the dispatcher reads one row a second.
    """

    def poster() -> DeliveryClient:
        own = SystemResolver()  # one for each receiver, so that a slow name server delays no other receiver
        return DeliveryClient(reach, resolve or own, clock, ended=own.close)

    return Dispatcher(store, name, clock=clock, chance=chance, poster=poster, counters=counters)


async def send_test(
    row: Subscription, message: str, *, clock: Clock, reach: AddressPolicy, resolve: Resolver | None = None
) -> Attempt:
    """Send a signed event of TEST_TYPE that is in no history, and return the receiver's answer."""
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
    poster = DeliveryClient(reach, resolve or own, clock, ended=own.close)
    try:
        secrets = deliveries.secrets_of(row, wall)
        signed = signing.headers(message, body, secrets, wall, sequence=0, previous=0, subscription=row.subscription)
        return redacted_attempt(await poster.post(row.url, {**deliveries.headers_of(row), **signed}, body), row)
    finally:
        await poster.close()


@contextmanager
def _kept(damaged: list[Corrupt]) -> Iterator[None]:
    """A row that cannot be read is one tenant's: the others are told all the same, and it is said at the end."""
    try:
        yield
    except Corrupt as error:
        damaged.append(error)

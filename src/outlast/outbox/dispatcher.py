"""The dispatcher of a process: finds what is untold, and keeps a lane for each subscription.

Several may serve one store. What one of them holds when it dies is taken by others after DELIVERY_CLAIM.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from outlast.core import deliveries
from outlast.core.budget import DELIVERY_LOOK, DELIVERY_SIGN, SECOND, STORE_RETRY
from outlast.core.clock import Clock
from outlast.core.codec import canonical
from outlast.core.commit import Commit, Put
from outlast.core.deliveries import OUTLETS, SENDER, Attempt, is_active, tenants_of
from outlast.core.events import iso
from outlast.core.machine import SWEPT
from outlast.core.outgoing import Subscription
from outlast.core.rows import META
from outlast.errors import Corrupt, Stale, StoreError, StoreReplaced
from outlast.outbox import finding, signing, subscriptions
from outlast.outbox.address import PUBLIC, Reach, Resolver, SystemResolver
from outlast.outbox.headers import veiled
from outlast.outbox.lane import Lane
from outlast.outbox.post import Poster
from outlast.outbox.tools import Tools
from outlast.store.port import Store, lost
from outlast.telemetry import Counters
from outlast.telemetry.outage import Outage

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
        poster: Callable[[], Poster],
        counters: Counters | None = None,
    ) -> None:
        """`name`: new at each start; `poster` makes the connections of one subscription."""
        self.name = name
        self.counters = counters or Counters()
        self._stopping = False
        self._tools = Tools(store, name, clock, chance, self.counters, lambda: self._stopping)
        self._store = store
        self._poster = poster
        self._outage = Outage(f"dispatcher {name}", clock)
        self._lanes: dict[tuple[str, str], tuple[Lane, asyncio.Task[None]]] = {}
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
        tenants = sorted(tenants_of(await self._store.load(META, OUTLETS)))
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
        found, owed = await finding.find(self._store, tenant)
        if any((tenant, name) not in self._lanes for name in owed):
            await self._open_lanes(tenant)
        for name in owed:
            if (tenant, name) in self._lanes:
                self._lanes[tenant, name][0].wake()
        return found == finding.AT_ONCE

    async def _sign(self) -> None:
        """Say that somebody sends, unless another dispatcher has just said so."""
        row, now = await self._store.load(META, SENDER), await self._store.now()
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
                lane = Lane(self._tools, row, self._poster)
                self._lanes[key] = (lane, asyncio.create_task(lane.run()))
            if row.swept != SWEPT:
                self._look_at = 0  # until all of it is looked through
                if await finding.sweep(self._store, row):
                    self._lanes[key][0].wake()


def dispatcher_of(
    store: Store,
    name: str,
    *,
    clock: Clock,
    chance: Callable[[], float],
    reach: Reach = PUBLIC,
    resolve: Resolver | None = None,
    counters: Counters | None = None,
) -> Dispatcher:
    """Return a dispatcher that is not started.

    `reach`: addresses the operator allows besides https:// on the internet; `resolve`: replaces the system's resolver.
    While the store has no subscription, the dispatcher reads one row a second.
    """

    def poster() -> Poster:
        own = SystemResolver()  # one for each receiver, so that a slow name server delays no other receiver
        return Poster(reach, resolve or own, clock, ended=own.close)

    return Dispatcher(store, name, clock=clock, chance=chance, poster=poster, counters=counters)


async def send_test(
    row: Subscription, message: str, *, clock: Clock, reach: Reach, resolve: Resolver | None = None
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
    poster = Poster(reach, resolve or own, clock, ended=own.close)
    try:
        secrets = deliveries.secrets_of(row, wall)
        signed = signing.headers(message, body, secrets, wall, sequence=0, previous=0, subscription=row.subscription)
        return veiled(await poster.post(row.url, {**deliveries.headers_of(row), **signed}, body), row)
    finally:
        await poster.close()


@contextmanager
def _kept(damaged: list[Corrupt]) -> Iterator[None]:
    """A row that cannot be read is one tenant's: the others are told all the same, and it is said at the end."""
    try:
        yield
    except Corrupt as error:
        damaged.append(error)

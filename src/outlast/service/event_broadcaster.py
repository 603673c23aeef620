"""Events as they come, for any number of listeners: one look at the store for all of them, and bounded buffers.

While somebody listens, one task sends each new event, framed once, to everybody who wants it. What this process itself
commits it is told at once; what others do it finds by looking at the rows of the runs that are listened to (one read,
however many listeners), of those that have just been asked for something, and by a sweep where all runs are listened
to. Whoever is too slow is cut, not waited for.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from outlast.core.limits import STREAMS_MAX
from outlast.core.rows import EVENT, RUN, Event, Run, is_over
from outlast.errors import Busy, StoreError
from outlast.runtime.views import ENDINGS
from outlast.service.event_poller import EventPoller
from outlast.service.event_stream import HEARTBEAT, EventListener, Share, frame
from outlast.service.identity.lockout import place as group
from outlast.store.port import CommitNotifier, Store

LOOK_S: Final = 0.1
"""Between two looks at the store, where no wake tells of a change earlier."""
LOOK_PER_RUN_S: Final = 0.0005
"""Longer by so much for each run that is looked at, so that looking takes a few percent of a core at most."""
LOOK_PER_MOVING_S: Final = 0.0002
"""The same for each run that a sweep finds owned or just ended; they are read all at once."""
TOGETHER_S: Final = 0.04
"""Events of one moment go out together: what is sent costs more than what it holds, and people see no sooner."""
EXPECT_S: Final = 10.0
"""How long a run is looked at after this process has left it a note, for those who listen to all runs."""
HEARTBEAT_S: Final = 15.0
BATCH: Final = 200  # events of a run read at once
AT_ONCE: Final = 50  # runs whose events are read side by side
KEEP_S: Final = 120.0
"""How long the stream of a tenant goes on without a listener, so that one who comes back has missed nothing."""
RETRY_AFTER_S: Final = 10  # streams end seldom
Place = tuple[str, str]
"""Tenant and run."""
log: Final = logging.getLogger("outlast.service")


class EventBroadcaster:
    """The one watcher of a service."""

    def __init__(
        self, store: Store, *, look_s: float = LOOK_S, heartbeat_s: float = HEARTBEAT_S, most: int = STREAMS_MAX
    ) -> None:  # fmt: skip
        """`most`: how many listeners there may be."""
        self.most = most
        self._store = store
        self._look_s = look_s
        self._heartbeat_s = heartbeat_s
        self._listeners: dict[Place, set[EventListener]] = {}  # by tenant and run; '' = all runs
        self._shares: Counter[Share] = Counter()  # listeners by tenant, caller and address
        self._count = 0
        self._runs: dict[Place, int] = {}  # the last event of each that was sent on
        self._tenants: dict[str, EventPoller] = {}
        self._told: dict[Place, int] = {}  # what this process has just moved, and the number of its last event
        self._expected: dict[Place, float] = {}  # what this process has left a note, and until when it is looked at
        self._task: asyncio.Task[None] | None = None
        self._stir = asyncio.Event()  # something was told
        self._changed = asyncio.Event()  # somebody, somewhere, has something due
        self._looked = 0.0
        self._away = False  # the store, and it has been said
        self._closed = False

    def __len__(self) -> int:
        return self._count

    async def listen(self, tenant: str, run: str, caller: str = "", address: str = "") -> EventListener:
        """Hear every event of a run from here on. Raises Busy, and StoreError where the store cannot be read."""
        place = (tenant, run)
        listener = self._take_in(tenant, run, caller, address)
        try:
            if place not in self._runs:
                row = await self._store.load(RUN, place)
                self._runs.setdefault(place, row.seq if isinstance(row, Run) else 0)
        except BaseException:  # the caller may have gone: it is counted no more
            self._let_out(listener)
            raise
        return self._add(listener)

    async def listen_to_all(
        self, tenant: str, last: str, caller: str = "", address: str = ""
    ) -> tuple[EventListener, list[bytes] | None]:
        """Hear every event of the tenant's runs from here on, and those since the one whose id was `last`: None where
        this process cannot tell any more what was missed. Raises Busy and StoreError."""
        listener = self._take_in(tenant, "", caller, address)
        try:
            sweep = await self._sweep(tenant)
        except BaseException:  # the caller may have gone: it is counted no more
            self._let_out(listener)
            raise
        sweep.left_at = 0.0
        return self._add(listener), sweep.since(last)

    async def _sweep(self, tenant: str) -> EventPoller:
        sweep = self._tenants.get(tenant)
        if sweep is None:
            sweep = EventPoller(self._store, tenant)
            await sweep.begin()
            sweep = self._tenants.setdefault(tenant, sweep)
        return sweep

    def _take_in(self, tenant: str, run: str, caller: str, address: str) -> EventListener:
        """Count one more. Raises Busy: a tenant and an address have at most as many as are free, a caller half."""
        free = self.most - self._count
        shares = (("tenant", tenant), ("address", group(address)), ("caller", f"{tenant} {caller}"))
        for share in shares:
            part = 2 if share[0] == "caller" else 1
            if part * self._shares[share] >= free:
                raise Busy(
                    "too many streams",
                    f"this {share[0]} has {self._shares[share]:,} of {self.most:,}, and {free:,} are free",
                    "close some, or read pages",
                    retry_after_s=RETRY_AFTER_S,
                )
        self._count += 1
        self._shares.update(shares)
        return EventListener(tenant, run, shares)

    def _let_out(self, listener: EventListener) -> None:
        self._count -= 1
        self._shares.subtract(listener.shares)
        for share in listener.shares:
            if not self._shares[share]:
                del self._shares[share]

    def _add(self, listener: EventListener) -> EventListener:
        self._listeners.setdefault((listener.tenant, listener.run), set()).add(listener)
        if self._closed:  # it came while the service stops, which waits for no stream
            listener.end()
        elif self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())
        return listener

    def leave(self, listener: EventListener) -> None:
        """It is not told any more; what nobody listens to is not looked at any more."""
        place = (listener.tenant, listener.run)
        here = self._listeners.get(place, set())
        if listener not in here:
            return
        here.remove(listener)
        self._let_out(listener)
        if not here:
            del self._listeners[place]
            self._runs.pop(place, None)
            if not listener.run:
                self._tenants[listener.tenant].left_at = asyncio.get_running_loop().time()
        if not self._listeners and not self._tenants:
            self._stop()

    def close(self) -> None:
        """End every stream, those that come from here on too: the service stops."""
        self._closed = True
        self._end_all()
        self._stop()

    def _end_all(self) -> None:
        for here in self._listeners.values():
            for listener in here:
                listener.end()

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    # --- the task -------------------------------------------------------------------------------
    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        beat = loop.time() + self._heartbeat_s
        ends: list[Callable[[], None]] = [self._store.on_change(self._hear_change)]
        if isinstance(self._store, CommitNotifier):
            ends.append(self._store.on_commit(self._hear))
        try:
            while self._listeners or self._tenants:
                await self._send_on_or_say()
                if loop.time() >= beat:
                    beat = loop.time() + self._heartbeat_s
                    self._beat(loop.time())
                await self._rest()
        except Exception:  # a fault of ours: silence would pass for «nothing new», so they end, and may come again
            log.exception("the event streams end")
            self._end_all()
        finally:
            for end in ends:
                end()
            self._told.clear()
            self._expected.clear()

    async def _send_on_or_say(self) -> None:
        try:
            await self._send_on()
        except StoreError as error:
            if not self._away:
                log.warning("the event streams wait for the store: %s", error.what)
            self._away = True
            await asyncio.sleep(self._look_s)
        else:
            self._away = False

    def _hear_change(self) -> None:
        self._changed.set()
        self._stir.set()

    def _hear(self, tenant: str, run: str, seq: int) -> None:
        """This process has moved a run to this event, or (0) has left it a note."""
        place = (tenant, run)
        if seq and (place in self._runs or tenant in self._tenants):
            self._told[place] = max(seq, self._told.get(place, 0))
            self._expected.pop(place, None)
            self._stir.set()
        elif tenant in self._tenants:
            self._expected[place] = asyncio.get_running_loop().time() + EXPECT_S

    def _beat(self, now: float) -> None:
        for here in self._listeners.values():
            for listener in here:
                listener.push(0, HEARTBEAT)
        for tenant in [t for t, s in self._tenants.items() if s.left_at and now > s.left_at + KEEP_S]:
            del self._tenants[tenant]

    async def _rest(self) -> None:
        """Until there is something to send or a look is due; never without a pause."""
        await asyncio.sleep(TOGETHER_S)
        if not self._told:
            self._stir.clear()
            try:
                async with asyncio.timeout_at(self._earliest() + self._look_s):
                    await self._stir.wait()
            except TimeoutError:
                pass  # nobody told us: look all the same

    def _earliest(self) -> float:
        """When the store may be looked at again."""
        wait = LOOK_PER_RUN_S * (len(self._runs) + len(self._expected))
        wait += LOOK_PER_MOVING_S * sum(sweep.width for sweep in self._tenants.values())
        return self._looked + min(1.0, TOGETHER_S + wait)

    async def _send_on(self) -> None:
        """What was told, and what a look finds where one is due."""
        loop = asyncio.get_running_loop()
        moved, self._told = self._told, {}
        try:
            if loop.time() >= self._earliest() + (0 if self._changed.is_set() else self._look_s):
                self._changed.clear()
                await self._look(moved)
                self._looked = loop.time()
            while moved:
                some = [moved.popitem() for _ in range(min(AT_ONCE, len(moved)))]
                sent = await asyncio.gather(*(self._send(*each) for each in some), return_exceptions=True)
                moved |= {place: seq for (place, seq), done in zip(some, sent, strict=True) if done is not None}
                for done in sent:
                    if done is not None:
                        raise done
        finally:
            for place, seq in moved.items():  # the store is away: they are told later
                self._told[place] = max(seq, self._told.get(place, 0))

    async def _look(self, moved: dict[Place, int]) -> None:
        """Put in runs with events that were not sent on yet, as far as a look shows, and the last event of each. What
        was found stays though the store is away in the middle: a sweep does not find a run that has ended for ever."""
        now = asyncio.get_running_loop().time()
        self._expected = {place: until for place, until in self._expected.items() if until > now}
        places = list({**self._runs, **self._expected})
        for place, row in zip(places, await self._store.load_many(RUN, places), strict=True):
            if isinstance(row, Run):
                if row.seq > self._sent(place, row.seq):
                    moved[place] = max(row.seq, moved.get(place, 0))
                if is_over(row):
                    self._expected.pop(place, None)
            else:
                self._forgotten(place)
        for sweep in list(self._tenants.values()):
            for row in await sweep.moved():
                place = (row.tenant, row.run)
                moved[place] = max(row.seq, moved.get(place, 0))

    def _sent(self, place: Place, seq: int) -> int:
        """The last event that everybody who wants it has; `seq` where nobody does."""
        sweep = self._tenants.get(place[0])
        return min(self._runs.get(place, seq), sweep.sent(place[1]) if sweep is not None else seq)

    async def _send(self, place: Place, upto: int) -> None:
        after = self._sent(place, upto)
        sweep = self._tenants.get(place[0])
        first = sweep is not None and not sweep.knows(place[1])
        last: Event | None = None
        while after < upto:
            page = await self._store.rows(EVENT, place, after=(*place, after), limit=BATCH)
            for event in page:
                assert isinstance(event, Event)
                self._pass_on(place, event, first=first)
                after, last = event.seq, event
            if len(page) < BATCH:
                break
        if last is not None and last.type in ENDINGS:
            for listener in self._listeners.get(place, ()):
                listener.end()

    def _pass_on(self, place: Place, event: Event, *, first: bool) -> None:
        """To each who has not had it; no await in here, so nobody comes or goes meanwhile."""
        if (sent := self._runs.get(place)) is not None and event.seq > sent:
            self._runs[place] = event.seq
            _push(self._listeners.get(place, ()), event.seq, frame(event, str(event.seq)))
        if (sweep := self._tenants.get(place[0])) is not None and sweep.is_news(event, first=first):
            _push(self._listeners.get((place[0], ""), ()), 0, sweep.keep(event))

    def _forgotten(self, place: Place) -> None:
        self._expected.pop(place, None)
        for listener in self._listeners.get(place, ()):
            listener.end()


def _push(listeners: Iterable[EventListener], seq: int, data: bytes) -> None:
    for listener in listeners:
        listener.push(seq, data)

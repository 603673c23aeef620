"""Events as they come, for any number of listeners: one look at the store for all of them, and bounded buffers.

While somebody listens, one task looks at the rows of the runs that are listened to (one read, however many listeners)
and sends each new event, framed once, to everybody who wants it. Whoever is too slow is cut, not waited for.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from outlast.core.rows import EVENT, RUN, Event, Run, is_over
from outlast.errors import StoreError
from outlast.service.stream import HEARTBEAT, frame
from outlast.service.sweep import Sweep
from outlast.store.port import Store

LOOK_S: Final = 0.1
"""Between two looks at the store, where no wake tells of a change earlier."""
LOOK_PER_RUN_S: Final = 0.0005
"""Longer by so much for each run that is listened to, so that looking takes a few percent of a core at most."""
HEARTBEAT_S: Final = 15.0
BUFFER: Final = 256
"""Frames that a listener may be behind."""
LISTENERS_MAX: Final = 5_000
BATCH: Final = 200  # events read at once
KEEP_S: Final = 120.0
"""How long the stream of a tenant goes on without a listener, so that one who comes back has missed nothing."""
Place = tuple[str, str]
"""Tenant and run."""
log: Final = logging.getLogger("outlast.service")


class Listener:
    """One who listens. `frames` ends with None: after the last event of a run, at the service's end, or when cut."""

    def __init__(self, tenant: str, run: str) -> None:
        self.tenant = tenant
        self.run = run  # '' = every run of the tenant
        self.frames: asyncio.Queue[tuple[int, bytes] | None] = asyncio.Queue(BUFFER + 1)
        self.cut = asyncio.Event()  # it was too slow, or the service stops

    def push(self, seq: int, data: bytes) -> None:
        """One more frame; too many, and it is cut."""
        if self.frames.qsize() >= BUFFER:
            self.cut.set()
        if not self.cut.is_set():
            self.frames.put_nowait((seq, data))

    def end(self) -> None:
        """Nothing more will come."""
        if self.frames.full():
            self.cut.set()
        else:
            self.frames.put_nowait(None)


class Live:
    """The one watcher of a service."""

    def __init__(self, store: Store, *, look_s: float = LOOK_S, heartbeat_s: float = HEARTBEAT_S) -> None:
        self._store = store
        self._look_s = look_s
        self._heartbeat_s = heartbeat_s
        self._listeners: set[Listener] = set()
        self._runs: dict[Place, int] = {}  # events of each that were sent on
        self._tenants: dict[str, Sweep] = {}
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._listeners)

    def full(self) -> bool:
        """Are there as many listeners as this process serves?"""
        return len(self._listeners) >= LISTENERS_MAX

    async def listen(self, tenant: str, run: str) -> Listener:
        """From here on every event of a run is heard. Raises StoreError where the store cannot be read."""
        place = (tenant, run)
        if place not in self._runs:
            row = await self._store.load(RUN, place)
            self._runs.setdefault(place, row.seq if isinstance(row, Run) else 0)
        return self._add(Listener(tenant, run))

    async def listen_to_all(self, tenant: str, last: str) -> tuple[Listener, list[bytes] | None]:
        """From here on every event of the tenant's runs is heard. And those since the one whose id was `last`: None
        where this process cannot tell any more what was missed. Raises StoreError."""
        sweep = self._tenants.get(tenant)
        if sweep is None:
            sweep = Sweep(self._store, tenant)
            await sweep.begin()
            sweep = self._tenants.setdefault(tenant, sweep)
        sweep.left_at = 0.0
        return self._add(Listener(tenant, "")), sweep.since(last)

    def _add(self, listener: Listener) -> Listener:
        self._listeners.add(listener)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())
        return listener

    def leave(self, listener: Listener) -> None:
        """It is not told any more; what nobody listens to is not looked at any more."""
        self._listeners.discard(listener)
        if listener.run and not self._of_run((listener.tenant, listener.run)):
            self._runs.pop((listener.tenant, listener.run), None)
        if not listener.run and not any(each.tenant == listener.tenant and not each.run for each in self._listeners):
            self._tenants[listener.tenant].left_at = asyncio.get_running_loop().time()
        if not self._listeners and not self._tenants:
            self._stop()

    def close(self) -> None:
        """End every stream: the service stops."""
        for listener in list(self._listeners):
            listener.end()
        self._stop()

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _of_run(self, place: Place) -> list[Listener]:
        return [each for each in self._listeners if each.run == place[1] and each.tenant == place[0]]

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        beat = loop.time() + self._heartbeat_s
        unsubscribe = self._store.on_change(self._changed.set)
        try:
            while self._listeners or self._tenants:
                self._changed.clear()
                try:
                    await self._look()
                except StoreError as error:
                    log.warning("the event streams wait for the store: %s", error.what)
                if loop.time() >= beat:
                    beat = loop.time() + self._heartbeat_s
                    for listener in self._listeners:
                        listener.push(0, HEARTBEAT)
                    left = [t for t, s in self._tenants.items() if s.left_at and loop.time() > s.left_at + KEEP_S]
                    for tenant in left:
                        del self._tenants[tenant]
                await self._rest()
        finally:
            unsubscribe()

    async def _rest(self) -> None:
        """Until a run may have moved, or for as long as many runs need; never without a pause."""
        pause = LOOK_PER_RUN_S * len(self._runs)
        await asyncio.sleep(min(1.0, self._look_s / 10 + pause))
        try:
            async with asyncio.timeout(self._look_s):
                await self._changed.wait()
        except TimeoutError:
            pass  # nobody told us: look all the same

    async def _look(self) -> None:
        moved: dict[Place, tuple[Run, int]] = {}
        places = list(self._runs)
        for place, row in zip(places, await self._store.load_many(RUN, places), strict=True):
            if isinstance(row, Run) and row.seq > (sent := self._runs.get(place, row.seq)):
                moved[place] = (row, sent)
            elif row is None:
                self._forgotten(place)
        for sweep in list(self._tenants.values()):
            for row, sent in await sweep.moved():
                place = (row.tenant, row.run)
                moved[place] = (row, min(sent, moved[place][1]) if place in moved else sent)
        by_run: dict[Place, list[Listener]] = {}
        for listener in self._listeners:
            by_run.setdefault((listener.tenant, listener.run), []).append(listener)
        for place, (row, sent) in moved.items():
            await self._send(row, sent, by_run.get(place, ()), by_run.get((place[0], ""), ()))

    async def _send(self, row: Run, after: int, here: Sequence[Listener], all_runs: Sequence[Listener]) -> None:
        place = (row.tenant, row.run)
        while after < row.seq:
            page = await self._store.rows(EVENT, place, after=(*place, after), limit=BATCH)
            if not page:
                break
            for event in page:
                assert isinstance(event, Event)
                if here:
                    data = frame(event, str(event.seq))
                    for listener in here:
                        listener.push(event.seq, data)
                if (sweep := self._tenants.get(row.tenant)) is not None:
                    data = sweep.keep(event)
                    for listener in all_runs:
                        listener.push(0, data)
                after = event.seq
        if place in self._runs:
            self._runs[place] = after
        if is_over(row) and after >= row.seq:
            for listener in here:
                listener.end()

    def _forgotten(self, place: Place) -> None:
        for listener in self._of_run(place):
            listener.end()

"""Forward new events to any number of listeners, with one poll of the store for all of them and bounded buffers.

While there are listeners, one task forwards each new event, encoded once, to every listener that subscribed to it. The
store announces commits of this process at once. Commits of other processes are found by polling: the rows of the runs
that have listeners (one read for all), runs that were just sent a message, and, for listeners to all runs of a tenant,
an EventPoller.

Possible faults, and why no listener misses an event or gets one twice:

- An announcement and a poll find the same event. The number of the last event forwarded decides, for each run, and
  `_deliver` compares and raises it without an await.
- The store fails in the middle of a round. Runs that were found and not forwarded are announced again.
- A row cannot be read, or this task fails. The streams concerned end and say so: silence would mean "no events".
- A listener reads too slowly. Its buffer is bounded, and it is cut off instead of holding memory or the others.
- A caller opens many streams. Each tenant and address may have as many as are free, each caller half as many.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from outlast.core.events import ENDINGS
from outlast.core.limits import STREAMS_MAX
from outlast.core.rows.run_rows import EVENT, RUN, Event, Run, RunKey, is_over
from outlast.core.state.delta_packets import Delta
from outlast.errors import Busy, Corrupt, StoreError
from outlast.service.event_poller import EventPoller
from outlast.service.event_stream import HEARTBEAT, EventListener, Share, delta_frame, frame
from outlast.service.identity.lockout import address_group
from outlast.store.port import CommitNotifier, DeltaChannel, Store

POLL_S: Final = 0.1
"""Time between two polls of the store if no notification comes earlier."""
POLL_PER_RUN_S: Final = 0.0005
"""Added to that for each polled run, so that polling takes at most a few percent of a core."""
POLL_PER_MOVING_S: Final = 0.0002
"""The same for each run that an EventPoller finds owned or just ended, because these are read at once."""
BUNDLE_S: Final = 0.04
"""Events within this time are sent together, because the cost is per send and nobody notices the delay."""
EXPECT_S: Final = 10.0
"""Time for which a run is polled after this process appended a message, for listeners to all runs."""
HEARTBEAT_S: Final = 15.0
BATCH: Final = 200  # events of one run per read
AT_ONCE: Final = 50  # runs whose events are read concurrently
KEEP_S: Final = 120.0
"""Time for which the events of a tenant are kept without a listener, so that one who reconnects misses none."""
RETRY_AFTER_S: Final = 10  # because streams rarely end
log: Final = logging.getLogger("outlast.service")


class EventBroadcaster:
    """Forwarder of events to the listeners of one service process."""

    def __init__(
        self, store: Store, *, poll_s: float = POLL_S, heartbeat_s: float = HEARTBEAT_S, most: int = STREAMS_MAX
    ) -> None:
        """`most` is the maximum number of listeners."""
        self.most = most
        self._store = store
        self._poll_s = poll_s
        self._heartbeat_s = heartbeat_s
        self._listeners: dict[RunKey, set[EventListener]] = {}  # by tenant and run; '' means all runs
        self._shares: Counter[Share] = Counter()  # number of listeners by tenant, caller and address
        self._count = 0
        self._runs: dict[RunKey, int] = {}  # number of the last event forwarded, by run
        self._tenants: dict[str, EventPoller] = {}
        self._announced: dict[RunKey, int] = {}  # announced by this process: number of the last event
        self._expected: dict[RunKey, float] = {}  # runs with a new message, and until when to poll them
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()  # something was announced
        self._changed = asyncio.Event()  # the store has changed
        self._polled_at = 0.0
        self._unavailable = False  # the store is unavailable, and that was logged
        self._closed = False

    def __len__(self) -> int:
        return self._count

    async def listen(self, tenant: str, run: str, caller: str = "", address: str = "") -> EventListener:
        """Subscribe to the events of a run from now on. Raises Busy, StoreError."""
        key = (tenant, run)
        listener = self._reserve(tenant, run, caller, address)
        try:
            if key not in self._runs:
                row = await self._store.load(RUN, key)
                self._runs.setdefault(key, row.seq if row is not None else 0)
        except BaseException:  # includes cancellation, because the caller may have disconnected
            self._release(listener)
            raise
        return self._register(listener)

    async def listen_to_all(
        self, tenant: str, last: str, caller: str = "", address: str = ""
    ) -> tuple[EventListener, list[bytes] | None]:
        """Subscribe to the events of all runs of the tenant from now on.

        Returns the listener and the events since the one with the id `last`, or None if this process no longer has
        them. Raises Busy, StoreError.
        """
        listener = self._reserve(tenant, "", caller, address)
        try:
            poller = await self._poller(tenant)
        except BaseException:  # includes cancellation, because the caller may have disconnected
            self._release(listener)
            raise
        poller.left_at = 0.0
        return self._register(listener), poller.since(last)

    async def _poller(self, tenant: str) -> EventPoller:
        poller = self._tenants.get(tenant)
        if poller is None:
            poller = EventPoller(self._store, tenant)
            await poller.begin()
            poller = self._tenants.setdefault(tenant, poller)
        return poller

    def _reserve(self, tenant: str, run: str, caller: str, address: str) -> EventListener:
        """Count one more listener.

        Raises Busy if its tenant or address has as many listeners as are free, or its caller half as many.
        """
        free = self.most - self._count
        shares = (("tenant", tenant), ("address", address_group(address)), ("caller", f"{tenant} {caller}"))
        for share in shares:
            part = 2 if share[0] == "caller" else 1
            if part * self._shares[share] >= free:
                raise Busy(
                    "too many streams",
                    f"this {share[0]} has {self._shares[share]:,} of {self.most:,}, and {free:,} are free",
                    "close some streams, or read pages",
                    retry_after_s=RETRY_AFTER_S,
                )
        self._count += 1
        self._shares.update(shares)
        return EventListener(tenant, run, shares)

    def _release(self, listener: EventListener) -> None:
        self._count -= 1
        self._shares.subtract(listener.shares)
        for share in listener.shares:
            if not self._shares[share]:
                del self._shares[share]

    def _register(self, listener: EventListener) -> EventListener:
        self._listeners.setdefault((listener.tenant, listener.run), set()).add(listener)
        if self._closed:  # the service stops and waits for no stream
            listener.end(reopens=True)
        elif self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())
        return listener

    def leave(self, listener: EventListener) -> None:
        """Remove a listener. A run without listeners is no longer polled."""
        key = (listener.tenant, listener.run)
        here = self._listeners.get(key, set())
        if listener not in here:
            return
        here.remove(listener)
        self._release(listener)
        if not here:
            del self._listeners[key]
            self._runs.pop(key, None)
            if not listener.run:
                self._tenants[listener.tenant].left_at = asyncio.get_running_loop().time()
        if not self._listeners and not self._tenants:
            self._stop()

    @contextmanager
    def kept(self, listener: EventListener) -> Iterator[None]:
        """Remove the listener if the block fails, because no stream will do so."""
        try:
            yield
        except BaseException:  # includes cancellation, because the caller may have disconnected
            self.leave(listener)
            raise

    def close(self) -> None:
        """End every stream, also those that begin later, because the service stops."""
        self._closed = True
        self._end_all()
        self._stop()

    def _end_all(self) -> None:
        for here in self._listeners.values():
            for listener in here:
                listener.end(reopens=True)

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    # --- the task -------------------------------------------------------------------------------
    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        beat = loop.time() + self._heartbeat_s
        ends: list[Callable[[], None]] = [self._store.on_change(self._on_change)]
        if isinstance(self._store, CommitNotifier):
            ends.append(self._store.on_commit(self._on_moved))
        if isinstance(self._store, DeltaChannel):
            ends.append(self._store.on_deltas(self._on_deltas))
        try:
            while self._listeners or self._tenants:
                await self._forward_or_warn()
                if loop.time() >= beat:
                    beat = loop.time() + self._heartbeat_s
                    self._beat(loop.time())
                await self._wait()
        except Exception:  # a fault of ours: listeners would take silence for "no events", so their streams end
            log.exception("event streams end")
            self._end_all()
        finally:
            for end in ends:
                end()
            self._announced.clear()
            self._expected.clear()

    async def _forward_or_warn(self) -> None:
        try:
            await self._forward()
        except StoreError as error:
            if not self._unavailable:
                log.warning("event streams wait for the store: %s", error.what)
            self._unavailable = True
            await asyncio.sleep(self._poll_s)
        else:
            self._unavailable = False

    def _on_change(self) -> None:
        self._changed.set()
        self._wake.set()

    def _on_moved(self, tenant: str, run: str, row: Run | None) -> None:
        """Handle a commit of this process: the run's row as written, or None for a message."""
        key = (tenant, run)
        if row is not None and (key in self._runs or tenant in self._tenants):
            self._announced[key] = max(row.seq, self._announced.get(key, 0))
            self._expected.pop(key, None)
            self._wake.set()
        elif tenant in self._tenants:
            self._expected[key] = asyncio.get_running_loop().time() + EXPECT_S

    def _on_deltas(self, deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            if not delta.origin.run:  # a note of presence, which is no text of a run
                continue
            if here := self._listeners.get((delta.origin.tenant, delta.origin.run)):
                data = delta_frame(delta)
                for listener in here:
                    listener.offer(data)

    def _beat(self, now: float) -> None:
        for here in self._listeners.values():
            for listener in here:
                listener.push(0, HEARTBEAT)
        for tenant in [t for t, s in self._tenants.items() if s.left_at and now > s.left_at + KEEP_S]:
            del self._tenants[tenant]

    async def _wait(self) -> None:
        """Wait until something was announced or a poll is due, at least BUNDLE_S."""
        await asyncio.sleep(BUNDLE_S)
        if not self._announced:
            self._wake.clear()
            try:
                async with asyncio.timeout_at(self._next_poll_at() + self._poll_s):
                    await self._wake.wait()
            except TimeoutError:
                pass  # nothing was announced, so a poll is due

    def _next_poll_at(self) -> float:
        """Return the earliest time of the next poll."""
        wait = POLL_PER_RUN_S * (len(self._runs) + len(self._expected))
        wait += POLL_PER_MOVING_S * sum(poller.width for poller in self._tenants.values())
        return self._polled_at + min(1.0, BUNDLE_S + wait)

    async def _forward(self) -> None:
        """Forward events announced by this process; if a poll is due, add those found in the store."""
        loop = asyncio.get_running_loop()
        moved, self._announced = self._announced, {}
        try:
            if loop.time() >= self._next_poll_at() + (0 if self._changed.is_set() else self._poll_s):
                self._changed.clear()
                await self._poll(moved)
                self._polled_at = loop.time()
            while moved:
                some = [moved.popitem() for _ in range(min(AT_ONCE, len(moved)))]
                sent = await asyncio.gather(*(self._forward_run(*each) for each in some), return_exceptions=True)
                moved |= {key: seq for (key, seq), done in zip(some, sent, strict=True) if done is not None}
                for done in sent:
                    if done is not None:
                        raise done  # only after all have ended, so that none is sent twice at once
        finally:
            for key, seq in moved.items():  # not forwarded because the store is unavailable
                self._announced[key] = max(seq, self._announced.get(key, 0))

    async def _poll(self, moved: dict[RunKey, int]) -> None:
        """Add the runs that have new events, with the number of the last one.

        Runs found before the store fails are kept, because an EventPoller finds an ended run only for a while.
        """
        now = asyncio.get_running_loop().time()
        self._expected = {key: until for key, until in self._expected.items() if until > now}
        keys = list({**self._runs, **self._expected})
        for key, row in zip(keys, await self._store.load_many(RUN, keys, listed=True), strict=True):
            if row is not None:
                if row.seq > self._forwarded(key, row.seq):
                    moved[key] = max(row.seq, moved.get(key, 0))
                if is_over(row):
                    self._expected.pop(key, None)
            else:
                self._end_purged(key)
        for poller in list(self._tenants.values()):
            for row in await poller.moved():
                key = (row.tenant, row.run)
                moved[key] = max(row.seq, moved.get(key, 0))

    def _forwarded(self, key: RunKey, seq: int) -> int:
        """Return the last event that all listeners to this run have; `seq` if it has none."""
        poller = self._tenants.get(key[0])
        return min(self._runs.get(key, seq), poller.sent(key[1]) if poller is not None else seq)

    async def _forward_run(self, key: RunKey, upto: int) -> None:
        """Send the events of a run up to a number. If one cannot be read, only the streams of that run end."""
        try:
            await self._send_events(key, upto)
        except Corrupt as error:
            log.warning("the streams of run %s end at an event that cannot be read: %s", key[1], error.what)
            self._pass_over(key, upto)

    def _pass_over(self, key: RunKey, upto: int) -> None:
        if key in self._runs:
            self._runs[key] = max(upto, self._runs[key])
        if (poller := self._tenants.get(key[0])) is not None:
            poller.pass_over(key[1], upto)
        for listener in self._listeners.get(key, ()):  # the next stream names the event, or begins after it
            listener.end(reopens=True)

    async def _send_events(self, key: RunKey, upto: int) -> None:
        after = self._forwarded(key, upto)
        poller = self._tenants.get(key[0])
        first = poller is not None and not poller.knows(key[1])
        last: Event | None = None
        while after < upto:
            page = await self._store.rows(EVENT, key, after=(*key, after), limit=BATCH)
            for event in page:
                self._deliver(key, event, first=first)
                after, last = event.seq, event
            if len(page) < BATCH:
                break
        if last is not None and last.type in ENDINGS:
            for listener in self._listeners.get(key, ()):
                listener.end()

    def _deliver(self, key: RunKey, event: Event, *, first: bool) -> None:
        """Give an event to each listener that lacks it. Without an await, so the listeners cannot change."""
        if (sent := self._runs.get(key)) is not None and event.seq > sent:
            self._runs[key] = event.seq
            _push(self._listeners.get(key, ()), event.seq, frame(event, str(event.seq)))
        if (poller := self._tenants.get(key[0])) is not None and poller.is_news(event, first=first):
            _push(self._listeners.get((key[0], ""), ()), 0, poller.keep(event))

    def _end_purged(self, key: RunKey) -> None:
        self._expected.pop(key, None)
        for listener in self._listeners.get(key, ()):
            listener.end()


def _push(listeners: Iterable[EventListener], seq: int, data: bytes) -> None:
    for listener in listeners:
        listener.push(seq, data)

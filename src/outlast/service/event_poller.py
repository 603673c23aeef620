"""Which runs of a tenant have moved, found by looking, and what was sent of them lately."""

from collections import deque
from typing import Final

from outlast.core.limits import KIB
from outlast.core.rows import EVENT, RUN, Event, Run, is_over
from outlast.runtime.clocks import new_id
from outlast.service.event_stream import frame
from outlast.store.port import Page, Store

RECENT: Final = 200
"""Runs of a tenant looked at in every look; and as many of the older ones, in turn."""
MOVING: Final = 1_000
"""Runs that are owned, and runs that have just ended, looked at in every look: at most so many of either."""
KEPT: Final = 5_000
"""Events that one who comes back may have missed …"""
KEPT_BYTES: Final = 16 * KIB * KIB
"""… and how large they are together: what a run ends with may be large."""
LATE_MS: Final = 5_000
"""How long before it landed an event may have been stamped."""


class EventPoller:
    """The newest runs are looked at every time, and of all runs those that a worker owns or that have just ended; the
    others a page at a time: what is done to an older one that nobody owns in the moment of a look is told later.

    No index finds events by their time, since every event would pay for it; a sweep pays only while somebody listens.
    What this process itself does is told at once (live.py).
    """

    def __init__(self, store: Store, tenant: str) -> None:
        self.left_at = 0.0  # of the loop's clock; when its last listener left, 0 = there is one
        self.width = 0  # runs that the last look found owned or just ended
        self._store = store
        self._tenant = tenant
        self._known: dict[str, int] = {}  # the last event of each run that was sent, or was there before
        self._cursor = ""
        self._began_at = 0  # what happened later to a run that is not known is news; business time
        self._since = 0  # a run that ended before has been told whole, and is remembered no longer
        self._turn_at = 0  # when the present turn through the older ones began
        self._looked_at = 0  # when the last look that could read the store began
        self._life = new_id("")  # ids of another process, or of an earlier stream, are none of ours
        self._kept: deque[tuple[int, bytes]] = deque()
        self._kept_bytes = 0
        self._sent = 0

    async def begin(self) -> None:
        """What is there now is not news."""
        self._looked_at = self._turn_at = (await self._store.now()).business
        self._began_at = self._since = self._turn_at - LATE_MS
        newest = await self._store.page(RUN, self._tenant, {}, limit=RECENT)
        moving = await self._store.moving(self._tenant, self._began_at, MOVING)
        self._known = {row.run: row.seq for row in (*newest.rows, *moving) if isinstance(row, Run)}

    async def moved(self) -> list[Run]:
        """Runs with events that were not sent, as far as this look goes; each once."""
        at = (await self._store.now()).business
        newest = await self._store.page(RUN, self._tenant, {}, limit=RECENT)
        older = Page((), "")
        if newest.cursor:
            older = await self._store.page(RUN, self._tenant, {}, cursor=self._cursor or newest.cursor, limit=RECENT)
        moving = await self._store.moving(self._tenant, self._looked_at - LATE_MS, MOVING)
        latest = {row.run: row for row in (*newest.rows, *older.rows, *moving) if isinstance(row, Run)}
        runs = [row for row in latest.values() if not self._is_past(row)]
        unknown = [row for row in runs if row.run not in self._known]
        old = set()
        if unknown:
            last = await self._store.load_many(EVENT, [(row.tenant, row.run, row.seq) for row in unknown])
            old = {each.run for each in last if isinstance(each, Event) and each.at < self._began_at}
            self._known |= {row.run: row.seq for row in unknown if row.run in old}
        if newest.cursor and not self._cursor:
            self._next_turn(at)
        self._cursor, self._looked_at, self.width = older.cursor, at, len(moving)  # a look that fails is made again
        return [row for row in runs if row.run not in old and self.sent(row.run) < row.seq]

    def _next_turn(self, at: int) -> None:
        """Everything that had happened when the last turn began has been seen in it."""
        self._since = self._turn_at - LATE_MS
        self._turn_at = at

    def _is_past(self, run: Run) -> bool:
        """It ended before what a look could find, and whatever was told of it has been sent: it is forgotten. It does
        not come again: `_since` only grows, and what has just ended is looked for from a later instant on."""
        if not is_over(run) or run.ended_at >= self._since or self._known.get(run.run, run.seq) < run.seq:
            return False
        self._known.pop(run.run, None)
        return True

    def knows(self, run: str) -> bool:
        """Was it there before, or has anything of it been sent?"""
        return run in self._known

    def sent(self, run: str) -> int:
        """The last event of a run that needs no sending."""
        return self._known.get(run, 0)

    def is_news(self, event: Event, *, first: bool) -> bool:
        """Is it to be sent? It is known from here on. `first`: its run was not known before this look."""
        if event.seq <= self.sent(event.run):
            return False
        self._known[event.run] = event.seq
        return not first or event.at >= self._began_at

    def keep(self, event: Event) -> bytes:
        """The event as it is sent to who listens to all runs, kept for who comes back."""
        self._sent += 1
        data = frame(event, f"{self._life}-{self._sent}")
        self._kept.append((self._sent, data))
        self._kept_bytes += len(data)
        while len(self._kept) > KEPT or self._kept_bytes > KEPT_BYTES:
            self._kept_bytes -= len(self._kept.popleft()[1])
        return data

    def since(self, last: str) -> list[bytes] | None:
        """What was sent after the event of this id; None where that cannot be told."""
        if not last:
            return []
        life, _, number = last.partition("-")
        if life != self._life or not number.isascii() or not number.isdigit() or len(number) > 15:
            return None
        n = int(number)
        if not self._sent - len(self._kept) <= n <= self._sent:
            return None
        return [data for at, data in self._kept if at > n]

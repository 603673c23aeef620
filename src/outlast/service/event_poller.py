"""Find the new events of one tenant without an index of events by time.

An index would be paid by every event, and a poll costs only while there are listeners. Why no event is missed:

- An event belongs to a run that is among the newest, is owned by a worker, has just ended, or belongs to the rest. The
  first three groups are read in every poll. The rest is read page by page, so its events are found within one pass.
- The time of an event is read before its commit, which may land up to LATE_MS later. So each poll begins LATE_MS before
  the last successful one, and a poll that fails is repeated.
- A run is forgotten only if it ended before the last pass began and all its events were sent. No poll finds it again,
  because the polls read runs that have just ended from a later instant on.
- A run that is unknown may be new, or older than the first poll. Its newest event decides: it is sent if it is not from
  before the poller began.
"""

from collections import deque
from typing import Final

from outlast.clocks import new_id
from outlast.core.limits import KIB
from outlast.core.rows.run_rows import EVENT, RUN, Event, Run, is_over
from outlast.service.event_stream import frame
from outlast.store.port import Store
from outlast.store.queries import Moving, Page

RECENT: Final = 200
"""Newest runs of a tenant read in every poll, and as many of the older ones, page by page."""
MOVING: Final = 1_000
"""Maximum number of owned runs, and of runs that have just ended, read in every poll."""
KEPT: Final = 5_000
"""Events kept for listeners that reconnect."""
KEPT_BYTES: Final = 16 * KIB * KIB
"""Total size of these events, because the result of a run may be large."""
LATE_MS: Final = 5_000
"""Maximum time between the timestamp of an event and its commit."""


class EventPoller:
    """Poller for one tenant.

    Every poll reads the newest runs, the runs that a worker owns and those that have just ended. The other runs are
    read one page per poll, so an event of an older run without an owner is found later.
    """

    def __init__(self, store: Store, tenant: str) -> None:
        self.left_at = 0.0  # event loop time at which the last listener left; 0 if there is one
        self.width = 0  # runs that the last poll found owned or just ended
        self._store = store
        self._tenant = tenant
        self._known: dict[str, int] = {}  # number of the last event sent or present at the start, by run
        self._cursor = ""
        self._began_at = 0  # business time; later events of an unknown run are new
        self._since = 0  # runs that ended earlier were sent completely and are forgotten
        self._pass_at = 0  # when the current pass through the older runs began
        self._polled_at = 0  # when the last successful poll began
        self._life = new_id("")  # distinguishes our ids from those of other processes and earlier streams
        self._kept: deque[tuple[int, bytes]] = deque()
        self._kept_bytes = 0
        self._sent = 0

    async def begin(self) -> None:
        """Record the present state, so that existing events are not sent."""
        self._polled_at = self._pass_at = (await self._store.now()).business
        self._began_at = self._since = self._pass_at - LATE_MS
        newest = await self._store.page(RUN, self._tenant, {}, limit=RECENT)
        moving = await self._store.query(Moving(self._tenant, self._began_at, MOVING))
        self._known = {row.run: row.seq for row in (*newest.rows, *moving)}

    async def moved(self) -> list[Run]:
        """Return the runs with unsent events that this poll finds, each once."""
        at = (await self._store.now()).business
        newest = await self._store.page(RUN, self._tenant, {}, limit=RECENT)
        older: Page[Run] = Page((), "")
        if newest.cursor:
            older = await self._store.page(RUN, self._tenant, {}, cursor=self._cursor or newest.cursor, limit=RECENT)
        moving = await self._store.query(Moving(self._tenant, self._polled_at - LATE_MS, MOVING))
        latest = {row.run: row for row in (*newest.rows, *older.rows, *moving)}
        runs = [row for row in latest.values() if not self._is_past(row)]
        unknown = [row for row in runs if row.run not in self._known]
        old = set()
        if unknown:
            last = await self._store.load_many(EVENT, [(row.tenant, row.run, row.seq) for row in unknown], listed=True)
            old = {each.run for each in last if each is not None and each.at < self._began_at}
            self._known |= {row.run: row.seq for row in unknown if row.run in old}
        if newest.cursor and not self._cursor:
            self._next_pass(at)
        self._cursor, self._polled_at, self.width = older.cursor, at, len(moving)  # a failed poll is repeated
        return [row for row in runs if row.run not in old and self.sent(row.run) < row.seq]

    def _next_pass(self, at: int) -> None:
        """Start a new pass through the older runs; the last pass saw all events from before it began."""
        self._since = self._pass_at - LATE_MS
        self._pass_at = at

    def _is_past(self, run: Run) -> bool:
        """Forget a run that ended before the last pass and was sent completely. Return True if so.

        No poll returns it again: `_since` only grows, and runs that have just ended are read from a later instant on.
        """
        if not is_over(run) or run.ended_at >= self._since or self._known.get(run.run, run.seq) < run.seq:
            return False
        self._known.pop(run.run, None)
        return True

    def knows(self, run: str) -> bool:
        """Return True if the run existed at the start or an event of it was sent."""
        return run in self._known

    def sent(self, run: str) -> int:
        """Return the number of the last event of a run that needs no sending."""
        return self._known.get(run, 0)

    def pass_over(self, run: str, upto: int) -> None:
        """Send no event of a run up to this number, because one cannot be read."""
        self._known[run] = max(upto, self.sent(run))

    def is_news(self, event: Event, *, first: bool) -> bool:
        """Return True if the event must be sent, and remember it. `first` if its run was unknown before this poll."""
        if event.seq <= self.sent(event.run):
            return False
        self._known[event.run] = event.seq
        return not first or event.at >= self._began_at

    def keep(self, event: Event) -> bytes:
        """Return the event encoded for listeners to all runs, and keep it for those that reconnect."""
        self._sent += 1
        data = frame(event, f"{self._life}-{self._sent}")
        self._kept.append((self._sent, data))
        self._kept_bytes += len(data)
        while len(self._kept) > KEPT or self._kept_bytes > KEPT_BYTES:
            self._kept_bytes -= len(self._kept.popleft()[1])
        return data

    def since(self, last: str) -> list[bytes] | None:
        """Return the events sent after the one with this id, or None if they are no longer kept."""
        if not last:
            return []
        life, _, number = last.partition("-")
        if life != self._life or not number.isascii() or not number.isdigit() or len(number) > 15:
            return None
        n = int(number)
        if not self._sent - len(self._kept) <= n <= self._sent:
            return None
        return [data for at, data in self._kept if at > n]

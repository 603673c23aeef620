"""Which runs of a tenant have moved, found by looking, and what was sent of them lately."""

from collections import deque
from collections.abc import Sequence
from typing import Final

from outlast.core.rows import RUN, Event, Row, Run, is_over
from outlast.runtime.clocks import new_id
from outlast.service.stream import frame
from outlast.store.port import Store

RECENT: Final = 200
"""Runs of a tenant looked at in every look; and as many of the older ones, in turn."""
KEPT: Final = 5_000
"""Events that one who comes back may have missed."""


class Sweep:
    """The newest runs are looked at every time, the older ones a page at a time: what is old may be told later.

    No index finds events by their time, since every event would pay for it; a sweep pays only while somebody listens.
    """

    def __init__(self, store: Store, tenant: str) -> None:
        self.left_at = 0.0  # of the loop's clock; when its last listener left, 0 = there is one
        self._store = store
        self._tenant = tenant
        self._known: dict[str, int] = {}
        self._cursor = ""
        self._began = False
        self._life = new_id("")  # ids of another process, or of an earlier stream, are none of ours
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=KEPT)
        self._sent = 0

    async def begin(self) -> None:
        """What is there now is not news."""
        await self.moved()

    async def moved(self) -> list[tuple[Run, int]]:
        """Runs with events since the last look at them, each with the number of the last event known."""
        newest = await self._store.page(RUN, self._tenant, {}, limit=RECENT)
        found = self._look(newest.rows, recent=True)
        if newest.cursor:
            older = await self._store.page(RUN, self._tenant, {}, cursor=self._cursor or newest.cursor, limit=RECENT)
            found += self._look(older.rows, recent=False)
            self._cursor = older.cursor
        self._began = True
        return found

    def _look(self, rows: Sequence[Row], *, recent: bool) -> list[tuple[Run, int]]:
        """Those of these that moved. A recent one that was never seen has begun since; an older one is known from here
        on."""
        found: list[tuple[Run, int]] = []
        for row in rows:
            assert isinstance(row, Run)
            known = self._known.get(row.run, 0 if recent and self._began else row.seq)
            if known < row.seq:
                found.append((row, known))
            if is_over(row) and not recent:
                self._known.pop(row.run, None)
            else:
                self._known[row.run] = row.seq
        return found

    def keep(self, event: Event) -> bytes:
        """The event as it is sent to who listens to all runs, kept for who comes back."""
        self._sent += 1
        data = frame(event, f"{self._life}-{self._sent}")
        self._kept.append((self._sent, data))
        return data

    def since(self, last: str) -> list[bytes] | None:
        """What was sent after the event of this id; None where that cannot be told."""
        if not last:
            return []
        life, _, number = last.partition("-")
        if life != self._life or not number.isascii() or not number.isdigit() or len(number) > 15:
            return None
        n = int(number)
        if n > self._sent or (self._kept and n + 1 < self._kept[0][0]):
            return None
        return [data for at, data in self._kept if at > n]

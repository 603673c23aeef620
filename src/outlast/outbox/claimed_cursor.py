"""A cursor that this dispatcher has claimed: how far its events are settled, and when the claim ends.

Possible faults, and why no event is lost and no two dispatchers send under one claim:

- This dispatcher dies. `due_at` of the row is the end of its claim: others take the cursor then and raise `epoch`.
  Events that were accepted since the last write are sent again under the same webhook-id, at most SENT_AT_ONCE.
- It stalls beyond its claim. Its next write finds another owner or epoch and raises CursorLost.
- The claim ends during an attempt. `extend` renews it unless MARGIN_MS are left, which is more than an attempt takes.
  The end is counted on the monotonic clock from before the write, so it is never later than the one that others see.
- Others write the row, too: new events raise `upto`, requests raise `again`. Owner and epoch are then the same, and the
  write is made again on their row.
"""

from typing import Final, NamedTuple

from outlast.core.clock_port import Clock
from outlast.core.commit import Commit, Instant, Put
from outlast.core.durations import DELIVERY_CLAIM, DELIVERY_TIMEOUT
from outlast.core.rows.outbox_rows import CURSOR, Cursor
from outlast.core.rows.run_rows import Event
from outlast.core.webhooks import deliveries
from outlast.errors import Stale
from outlast.store.port import Store

SENT_AT_ONCE: Final = 20  # accepted events that a crash may repeat
MARGIN_MS: Final = DELIVERY_TIMEOUT + DELIVERY_TIMEOUT // 2  # claim that must be left when an event is sent
TRIES: Final = 10


class CursorLost(Exception):
    """Another dispatcher holds the cursor, or it is deleted."""


class ClaimedCursor:
    """Cursor with the events that are settled, whether that is committed or not."""

    def __init__(self, store: Store, clock: Clock, held: Cursor, until: int) -> None:
        """`until`: the end of the claim on the local monotonic clock, measured from before the claim was requested."""
        self._store = store
        self._clock = clock
        self.stored = held  # as this process last wrote or read it
        self._until = until
        self._unwritten = 0  # accepted events since the last commit
        self.key = (held.tenant, held.run, held.subscription)
        self.seq, self.last = held.seq, held.last
        self.repeated = 0  # requested redeliveries settled, less reminders scheduled, since the last commit
        self.reminders: list[int] = []  # real; when those scheduled here are due

    def skip(self, seq: int) -> None:
        """Settle events up to a number that are not sent."""
        self.seq = seq

    async def settle(self, event: Event, *puts: Put) -> None:
        """Settle an event that was accepted or given up, and write if there is something to write, or much."""
        self.seq = self.last = event.seq
        self._unwritten += 1
        if puts or self._unwritten >= SENT_AT_ONCE:
            await self.write(*puts)

    async def extend(self) -> None:
        """Renew the claim if it could end before an attempt does."""
        if self._clock.mono() + MARGIN_MS > self._until:
            await self.write()

    async def write(self, *more: Put, release: "Release | None" = None) -> None:
        """Commit settled events with `more`, and keep the claim or release it.

        If more events are owed by now, the cursor is due at once. Raises CursorLost.
        """
        for _ in range(TRIES):
            base, started = self.stored, self._clock.mono()  # before the commit, which may be slow
            now = await self._store.now()
            settled = base._replace(
                seq=self.seq,
                last=self.last,
                upto=max(base.upto, self.seq),
                again=max(0, base.again - self.repeated),
            )
            after = deliveries.keep(settled, now) if release is None else release.applied(settled, now)
            label = f"{base.run} told {self.seq}"
            try:
                await self._store.commit(Commit((*more, Put(CURSOR, after, base.version)), label=label))
            except Stale:
                row = await self._store.load(CURSOR, self.key)
                if row is None or (row.owner, row.epoch) != (base.owner, base.epoch):
                    raise CursorLost from None
                self.stored = row  # more events are owed by now, so the numbers are computed again on this row
                continue
            self.stored, self._until = after, started + DELIVERY_CLAIM
            self.repeated = self._unwritten = 0
            return
        raise CursorLost


class Release(NamedTuple):
    """Instants (real) at which a released cursor is due again."""

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

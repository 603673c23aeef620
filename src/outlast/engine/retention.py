"""Retention: a worker deletes expired rows of its store, a few at a time."""

import json
from typing import Final, NamedTuple

from outlast.core.clock import Clock
from outlast.core.commit import Commit, Put
from outlast.core.durations import DAY, FORGET_EVERY
from outlast.core.rows import META, STORE, Meta, Row
from outlast.errors import Corrupt, Stale
from outlast.store.port import Store

AT_ONCE: Final = 200  # rows of each kind in one transaction, for which other writers wait some milliseconds
PURGED_AT_ONCE: Final = 20  # runs in one transaction: some 500 rows, a few milliseconds
PURGED: Final = (STORE, "purged")
"""Key of the meta row of the last daily purge."""


class DailyPurge(NamedTuple):
    """The last daily purge of a store."""

    at: int  # real time at which a worker claimed it
    by: str  # that worker; '' if the store is younger than a day
    runs: int  # deleted so far

    def row(self, before: Meta | None) -> Meta:
        """Return the meta row of this purge, to be written after `before`."""
        return Meta(*PURGED, before.version + 1 if before else 1, json.dumps(self._asdict()))


def purge_of(row: Row | None) -> DailyPurge | None:
    """Return the purge in a meta row, or None before the first one. Raises Corrupt."""
    if row is None:
        return None
    assert isinstance(row, Meta)
    try:
        value = json.loads(row.value)
        return DailyPurge(int(value["at"]), str(value["by"]), int(value["runs"]))
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"meta row {row.key}: {error!r}") from error


class Retention:
    """Deletes answers and workers' rows every FORGET_EVERY. One worker of all deletes old runs once a day."""

    def __init__(self, store: Store, clock: Clock, worker: str, runs_kept: int) -> None:
        """Create the retention of one worker.

        `runs_kept`: business time for which an ended run is kept; 0 for no limit.
        """
        self._store = store
        self._clock = clock
        self._worker = worker
        self._runs_kept = runs_kept
        self._next = 0  # monotonic
        self._next_purge = 0  # monotonic; next check for the daily purge
        # the purge in progress: its row, and the time before which a run must have ended
        self._purge: tuple[Meta, int] | None = None

    async def look(self) -> None:
        """Delete expired rows. Raises StoreError; the next heartbeat tries again."""
        if self._clock.mono() >= self._next:
            n = await self._store.forget(AT_ONCE)
            if n < AT_ONCE:
                self._next = self._clock.mono() + FORGET_EVERY
        if self._runs_kept and self._clock.mono() >= self._next_purge:
            await self._purge_some()

    async def _purge_some(self) -> None:
        """Claim the daily purge if it is due, and delete a few runs in one transaction."""
        purge = self._purge or await self._take_purge()
        if purge is None:
            self._next_purge = self._clock.mono() + FORGET_EVERY
            return
        row, before = purge
        n = await self._store.purge(before, PURGED_AT_ONCE)
        done = purge_of(row)
        assert done is not None
        written = await self._write(done._replace(runs=done.runs + n), row) if n else row
        self._purge = (written, before) if written is not None and n == PURGED_AT_ONCE else None

    async def _take_purge(self) -> tuple[Meta, int] | None:
        """Claim the purge of this day.

        Returns None if it is not due or another worker has claimed it.

        The first purge of a store runs a day after a worker has opened it, so that an operator can change the setting.
        """
        row, now = await self._store.load(META, PURGED), await self._store.now()
        assert row is None or isinstance(row, Meta)
        last = purge_of(row)
        if last is None:
            await self._write(DailyPurge(now.real, "", 0), None)
            return None
        if now.real - last.at < DAY:
            return None
        mine = await self._write(DailyPurge(now.real, self._worker, 0), row)
        return None if mine is None else (mine, now.business - self._runs_kept)

    async def _write(self, purge: DailyPurge, before: Meta | None) -> Meta | None:
        """Write the row, or return None if another worker was first."""
        row = purge.row(before)
        try:
            await self._store.commit(Commit((Put(META, row, row.version - 1),), label="daily purge"))
        except Stale:
            return None
        return row

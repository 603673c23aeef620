"""Retention: a worker deletes what a store need not keep, a little at a time."""

import json
from typing import Final, NamedTuple

from outlast.core.budget import DAY, FORGET_EVERY
from outlast.core.clock import Clock
from outlast.core.commit import Commit, Put
from outlast.core.rows import META, STORE, Meta, Row
from outlast.errors import Corrupt, Stale
from outlast.store.port import Store

AT_ONCE: Final = 200  # of each kind in one transaction: some milliseconds, in which others wait
PURGED_AT_ONCE: Final = 20  # runs in one transaction: some 500 rows, a few milliseconds
PURGED: Final = (STORE, "purged")
"""The key of the meta row that names the last daily purge."""


class DailyPurge(NamedTuple):
    """The last daily purge of a store."""

    at: int  # real; when a worker took it on
    by: str  # that worker; '' = the store is younger than a day
    runs: int  # forgotten so far

    def row(self, before: Meta | None) -> Meta:
        """Return the meta row that says so, to be written after `before`."""
        return Meta(*PURGED, before.version + 1 if before else 1, json.dumps(self._asdict()))


def purge_of(row: Row | None) -> DailyPurge | None:
    """Return the purge that the meta row names; None if there is none yet. Raises Corrupt."""
    if row is None:
        return None
    assert isinstance(row, Meta)
    try:
        value = json.loads(row.value)
        return DailyPurge(int(value["at"]), str(value["by"]), int(value["runs"]))
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"meta row {row.key}: {error!r}") from error


class Retention:
    """Deletes answers and workers' rows every FORGET_EVERY, and once a day, by one worker of all, old runs."""

    def __init__(self, store: Store, clock: Clock, worker: str, runs_kept: int) -> None:
        """`runs_kept`: how long a run is kept after its end, in business time; 0 = for ever."""
        self._store = store
        self._clock = clock
        self._worker = worker
        self._runs_kept = runs_kept
        self._next = 0  # monotonic
        self._next_purge = 0  # monotonic; when the daily purge is looked for again
        self._purge: tuple[Meta, int] | None = None  # the one under way: its row, and before when a run must have ended

    async def look(self) -> None:
        """Delete what is due. Raises StoreError, and is then due at the next heartbeat."""
        if self._clock.mono() >= self._next:
            n = await self._store.forget(AT_ONCE)
            if n < AT_ONCE:
                self._next = self._clock.mono() + FORGET_EVERY
        if self._runs_kept and self._clock.mono() >= self._next_purge:
            await self._purge_some()

    async def _purge_some(self) -> None:
        """Take the daily purge on if it is due, and delete a few runs: one transaction at each heartbeat."""
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
        """Claim today's purge. None: it is not due, or another worker has it.

        A store is first purged a day after a worker has opened it, so that there is time to change the setting.
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
        """Write the row; None if another worker was first."""
        row = purge.row(before)
        try:
            await self._store.commit(Commit((Put(META, row, row.version - 1),), label="daily purge"))
        except Stale:
            return None
        return row

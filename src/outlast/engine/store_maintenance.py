"""Maintenance of a store: recovery after a restore (I42), daily purge (CKP-7), clock steps (S-4)."""

import json
import logging
from typing import Final, NamedTuple

from outlast.core.clock_port import Clock
from outlast.core.commit import Commit, Expect, Put, in_portions
from outlast.core.durations import CLOCK_STEP, DAY, FORGET_EVERY, SECOND, Liveness
from outlast.core.generation import GENERATION, LEDGERS, Generation, generation_of, ledgers_of
from outlast.core.machine import LeaseStatus, lease_target
from outlast.core.recovery import may_have_changed, open_after_restore, restore_run
from outlast.core.rows.effect_rows import Effect
from outlast.core.rows.row_kind import Key
from outlast.core.rows.run_rows import RUN, Run, is_over
from outlast.core.rows.store_rows import META, STORE, WORKER, WRITER, Meta
from outlast.core.run_transition import rearmed
from outlast.engine.fork_start_removal import remove_given_up
from outlast.engine.lease import closed
from outlast.engine.model_text_writer import forget_unused
from outlast.engine.thread_removal import UnusedThreadPurge
from outlast.errors import Corrupt, Ended, Stale
from outlast.store.port import AnchoredClock, Expiry, Maintenance, RunRows, Store

log = logging.getLogger("outlast.engine")
PAGE = 200


class Recovered(NamedTuple):
    """Counts of a recovery."""

    generation: Generation
    workers: int  # rows closed
    writers: int  # rows closed
    runs: int  # runs that wait for an operator
    effects: int  # effects marked uncertain


async def present_generation(store: Store) -> Generation | None:
    """Return the generation of a store. Raises Corrupt."""
    return generation_of(await store.load(META, GENERATION))


async def ledger_purged(store: Store, run: Run) -> bool:
    """Return True if the ledger of this run is gone. Raises Corrupt."""
    if not run.ended_at:
        return False
    purged, now = ledgers_of(await store.load(META, LEDGERS)), await store.now()
    return purged.has(run, now.business + store.skew)


async def recover(store: Store, *, new_id: str, actor: str) -> Recovered:
    """Begin a new generation under an id that was never used.

    Raises Stale if another process does so now.

    First it closes the rows of all other workers and writers; a batch under a closed row is refused whole, so no
    process from before the restore can write. Then it marks each unfinished run. A recovery that was interrupted is run
    again from the start: it asks operators again and loses nothing.
    """
    since = (await store.now()).business
    before = await present_generation(store)
    if before is None:  # a store from before generations existed
        before = Generation(1, f"{new_id}-before", since)
        await store.commit(Commit((Put(META, before.row(), 0),), label="generation 1"))
    n = before.n + 1
    restored = Generation(n, new_id, since)
    await store.commit(Commit((Put(META, restored.row(), before.n),), label=f"generation {n}"))
    workers = await _close_workers(store)
    writers = await _close_writers(store)
    runs, effects = await _mark_runs(store, n, actor)
    return Recovered(restored, workers, writers, runs, effects)


async def _close_workers(store: Store) -> int:
    n = 0
    for row in await store.rows(WORKER, (STORE,)):
        while row.status is LeaseStatus.ALIVE:
            try:
                await store.commit(closed(row))
                n += 1
                break
            except Stale:  # a process from before the restore still renews it
                fresh = await store.load(WORKER, (STORE, row.id))
                assert fresh is not None
                row = fresh
    return n


async def _close_writers(store: Store) -> int:
    n = 0
    for row in await store.rows(WRITER, (STORE,)):
        if row.status is not LeaseStatus.ALIVE or row.id == store.writer:
            continue
        after = row._replace(version=row.version + 1, status=lease_target("close_lease", row.status))
        try:
            await store.commit(Commit((Put(WRITER, after, row.version),), label=f"close writer {row.id}"))
            n += 1
        except Stale:
            pass  # it closed its own row
    return n


async def _mark_runs(store: Store, generation: int, actor: str) -> tuple[int, int]:
    runs = effects = 0
    after: Key = ()
    while page := await store.rows(RUN, (), after=after, limit=PAGE):
        for row in page:
            if not is_over(row) and row.restored < generation:
                effects += await _mark_run(store, row, generation, actor)
                runs += 1
        after = page[-1][: RUN.key]  # type: ignore[assignment]
    return runs, effects


async def _mark_run(store: Store, run: Run, generation: int, actor: str) -> int:
    """Mark one run, and return how many of its effects may have happened in the lost time."""
    done: set[tuple[int, str]] = set()
    while True:
        (rows,) = await store.run_rows([run[:2]])
        if rows is None or is_over(rows.run) or rows.run.restored >= generation:
            return len(done)
        doubtful = [effect for effect in _open_effects(rows) if (effect.visit, effect.key) not in done]
        now = rows.now
        portions = in_portions(open_after_restore(doubtful, now, store.skew))
        if len(portions) > 1:  # the run is marked with the last ones
            here = Expect(RUN, run[:2], rows.run.version)
            commit = Commit(portions[0], expects=(here,), label=f"{run.run} restore")
        else:
            commit = restore_run(
                rows.run,
                doubtful,
                generation=generation,
                actor=actor,
                now=now,
                mapping=store.mapping(),
                skew=store.skew,
            )
        try:
            await store.commit(commit)
            done.update((effect.visit, effect.key) for effect in doubtful[: len(portions[0]) if portions else 0])
        except Ended:
            return len(done)
        except Stale:
            continue


def _open_effects(rows: RunRows) -> list[Effect]:
    own = [*rows.effects, *(e for e in rows.shared if e.by_run == rows.run.run)]
    return sorted((e for e in own if may_have_changed(e)), key=lambda e: e.ordinal)


AT_ONCE: Final = 200  # rows of each kind in one transaction, for which other writers wait some milliseconds
PURGED_AT_ONCE: Final = 20  # runs in one transaction: some 500 rows, a few milliseconds
MARKED_AFTER: Final = FORGET_EVERY  # after its end, so that no run that ended before is found later
PURGED: Final = (STORE, "purged")
"""Key of the meta row of the last daily purge."""


class DailyPurge(NamedTuple):
    """The last daily purge of a store."""

    at: int  # real time at which a worker claimed it
    by: str  # that worker; '' if the store is younger than a day
    runs: int  # deleted so far
    ledgers: int  # runs whose ledgers were deleted so far
    threads: int  # of LangGraph, deleted so far

    def row(self, before: Meta | None) -> Meta:
        """Return the meta row of this purge, to be written after `before`."""
        return Meta(*PURGED, before.version + 1 if before else 1, json.dumps(self._asdict()))


def purge_of(row: Meta | None) -> DailyPurge | None:
    """Return the purge in a meta row, or None before the first one. Raises Corrupt."""
    if row is None:
        return None
    try:
        value = json.loads(row.value)
        threads = int(value.get("threads", 0))  # rows of earlier versions have none
        return DailyPurge(int(value["at"]), str(value["by"]), int(value["runs"]), int(value["ledgers"]), threads)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Corrupt(f"meta row {row.key}: {error!r}") from error


class _Purge(NamedTuple):
    """A daily purge in progress."""

    row: Meta
    business: int  # at its beginning
    left: tuple[str, ...] = ("marks", "ledgers", "runs", "texts", "threads")  # parts that are not done


class Retention:
    """Deletes answers, rows of workers and starts of forks every FORGET_EVERY. One worker purges the rest once a day.

    The rest are ledgers, runs and unused threads of LangGraph.
    """

    def __init__(self, store: Store, clock: Clock, worker: str, live: Liveness) -> None:
        """Create the retention of one worker.

        `live` has the business time for which ended runs, their ledgers and unused threads are kept; 0 for no limit.
        """
        self._store = store
        self._clock = clock
        self._worker = worker
        self._live = live
        self._threads = UnusedThreadPurge(store)
        self._next = 0  # monotonic
        self._next_purge = 0  # monotonic; next check for the daily purge
        self._purge: _Purge | None = None  # in progress

    async def look(self) -> None:
        """Delete expired rows. Raises StoreError; the next heartbeat tries again."""
        if not isinstance(self._store, Maintenance):
            return
        if self._clock.mono() >= self._next:
            n = await self._store.forget(AT_ONCE)
            if await remove_given_up(self._store) and n < AT_ONCE:
                self._next = self._clock.mono() + FORGET_EVERY
        purges = self._live.runs_kept or self._live.ledger_kept or self._live.threads_kept
        if purges and self._clock.mono() >= self._next_purge:
            await self._purge_some(self._store)

    async def _purge_some(self, store: Maintenance) -> None:
        """Claim the daily purge if it is due, and delete a few ledgers, runs or threads."""
        purge = self._purge or await self._take_purge()
        if purge is None:
            self._next_purge = self._clock.mono() + FORGET_EVERY
            return
        row, business, (part, *left) = purge
        n, is_done = await self._part_of(store, part, business)
        done = purge_of(row)
        assert done is not None
        counted = {
            "ledgers": done._replace(ledgers=done.ledgers + n),
            "runs": done._replace(runs=done.runs + n),
            "threads": done._replace(threads=done.threads + n),
        }
        written = await self._write(counted[part], row) if n and part in counted else row
        parts = tuple(left) if is_done else purge.left
        self._purge = _Purge(written, business, parts) if written and parts else None

    async def _part_of(self, store: Maintenance, part: str, business: int) -> tuple[int, bool]:
        """Do a part of the purge for a few runs or threads. Return for how many, and if the part is complete."""
        runs_kept, ledger_kept, threads_kept = self._live.runs_kept, self._live.ledger_kept, self._live.threads_kept
        if part == "threads":
            return await self._threads.some(business, threads_kept) if threads_kept else (0, True)
        if part == "texts":
            return (await forget_unused(self._store, business - runs_kept) if runs_kept else 0), True
        n = 0
        if part == "marks" and isinstance(store, Expiry):
            before = business - MARKED_AFTER
            n = await store.expire(before, PURGED_AT_ONCE, runs_kept=runs_kept, ledger_kept=ledger_kept)
        elif part == "ledgers" and ledger_kept:
            n = await store.purge_ledgers(business - ledger_kept, PURGED_AT_ONCE)
        elif part == "runs" and runs_kept:
            n = await store.purge(business - runs_kept, PURGED_AT_ONCE)
        return n, n < PURGED_AT_ONCE

    async def _take_purge(self) -> "_Purge | None":
        """Claim the purge of this day.

        Returns None if it is not due or another worker has claimed it.

        The first purge of a store runs a day after a worker has opened it, so that an operator can change the setting.
        """
        row, now = await self._store.load(META, PURGED), await self._store.now()
        last = purge_of(row)
        if last is None:
            await self._write(DailyPurge(now.real, "", 0, 0, 0), None)
            return None
        if now.real - last.at < DAY:
            return None
        mine = await self._write(DailyPurge(now.real, self._worker, 0, 0, 0), row)
        if mine is None:
            return None
        self._threads = UnusedThreadPurge(self._store)
        return _Purge(mine, now.business)

    async def _write(self, purge: DailyPurge, before: Meta | None) -> Meta | None:
        """Write the row, or return None if another worker was first."""
        row = purge.row(before)
        try:
            await self._store.commit(Commit((Put(META, row, row.version - 1),), label="daily purge"))
        except Stale:
            return None
        return row


class ClockStep:
    """Detector of a wall clock that was set (S-4).

    A step forward counts once it was seen twice, because a clock may be set wrong for a moment.
    """

    def __init__(self, store: Store) -> None:
        self._store = store if isinstance(store, AnchoredClock) else None
        self._before = 0

    async def look(self) -> None:
        """Log a step when it is first seen, and let business time follow it. Raises StoreError."""
        if self._store is None:
            return
        before, step = self._before, await self._store.clock_step()
        self._before = step if abs(step) >= CLOCK_STEP else 0
        if not self._before:
            return
        if abs(step - before) >= CLOCK_STEP:
            ahead, seconds = step > 0, abs(step) / SECOND
            goes_on = "business time follows it" if ahead else "business time goes on, and stays ahead of it"
            log.warning(
                "this machine's clock is %.0f s %s the store's: it was set; leases keep to the boot-time clock, and %s",
                seconds,
                "ahead of" if ahead else "behind",
                goes_on,
            )
        elif step > 0 and await self._store.follow_clock(rearmed):
            self._before = 0

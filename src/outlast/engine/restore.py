"""Recovery after a restore: a new generation, closed writers, and unfinished runs marked uncertain (I42)."""

from typing import NamedTuple

from outlast.core.commit import Commit, Expect, Put
from outlast.core.generation import GENERATION, Generation, generation_of
from outlast.core.machine import LeaseStatus, lease_target
from outlast.core.recovery import EFFECTS_PER_RESTORE_MAX, may_have_changed, restore_run
from outlast.core.rows import META, RUN, STORE, WORKER, WRITER, Effect, Key, Run, Worker, Writer, is_over
from outlast.engine.lease import closed
from outlast.errors import Ended, Stale
from outlast.store.port import RunRows, Store

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
    begun = Generation(n, new_id, since)
    await store.commit(Commit((Put(META, begun.row(), before.n),), label=f"generation {n}"))
    workers = await _close_workers(store)
    writers = await _close_writers(store)
    runs, effects = await _mark_runs(store, n, actor)
    return Recovered(begun, workers, writers, runs, effects)


async def _close_workers(store: Store) -> int:
    n = 0
    for row in await store.rows(WORKER, (STORE,)):
        assert isinstance(row, Worker)
        while row.status is LeaseStatus.ALIVE:
            try:
                await store.commit(closed(row))
                n += 1
                break
            except Stale:  # a process from before the restore still renews it
                fresh = await store.load(WORKER, (STORE, row.id))
                assert isinstance(fresh, Worker)
                row = fresh
    return n


async def _close_writers(store: Store) -> int:
    n = 0
    for row in await store.rows(WRITER, (STORE,)):
        assert isinstance(row, Writer)
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
            assert isinstance(row, Run)
            if not is_over(row) and row.restored < generation:
                effects += await _mark_run(store, row, generation, actor)
                runs += 1
        after = page[-1][: RUN.key]  # type: ignore[assignment]
    return runs, effects


async def _mark_run(store: Store, run: Run, generation: int, actor: str) -> int:
    """Mark one run, and return how many of its effects became uncertain."""
    done = 0
    while True:
        (rows,) = await store.run_rows([run[:2]])
        if rows is None or is_over(rows.run) or rows.run.restored >= generation:
            return done
        doubtful = _uncertain_effects(rows)
        now = rows.now
        commit = restore_run(
            rows.run,
            doubtful[:EFFECTS_PER_RESTORE_MAX],
            generation=generation,
            actor=actor,
            now=now,
            mapping=store.mapping(),
        )
        if len(doubtful) > EFFECTS_PER_RESTORE_MAX:  # the run is marked with the last ones
            here = Expect(RUN, run[:2], rows.run.version)
            commit = Commit(commit.writes[-EFFECTS_PER_RESTORE_MAX:], expects=(here,), label=f"{run.run} restore")
        try:
            await store.commit(commit)
            done += min(len(doubtful), EFFECTS_PER_RESTORE_MAX)
        except Ended:
            return done
        except Stale:
            continue


def _uncertain_effects(rows: RunRows) -> list[Effect]:
    own = [*rows.effects, *(e for e in rows.shared if e.by_run == rows.run.run)]
    return sorted((e for e in own if may_have_changed(e)), key=lambda e: e.ordinal)

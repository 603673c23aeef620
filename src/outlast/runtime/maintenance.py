"""Maintenance of a whole store, all tenants: backup, recovery after a restore, deletion of old runs."""

import asyncio
from pathlib import Path
from typing import NamedTuple

from outlast.core.durations import RUNS_KEPT
from outlast.core.generation import Generation
from outlast.core.rows import RUN, Key, Run, is_over
from outlast.engine import restore
from outlast.engine.restore import Recovered, present_generation
from outlast.engine.retention import AT_ONCE, PURGED_AT_ONCE
from outlast.errors import Conflict, StoreUnusable
from outlast.runtime.clocks import SystemClock, new_id
from outlast.runtime.fsck import Fsck
from outlast.runtime.fsck_checks import Finding
from outlast.runtime.operations import Operations
from outlast.runtime.stores import file_of, open_store
from outlast.store import backup as files
from outlast.store.port import OnFile

PAGE = 500
PAUSE_PER_WORK = 1.0  # the pause after a batch lasts as long as the batch, so that others can write


class Purged(NamedTuple):
    """Result of a purge."""

    runs: int
    before: int  # business


async def unfinished(ops: Operations) -> int:
    """Count the unfinished runs of all tenants."""
    n = 0
    after: Key = ()
    while rows := await ops.store.rows(RUN, (), after=after, limit=PAGE):
        n += sum(isinstance(row, Run) and not is_over(row) for row in rows)
        after = rows[-1][: RUN.key]  # type: ignore[assignment]
    return n


async def recover(ops: Operations) -> Recovered:
    """Recover the store after a restore (engine/restore.py). Raises Stale if another process is recovering it."""
    recovered = await restore.recover(ops.store, new_id=new_id("g_"), actor=ops.actor.name)
    if isinstance(ops.store, OnFile):  # last, so that an interrupted recovery leaves a file that no worker serves
        await ops.store.adopt_file()
    return recovered


async def adopt_moved(ops: Operations) -> None:
    """Make a moved store file usable in its new place. Raises Conflict, StoreUnusable if it was not moved."""
    if isinstance(ops.store, OnFile):
        await ops.store.adopt_file(moved=True)


async def purge(ops: Operations, *, older_ms: int = RUNS_KEPT) -> Purged:
    """Delete runs that ended longer ago than this, in small transactions, and the rows that workers expire.

    Unfinished runs are never deleted. Shared effects (`once_per="tenant"`) and start keys are kept.
    """
    before = (await ops.store.now()).business - older_ms
    runs = 0
    loop = asyncio.get_running_loop()
    begun = loop.time()
    while True:
        n = await ops.store.purge(before, PURGED_AT_ONCE)
        runs += n
        if not n and not await ops.store.forget(AT_ONCE):
            break
        await asyncio.sleep((loop.time() - begun) * PAUSE_PER_WORK)
        begun = loop.time()
    return Purged(runs, before)


class Backup(NamedTuple):
    """A verified backup."""

    path: Path
    bytes: int
    runs: int
    events: int
    generation: Generation | None
    findings: tuple[Finding, ...]


async def back_up(url: str, target: Path, *, replace: bool = False) -> Backup:
    """Copy the store at `url` to a file, as of one instant, and check every invariant in the copy.

    A copy with findings is kept. Raises StoreUnusable (the store is not a file), Conflict (the target exists).
    """
    source = file_of(url)
    if source is None:
        raise StoreUnusable(
            f"{url} is not a file and cannot be copied",
            "use the server's own tools; a store in memory has no backup",
            "PostgreSQL: pg_dump, or a base backup with its log; after a restore: outlast recover --after-restore",
        )
    part = await asyncio.to_thread(_copy_store, source, target, replace)
    try:
        store = await open_store(f"sqlite:{part}", use="read")
        try:
            looked = await Fsck(store).look()
            generation = await present_generation(store)
        finally:
            await store.close()
        size = await asyncio.to_thread(files.keep, part, target)
    finally:
        files.drop(part)
    return Backup(target, size, looked.runs, looked.events, generation, looked.findings)


def _copy_store(source: Path, target: Path, replace: bool) -> Path:
    if not source.exists():
        raise StoreUnusable(
            f"there is no store at {source}", "there is nothing to back up", "name a store with --store"
        )
    if target.exists() and not replace:
        raise Conflict(
            f"{target} already exists", "a backup does not overwrite a file unless told to", "name another file"
        )
    return files.copy(source, target, SystemClock().wall())

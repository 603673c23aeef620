"""A backup of a store that workers may be writing to: copied, opened, looked at, and only then given its name."""

import asyncio
from pathlib import Path
from typing import NamedTuple

from outlast.core.generation import Generation
from outlast.engine.restore import present_generation
from outlast.errors import Conflict, StoreUnusable
from outlast.runtime.clocks import SystemClock
from outlast.runtime.fsck.finding import Finding
from outlast.runtime.fsck.look import Fsck
from outlast.runtime.open import file_of, open_store
from outlast.store import backup as files


class Backup(NamedTuple):
    """A backup as it was looked at."""

    path: Path
    bytes: int
    runs: int
    events: int
    generation: Generation | None
    findings: tuple[Finding, ...]


async def back_up(url: str, target: Path, *, replace: bool = False) -> Backup:
    """Copy the store at `url` to a file, as of one instant, and check every invariant in the copy.

    A copy with findings is kept too: it is what there is. Raises StoreUnusable (a store that is no file), Conflict
    (there is a file of that name).
    """
    source = file_of(url)
    if source is None:
        raise StoreUnusable(
            f"{url} is not a file that could be copied",
            "a server is backed up by its own tools, a store in memory ends with its process",
            "PostgreSQL: pg_dump, or a base backup with its log; after a restore: outlast recover --after-restore",
        )
    part = await asyncio.to_thread(_copy, source, target, replace)
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


def _copy(source: Path, target: Path, replace: bool) -> Path:
    if not source.exists():
        raise StoreUnusable(f"there is no store at {source}", "nothing can be backed up", "name a store with --store")
    if target.exists() and not replace:
        raise Conflict(f"{target} is there already", "a backup never overwrites a file unasked", "name another file")
    return files.copy(source, target, SystemClock().wall())

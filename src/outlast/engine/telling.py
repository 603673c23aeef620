"""Runs that wait for another run's shared effect are told that it is settled (S-18)."""

import asyncio
import logging
from typing import Final

from outlast.core.overlay import waiting_of
from outlast.core.people import settled_elsewhere
from outlast.core.rows import RUN, USAGE, Effect, Run, Usage, is_over
from outlast.errors import StoreError
from outlast.store.port import Store

log = logging.getLogger("outlast.engine")
USERS_PER_READ: Final = 1_000


async def tell_waiting(store: Store, effect: Effect) -> None:
    """A message to every run that waits for this effect, or may be about to: it is settled. Never raises: a run that
    misses it looks again by itself."""
    cursor = ""
    try:
        while True:
            page = await store.page(USAGE, effect.tenant, {"key": effect.key}, cursor=cursor, limit=USERS_PER_READ)
            runs = [row.run for row in page.rows if isinstance(row, Usage) and row.run != effect.by_run]
            await asyncio.gather(*(_tell(store, effect, run) for run in runs))
            cursor = page.cursor
            if not cursor:
                return
    except StoreError as error:
        log.warning("runs that wait for %s could not be told: %s", effect.key, error)


async def _tell(store: Store, effect: Effect, run: str) -> None:
    row = await store.load(RUN, (effect.tenant, run))
    if not isinstance(row, Run) or is_over(row):
        return
    if not row.owner and not any(w.kind == "effect" and w.what.endswith(f" {effect.key}") for w in waiting_of(row)):
        return  # it has used it long ago
    try:
        await store.commit(settled_elsewhere(effect, run))
    except StoreError:
        pass  # it has ended meanwhile, or looks again by itself

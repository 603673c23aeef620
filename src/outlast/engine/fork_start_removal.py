"""Begins starts of forks, and deletes the rows of those that were given up (S-28; see `core/fork_starts.py`)."""

from collections.abc import AsyncIterator
from typing import Final

from outlast.core.fork_starts import (
    START,
    STARTS,
    ForkStart,
    begin,
    end_removal,
    erase_copies,
    give_up,
    is_over_age,
    start_in,
    start_of,
    token_key,
)
from outlast.core.limits import PORTION_ROWS_MAX
from outlast.core.rows.effect_rows import MEMO
from outlast.core.rows.row_kind import Key, key_of
from outlast.core.rows.run_rows import TOKEN
from outlast.core.rows.store_rows import META, STORE
from outlast.errors import Conflict, Corrupt, Stale, Uncertain
from outlast.store.port import Store

COMMITS_AT_ONCE: Final = 25
"""Commits of one call of the sweep, for which the next heartbeat of a worker waits."""
NO_LIMIT: Final = -1
PAGE: Final = 100
TRIES: Final = 20


async def begin_or_join(store: Store, tenant: str, run: str, of: str) -> ForkStart | None:
    """Return the present start of a fork, or a new one; None if another process has just made the run.

    The rows of one that was given up are deleted first. Raises Conflict if other processes do so all the time.
    """
    for _ in range(TRIES):
        memo = await store.load(MEMO, (tenant, run, 0, START))
        if memo is not None:
            start = start_in(memo)
            row = await store.load(META, start.key)
            if row is not None and not (found := start_of(row)).given_up:
                return found
            if row is not None:
                await _remove(store, start._replace(given_up=True))
            continue  # read again: another process has just deleted both rows
        start = ForkStart(tenant, run, of, (await store.now()).business)
        try:
            await store.commit(begin(start))
            return start
        except Stale:
            if await store.load(TOKEN, token_key(tenant, run)) is not None:
                return None
    raise Conflict(f"run {run} was not forked", "other processes begin and delete its start all the time", "try again")


async def goes_on(store: Store, start: ForkStart) -> bool:
    """Return True if a start has neither made its run nor been given up."""
    row = await store.load(META, start.key)
    return row is not None and row == start.row()


async def remove_given_up(store: Store) -> bool:
    """Delete starts of forks that were given up, with their copies. Return False if some may be left.

    One whose deletion was interrupted comes first, because it is the oldest.
    """
    left = COMMITS_AT_ONCE
    async for start in _over_age(store):
        if left <= 0:
            return False
        try:
            if not start.given_up:
                await store.commit(give_up(start))
        except (Stale, Uncertain):
            continue  # it has just ended, or another process gives it up
        left -= 1 + await _remove(store, start._replace(given_up=True), left)
    return True


async def _over_age(store: Store) -> AsyncIterator[ForkStart]:
    """Yield the starts that are taken for given up, the oldest first. One that cannot be read is left to fsck."""
    business = (await store.now()).business
    after: Key = (STORE, STARTS)
    while rows := await store.rows(META, (STORE,), after=after, limit=PAGE, listed=True):
        for row in rows:
            if not row.key.startswith(STARTS):
                return
            try:
                start = start_of(row)
            except Corrupt:
                continue
            if not is_over_age(start, business):
                return
            yield start
        after = key_of(META, rows[-1])


async def _remove(store: Store, start: ForkStart, commits_max: int = NO_LIMIT) -> int:
    """Delete the copies of a start that was given up, then the rows of the start. Return the number of commits.

    Several processes may do so at once. The rows of the start stay if more than `commits_max` commits are needed.
    """
    after: Key = ()
    commits = 0
    prefix = (start.tenant, start.run, 0)
    try:
        while memos := await store.rows(MEMO, prefix, after=after, limit=PORTION_ROWS_MAX, listed=True):
            for commit in erase_copies(start, memos):
                if commits == commits_max:
                    return commits
                await store.commit(commit)
                commits += 1
            after = key_of(MEMO, memos[-1])
        await store.commit(end_removal(start))
    except (Stale, Uncertain):
        pass  # another process has deleted the rows, or the next call reads again
    return commits + 1

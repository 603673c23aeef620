"""Deletion of whole threads of LangGraph graphs, on demand or because they were not used for long.

What can go wrong: a thread has the rows of several namespaces, more than one commit holds, and a process goes on with
the thread in between. It must neither meet half of the thread nor begin a new one over rows that are about to go.

The first commit marks the row of the graph itself (`GraphThread.is_removed`) under its version. From then on the thread
is absent for every reader. Every writer replaces that row or expects its version, so its commit is refused. A writer
that meets the mark completes the deletion, then decides again: a checkpoint that continues the thread is refused, and a
first one begins a new thread. The marked row goes last, and each deletion expects it. A thread whose deletion was
interrupted is the first that the next purge finds.
"""

from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from outlast.core.commit import Commit, Erase, Expect, Put
from outlast.core.graph_threads import removed, unused_before
from outlast.core.rows.graph_rows import (
    GRAPH_CHECKPOINT,
    GRAPH_THREAD,
    GRAPH_VALUE,
    GRAPH_WRITE,
    GraphThread,
)
from outlast.core.rows.row_kind import AnyKind, Key, key_of
from outlast.errors import Conflict, Stale, Uncertain
from outlast.store.port import Store
from outlast.store.unused_threads import FIRST, Place, UnusedThreads, place_of

ERASED_AT_ONCE: Final = 80
"""Rows in one commit."""
COMMITS_AT_ONCE: Final = 25
"""Commits of one call of a purge, for which the next heartbeat of a worker waits."""
FOUND_AT_ONCE: Final = 1_000
"""Threads that one read finds. DynamoDB scans the index of lists for it."""
NO_LIMIT: Final = -1
TRIES: Final = 30
ROWS: Final[tuple[AnyKind, ...]] = (GRAPH_WRITE, GRAPH_CHECKPOINT, GRAPH_VALUE, GRAPH_THREAD)
"""Kinds of rows in the order of their deletion."""


async def mark_removed(store: Store, tenant: str, thread: str, *, before: int | None = None) -> GraphThread | None:
    """Make a thread absent and return its marked row, or None if there is no such thread.

    `before`: only if it last changed before this business instant. Raises Stale if another process changed it now.
    """
    root = await store.load(GRAPH_THREAD, (tenant, thread, ""))
    if root is not None and root.is_removed:
        return root
    if root is None:  # rows of subgraphs without that of their graph are a damage, which goes, too
        spaces = await store.rows(GRAPH_THREAD, (tenant, thread), limit=1, listed=True)
        if not spaces or before is not None:
            return None
    elif before is not None and root.changed_at >= before:
        return None
    marked = removed(root, (tenant, thread, ""), (await store.now()).business)
    replaces = 0 if root is None else root.version
    await store.commit(Commit((Put(GRAPH_THREAD, marked, replaces),), label=f"{thread} graph removal"))
    return marked


class Erased(NamedTuple):
    """Result of the deletion of the rows of a thread."""

    commits: int
    is_complete: bool


async def erase_removed(store: Store, marked: GraphThread, commits_max: int = NO_LIMIT) -> Erased:
    """Delete all rows of a thread that is marked, in at most so many commits, and its mark at last.

    Several processes may do so at once. Raises Stale if another one has deleted the mark.
    """
    key = key_of(GRAPH_THREAD, marked)
    expects = (Expect(GRAPH_THREAD, key, marked.version),)
    commits = 0
    async for part in _rows_of(store, marked):
        if commits == commits_max:
            return Erased(commits, is_complete=False)
        await store.commit(Commit(tuple(part), expects=expects, label=f"{marked.thread} graph removal"))
        commits += 1
    await store.commit(Commit((Erase(GRAPH_THREAD, key),), expects=expects, label=f"{marked.thread} graph removal"))
    return Erased(commits + 1, is_complete=True)


async def _rows_of(store: Store, marked: GraphThread) -> AsyncIterator[list[Erase]]:
    """Return deletions of all rows of a thread but the marked one, as many at a time as one commit holds."""
    prefix = (marked.tenant, marked.thread)
    for kind in ROWS:
        after: Key = key_of(kind, marked) if kind is GRAPH_THREAD else ()
        while rows := await store.rows(kind, prefix, after=after, limit=ERASED_AT_ONCE, listed=True):
            yield [Erase(kind, key_of(kind, row)) for row in rows]
            after = key_of(kind, rows[-1])


async def remove_thread(store: Store, tenant: str, thread: str, *, before: int | None = None) -> bool:
    """Delete a thread with all its namespaces. Return False if there is none, or if it changed at `before` or later.

    Raises Conflict if other processes write it all the time.
    """
    found = False
    for _ in range(TRIES):
        try:
            marked = await mark_removed(store, tenant, thread, before=None if found else before)
            if marked is None:
                return found
            found = True
            await erase_removed(store, marked)
            return True
        except (Stale, Uncertain):
            continue  # read again: a mark or a deletion may have landed
    raise Conflict(f"thread {thread} is written by many processes at once", "it was not deleted", "try again")


class UnusedThreadPurge:
    """Deletes threads of all tenants that were not used for long, a bounded number of rows at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._found: list[GraphThread] = []  # and not tried yet
        self._after: Place = FIRST

    async def some(self, business: int, kept: int) -> tuple[int, bool]:
        """Delete rows of threads unchanged for `kept` ms. Return the number of deleted threads, and if all were tried.

        A thread at which an error is raised is left to the next purge.
        """
        before = unused_before(business, kept, self._store.skew)
        if not self._found:
            self._found = [*await self._store.query(UnusedThreads(before, self._after, FOUND_AT_ONCE))]
            if not self._found:
                self._after = FIRST
                return 0, True
            self._after = place_of(self._found[-1])
        n, left = 0, COMMITS_AT_ONCE
        while self._found and left > 0:
            row = self._found.pop(0)
            left -= 1
            try:
                marked = await mark_removed(self._store, row.tenant, row.thread, before=before)
                if marked is None:
                    continue  # it is in use again
                erased = await erase_removed(self._store, marked, left)
            except (Stale, Uncertain):
                continue  # it is in use again, or another process deletes it
            left -= erased.commits
            n += erased.is_complete
            if not erased.is_complete:
                self._found.insert(0, row)
        return n, False

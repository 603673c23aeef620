"""Checks of the threads of LangGraph graphs, one namespace at a time.

A prune that was interrupted leaves rows that the next one deletes, so a namespace may have more checkpoints than its
thread counts, and never fewer. Of a thread that is being deleted, any row may be missing, and nothing is checked. Three
things are no faults. A checkpoint may name a parent that a prune has deleted.
Writes may name a checkpoint that was never put, because a graph stores both at once and may die in between. And a value
that no checkpoint names is what a killed process leaves.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, NamedTuple

from outlast.core.graph_threads import ValuePlace, ancestors_needed, data_at, place_at, place_of, rows_needed
from outlast.core.rows.all_kinds import Row
from outlast.core.rows.graph_rows import (
    GRAPH_CHECKPOINT,
    GRAPH_KINDS,
    GRAPH_THREAD,
    GRAPH_VALUE,
    GRAPH_WRITE,
    GraphCheckpoint,
    GraphThread,
    GraphValue,
    GraphWrite,
)
from outlast.core.rows.row_kind import Key
from outlast.core.state.snapshot_codec import unpack
from outlast.errors import Corrupt
from outlast.store.port import Store
from outlast.store.queries import ALL_ROWS
from outlast.upkeep.fsck_checks import Finding, Violations, violation

LINE: Final = 3  # leading columns of a key that name tenant, thread and namespace


class CheckedThread(NamedTuple):
    """All rows of one namespace of a thread, each kind read after the one before."""

    key: Key
    thread: GraphThread | None
    is_listed: bool  # the thread has the row by which it is listed
    checkpoints: tuple[GraphCheckpoint, ...]
    writes: tuple[GraphWrite, ...]
    values: tuple[GraphValue, ...]
    is_removed: bool = False  # the deletion of the thread has begun


def thread_row(one: CheckedThread) -> Violations:
    """Check that rows of a namespace have the row that guards them, and the one by which their thread is listed."""
    if one.thread is None:
        rows = f"{len(one.checkpoints)} checkpoints, {len(one.writes)} writes and {len(one.values)} values"
        yield GRAPH_THREAD, one.key, f"the namespace has {rows}, but no row of its own"
    if not one.is_listed:
        yield GRAPH_THREAD, one.key, "its thread has no row of the graph itself, so no list shows it"


def thread_head(one: CheckedThread) -> Violations:
    """Check that the last checkpoint of a namespace is there."""
    if one.thread is None:
        return
    head, names = one.thread.head, {row.checkpoint for row in one.checkpoints}
    if head and head not in names:
        yield GRAPH_THREAD, one.key, f"its last checkpoint {head} is missing"
    if not head and one.thread.checkpoints:
        yield GRAPH_THREAD, one.key, f"it counts {one.thread.checkpoints} checkpoints and names no last one"


def thread_counted(one: CheckedThread) -> Violations:
    """Check that no checkpoint of a namespace is missing, by their number."""
    counted, found = one.thread.checkpoints if one.thread is not None else 0, len(one.checkpoints)
    if found >= counted:
        return
    names = {row.checkpoint for row in one.checkpoints}
    parents = {row.parent: f"the parent of {row.checkpoint}" for row in one.checkpoints if row.parent}
    parents |= {row.checkpoint: f"at which task {row.task} wrote" for row in one.writes}
    named = [f"{name}, {why}" for name, why in sorted(parents.items()) if name not in names]
    which = f"; missing and named: {'; '.join(named)}" if named else ""
    yield GRAPH_THREAD, one.key, f"it counts {counted} checkpoints and has {found}{which}"


def checkpoint_row(one: CheckedThread) -> Violations:
    """Check that metadata and places of the values of each checkpoint can be read."""
    for row in one.checkpoints:
        try:
            row.details()
            _places_of(row)
        except Corrupt as error:
            yield violation(GRAPH_CHECKPOINT, row, error.what)


def checkpoint_values(one: CheckedThread) -> Violations:
    """Check that each value of a checkpoint and of its writes is there and whole."""
    found = _bytes_of(one.values)
    known: dict[ValuePlace, str] = {}
    for kind, rows in ((GRAPH_CHECKPOINT, one.checkpoints), (GRAPH_WRITE, one.writes)):
        for row in rows:
            try:
                places = _places_of(row)
            except Corrupt as error:
                if kind is GRAPH_WRITE:
                    yield violation(kind, row, error.what)
                continue  # checkpoint_row reports it
            for channel, place in places:
                if place not in known:
                    known[place] = _wrong(place, found)
                if known[place]:
                    yield violation(kind, row, f"{channel}: {known[place]}")


def checkpoint_built(one: CheckedThread) -> Violations:
    """Check that the ancestors are there of which the delta channels of a checkpoint are made."""
    by_id = {row.checkpoint: row for row in one.checkpoints}
    left_by_a_prune = one.thread is not None and len(by_id) > one.thread.checkpoints
    for row in one.checkpoints:
        if left_by_a_prune and one.thread is not None and row.checkpoint != one.thread.head:
            continue
        try:
            _, missing, channels = ancestors_needed(row, by_id)
        except Corrupt:
            continue  # checkpoint_row reports it
        if missing:
            yield violation(
                GRAPH_CHECKPOINT, row, f"{', '.join(channels)} cannot be rebuilt: checkpoint {missing} is missing"
            )


def value_hash(one: CheckedThread) -> Violations:
    """Check that the bytes of each value have the hash by which it is named."""
    for row in one.values:
        try:
            unpack(row.packed, row.body, row.hash)
        except Corrupt as error:
            yield violation(GRAPH_VALUE, row, error.what)


OF_A_THREAD: Final = (
    thread_row,
    thread_head,
    thread_counted,
    checkpoint_row,
    checkpoint_values,
    checkpoint_built,
    value_hash,
)


def findings_of(one: CheckedThread) -> list[Finding]:
    """Run every check of a namespace in order and return the findings."""
    found: list[Finding] = []
    for check in () if one.is_removed else OF_A_THREAD:
        try:
            found += [Finding(check.__name__, kind.name, key, text) for kind, key, text in check(one)]
        except Exception as error:  # because a stored value may be any, and the other checks are made
            found.append(Finding(check.__name__, GRAPH_THREAD.name, one.key, f"it cannot be checked: {error!r}"[:500]))
    return found


def _places_of(row: GraphCheckpoint | GraphWrite) -> list[tuple[str, ValuePlace]]:
    """Return the places of all values of a row, each with its channel. Raises Corrupt."""
    own = [("the checkpoint" if isinstance(row, GraphCheckpoint) else row.channel, row)] if row.body_at else []
    found = [(name, place_at(each.format, each.body_at)) for name, each in own]
    if isinstance(row, GraphCheckpoint):
        found += [(name, place_of(each)) for name, each in row.places().items()]
    return found


def _bytes_of(values: Sequence[GraphValue]) -> dict[str, bytes]:
    """Return the bytes of all values that have their hash, by hash."""
    found: dict[str, bytes] = {}
    for row in values:
        try:
            found[row.hash] = unpack(row.packed, row.body, row.hash)
        except Corrupt:
            continue  # value_hash reports it, and checkpoint_values each row that needs it
    return found


def _wrong(place: ValuePlace, found: dict[str, bytes]) -> str:
    try:
        if missing := sorted(rows_needed([place], found)):
            return f"a value is missing or broken: {', '.join(missing)}"
        data_at(place, found)
    except Corrupt as error:
        return error.what
    return ""


# --- reading -----------------------------------------------------------------------------
async def read_thread(store: Store, key: Key) -> CheckedThread:
    """Read a namespace. Raises Corrupt if a row cannot be read."""
    thread, root = await store.load_many(GRAPH_THREAD, [key, (*key[:2], "")])
    rows = [await store.rows(kind, key, limit=ALL_ROWS) for kind in GRAPH_KINDS[1:]]
    is_there = thread is not None or any(rows)
    checked = _checked(key, thread, not is_there or root is not None, rows)
    return checked._replace(is_removed=root is not None and root.is_removed)


async def by_namespace(sources: Sequence[AsyncIterator[Any]]) -> AsyncIterator[CheckedThread]:
    """Group rows of all kinds by namespace. `sources`: all rows of each of GRAPH_KINDS in the order of their keys."""
    heads: list[Row | None] = [await anext(each, None) for each in sources]
    listed: Key = ()
    removed: Key = ()
    while left := [row[:LINE] for row in heads if row is not None]:
        key = min(left)
        found: list[list[Any]] = [[] for _ in sources]
        for n, each in enumerate(sources):
            while (row := heads[n]) is not None and row[:LINE] == key:
                found[n].append(row)
                heads[n] = await anext(each, None)
        (thread, *_), *rows = [found[0] or [None], *found[1:]]
        if thread is not None and not thread.ns:
            listed = key[:2]
            removed = key[:2] if thread.is_removed else ()
        yield _checked(key, thread, listed == key[:2], rows)._replace(is_removed=removed == key[:2])


def _checked(key: Key, thread: GraphThread | None, is_listed: bool, rows: Sequence[Sequence[Any]]) -> CheckedThread:
    checkpoints, writes, values = map(tuple, rows)
    return CheckedThread(key, thread, is_listed, checkpoints, writes, values)

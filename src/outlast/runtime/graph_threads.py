"""Threads of LangGraph graphs in a store: their checkpoints, writes and values, read and written by any process.

What can go wrong: two writers put a checkpoint after the same parent, a prune deletes a value that a new checkpoint
names, or a process dies between two commits. Each commit replaces the GraphThread row of its namespace or expects its
version, so the later of two writers reads again and decides again. Values are written before the checkpoint that names
them: what a killed process leaves is never read, and goes with the thread. Commits of a subgraph also expect the row of
the graph itself, with which `engine/thread_removal.py` makes a whole thread absent before it deletes it. Writers of one
process take turns (`thread_turns.py`), so that they meet newer versions only of other processes.
"""

import json
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Final, NamedTuple

from outlast.core.commit import Commit, Erase, Expect, Put, in_portions
from outlast.core.graph_threads import (
    FIRST_STEP,
    INLINE,
    WRITE_INLINE_MAX,
    GraphData,
    Stored,
    ValuePlace,
    check_follows,
    check_key,
    data_at,
    kept_with,
    order_of_writes,
    place_at,
    place_of,
    rows_needed,
    snapshot_at,
    stored,
    touched,
)
from outlast.core.paging import pages
from outlast.core.rows.graph_rows import (
    GRAPH_CHECKPOINT,
    GRAPH_THREAD,
    GRAPH_VALUE,
    GRAPH_WRITE,
    GraphCheckpoint,
    GraphThread,
    GraphValue,
    GraphWrite,
)
from outlast.core.rows.row_kind import AnyKind, Key, key_of
from outlast.core.state.snapshot_codec import pack, unpack
from outlast.engine.thread_removal import ERASED_AT_ONCE, erase_removed, remove_thread
from outlast.errors import Conflict, Corrupt, InvalidInput, NotFound, Stale, Uncertain
from outlast.runtime.thread_turns import ThreadTurns
from outlast.store.port import Store
from outlast.store.queries import Page, Under

Line = tuple[str, str, str]
"""Tenant, thread and namespace: the key of a GraphThread row."""
Keep = Callable[[GraphThread, Sequence[GraphCheckpoint]], Collection[str]]
"""Returns the checkpoints of a namespace that a prune is asked to keep."""
TRIES: Final = 30
READ_AT_ONCE: Final = 200
TEXT_MAX: Final = 80_000


class NewCheckpoint(NamedTuple):
    """A checkpoint as a graph puts it."""

    thread: str
    ns: str
    checkpoint: str
    parent: str
    metadata: Mapping[str, Any]
    body: GraphData  # without the values of channels
    values: Mapping[str, GraphData]  # of channels that changed since the parent
    kept: Collection[str]  # channels whose value is that of the parent
    branches: bool = False  # its parent was read by its id, when it was not the last one
    begins: bool = False  # its writer found no checkpoint in this namespace


class NewWrite(NamedTuple):
    """A value that a task wrote, and its position among those of the task."""

    i: int
    channel: str
    value: GraphData


class TaskWrites(NamedTuple):
    """Values that a task of a graph wrote at a checkpoint."""

    thread: str
    ns: str
    checkpoint: str
    task: str
    path: str  # of the task in its graph
    writes: Sequence[NewWrite]
    replaces: bool  # errors and interrupts replace earlier ones, other values stay as they were first written


class ReadWrite(NamedTuple):
    """A value that a task wrote at a checkpoint, as it is read."""

    task: str
    channel: str
    path: str
    value: GraphData


class ReadCheckpoint(NamedTuple):
    """A checkpoint with its values, and what tasks wrote at it in the order in which a graph applies it."""

    row: GraphCheckpoint
    body: GraphData
    values: Mapping[str, GraphData]
    writes: tuple[ReadWrite, ...]
    is_head: bool


class GraphThreads:
    """The threads of one tenant."""

    def __init__(self, store: Store, tenant: str) -> None:
        self._store = store
        self._tenant = tenant
        self._turns = ThreadTurns()

    # --- writing -------------------------------------------------------------------------
    async def put(self, new: NewCheckpoint) -> None:
        """Store a checkpoint. Raises Conflict if another writer has put one after the same parent."""
        check_key(new.thread, new.ns, new.checkpoint, new.parent)
        async with self._turn((self._tenant, new.thread, new.ns), alone=True):
            for _ in range(TRIES):
                try:
                    return await self._put(new)
                except (Stale, Uncertain):
                    continue  # read and decide again: a commit that landed is put again without effect
        raise _contended(new.thread)

    @asynccontextmanager
    async def _turn(self, line: Line, *, alone: bool) -> AsyncIterator[None]:
        """Wait until no writer of this process moves a row that the next commit of this namespace expects."""
        async with AsyncExitStack() as stack:
            if line[2]:
                await stack.enter_async_context(self._turns.take((*line[:2], ""), alone=False))
            await stack.enter_async_context(self._turns.take(line, alone=alone))
            yield

    async def _put(self, new: NewCheckpoint) -> None:
        line = (self._tenant, new.thread, new.ns)
        thread, root = await self._heads(line)
        if root is not None and root.is_removed:
            await erase_removed(self._store, root)
            thread = root = None
        old, parent = await self._store.load_many(
            GRAPH_CHECKPOINT, [(*line, new.checkpoint), (*line, new.parent or new.checkpoint)]
        )
        check_follows(
            thread,
            new.checkpoint,
            new.parent,
            source=new.metadata.get("source"),
            branches=new.branches and parent is not None,
            begins=new.begins or _is_first(new.metadata),
            exists=old is not None,
        )
        places, rows = await self._coded(line, new, parent)
        body = stored(new.body, inline_max=WRITE_INLINE_MAX)
        rows |= body.rows
        texts = (new.parent, _text(new.metadata.get("run_id")), *_texts_of(new, places), body.place.format)
        at = (await self._store.now()).business
        *before, last = in_portions(await self._missing(line, rows, at)) or [()]
        of_root = (await self._used(line, root, at),) if new.ns else ()
        version = thread.version if thread is not None else await self._begin(line, at, of_root) if before else 0
        key = (*line, new.checkpoint)
        row = GraphCheckpoint(*key, 1 if old is None else old.version + 1, *texts, *_inline(new.body, body), at)
        moved = GraphThread(
            *line,
            version + 1,
            new.checkpoint if old is None or thread is None else thread.head,
            (thread.checkpoints if thread is not None else 0) + (old is None),
            thread.created_at if thread is not None else at,
            at,
        )
        puts = (Put(GRAPH_THREAD, moved, version), Put(GRAPH_CHECKPOINT, row, row.version - 1))
        await self._land((Expect(GRAPH_THREAD, line, version), *of_root), before)
        await self._store.commit(Commit((*last, *puts), expects=of_root, label=f"{new.thread} checkpoint"))

    async def _begin(self, line: Line, at: int, expects: tuple[Expect, ...] = ()) -> int:
        """Write the row of a new namespace before any other row of it, so that a delete finds them. Return its version.

        A process that is killed before its first checkpoint then leaves a thread that is listed.
        """
        made = Put(GRAPH_THREAD, GraphThread(*line, 1, "", 0, at, at), 0)
        await self._store.commit(Commit((made,), expects=expects, label=f"{line[1]} graph thread"))
        return 1

    async def _heads(self, line: Line) -> tuple[GraphThread | None, GraphThread | None]:
        """Return the row of a namespace, and that of the graph itself, by which the thread is listed."""
        root = (*line[:2], "")
        found = await self._store.load_many(GRAPH_THREAD, [line, root] if line[2] else [line])
        return found[0], found[-1]

    async def _used(self, line: Line, root: GraphThread | None, at: int) -> Expect:
        """Write the row of the graph itself if it is missing or its thread has not been used for long.

        Return the condition under which other rows of the thread may be written.
        """
        key = (*line[:2], "")
        if (moved := touched(root, key, at)) is None:
            assert root is not None, "a missing row is written"
            return Expect(GRAPH_THREAD, key, root.version)
        replaces = 0 if root is None else root.version
        await self._store.commit(Commit((Put(GRAPH_THREAD, moved, replaces),), label=f"{line[1]} graph thread"))
        return Expect(GRAPH_THREAD, key, moved.version)

    async def _land(self, expects: tuple[Expect, ...], portions: Iterable[Sequence[Put]]) -> None:
        """Land rows in several commits, while these conditions hold."""
        for portion in portions:
            await self._store.commit(Commit(tuple(portion), expects=expects, label=f"{expects[0].key[1]} rows"))

    async def _coded(
        self, line: Line, new: NewCheckpoint, parent: GraphCheckpoint | None
    ) -> tuple[dict[str, Sequence[str]], dict[str, bytes]]:
        """Return the places of all values, and the bytes of the rows that they need."""
        earlier = {} if parent is None else {name: place_of(each) for name, each in parent.places().items()}
        if not earlier.keys() >= set(new.kept):
            raise Conflict(
                f"checkpoint {new.parent} of thread {new.thread} was deleted",
                f"{new.checkpoint} needs values of it",
                "invoke the graph again",
                refusal="stale_checkpoint",
            )
        known = {name: earlier[name] for name in new.values if name in earlier}
        found = await self._rows(line, [place for place in known.values() if place.how == "p"])
        places: dict[str, Sequence[str]] = {name: [*earlier[name]] for name in new.kept if name in earlier}
        rows: dict[str, bytes] = {}
        for name, value in new.values.items():
            before = snapshot_at(known[name], found) if name in known else None
            coded = stored(value, before)
            places[name] = [*coded.place]
            rows |= coded.rows
        return places, rows

    async def _missing(self, line: Line, rows: Mapping[str, bytes], at: int) -> list[Put]:
        """Return the writes of the values that are not stored yet."""
        names = sorted(rows)
        there = await self._store.load_many(GRAPH_VALUE, [(*line, name) for name in names]) if names else ()
        return [
            Put(GRAPH_VALUE, GraphValue(*line, name, *pack(rows[name]), at), 0)
            for name, row in zip(names, there, strict=True)
            if row is None
        ]

    async def put_writes(self, new: TaskWrites) -> None:
        """Store values that a task wrote at a checkpoint. One that is there already stays, or is replaced."""
        check_key(new.thread, new.ns, new.checkpoint, new.task)
        line = (self._tenant, new.thread, new.ns)
        async with self._turn(line, alone=False):
            for _ in range(TRIES):
                try:
                    return await self._put_writes(line, new)
                except (Stale, Uncertain):
                    continue
        raise _contended(new.thread)

    async def _put_writes(self, line: Line, new: TaskWrites) -> None:
        thread, root = await self._heads(line)
        if root is not None and root.is_removed:
            await erase_removed(self._store, root)
            thread = root = None
        there = {row.i: row for row in await self._store.rows(GRAPH_WRITE, (*line, new.checkpoint, new.task))}
        at = (await self._store.now()).business
        puts: dict[int, Put] = {}
        rows: dict[str, bytes] = {}
        for write in new.writes:
            old = there.get(write.i)
            if old is not None and not new.replaces:
                continue
            body = stored(write.value, inline_max=WRITE_INLINE_MAX)
            rows |= body.rows
            key = (*line, new.checkpoint, new.task, write.i)
            version = 1 if old is None else old.version + 1
            columns = (new.path, write.channel, body.place.format, *_inline(write.value, body), at)
            puts[write.i] = Put(GRAPH_WRITE, GraphWrite(*key, version, *columns), version - 1)
        if not puts:
            return
        expects: tuple[Expect, ...] = (await self._used(line, root, at),)
        if new.ns:
            version = thread.version if thread is not None else await self._begin(line, at, expects)
            expects = (*expects, Expect(GRAPH_THREAD, line, version))
        await self._land(expects, in_portions([*await self._missing(line, rows, at), *puts.values()]))

    # --- reading -------------------------------------------------------------------------
    async def get(self, thread: str, ns: str, checkpoint: str = "") -> ReadCheckpoint | None:
        """Return a checkpoint, or the last one of a namespace, or None. Raises Corrupt."""
        line = (self._tenant, thread, ns)
        for _ in range(TRIES):
            head, root = heads = await self._heads(line)
            if root is not None and root.is_removed:
                return None
            name = checkpoint or (head.head if head is not None else "")
            row = await self._store.load(GRAPH_CHECKPOINT, (*line, name)) if name else None
            if row is not None:
                try:
                    return await self.read(row, is_head=head is not None and head.head == name)
                except Corrupt:
                    if await self._heads(line) == heads:
                        raise  # and it was not deleted since
            elif checkpoint or not name or await self._heads(line) == heads:
                return None
        raise _contended(thread)

    async def checkpoint(self, thread: str, ns: str, checkpoint: str = "") -> GraphCheckpoint | None:
        """Return the row of a checkpoint, or of the last one of a namespace, or None."""
        line = (self._tenant, thread, ns)
        if not checkpoint:
            head = await self._store.load(GRAPH_THREAD, line)
            checkpoint = head.head if head is not None else ""
        return await self._store.load(GRAPH_CHECKPOINT, (*line, checkpoint)) if checkpoint else None

    async def body(self, row: GraphCheckpoint) -> GraphData:
        """Return a checkpoint without the values of its channels. Raises Corrupt."""
        return _body(row, await self._rows(row[:3], _places_of(row)))

    async def read(self, row: GraphCheckpoint, *, is_head: bool, only: Collection[str] | None = None) -> ReadCheckpoint:
        """Return a checkpoint with its values and writes, or with those of some channels `only`. Raises Corrupt."""
        line = row[:3]
        writes = await self._store.rows(GRAPH_WRITE, row[:4])
        if only is not None:
            writes = tuple(each for each in writes if each.channel in only)
        writes = tuple(sorted(writes, key=lambda each: order_of_writes(each.path, each.task, each.i)))
        try:
            named = row.places().items()
            places = {name: place_of(each) for name, each in named if only is None or name in only}
            found = await self._rows(line, [*places.values(), *_places_of(row, *writes)])
            return ReadCheckpoint(
                row,
                _body(row, found),
                {name: data_at(place, found) for name, place in places.items()},
                tuple(ReadWrite(each.task, each.channel, each.path, _body(each, found)) for each in writes),
                is_head,
            )
        except Corrupt as error:
            raise Corrupt(f"checkpoint {row.checkpoint} of thread {row.thread}: {error.what}", error.why) from error

    async def _rows(self, line: Line, places: Collection[ValuePlace]) -> dict[str, bytes]:
        """Return the bytes of all rows that these values need, by hash. Raises Corrupt."""
        found: dict[str, bytes] = {}
        while needed := sorted(rows_needed(places, found)):
            for i in range(0, len(needed), READ_AT_ONCE):
                part = needed[i : i + READ_AT_ONCE]
                rows = await self._store.load_many(GRAPH_VALUE, [(*line, name) for name in part])
                for name, row in zip(part, rows, strict=True):
                    if row is None:
                        raise Corrupt(f"a value is missing: {name}")
                    found[name] = unpack(row.packed, row.body, name)
        return found

    async def namespaces(self, thread: str) -> tuple[GraphThread, ...]:
        """Return the rows of all namespaces of a thread; () if there is no such thread."""
        found = await self._store.rows(GRAPH_THREAD, (self._tenant, thread))
        return () if found and found[0].is_removed else found

    async def threads(self, *, cursor: str = "", limit: int = 50) -> Page[GraphThread]:
        """Return one page of threads, the last changed first. It has fewer rows if some are being deleted."""
        page = await self._store.page(GRAPH_THREAD, self._tenant, {"ns": ""}, cursor=cursor, limit=limit)
        return page._replace(rows=tuple([row for row in page.rows if not row.is_removed]))

    async def checkpoints(self, thread: str, ns: str | None = None) -> list[GraphCheckpoint]:
        """Return the checkpoints of a thread, or of one namespace, the last first."""
        prefix = (self._tenant, thread) if ns is None else (self._tenant, thread, ns)
        rows = await self._all(GRAPH_CHECKPOINT, prefix)
        return sorted(rows, key=lambda row: row.checkpoint, reverse=True)

    async def newest(
        self, lines: Sequence[Line], *, before: str = "", only: str = "", at_once: int = READ_AT_ONCE
    ) -> "NewestCheckpoints":
        """Return the checkpoints of these namespaces, or the one with the id `only`, the greatest id first.

        `before`: only ids below it.
        """
        if not only:
            return NewestCheckpoints(self._store, lines, before, at_once)
        wanted = [(*line, only) for line in lines] if not before or only < before else []
        found = await self._store.load_many(GRAPH_CHECKPOINT, wanted) if wanted else ()
        return NewestCheckpoints(self._store, (), "", at_once, [row for row in found if row is not None])

    async def lines(self, thread: str | None = None, ns: str | None = None) -> list[Line]:
        """Return the namespaces of a thread or of all threads, those of the thread that changed last first."""
        names = await self.all_threads() if thread is None else [thread]
        return [row[:3] for name in names for row in await self.namespaces(name) if ns is None or row.ns == ns]

    async def heads(self, thread: str) -> dict[str, str]:
        """Return the last checkpoint of each namespace of a thread."""
        return {row.ns: row.head for row in await self.namespaces(thread)}

    async def of_graph_runs(self, ids: Iterable[str]) -> set[tuple[str, str]]:
        """Return the threads and namespaces in which these runs of graphs have put checkpoints."""
        found: set[tuple[str, str]] = set()
        for graph_run in ids:
            where: dict[str, str | int] = {"graph_run": graph_run}
            read = partial(self._store.page, GRAPH_CHECKPOINT, self._tenant, where, limit=READ_AT_ONCE)
            async for page in pages(read):
                found |= {(row.thread, row.ns) for row in page.rows}
        return found

    async def all_threads(self) -> list[str]:
        """Return the ids of all threads, the last changed first."""
        return [row.thread async for page in pages(partial(self.threads, limit=READ_AT_ONCE)) for row in page.rows]

    async def unchanged_since(self, before: int) -> list[GraphThread]:
        """Return the threads that were last changed before a business instant."""
        read = partial(self.threads, limit=READ_AT_ONCE)
        return [row async for page in pages(read) for row in page.rows if row.changed_at < before]

    async def _all(self, kind: AnyKind, prefix: Key) -> list[Any]:
        found: list[Any] = []
        after: Key = ()
        while True:
            rows = await self._store.rows(kind, prefix, after=after, limit=READ_AT_ONCE)
            found += rows
            if len(rows) < READ_AT_ONCE:
                return found
            after = key_of(kind, rows[-1])

    # --- deleting ------------------------------------------------------------------------
    async def delete(self, thread: str, *, before: int | None = None) -> bool:
        """Delete a thread with all its namespaces. Return False if it does not exist.

        `before`: only if it last changed before this business instant, else return False.
        """
        return await remove_thread(self._store, self._tenant, thread, before=before)

    async def keep_latest(self, thread: str) -> None:
        """Delete all but the last checkpoint of each namespace, and what its delta channels need."""
        for row in await self.namespaces(thread):
            await self._reduce(thread, row.ns, lambda row, found: {row.head})

    async def delete_graph_runs(self, ids: Collection[str]) -> None:
        """Delete the checkpoints that runs of graphs have put, but for what delta channels of others need."""
        for thread, ns in await self.of_graph_runs(ids):
            await self._reduce(thread, ns, lambda row, found: {c.checkpoint for c in found if c.graph_run not in ids})

    async def _reduce(self, thread: str, ns: str, keep: Keep) -> None:
        for _ in range(TRIES):
            try:
                return await self._reduce_once((self._tenant, thread, ns), keep)
            except (Stale, Uncertain):
                continue
        raise _contended(thread)

    async def _reduce_once(self, line: Line, keep: Keep) -> None:
        """Keep some checkpoints of a namespace and delete all other rows of it."""
        row = await self._store.load(GRAPH_THREAD, line)
        if row is None or row.is_removed:
            return
        checkpoints: list[GraphCheckpoint] = await self._all(GRAPH_CHECKPOINT, line)
        wanted = keep(row, checkpoints)
        kept = kept_with(wanted, checkpoints)
        head = row.head if row.head in kept else max(kept, default="")
        at = (await self._store.now()).business
        moved = row._replace(version=row.version + 1, head=head, checkpoints=len(kept), changed_at=at)
        await self._store.commit(Commit((Put(GRAPH_THREAD, moved, row.version),), label=f"{line[1]} graph reduce"))
        writes: list[GraphWrite] = await self._all(GRAPH_WRITE, line)
        staying = [each for each in checkpoints if each.checkpoint in kept]
        living = [each for each in writes if each.checkpoint in kept]
        places = [place_of(place) for each in staying for place in each.places().values()]
        found = await self._rows(line, [*places, *_places_of(*staying, *living)])
        values: list[GraphValue] = await self._all(GRAPH_VALUE, line)
        erased = [
            *(Erase(GRAPH_WRITE, each[:6]) for each in writes if each.checkpoint not in kept),
            *(Erase(GRAPH_CHECKPOINT, each[:4]) for each in checkpoints if each.checkpoint not in kept),
            *(Erase(GRAPH_VALUE, each[:4]) for each in values if each.hash not in found),
        ]
        await self._erase(moved, erased, is_gone=not kept)

    async def _erase(self, row: GraphThread, erased: Sequence[Erase], *, is_gone: bool) -> None:
        """Delete rows of a namespace in several commits, and at last the namespace itself if it `is_gone`.

        Each commit gives the namespace a new version: a writer that has found a value in between, and therefore does
        not write it, must look again.
        """
        for i in range(0, len(erased), ERASED_AT_ONCE):
            moved = row._replace(version=row.version + 1)
            part: list[Put | Erase] = [Put(GRAPH_THREAD, moved, row.version), *erased[i : i + ERASED_AT_ONCE]]
            await self._store.commit(Commit(tuple(part), label=f"{row.thread} graph erase"))
            row = moved
        if is_gone:
            expects = (Expect(GRAPH_THREAD, row[:3], row.version),)
            await self._store.commit(
                Commit((Erase(GRAPH_THREAD, row[:3]),), expects=expects, label=f"{row.thread} graph erase")
            )

    # --- copying -------------------------------------------------------------------------
    async def copy(self, source: str, target: str) -> None:
        """Copy a thread with all its checkpoints. Raises NotFound, and Conflict if the target has checkpoints."""
        check_key(target, "")
        spaces = await self.namespaces(source)
        if not spaces:
            raise NotFound(f"no thread {source}", "nothing was copied", "outlast threads ls lists the threads")
        _, old = await self._heads((self._tenant, target, ""))
        if old is not None and old.is_removed:
            await remove_thread(self._store, self._tenant, target)
        if any(row.head for row in await self.namespaces(target)):
            raise Conflict(f"thread {target} exists", "a copy would mix two histories", "delete it first")
        for row in spaces:
            await self._copy(row, target)

    async def _copy(self, row: GraphThread, target: str) -> None:
        line, to = row[:3], (self._tenant, target, row.ns)
        if await self._store.load(GRAPH_THREAD, to) is None:
            await self._begin(to, (await self._store.now()).business)
        for kind in (GRAPH_VALUE, GRAPH_WRITE, GRAPH_CHECKPOINT):
            rows = [each._replace(thread=target) for each in await self._all(kind, line)]
            keys = [key_of(kind, each) for each in rows]
            there = await self._store.load_many(kind, keys) if keys else ()
            puts = [
                Put(kind, each._replace(version=1) if kind.versioned else each, 0)
                for each, old in zip(rows, there, strict=True)
                if old is None
            ]
            for portion in in_portions(puts):
                await self._store.commit(Commit(portion, label=f"{target} graph copy"))
        if await self._store.load(GRAPH_THREAD, line) != row:
            raise Conflict(f"thread {row.thread} was changed while it was copied", "", "delete the copy and copy again")
        old = await self._store.load(GRAPH_THREAD, to)
        if old is not None and old.is_removed:
            raise Conflict(f"thread {target} was deleted while it was written", "", "copy again")
        version = old.version if old is not None else 0
        moved = row._replace(thread=target, version=version + 1)
        await self._store.commit(Commit((Put(GRAPH_THREAD, moved, version),), label=f"{target} graph copy"))


class NewestCheckpoints:
    """Checkpoints of several namespaces, merged by their ids. Of each namespace, it reads `at_once` rows at a time."""

    def __init__(
        self, store: Store, lines: Sequence[Line], before: str, at_once: int, found: Sequence[GraphCheckpoint] = ()
    ) -> None:
        self._store = store
        self._at_once = at_once
        self._before = dict.fromkeys(lines, before)  # namespaces of which more rows may exist
        self._read = {row[:3]: [row] for row in found} | {line: [] for line in lines}  # the greatest id last

    async def next(self) -> GraphCheckpoint | None:
        """Return the next checkpoint, or None at the end."""
        for line, before in list(self._before.items()):
            if not self._read[line]:
                await self._more(line, before)
        greatest = max(filter(None, self._read.values()), key=lambda rows: rows[-1].checkpoint, default=None)
        return greatest.pop() if greatest else None

    async def _more(self, line: Line, before: str) -> None:
        after = (*line, before) if before else ()
        rows = await self._store.query(Under(GRAPH_CHECKPOINT, line, after, self._at_once, backwards=True))
        self._read[line] = [*reversed(rows)]
        if len(rows) < self._at_once:
            del self._before[line]
        else:
            self._before[line] = rows[-1].checkpoint


def _inline(value: GraphData, body: Stored) -> tuple[bytes, str]:
    return (value.data, "") if body.place.how == INLINE else (b"", body.place.at())


def _places_of(*rows: GraphCheckpoint | GraphWrite) -> list[ValuePlace]:
    return [place_at(row.format, row.body_at) for row in rows if row.body_at]


def _body(row: GraphCheckpoint | GraphWrite, found: Mapping[str, bytes]) -> GraphData:
    if not row.body_at:
        return GraphData(row.format, row.body)
    return data_at(place_at(row.format, row.body_at), found)


def _texts_of(new: NewCheckpoint, places: Mapping[str, Sequence[str]]) -> tuple[str, str]:
    """Return metadata and places as JSON. Raises InvalidInput if a row cannot hold them."""
    metadata, channels = (json.dumps(dict(each), separators=(",", ":")) for each in (new.metadata, places))
    if len(metadata) + len(channels) > TEXT_MAX:
        raise InvalidInput(
            f"checkpoint {new.checkpoint} has {len(metadata):,} characters of metadata and {len(places):,} channels",
            f"a checkpoint names its channels and its metadata in at most {TEXT_MAX:,} characters",
            "keep large data in the state of the graph, and fewer channels",
        )
    return metadata, channels


def _is_first(metadata: Mapping[str, Any]) -> bool:
    step = metadata.get("step")
    return isinstance(step, int) and step <= FIRST_STEP


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)


def _contended(thread: str) -> Conflict:
    return Conflict(
        f"thread {thread} is written by many processes at once",
        f"{TRIES} attempts met a newer version of it",
        "try again; let one process at a time work on a thread",
        refusal="busy_thread",
    )

"""Retention of threads: unused ones go whole, in pages, and one that is used again in between is never cut in half."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from outlast.core.commit import Commit
from outlast.core.durations import DAY, HOUR
from outlast.core.graph_threads import TOUCHED_EVERY, GraphData
from outlast.core.rows.graph_rows import GRAPH_CHECKPOINT, GRAPH_KINDS, GRAPH_THREAD, GRAPH_VALUE, GRAPH_WRITE
from outlast.engine import thread_removal
from outlast.engine.thread_removal import UnusedThreadPurge, remove_thread
from outlast.errors import Conflict
from outlast.runtime.graph_threads import GraphThreads, NewCheckpoint, NewWrite, TaskWrites
from outlast.store.memory import MemoryCore, MemoryStore
from outlast.store.port import Store
from outlast.store.unused_threads import FIRST, UnusedThreads
from outlast.upkeep.fsck import Fsck
from outlast.upkeep.fsck_checks import Finding
from tests.conformance import HandClock
from tests.conformance.test_stores import Dynamo, Memory, Postgres, Sqlite, Subjects

pytestmark = [pytest.mark.req("RT-3"), pytest.mark.req("CKP-7")]
KEPT: Final = 90 * DAY
SUB: Final = "sub:1"


async def put(threads: GraphThreads, name: str, parent: str = "", ns: str = "", thread: str = "t") -> None:
    metadata = {"source": "loop", "step": 1 if parent else -1}
    values = {"log": GraphData("msgpack", name.encode() * 200), "own": GraphData("msgpack", ns.encode() + b"x" * 200)}
    body = GraphData("msgpack", b"\x80")
    await threads.put(NewCheckpoint(thread, ns, name, parent, metadata, body, values, (), begins=not parent))


async def wrote(threads: GraphThreads, checkpoint: str, ns: str = "", thread: str = "t", task: str = "task") -> None:
    write = NewWrite(0, "log", GraphData("msgpack", checkpoint.encode()))
    await threads.put_writes(TaskWrites(thread, ns, checkpoint, task, "", [write], False))


async def filled(threads: GraphThreads, thread: str = "t") -> None:
    """Put three checkpoints of a graph with a write at each, and one of its subgraph."""
    for n in (1, 2, 3):
        await put(threads, f"c{n}", f"c{n - 1}" if n > 1 else "", thread=thread)
        await wrote(threads, f"c{n}", thread=thread)
    await put(threads, "s1", ns=SUB, thread=thread)


async def rows_of(store: Store, *prefix: str) -> dict[str, int]:
    return {kind.name: len(await store.rows(kind, prefix)) for kind in GRAPH_KINDS}


FULL: Final = {"graph_thread": 2, "graph_checkpoint": 4, "graph_write": 3, "graph_value": 6}
NONE: Final = dict.fromkeys(FULL, 0)


async def findings(store: Store) -> list[Finding]:
    return [each for each in (await Fsck(store).look()).findings if each.kind.startswith("graph")]


async def purged(store: Store) -> int:
    """Purge as a worker does, heartbeat by heartbeat. Each leaves a store without findings."""
    purge, deleted, is_done = UnusedThreadPurge(store), 0, False
    now = (await store.now()).business
    while not is_done:
        n, is_done = await purge.some(now, KEPT)
        deleted += n
        assert await findings(store) == []
    return deleted


@pytest.mark.parametrize("subject", [Memory, Sqlite, Postgres, Dynamo])
def test_unused_threads_of_all_tenants_go_whole_and_in_pages(
    subject: Callable[[Path], Subjects], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("FOUND_AT_ONCE", 2), ("COMMITS_AT_ONCE", 4), ("ERASED_AT_ONCE", 3)):
        monkeypatch.setattr(thread_removal, name, value)

    async def main() -> None:
        one: Any = subject(tmp_path)
        store = await one.open("w")
        try:
            ours, theirs = GraphThreads(store, "default"), GraphThreads(store, "globex")
            for threads, name in ((ours, "t"), (ours, "u"), (theirs, "t"), (ours, "used"), (ours, "inner")):
                await filled(threads, name)
            one.clock.time += KEPT + HOUR
            await put(ours, "c4", "c3", thread="used")
            one.clock.time += HOUR
            await put(ours, "s2", "s1", ns=SUB, thread="inner")  # its graph has put nothing for as long as t
            one.clock.time += 1
            assert await purged(store) == 3
            assert sorted(row.thread for row in (await ours.threads()).rows) == ["inner", "used"]
            assert await rows_of(store, "globex") == await rows_of(store, "default", "t") == NONE
            assert await rows_of(store, "default", "used") == {**FULL, "graph_checkpoint": 5, "graph_value": 7}
            assert await purged(store) == 0
            one.clock.time += KEPT + 2 * HOUR
            assert await purged(store) == 2 and await rows_of(store) == NONE
        finally:
            await one.close()

    asyncio.run(main())


@pytest.mark.parametrize("subject", [Memory, Sqlite, Postgres, Dynamo])
def test_a_page_of_unused_threads_begins_with_the_longest_unused(
    subject: Callable[[Path], Subjects], tmp_path: Path
) -> None:
    async def main() -> None:
        one: Any = subject(tmp_path)
        store = await one.open("w")
        try:
            for tenant, thread in (("b", "t2"), ("a", "t1"), ("b", "t1"), ("a", "t0")):
                await filled(GraphThreads(store, tenant), thread)
                one.clock.time += thread != "t1"  # two of one instant
            found, after, before = [], FIRST, one.clock.time
            while page := await store.query(UnusedThreads(before, after, 2)):
                found += [row[:2] for row in page]
                after = (page[-1].changed_at, *page[-1][:2])
            assert found == [("b", "t2"), ("a", "t0"), ("a", "t1"), ("b", "t1")]
            assert len(await store.query(UnusedThreads(before - 1, FIRST, 9))) == 1
        finally:
            await one.close()

    asyncio.run(main())


# --- a purge beside writers --------------------------------------------------------------
class Killed(BaseException):
    """The process ends here."""


class Beside(MemoryStore):
    """A store whose commit number `at` is preceded by the act of another process."""

    def __init__(self, core: MemoryCore, at: int, act: Callable[[], Awaitable[None]]) -> None:
        super().__init__(core, "beside")
        self.at, self.act, self.commits = at, act, 0

    async def commit(self, commit: Commit, **more: Any) -> Any:
        self.commits += 1
        if self.commits == self.at:
            await self.act()
        return await super().commit(commit, **more)


ACTS: Final[dict[str, Callable[[GraphThreads], Awaitable[None]]]] = {
    "goes on": lambda threads: put(threads, "c4", "c3"),
    "goes on in its subgraph": lambda threads: put(threads, "s2", "s1", ns=SUB),
    "a task ends": lambda threads: wrote(threads, "c3", task="other"),
    "a task of a subgraph ends": lambda threads: wrote(threads, "s1", ns=SUB, task="other"),
    "a task of a new subgraph ends": lambda threads: wrote(threads, "n1", ns="sub:2"),
    "begins again": lambda threads: put(threads, "n1"),
    "a subgraph begins again": lambda threads: put(threads, "n1", ns=SUB),
    "a new subgraph begins": lambda threads: put(threads, "n1", ns="sub:2"),
}


async def beside(act: str, at: int) -> bool:
    """Purge an old thread, and let another process act before commit `at`. Return False if there is no such commit."""
    clock = HandClock()
    core = MemoryCore(clock)
    store = MemoryStore(core, "w")
    threads = GraphThreads(store, "default")
    await filled(threads)
    clock.time += KEPT + 2 * TOUCHED_EVERY
    refused = False

    async def acted() -> None:
        nonlocal refused
        try:
            await ACTS[act](threads)
        except Conflict:
            refused = True
        assert await findings(store) == []

    purger = Beside(core, at, acted)
    n = await purged(purger)
    found = await rows_of(store)
    if purger.commits < at:
        assert n == 1 and found == NONE
        return False
    if at == 1 and not refused:  # the purge has found the thread and not marked it: it is in use again
        assert n == 0 and all(found[kind] >= least for kind, least in FULL.items())
        seen = await threads.get("t", "")
        assert seen is not None and len(seen.writes) == {"goes on": 0, "a task ends": 2}.get(act, 1)
        return True
    assert n <= 1 and (refused or "ends" in act or "begins" in act)
    new = [row.checkpoint for row in await store.rows(GRAPH_CHECKPOINT, ())]
    assert new == ([] if refused or "ends" in act else ["n1"])
    assert len(await store.rows(GRAPH_WRITE, ())) == ("ends" in act)
    assert len(await store.rows(GRAPH_VALUE, ())) == 2 * len(await store.rows(GRAPH_CHECKPOINT, ()))
    return True


async def stays_or_goes_whole(act: str) -> None:
    at = 1
    while await beside(act, at):
        at += 1
    assert at > 4, "a purge takes several commits"


@pytest.mark.parametrize("act", ACTS)
def test_a_thread_that_is_used_again_stays_or_goes_whole(act: str) -> None:
    asyncio.run(stays_or_goes_whole(act))


async def is_whole_or_gone(act: str) -> None:
    """Delete a thread before each commit of a writer."""

    async def one(at: int) -> bool:
        clock = HandClock()
        core = MemoryCore(clock)
        store = MemoryStore(core, "w")
        await filled(GraphThreads(store, "default"))
        clock.time += KEPT + 2 * TOUCHED_EVERY

        async def deleted() -> None:
            assert await remove_thread(store, "default", "t")
            assert await rows_of(store) == NONE

        writer = Beside(core, at, deleted)
        try:
            await ACTS[act](GraphThreads(writer, "default"))
        except Conflict:
            pass
        assert await findings(store) == []
        if writer.commits >= at:
            assert {row[3] for row in await store.rows(GRAPH_CHECKPOINT, ())} <= {"n1"}
        return writer.commits >= at

    at = 1
    while await one(at):
        at += 1
    assert at > 1 or "begins again" in act, "the thread was there, so a first checkpoint is refused"


@pytest.mark.parametrize("act", ACTS)
def test_a_thread_that_is_deleted_between_the_commits_of_a_writer_is_whole_or_gone(act: str) -> None:
    asyncio.run(is_whole_or_gone(act))


def test_a_thread_is_absent_once_its_deletion_has_begun_and_the_next_purge_completes_it() -> None:
    async def cut(after: int) -> bool:
        clock = HandClock()
        core = MemoryCore(clock)
        store = MemoryStore(core, "w")
        threads = GraphThreads(store, "default")
        await filled(threads)
        await filled(threads, "u")
        clock.time += 1

        async def killed() -> None:
            raise Killed

        try:
            await GraphThreads(Beside(core, after + 1, killed), "default").delete("t")
            is_whole = True
        except Killed:
            is_whole = False
        assert await findings(store) == []
        if after:
            for ns, checkpoint in (("", ""), ("", "c2"), (SUB, ""), (SUB, "s1")):
                assert await threads.get("t", ns, checkpoint) is None
            assert await threads.namespaces("t") == () and await threads.lines("t", SUB) == []
            assert [row.thread for row in (await threads.threads()).rows] == ["u"]
            await threads.keep_latest("t")
            await threads.copy("u", "t")
            assert await rows_of(store, "default", "t") == FULL
            assert await threads.delete("t")
        return is_whole

    async def completed() -> None:
        clock = HandClock()
        core = MemoryCore(clock)
        store = MemoryStore(core, "w")
        await filled(GraphThreads(store, "default"))

        async def killed() -> None:
            raise Killed

        with pytest.raises(Killed):
            await GraphThreads(Beside(core, 3, killed), "default").delete("t")
        clock.time += KEPT + 2 * TOUCHED_EVERY
        await filled(GraphThreads(store, "default"), "new")
        assert await purged(store) == 1 and await rows_of(store, "default", "new") == await rows_of(store) == FULL

    async def main() -> None:
        after = 0
        while not await cut(after):
            after += 1
        assert after > 4
        await completed()

    asyncio.run(main())


async def used_after_it_was_found() -> None:
    clock = HandClock()
    store = MemoryStore(MemoryCore(clock), "w")
    threads = GraphThreads(store, "default")
    await filled(threads, "first")
    await filled(threads)
    clock.time += KEPT + 2 * TOUCHED_EVERY
    purge, now = UnusedThreadPurge(store), clock.time
    assert await purge.some(now, KEPT) == (0, False)
    await wrote(threads, "c3", task="other")
    for _ in range(9):
        await purge.some(now, KEPT)
    assert await rows_of(store) == await rows_of(store, "default", "t") == {**FULL, "graph_write": 4}


def test_a_thread_that_is_used_after_a_purge_has_found_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_removal, "COMMITS_AT_ONCE", 2)
    asyncio.run(used_after_it_was_found())


def test_rows_of_a_subgraph_without_their_graph_are_deleted() -> None:
    async def main() -> None:
        store = MemoryStore(core := MemoryCore(HandClock()), "w")
        threads = GraphThreads(store, "default")
        await filled(threads)
        core.rows.drop(GRAPH_THREAD, ("default", "t", ""))
        assert await findings(store) != []
        assert await threads.delete("t") and await rows_of(store) == NONE
        assert not await threads.delete("t")

    asyncio.run(main())

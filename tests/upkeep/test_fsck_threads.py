"""Each check of a thread has a canary: rows of a store are spoilt, and exactly its checks say so, with their keys."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, NamedTuple

import pytest

from outlast.core.commit import Commit, Erase, Put
from outlast.core.graph_threads import DELTA_CHANNELS, GraphData
from outlast.core.rows.graph_rows import (
    GRAPH_CHECKPOINT,
    GRAPH_KINDS,
    GRAPH_THREAD,
    GRAPH_VALUE,
    GRAPH_WRITE,
)
from outlast.core.rows.row_kind import AnyKind, Key
from outlast.runtime.graph_threads import GraphThreads, NewCheckpoint, NewWrite, TaskWrites
from outlast.runtime.stores import open_store
from outlast.store.port import Store
from outlast.upkeep.fsck import Fsck, FsckReport
from outlast.upkeep.fsck_threads import OF_A_THREAD, by_namespace, findings_of
from tests.conformance.test_stores import Dynamo, Memory, Postgres, Sqlite, Subjects

pytestmark = pytest.mark.req("TEST-4")
T: Final = ("default", "t", "")
SUB: Final = ("default", "t", "sub:1")


def checkpoint(name: str, parent: str = "", ns: str = "", **more: Any) -> NewCheckpoint:
    metadata = {"source": "loop", "step": 1, DELTA_CHANNELS: {"delta": [1, 0]}}
    values = {"log": GraphData("msgpack", name.encode() * 3_000), "small": GraphData("msgpack", b"\x01")}
    return NewCheckpoint("t", ns, name, parent, metadata, GraphData("msgpack", b"\x80"), values | more, ())


async def filled(store: Store) -> GraphThreads:
    """Put three checkpoints of a graph, one of its subgraph, and a write at each of the three."""
    threads = GraphThreads(store, "default")
    for n, name in enumerate(("c1", "c2", "c3")):
        seed = {"delta": GraphData("msgpack", b"\x90")} if not n else {}
        await threads.put(checkpoint(name, f"c{n}" if n else "", **seed))
        write = NewWrite(0, "log", GraphData("msgpack", name.encode() * 9_000))
        await threads.put_writes(TaskWrites("t", "", name, "task", "", [write], False))
    await threads.put(checkpoint("s1", ns="sub:1"))
    return threads


async def looked(store: Store) -> FsckReport:
    return await Fsck(store, chain=True).look()


class Canary(NamedTuple):
    """Rows that are deleted, columns that are replaced, and what fsck then says."""

    expected: set[tuple[str, str, Key]]
    erased: Sequence[tuple[AnyKind, Key]] = ()
    replaced: Sequence[tuple[AnyKind, Key, dict[str, Any]]] = ()


def on(check: str, kind: AnyKind, key: Key) -> tuple[str, str, Key]:
    return check, kind.name, key


BAD_PLACE: Final = {"channels": '{"log":["msgpack","x","00"]}'}
CANARIES: Final = {
    "the row of a namespace": Canary({on("thread_row", GRAPH_THREAD, SUB)}, [(GRAPH_THREAD, SUB)]),
    "the row by which a thread is listed": Canary(
        {on("thread_row", GRAPH_THREAD, T), on("thread_row", GRAPH_THREAD, SUB)}, [(GRAPH_THREAD, T)]
    ),
    "the last checkpoint": Canary(
        {on("thread_head", GRAPH_THREAD, T), on("thread_counted", GRAPH_THREAD, T)},
        [(GRAPH_CHECKPOINT, (*T, "c3"))],
    ),
    "no last checkpoint": Canary(
        {on("thread_head", GRAPH_THREAD, T)}, replaced=[(GRAPH_THREAD, T, {"head": ""})]
    ),
    "the parent of a checkpoint": Canary(
        {on("thread_counted", GRAPH_THREAD, T), on("checkpoint_built", GRAPH_CHECKPOINT, (*T, "c3"))},
        [(GRAPH_CHECKPOINT, (*T, "c2"))],
    ),
    "metadata that is no object": Canary(
        {on("checkpoint_row", GRAPH_CHECKPOINT, (*T, "c3"))},
        replaced=[(GRAPH_CHECKPOINT, (*T, "c3"), {"metadata": "7"})],
    ),
    "a place that names no form": Canary(
        {on("checkpoint_row", GRAPH_CHECKPOINT, (*T, "c3"))},
        replaced=[(GRAPH_CHECKPOINT, (*T, "c3"), BAD_PLACE)],
    ),
    "inline bytes that are no base64": Canary(
        {on("checkpoint_values", GRAPH_CHECKPOINT, (*T, "c3"))},
        replaced=[(GRAPH_CHECKPOINT, (*T, "c3"), {"channels": '{"delta":["msgpack","i","!"]}'})],
    ),
    "a write whose value is elsewhere": Canary(
        {on("checkpoint_values", GRAPH_WRITE, (*T, "c2", "task", 0))},
        replaced=[(GRAPH_WRITE, (*T, "c2", "task", 0), {"body_at": "w:00"})],
    ),
    "a write whose place cannot be read": Canary(
        {on("checkpoint_values", GRAPH_WRITE, (*T, "c2", "task", 0))},
        replaced=[(GRAPH_WRITE, (*T, "c2", "task", 0), {"body_at": "?"})],
    ),
}  # fmt: skip


async def spoil(store: Store, canary: Canary) -> None:
    for kind, key in canary.erased:
        await store.commit(Commit((Erase(kind, key),)))
    for kind, key, columns in canary.replaced:
        row = await store.load(kind, key)
        assert row is not None
        await store.commit(Commit((Put(kind, row._replace(version=row.version + 1, **columns), row.version),)))


@pytest.mark.parametrize("case", CANARIES)
def test_exactly_the_checks_of_a_spoilt_row_fire(case: str) -> None:
    async def main() -> None:
        store = await open_store("memory:")
        await filled(store)
        await spoil(store, CANARIES[case])
        assert {finding[:3] for finding in (await looked(store)).findings} == CANARIES[case].expected
        await store.close()

    asyncio.run(main())


@pytest.mark.parametrize("body", [b"other bytes", None], ids=["other bytes", "no row"])
def test_a_value_without_its_bytes_is_named_with_each_row_that_needs_it(body: bytes | None) -> None:
    async def main() -> None:
        store = await open_store("memory:")
        await filled(store)
        for row in await store.rows(GRAPH_VALUE, T):
            await store.commit(Commit((Erase(GRAPH_VALUE, row[:4]),)))
            if body is not None:
                await store.commit(Commit((Put(GRAPH_VALUE, row._replace(packed=0, body=body), 0),)))
        found = (await looked(store)).findings
        named = {(finding.kind, finding.key) for finding in found if finding.check == "checkpoint_values"}
        rows = {(GRAPH_CHECKPOINT.name, (*T, f"c{n}")) for n in (1, 2, 3)}
        assert named == rows | {(GRAPH_WRITE.name, (*T, f"c{n}", "task", 0)) for n in (1, 2, 3)}
        broken = [finding for finding in found if finding.check == "value_hash"]
        assert bool(broken) is (body is not None) and all("hash" in finding.text for finding in broken)
        await store.close()

    asyncio.run(main())


def test_every_check_of_a_thread_has_a_canary() -> None:
    named = {check for canary in CANARIES.values() for check, _, _ in canary.expected} | {"value_hash"}
    assert named == {check.__name__ for check in OF_A_THREAD}


def test_a_missing_checkpoint_is_named_by_what_follows_it_and_by_what_was_written_at_it() -> None:
    async def main() -> None:
        store = await open_store("memory:")
        await filled(store)
        await store.commit(Commit((Erase(GRAPH_CHECKPOINT, (*T, "c1")), Erase(GRAPH_CHECKPOINT, (*T, "c3")))))
        (text,) = [each.text for each in (await looked(store)).findings if each.check == "thread_counted"]
        assert text == (
            "it counts 3 checkpoints and has 1; missing and named: c1, at which task task wrote; "
            "c3, at which task task wrote"
        )
        await store.close()

    asyncio.run(main())


@pytest.mark.parametrize("subject", [Memory, Sqlite, Postgres, Dynamo])
def test_a_sound_thread_has_no_finding_in_any_store(subject: Callable[[Path], Subjects], tmp_path: Path) -> None:
    """Nor has one that was pruned, copied or forgotten, or one with writes at a checkpoint that was never put."""

    async def main() -> None:
        one = subject(tmp_path)
        try:
            store = await one.open("w1")
            threads = await filled(store)
            await threads.copy("t", "u")
            await threads.keep_latest("u")
            write = NewWrite(0, "log", GraphData("msgpack", b"\x01"))
            await threads.put_writes(TaskWrites("v", "", "never-put", "task", "", [write], False))
            for sub in (True, False):
                report = await looked(store)
                found = [each for each in report.findings if each.check != "settings_safe"]  # of stores for tests
                assert found == [] and report.threads == (5 if sub else 3)
                await threads.delete("u")
        finally:
            await one.close()

    asyncio.run(main())


def test_what_a_killed_prune_leaves_is_no_finding() -> None:
    """A prune is cut after each of its commits. No state in between is a fault, and the next prune ends it."""

    class Killed(BaseException):
        """The process ends here."""

    async def cut(after: int) -> bool:
        store = await open_store("memory:")
        threads = await filled(store)
        for n in range(50):
            odd = GraphData("msgpack", token_hex(90).encode())
            await threads.put(checkpoint(f"d{n:02}", f"d{n - 1:02}" if n else "c3", odd=odd, delta=odd))
        commit, landed = store.commit, 0

        async def counted(one: Commit, **more: Any) -> Any:
            nonlocal landed
            if landed == after:
                raise Killed
            landed += 1
            return await commit(one, **more)

        store.commit = counted  # type: ignore[method-assign]
        try:
            await threads.keep_latest("t")
            is_whole = True
        except Killed:
            is_whole = False
        store.commit = commit  # type: ignore[method-assign]
        assert (await looked(store)).findings == ()
        await threads.keep_latest("t")
        assert (await looked(store)).findings == ()
        await threads.delete("t")
        assert not any([await store.rows(kind, ()) for kind in GRAPH_KINDS])
        await store.close()
        return is_whole

    async def main() -> None:
        commits = 0
        while not await cut(commits):
            commits += 1
        assert commits >= 3, "a prune of many rows takes several commits"

    asyncio.run(main())


def test_a_finding_that_fresh_reads_do_not_confirm_is_not_reported() -> None:
    """Rows of a thread that changes are read one kind after the other, so the first read may mix two moments."""

    async def main() -> None:
        store = await open_store("memory:")
        threads = await filled(store)
        fsck = Fsck(store)
        every = fsck._every
        moved = False

        async def late(kind: Any, prefix: Key = ()) -> Any:
            nonlocal moved
            if kind is GRAPH_CHECKPOINT and not moved:  # the rows of threads are read: now the thread changes
                moved = True
                await threads.delete("t")
            async for row in every(kind, prefix):
                yield row

        fsck._every = late  # type: ignore[method-assign]
        first = [one async for one in by_namespace([late(kind) for kind in GRAPH_KINDS])]
        named = {finding[:3] for one in first for finding in findings_of(one)}
        assert on("thread_counted", GRAPH_THREAD, T) in named and on("thread_head", GRAPH_THREAD, SUB) in named
        moved = False
        await filled(store)
        assert (await fsck.look()).findings == () and moved
        await store.close()

    asyncio.run(main())

"""Safeguards of the threads of LangGraph: who may put, what a prune deletes, what stored bytes may make."""

from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any

from outlast.core import graph_threads as decisions
from outlast.core.commit import Commit, Erase, Expect
from outlast.core.rows.graph_rows import GRAPH_THREAD, GraphThread
from outlast.engine import thread_removal
from outlast.engine.thread_removal import ERASED_AT_ONCE
from outlast.runtime import graph_threads
from outlast.runtime.graph_threads import GraphThreads
from outlast.runtime.thread_turns import ThreadTurns
from tests.removals import Patch, replace


def any_parent_followed(patch: Patch) -> None:
    replace(patch, decisions.check_follows, lambda *_, **__: None)


def erased_unnoticed(patch: Patch) -> None:
    async def erase(self: GraphThreads, row: GraphThread, erased: Sequence[Erase], *, is_gone: bool) -> None:
        more = [Erase(GRAPH_THREAD, row[:3])] if is_gone else []
        expects = (Expect(GRAPH_THREAD, row[:3], row.version),)
        for i in range(0, len(erased) + len(more), ERASED_AT_ONCE):
            part = tuple([*erased, *more][i : i + ERASED_AT_ONCE])
            await self._store.commit(Commit(part, expects=expects))

    replace(patch, GraphThreads._erase, erase)


def rows_before_their_thread(patch: Patch) -> None:
    async def begin(self: GraphThreads, line: Any, at: int, expects: Any = ()) -> int:
        return 0

    replace(patch, GraphThreads._begin, begin)


def values_not_compared_with_the_parent(patch: Patch) -> None:
    patch.setattr(graph_threads, "snapshot_at", lambda place, found: None)


def ancestors_of_deltas_pruned(patch: Patch) -> None:
    def kept(keep: Collection[str], checkpoints: Sequence[Any]) -> set[str]:
        return {row.checkpoint for row in checkpoints} & set(keep)

    replace(patch, decisions.kept_with, kept)


def any_class_made(patch: Patch) -> None:
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    from outlast.langgraph import saver

    patch.setattr(saver, "JsonPlusSerializer", lambda **_: JsonPlusSerializer(allowed_msgpack_modules=True))


def any_format_read(patch: Patch) -> None:
    from outlast.langgraph import saver

    patch.setattr(saver, "FORMATS", frozenset({"null", "bytes", "bytearray", "msgpack", "json", "pickle"}))


def removal_without_a_mark(patch: Patch) -> None:
    def unmarked(root: GraphThread | None, line: Any, at: int) -> GraphThread:
        root = root or GraphThread(*line, 0, "", 0, at, at)
        return root._replace(version=root.version + 1)

    replace(patch, decisions.removed, unmarked)


def use_by_checkpoints_alone(patch: Patch) -> None:
    def touched(root: GraphThread | None, line: Any, at: int) -> GraphThread | None:
        return GraphThread(*line, 1, "", 0, at, at) if root is None else None

    replace(patch, decisions.touched, touched)


def writers_past_a_removal(patch: Patch) -> None:
    used = GraphThreads._used

    async def unexpected(self: GraphThreads, line: Any, root: GraphThread | None, at: int) -> Expect:
        await used(self, line, root, at)
        return Expect(GRAPH_THREAD, (line[0], "never there", ""), 0)

    replace(patch, used, unexpected)


def threads_purged_whatever_their_use(patch: Patch) -> None:
    mark = thread_removal.mark_removed

    async def marked(store: Any, tenant: str, thread: str, *, before: int | None = None) -> GraphThread | None:
        return await mark(store, tenant, thread)

    replace(patch, mark, marked)


def writers_without_turns(patch: Patch) -> None:
    @asynccontextmanager
    async def at_once(self: ThreadTurns, key: Any, *, alone: bool) -> AsyncIterator[None]:
        yield

    replace(patch, ThreadTurns.take, at_once)

"""Safeguards of the threads of LangGraph: who may put, what a prune deletes, what stored bytes may make."""

from collections.abc import Collection, Sequence
from typing import Any

from outlast.core import graph_threads as decisions
from outlast.core.commit import Commit, Erase, Expect
from outlast.core.rows.graph_rows import GRAPH_THREAD, GraphThread
from outlast.runtime import graph_threads
from outlast.runtime.graph_threads import ERASED_AT_ONCE, GraphThreads
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
    async def begin(self: GraphThreads, line: Any, at: int) -> int:
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

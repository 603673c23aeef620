"""OutlastSaver: the threads of LangGraph graphs in a store of Outlast.

It implements `langgraph/checkpoint/base/__init__.py` of langgraph-checkpoint 4.3. A graph of LangGraph stays as it is:
LangGraph calls its nodes, and this class keeps what LangGraph gives it. `runtime/graph_threads.py` decides and writes.

Two rules are stricter than those of LangGraph's own savers. The second of two writers that put a checkpoint after the
same parent is refused. And stored bytes make objects only of classes that the caller has named.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from typing_extensions import override

from outlast.client.loop_thread import LoopThread
from outlast.clocks import new_id
from outlast.core.argument_checks import Arguments
from outlast.core.graph_threads import GraphData
from outlast.core.rows.graph_rows import GraphCheckpoint
from outlast.errors import Corrupt, InvalidInput, Misplaced
from outlast.runtime.graph_threads import (
    READ_AT_ONCE,
    GraphThreads,
    NewCheckpoint,
    NewestCheckpoints,
    NewWrite,
    ReadCheckpoint,
    TaskWrites,
)
from outlast.runtime.stores import open_store
from outlast.store.port import Store

R = TypeVar("R")
DIGITS: Final = 10
EMPTY_MAX: Final = 10_000
FORMATS: Final = frozenset({"null", "bytes", "bytearray", "msgpack"})
"""Formats that the default serializer reads. `json` may name constructors, and `pickle` runs code."""


class EarlierCheckpoint(str):
    """Id of a checkpoint that its reader has asked for by name and that was not the last one.

    LangGraph hands the id back as the parent of what it puts next, which then begins a branch.
    """

    __slots__ = ()


class OutlastSaver(BaseCheckpointSaver[str]):
    """A checkpointer that keeps threads in a store of Outlast: SQLite, PostgreSQL, DynamoDB or memory.

    All methods exist in a sync and an async form. Sync forms wait for a separate thread with an event loop. Threads are
    no runs: no list of runs counts them.
    """

    def __init__(
        self,
        store: Store,
        *,
        tenant: str = "default",
        allow: Collection[type[Any]] = (),
        serde: SerializerProtocol | None = None,
    ) -> None:
        """Keep the threads of a `tenant` in an open `store`, which the caller closes.

        `allow`: classes of which values in a state may be; all others but plain data and LangGraph's own come back as
        data. `serde`: another serializer, which then decides by itself what it makes of stored bytes.
        """
        check = Arguments("OutlastSaver")
        self._checks_formats = serde is None
        allowed = [(each.__module__, each.__qualname__) for each in check.members("allow", allow, type, "list classes")]
        super().__init__(serde=serde or JsonPlusSerializer(allowed_msgpack_modules=allowed or None))
        self._threads = GraphThreads(store, tenant)
        self._sync: LoopThread | None = None
        self._empty: dict[tuple[str, str], None] = {}  # namespaces in which this saver found no checkpoint

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str, **options: Any) -> "AsyncGenerator[OutlastSaver]":
        """Open the store at a `url`, as `outlast.runtime.open_store`, and close it at the end of the block.

        `options`: those of `OutlastSaver`.
        """
        store = await open_store(url)
        try:
            saver = cls(store, **options)
            try:
                yield saver
            finally:
                await asyncio.to_thread(saver.close)
        finally:
            await store.close()

    @classmethod
    @contextmanager
    def open_sync(cls, url: str, **options: Any) -> "Iterator[OutlastSaver]":
        """Open the store at a `url` for a program without an event loop, and close it at the end of the block.

        `options`: those of `OutlastSaver`.
        """
        loop = LoopThread()
        store = loop.run(lambda: open_store(url))
        try:
            saver = cls(store, **options)
            saver._sync = loop
            yield saver
        finally:
            loop.stop(store.close)

    def close(self) -> None:
        """End the thread of the sync methods. The store stays open."""
        if self._sync is not None:
            self._sync.stop()

    def _run(self, work: Coroutine[Any, Any, R]) -> R:
        if self._sync is None:
            self._sync = LoopThread()
        try:
            self._sync.check()
        except Misplaced:
            work.close()
            raise
        return self._sync.run(lambda: work)

    # --- writing -------------------------------------------------------------------------
    @override
    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        thread, ns, parent = _key(config)
        values: dict[str, Any] = checkpoint["channel_values"]
        changed = {name: self._dump(value) for name, value in values.items() if name in new_versions}
        kept = [name for name in values if name not in new_versions]
        if kept:
            kept, more = await self._unchanged(thread, ns, parent, checkpoint, kept)
            changed |= {name: self._dump(values[name]) for name in more}
        rest = {name: value for name, value in checkpoint.items() if name != "channel_values"}
        await self._threads.put(
            NewCheckpoint(
                thread,
                ns,
                checkpoint["id"],
                parent,
                get_checkpoint_metadata(config, metadata),
                self._dump(rest),
                changed,
                kept,
                branches=isinstance(parent, EarlierCheckpoint),
                begins=(thread, ns) in self._empty,
            )
        )
        return _config(thread, ns, checkpoint["id"])

    async def _unchanged(
        self, thread: str, ns: str, parent: str, checkpoint: Checkpoint, names: Sequence[str]
    ) -> tuple[list[str], list[str]]:
        """Return the channels whose values the parent has in the same version, and the others."""
        row = await self._threads.checkpoint(thread, ns, parent) if parent else None
        if row is None:
            return [], [*names]
        stored = self._load(await self._threads.body(row), row)
        there, versions = row.places(), stored.get("channel_versions", {})
        same = [
            name for name in names if name in there and versions.get(name) == checkpoint["channel_versions"].get(name)
        ]
        return same, [name for name in names if name not in same]

    @override
    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        thread, ns, checkpoint = _key(config)
        found = [
            NewWrite(WRITES_IDX_MAP.get(channel, i), channel, self._dump(value))
            for i, (channel, value) in enumerate(writes)
        ]
        replaces = all(channel in WRITES_IDX_MAP for channel, _ in writes)
        await self._threads.put_writes(TaskWrites(thread, ns, checkpoint, task_id, task_path, found, replaces))

    # --- reading -------------------------------------------------------------------------
    @override
    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread, ns, checkpoint = _key(config)
        found = await self._threads.get(thread, ns, checkpoint)
        if found is not None:
            return self._tuple(found)
        if not checkpoint:
            self._empty[thread, ns] = None
            if len(self._empty) > EMPTY_MAX:
                del self._empty[next(iter(self._empty))]
        return None

    @override
    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # the name is LangGraph's
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        if limit is not None and limit <= 0:
            return
        at_once = READ_AT_ONCE if limit is None or filter else min(limit, READ_AT_ONCE)
        before_id = (get_checkpoint_id(before) if before else None) or ""
        rows = await self._newest(config, before_id, at_once)
        heads: dict[str, dict[str, str]] = {}
        while (row := await rows.next()) is not None:
            if filter and not _fits(row.details(), filter):
                continue
            if row.thread not in heads:
                heads[row.thread] = await self._threads.heads(row.thread)
            yield self._tuple(await self._threads.read(row, is_head=heads[row.thread].get(row.ns) == row.checkpoint))
            if limit is not None and (limit := limit - 1) <= 0:
                return

    async def _newest(self, config: RunnableConfig | None, before: str, at_once: int) -> NewestCheckpoints:
        """Return the checkpoints that a config names, the last first."""
        configurable = config.get("configurable", {}) if config else {}
        thread = configurable.get("thread_id")
        lines = await self._threads.lines(None if thread is None else str(thread), configurable.get("checkpoint_ns"))
        checkpoint = configurable.get("checkpoint_id")
        return await self._threads.newest(lines, before=before, only=checkpoint or "", at_once=at_once)

    @override
    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Walk the ancestors of the checkpoint in `config`, and load only the values of these `channels`."""
        found: dict[str, DeltaChannelHistory] = {name: {"writes": []} for name in channels}
        writes: dict[str, list[tuple[str, str, Any]]] = {name: [] for name in channels}
        if not channels:
            return found
        thread, ns, checkpoint = _key(config)
        row = await self._threads.checkpoint(thread, ns, checkpoint)
        left = set(channels)
        while left and row is not None and row.parent:
            row = await self._threads.checkpoint(thread, ns, row.parent)
            if row is None:
                break
            read = await self._threads.read(row, is_head=False, only=left)
            for write in reversed(read.writes):
                if write.channel in left:
                    writes[write.channel].append((write.task, write.channel, self._load(write.value, row)))
            for name in left & read.values.keys():
                found[name]["seed"] = self._load(read.values[name], row)
                left.discard(name)
        for name in channels:
            found[name]["writes"] = writes[name][::-1]
        return found

    # --- whole threads -------------------------------------------------------------------
    @override
    async def adelete_thread(self, thread_id: str) -> None:
        await self._threads.delete(str(thread_id))

    @override
    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await self._threads.delete_graph_runs([str(each) for each in run_ids])

    @override
    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await self._threads.copy(str(source_thread_id), str(target_thread_id))

    @override
    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        if strategy not in ("keep_latest", "delete"):
            raise InvalidInput(
                f"no strategy {strategy!r}", "a prune keeps the latest or deletes", "keep_latest, delete"
            )
        for thread in thread_ids:
            if strategy == "delete":
                await self._threads.delete(str(thread))
            else:
                await self._threads.keep_latest(str(thread))

    # --- sync forms ----------------------------------------------------------------------
    @override
    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return self._run(self.aput(config, checkpoint, metadata, new_versions))

    @override
    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self._run(self.aput_writes(config, writes, task_id, task_path))

    @override
    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self._run(self.aget_tuple(config))

    @override
    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        async def found() -> "tuple[CheckpointTuple, ...]":
            return tuple([each async for each in self.alist(config, filter=filter, before=before, limit=limit)])

        yield from self._run(found())

    @override
    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return self._run(self.aget_delta_channel_history(config=config, channels=channels))

    @override
    def delete_thread(self, thread_id: str) -> None:
        self._run(self.adelete_thread(thread_id))

    @override
    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        self._run(self.adelete_for_runs(run_ids))

    @override
    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self._run(self.acopy_thread(source_thread_id, target_thread_id))

    @override
    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        self._run(self.aprune(thread_ids, strategy=strategy))

    # --- values --------------------------------------------------------------------------
    @override
    def get_next_version(self, current: str | int | float | None, channel: None) -> str:
        """Return the number after `current` and a random id, so that two branches never name two values alike.

        `channel` is not used.
        """
        number, _, _ = str(current or 0).partition(".")
        return f"{int(number) + 1:0{max(DIGITS, len(number))}}.{new_id('')}"

    def _dump(self, value: Any) -> GraphData:
        form, data = self.serde.dumps_typed(value)
        return GraphData(form, bytes(data))

    def _load(self, value: GraphData, row: GraphCheckpoint) -> Any:
        """Return a value. Raises Corrupt for bytes that the serializer cannot read."""
        where = f"checkpoint {row.checkpoint} of thread {row.thread}"
        if self._checks_formats and value.format not in FORMATS:
            raise Corrupt(f"{where}: a value in the format {value.format[:40]!r}, which is not read")
        try:
            return self.serde.loads_typed((value.format, value.data))
        except Exception as error:  # because a serializer may raise anything for bytes that it did not write
            raise Corrupt(f"{where}: a value cannot be read: {type(error).__name__}: {error}"[:300]) from error

    def _tuple(self, found: ReadCheckpoint) -> CheckpointTuple:
        row = found.row
        rest = self._load(found.body, row)
        if not isinstance(rest, dict):
            raise Corrupt(f"checkpoint {row.checkpoint} of thread {row.thread} is no mapping")
        values = {name: self._load(value, row) for name, value in found.values.items()}
        checkpoint: Any = {**rest, "channel_values": values}
        metadata: Any = row.details()
        name = row.checkpoint if found.is_head else EarlierCheckpoint(row.checkpoint)
        return CheckpointTuple(
            _config(row.thread, row.ns, name),
            checkpoint,
            metadata,
            _config(row.thread, row.ns, row.parent) if row.parent else None,
            [(write.task, write.channel, self._load(write.value, row)) for write in found.writes],
        )


def _key(config: RunnableConfig) -> tuple[str, str, str]:
    """Return thread, namespace and checkpoint of a config; '' if it names none."""
    configurable = config.get("configurable", {})
    thread = configurable.get("thread_id")
    if thread is None:
        raise InvalidInput("a config without a thread", "", 'pass {"configurable": {"thread_id": "..."}}')
    checkpoint = get_checkpoint_id(config) or ""
    return str(thread), str(configurable.get("checkpoint_ns") or ""), checkpoint


def _config(thread: str, ns: str, checkpoint: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": checkpoint}}


def _fits(metadata: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(metadata.get(name) == json.loads(json.dumps(value)) for name, value in wanted.items())

"""Rows of the threads of LangGraph graphs, which `outlast.langgraph.OutlastSaver` keeps. They belong to no run.

Each namespace of a thread has one `GraphThread` row, whose version guards all other rows of the namespace: a commit
either replaces it or expects its version. A value is stored once under its hash, and checkpoints refer to it by name.
"""

from typing import Any, Final, NamedTuple

from outlast.core.rows.row_kind import Kind


class GraphThread(NamedTuple):
    """One namespace of a thread: '' for the graph itself, a path for each subgraph."""

    tenant: str
    thread: str
    ns: str
    version: int
    head: str  # the checkpoint that was put last; the next one must name it as its parent
    checkpoints: int  # number of stored checkpoints of this namespace
    created_at: int
    changed_at: int  # 0 in the row of the graph itself: the thread is being deleted, and is absent for readers

    @property
    def is_removed(self) -> bool:
        """Return True if the deletion of the thread has begun (`engine/thread_removal.py`)."""
        return not self.ns and not self.changed_at


class GraphCheckpoint(NamedTuple):
    """A checkpoint of a graph, without the values of its channels."""

    tenant: str
    thread: str
    ns: str
    checkpoint: str
    version: int
    parent: str  # '' = none
    graph_run: str  # `run_id` of its metadata; '' = none
    metadata: str  # JSON
    channels: str  # JSON: where the value of each channel is (core/graph_values.py)
    format: str  # of `body`, as the serializer names it
    body: bytes  # the checkpoint without its values; empty if `body_at` says where it is
    body_at: str
    at: int

    def details(self) -> dict[str, Any]:
        """Return the metadata that the graph gave, decoded at each call."""
        return GRAPH_CHECKPOINT.decode_object("metadata", self.metadata, self)

    def places(self) -> dict[str, Any]:
        """Return where the value of each channel is, decoded at each call."""
        return GRAPH_CHECKPOINT.decode_object("channels", self.channels, self)


class GraphWrite(NamedTuple):
    """One value that a task of a graph wrote at a checkpoint."""

    tenant: str
    thread: str
    ns: str
    checkpoint: str
    task: str
    i: int  # position among the values of the task; negative for errors and interrupts
    version: int
    path: str  # of the task in its graph
    channel: str
    format: str  # of `body`, as the serializer names it
    body: bytes  # the value; empty if `body_at` says where it is
    body_at: str
    at: int


class GraphValue(NamedTuple):
    """Bytes of a value, or a part of them, stored once in a namespace."""

    tenant: str
    thread: str
    ns: str
    hash: str  # of the unpacked bytes
    packed: int  # how `body` is packed
    body: bytes
    at: int


GRAPH_THREAD: Final = Kind("graph_thread", GraphThread, 3, True, True)
GRAPH_CHECKPOINT: Final = Kind("graph_checkpoint", GraphCheckpoint, 4, True, False)
GRAPH_WRITE: Final = Kind("graph_write", GraphWrite, 6, True, False)
GRAPH_VALUE: Final = Kind("graph_value", GraphValue, 4, False, False)
GRAPH_KINDS: Final[tuple[Kind[Any], ...]] = (GRAPH_THREAD, GRAPH_CHECKPOINT, GRAPH_WRITE, GRAPH_VALUE)

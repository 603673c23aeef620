"""Decisions about threads of LangGraph graphs: which checkpoint may follow, how values are stored, what a prune keeps.

A value of a channel is bytes and the format that its serializer names. Small values are part of the checkpoint. A
larger one is stored once under the hash of its bytes, so equal values of all checkpoints of a namespace are one row. A
value of WHOLE_BELOW bytes and more is stored as the states of runs are (`core/state/snapshot_codec.py`): the bytes that
it shares with the previous value of the channel are not stored again.
"""

from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from outlast.core.durations import HOUR
from outlast.core.limits import KIB
from outlast.core.rows.graph_rows import GraphCheckpoint, GraphThread
from outlast.core.state.snapshot_codec import MARK, WHOLE_BELOW, Snapshot, chunk_hash, chunks_in, decode, encode
from outlast.errors import Conflict, Corrupt, InvalidInput

INLINE_MAX: Final = 96
"""A value up to this size is part of its checkpoint, because a further row would be larger."""
WRITE_INLINE_MAX: Final = 16 * KIB
"""The same for rows that hold one value."""
VALUE_BYTES_MAX: Final = 64 * KIB * KIB
NS_BYTES_MAX: Final = 400
ID_BYTES_MAX: Final = 100
THREAD_BYTES_MAX: Final = 500
FIRST_STEP: Final = -1
"""Step of the first checkpoint of a thread; a placeholder before it has a lower one."""
FORK: Final = "fork"
"""Source of a checkpoint with which LangGraph begins a branch."""
INLINE, WHOLE, PARTS = "i", "w", "p"
DELTA_CHANNELS: Final = "counters_since_delta_snapshot"
"""Member of the metadata that names channels whose value is in the writes of earlier checkpoints."""
TOUCHED_EVERY: Final = HOUR
"""Business time after which a write gives its thread a new instant of change, so that no purge takes it for unused."""


class GraphData(NamedTuple):
    """A serialized value: its format, as the serializer names it, and its bytes."""

    format: str
    data: bytes


class ValuePlace(NamedTuple):
    """Place of a value: INLINE with its bytes as base64, WHOLE or PARTS with the hash of a row."""

    format: str
    how: str
    text: str

    def at(self) -> str:
        """Return it as the column `body_at`."""
        return f"{self.how}:{self.text}"


class Stored(NamedTuple):
    """A value as it is stored: its place, and the bytes of the rows that this needs, by hash."""

    place: ValuePlace
    rows: Mapping[str, bytes]


# --- values ------------------------------------------------------------------------------
def stored(value: GraphData, before: Snapshot | None = None, inline_max: int = INLINE_MAX) -> Stored:
    """Return how a value is stored. `before`: the previous value of its channel, if that is in parts.

    Raises InvalidInput for a value that is too large.
    """
    data = value.data
    if len(data) > VALUE_BYTES_MAX:
        raise InvalidInput(
            f"a value of {len(data):,} bytes",
            f"a value of a graph has at most {VALUE_BYTES_MAX:,} bytes",
            "store it elsewhere and keep its address in the state",
        )
    if len(data) <= inline_max:
        return Stored(ValuePlace(value.format, INLINE, b64encode(data).decode()), {})
    if len(data) < WHOLE_BELOW:
        name = chunk_hash(data)
        return Stored(ValuePlace(value.format, WHOLE, name), {name: data})
    snapshot, parts = encode(data, before)
    assert snapshot.snapshot[:1] == MARK, "a large value is stored in parts"
    name = chunk_hash(snapshot.snapshot)
    return Stored(ValuePlace(value.format, PARTS, name), {name: snapshot.snapshot, **parts})


def place_of(found: object) -> ValuePlace:
    """Return a place from the JSON of the column `channels`. Raises Corrupt."""
    if isinstance(found, list) and len(found) == 3 and all(isinstance(each, str) for each in found):
        place = ValuePlace(*found)
        if place.how in (INLINE, WHOLE, PARTS):
            return place
    raise Corrupt(f"the place of a value cannot be read: {found!r}"[:200])


def place_at(form: str, body_at: str) -> ValuePlace:
    """Return the place in the columns `format` and `body_at`. Raises Corrupt."""
    how, _, text = body_at.partition(":")
    return place_of([form, how, text])


def rows_needed(places: Iterable[ValuePlace], found: Mapping[str, bytes]) -> set[str]:
    """Return the hashes of rows that these values need and that are not among those found. Raises Corrupt."""
    needed: set[str] = set()
    for place in places:
        if place.how == INLINE:
            continue
        needed.add(place.text)
        if place.how == PARTS and place.text in found:
            needed.update(chunks_in(found[place.text], found))
    return needed - found.keys()


def snapshot_at(place: ValuePlace, found: Mapping[str, bytes]) -> Snapshot | None:
    """Return the value in parts at a place, for comparison with the next one. Raises Corrupt."""
    return decode(found[place.text], found) if place.how == PARTS else None


def data_at(place: ValuePlace, found: Mapping[str, bytes]) -> GraphData:
    """Return the value at a place, whose rows were all found. Raises Corrupt."""
    if place.how == INLINE:
        try:
            return GraphData(place.format, b64decode(place.text, validate=True))
        except ValueError as error:
            raise Corrupt(f"a value in a checkpoint cannot be read: {error}") from error
    if place.text not in found:
        raise Corrupt(f"a checkpoint names a missing value: {place.text}")
    if place.how == WHOLE:
        return GraphData(place.format, found[place.text])
    return GraphData(place.format, decode(found[place.text], found).state)


# --- which checkpoint may follow ---------------------------------------------------------
def check_follows(
    thread: GraphThread | None,
    checkpoint: str,
    parent: str,
    *,
    source: object,
    branches: bool,
    begins: bool,
    exists: bool,
) -> None:
    """Raise Conflict if another writer has put a checkpoint after the same parent.

    A checkpoint follows the head of its namespace. Others are accepted if they are put again (`exists`), or if they
    begin a branch: LangGraph says so by the source `fork`, and a caller by reading an earlier checkpoint by its id
    (`branches`). One without a parent is refused if it `begins` a thread that exists. Otherwise it is a second root,
    which LangGraph itself never puts.
    """
    head = thread.head if thread is not None else ""
    if parent == head or exists or branches or source == FORK or (not parent and not begins):
        return
    raise Conflict(
        f"checkpoint {checkpoint} does not follow the last one of its thread",
        f"it names {parent or 'no checkpoint'} as its parent, and another writer has put {head or 'none'} since",
        "invoke the graph again on the thread, which begins at its last checkpoint; to branch off on purpose, pass "
        "the checkpoint_id of the earlier checkpoint in the config",
        refusal="stale_checkpoint",
    )


def check_key(thread: str, ns: str, *ids: str) -> None:
    """Raise InvalidInput unless every store can hold these parts of keys."""
    if not thread:
        raise InvalidInput("a thread without an id", 'the config needs {"configurable": {"thread_id": ...}}')
    for name, value, most in (
        ("thread_id", thread, THREAD_BYTES_MAX),
        ("checkpoint_ns", ns, NS_BYTES_MAX),
        *(("an id of a checkpoint or task", each, ID_BYTES_MAX) for each in ids),
    ):
        if "\0" in value or len(value.encode(errors="surrogatepass")) > most:
            raise InvalidInput(f"{name} is too long or has a NUL: {value[:60]!r}", f"it has at most {most} bytes")


# --- what is kept ------------------------------------------------------------------------
def touched(root: GraphThread | None, line: tuple[str, str, str], at: int) -> GraphThread | None:
    """Return the row of the graph itself to be written before other rows of its thread, or None if it may stay.

    `line`: its key. A checkpoint of the graph itself writes this row anyway. Subgraphs and tasks do not, so their
    writes count as a change of the thread only by this row.
    """
    if root is None:
        return GraphThread(*line, 1, "", 0, at, at)
    if root.changed_at + TOUCHED_EVERY <= at:
        return root._replace(version=root.version + 1, changed_at=at)
    return None


def unused_before(now: int, kept: int, skew: int) -> int:
    """Return the instant before which an unused thread last changed. `kept`: for how long it is kept; 0 = no time.

    A write of the last TOUCHED_EVERY may have left the instant as it was. The writer's clock may be behind by `skew`.
    """
    return now - kept - TOUCHED_EVERY - skew if kept else now


def removed(root: GraphThread | None, line: tuple[str, str, str], at: int) -> GraphThread:
    """Return the row that makes a thread absent. `line`: the key of the row of the graph itself."""
    root = root or GraphThread(*line, 0, "", 0, at, at)
    return root._replace(version=root.version + 1, head="", checkpoints=0, changed_at=0)


def kept_with(keep: Collection[str], checkpoints: Sequence[GraphCheckpoint]) -> set[str]:
    """Return the checkpoints to keep: these, and the ancestors without which their delta channels cannot be rebuilt.

    The value of a delta channel is that of the nearest ancestor that stores one, and the writes since.
    """
    by_id = {row.checkpoint: row for row in checkpoints}
    kept = {name for name in keep if name in by_id}
    for name in list(kept):
        ancestors, _, _ = ancestors_needed(by_id[name], by_id)
        kept.update(ancestors)
    return kept


def ancestors_needed(
    row: GraphCheckpoint, by_id: Mapping[str, GraphCheckpoint]
) -> tuple[Sequence[str], str, Sequence[str]]:
    """Return the ancestors of which the delta channels of a checkpoint are made.

    Also returns the first such ancestor that is missing, or '', and the channels that need it. Raises Corrupt.
    """
    found: list[str] = []
    open_channels = set(_delta_channels(row)) - row.places().keys()
    while open_channels and row.parent in by_id:
        row = by_id[row.parent]
        found.append(row.checkpoint)
        open_channels -= row.places().keys()
    return found, row.parent if open_channels else "", sorted(open_channels)


def _delta_channels(row: GraphCheckpoint) -> list[str]:
    counters: Any = row.details().get(DELTA_CHANNELS)
    return list(counters) if isinstance(counters, dict) else []


# --- how it is shown ---------------------------------------------------------------------
def branches(checkpoints: Iterable[GraphCheckpoint], head: str) -> dict[str, int]:
    """Return the number of the branch of each checkpoint: 1 for that of the last one, then by their greatest ids.

    A branch is a line of parents up to a checkpoint of an earlier branch.
    """
    parents = {row.checkpoint: row.parent for row in checkpoints}
    ends = sorted(parents.keys() - set(parents.values()), reverse=True)
    found: dict[str, int] = {}
    n = 0
    for end in (head, *ends, *sorted(parents, reverse=True)):  # the last ones only if parents go round in a circle
        n += end in parents and end not in found
        at = end
        while at in parents and at not in found:
            found[at] = n
            at = parents[at]
    return found


def order_of_writes(path: str, task: str, i: int) -> tuple[str, str, int]:
    """Return the position of a write among those of its checkpoint, as `langgraph.checkpoint.base` defines it."""
    return (path, task, i)

"""The state of a run between its bytes and its rows: joined when it is read, split when it is written (CKP-3).

Everything that reads a snapshot goes through here; `core/diet.py` says what a snapshot is. A state below a few KB is
its own snapshot, and costs one comparison of lengths.
"""

from collections.abc import Sequence
from typing import Final

from outlast.core.commit import Put
from outlast.core.diet import MARK, WHOLE_BELOW, Kept, join, pack, split, unpack, values_in
from outlast.core.limits import COMMIT_BYTES_MAX, INPUT_BYTES_MAX
from outlast.core.rows import VALUE, Event, Value, key_of
from outlast.errors import LimitExceeded
from outlast.store.port import RunRows, Store

BESIDE_BYTES: Final = COMMIT_BYTES_MAX // 4
"""Values that land in one commit: they leave room for the move beside them and all that it says."""
VALUES_AT_ONCE: Final = 100  # read for a look at all of a run's states
EMPTY: Final = b"{}"


class SnapshotStore:
    """One run's state as a holder has it: what it read or wrote last, so that the next is compared with that."""

    def __init__(self, store: Store, tenant: str, run: str) -> None:
        self._store = store
        self._run = (tenant, run)
        self._kept = Kept(EMPTY, EMPTY, ())

    async def read(self, snapshot: bytes | None) -> bytes:
        """The state. Raises Corrupt where a value it names is missing or another than its hash says, StoreError."""
        snapshot = snapshot or EMPTY
        if snapshot[:1] != MARK:
            self._kept = Kept(snapshot, snapshot, ())
        elif snapshot != self._kept.snapshot:  # what was written last did not land, or a predecessor wrote this one
            self._kept = await joined(self._store, self._run, snapshot)
        return self._kept.state

    async def write(self, state: bytes, at: int) -> tuple[bytes, tuple[Value, ...]]:
        """The snapshot of a state, and the rows that are to land with it or before it. Raises StoreError."""
        if len(state) < WHOLE_BELOW:
            return state, ()
        self._kept, new = split(state, self._kept)
        if not new:
            return self._kept.snapshot, ()
        keys = [(*self._run, name) for name in new]
        there = await self._store.load_many(VALUE, keys)  # an earlier state of this run may have held the same
        missing = [name for name, row in zip(new, there, strict=True) if row is None]
        return self._kept.snapshot, tuple(Value(*self._run, name, *pack(new[name]), at) for name in missing)


async def joined(store: Store, run: tuple[str, str], snapshot: bytes) -> Kept:
    """The state that a snapshot of a run stands for. Raises Corrupt, StoreError."""
    names = values_in(snapshot)
    rows = await store.load_many(VALUE, [(*run, name) for name in names]) if names else ()
    values = {row.hash: unpack(row.packed, row.body, row.hash) for row in rows if isinstance(row, Value)}
    return join(snapshot, values)


async def state_of_rows(store: Store, rows: RunRows) -> bytes:
    """The newest state in a run's rows. Raises Corrupt, StoreError."""
    kept = await joined(store, (rows.run.tenant, rows.run.run), rows.last.snapshot or EMPTY)
    return kept.state


def in_groups(values: Sequence[Value]) -> list[tuple[Put, ...]]:
    """Values as the writes of one commit each, all that fit beside a move."""
    groups: list[list[Put]] = []
    size = BESIDE_BYTES
    for value in values:
        size += len(value.body)
        if size > BESIDE_BYTES:
            groups.append([])
            size = len(value.body)
        groups[-1].append(Put(VALUE, value, 0))
    return [tuple(group) for group in groups]


def first_snapshot(tenant: str, run: str, state: bytes, at: int) -> tuple[bytes, tuple[Put, ...]]:
    """The snapshot that a run begins with, and its values: they land in the one commit that starts it.

    Raises LimitExceeded.
    """
    if len(state) > INPUT_BYTES_MAX:
        raise LimitExceeded(
            f"run {run} begins with too large a state",
            f"it takes {len(state):,} bytes, the limit at the start is {INPUT_BYTES_MAX:,}",
            "read what is large in the first node, or keep it elsewhere and give its address",
        )
    kept, new = split(state, None)
    return kept.snapshot, tuple(Put(VALUE, Value(tenant, run, name, *pack(new[name]), at), 0) for name in new)


async def values_of(store: Store, rows: RunRows, history: Sequence[Event] = ()) -> tuple[Value, ...]:
    """Every value of a run's states; none are looked for where no snapshot names one. Raises StoreError."""
    if not any((event.snapshot or b"")[:1] == MARK for event in (rows.last, *history)):
        return ()
    found: list[Value] = []
    run = (rows.run.tenant, rows.run.run)
    while page := await store.rows(VALUE, run, after=key_of(VALUE, found[-1]) if found else (), limit=VALUES_AT_ONCE):
        found += [row for row in page if isinstance(row, Value)]
    return tuple(found)

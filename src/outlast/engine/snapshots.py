"""Snapshots of a run's state: joined from chunks when read, split into chunks when written (CKP-3).

All readers of a snapshot use this module. A state below a few KB is its own snapshot.
"""

from collections.abc import Sequence
from typing import Final

from outlast.core.commit import Put
from outlast.core.limits import INPUT_BYTES_MAX
from outlast.core.rows.row_kind import key_of
from outlast.core.rows.run_rows import STATE_CHUNK, Event
from outlast.core.state.snapshot_codec import (
    MARK,
    WHOLE_BELOW,
    Snapshot,
    StateChunk,
    chunks_in,
    decode,
    encode,
    listing_of,
    pack,
    unpack,
)
from outlast.errors import LimitExceeded
from outlast.store.port import RunRows, Store

VALUES_AT_ONCE: Final = 100  # chunks in one read of all states of a run
EMPTY: Final = b"{}"
NOTHING_KEPT: Final = Snapshot(EMPTY, EMPTY)  # also after a whole state, because it has no spans to name again


class SnapshotStore:
    """State of one run in its holder: the last snapshot read or written, with which the next is compared."""

    def __init__(self, store: Store, tenant: str, run: str) -> None:
        self._store = store
        self._run = (tenant, run)
        self._kept = NOTHING_KEPT

    def in_memory(self, snapshot: bytes | None) -> bytes | None:
        """Return the state of a snapshot if no chunk of it must be read, else None."""
        snapshot = snapshot or EMPTY
        if snapshot[:1] != MARK:
            self._kept = NOTHING_KEPT
            return snapshot
        return self._kept.state if snapshot == self._kept.snapshot else None

    async def read(self, snapshot: bytes | None) -> bytes:
        """Return the state of a snapshot. Raises Corrupt if a chunk is missing or altered, StoreError."""
        state = self.in_memory(snapshot)
        if state is None:  # the last write did not land, or an earlier holder wrote this snapshot
            assert snapshot is not None
            self._kept = await joined(self._store, self._run, snapshot)
            state = self._kept.state
        return state

    async def write(self, state: bytes, at: int) -> tuple[bytes, tuple[StateChunk, ...]]:
        """Return the snapshot of a state and the chunks that must land with or before it. Raises StoreError."""
        if len(state) < WHOLE_BELOW:
            return state, ()
        self._kept, new = encode(state, self._kept)
        if not new:
            return self._kept.snapshot, ()
        keys = [(*self._run, name) for name in new]
        there = await self._store.load_many(
            STATE_CHUNK, keys
        )  # an earlier state of this run may have had the same chunk
        missing = [name for name, row in zip(new, there, strict=True) if row is None]
        return self._kept.snapshot, tuple(StateChunk(*self._run, name, *pack(new[name]), at) for name in missing)


async def joined(store: Store, run: tuple[str, str], snapshot: bytes) -> Snapshot:
    """Return the state of a snapshot. Raises Corrupt, StoreError."""
    values: dict[str, bytes] = {}
    await _read(store, run, snapshot, values)
    return decode(snapshot, values)


async def _read(store: Store, run: tuple[str, str], snapshot: bytes, values: dict[str, bytes]) -> None:
    """Read the chunks that a snapshot needs and that are not among `values`. Raises Corrupt, StoreError."""
    while missing := [name for name in chunks_in(snapshot, values) if name not in values]:
        rows = await store.load_many(STATE_CHUNK, [(*run, name) for name in missing])
        values |= {row.hash: unpack(row.packed, row.body, row.hash) for row in rows if row is not None}
        if None in rows:
            break


async def chunks_of(store: Store, run: tuple[str, str], snapshot: bytes, values: dict[str, bytes]) -> tuple[str, ...]:
    """Return the names of all chunks that a snapshot needs. Raises Corrupt, StoreError.

    `values`: chunks that list others, to which this adds those that it reads.
    """
    await _read(store, run, listing_of(snapshot), values)
    return chunks_in(snapshot, values)


async def state_of_rows(store: Store, rows: RunRows) -> bytes:
    """Return the newest state in a run's rows. Raises Corrupt, StoreError."""
    kept = await joined(store, (rows.run.tenant, rows.run.run), rows.last.snapshot or EMPTY)
    return kept.state


def first_snapshot(tenant: str, run: str, state: bytes, at: int) -> tuple[bytes, tuple[Put, ...]]:
    """Return the first snapshot of a run and its chunks, for the commit that starts it. Raises LimitExceeded."""
    if len(state) > INPUT_BYTES_MAX:
        raise LimitExceeded(
            f"run {run} begins with too large a state",
            f"it takes {len(state):,} bytes, the limit at the start is {INPUT_BYTES_MAX:,}",
            "read what is large in the first node, or keep it elsewhere and give its address",
        )
    kept, new = encode(state, None)
    return kept.snapshot, tuple(
        Put(STATE_CHUNK, StateChunk(tenant, run, name, *pack(new[name]), at), 0) for name in new
    )


async def values_of(store: Store, rows: RunRows, history: Sequence[Event] = ()) -> tuple[StateChunk, ...]:
    """Read all chunks of a run's states; none if no snapshot names one. Raises StoreError."""
    if not any((event.snapshot or b"")[:1] == MARK for event in (rows.last, *history)):
        return ()
    found: list[StateChunk] = []
    run = (rows.run.tenant, rows.run.run)
    while page := await store.rows(
        STATE_CHUNK, run, after=key_of(STATE_CHUNK, found[-1]) if found else (), limit=VALUES_AT_ONCE
    ):
        found += page
    return tuple(found)

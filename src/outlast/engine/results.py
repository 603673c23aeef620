"""Results of a visit: buffered, stored in chunks, and counted by the event of the next move (S-7).

The buffer belongs to one execution (CKP-4). A result that was not stored is emitted again under the same key by the
next one. A chunk and the move after it are in one chain, so no event counts a row that did not land.
"""

import asyncio
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

from pydantic import BaseModel, JsonValue

from outlast.core.codec import canonical, codec_of, plain_json
from outlast.core.keys import check_key
from outlast.core.limits import NAME, RESULT_BYTES_MAX, RESULTS_PER_VISIT_MAX
from outlast.core.rows.run_rows import RESULT, Result
from outlast.core.verbs import CHUNK_BYTES, CHUNK_ROWS, emit
from outlast.engine.run_session import RunSession
from outlast.errors import InvalidInput, LimitExceeded
from outlast.store.queries import LastOrdinals


class Produced(NamedTuple):
    """One result as the author emitted it."""

    key: str
    kind: str
    data: bytes


class StoredVersion(NamedTuple):
    """Version, ordinal and stamp of a row that the store has, or will have once the chain has landed."""

    version: int
    ordinal: int
    stamp: bytes


class ResultBuffer:
    """Buffer of the results of one execution."""

    def __init__(self, session: RunSession) -> None:
        self._ledger = session
        self._new: dict[str, Produced] = {}
        self._bytes = 0
        self._emitted: set[str] = set()
        self._stored: dict[str, StoredVersion] = {}
        self._rows = -1  # rows of the run after this chain; -1: not counted yet
        self._turn = asyncio.Lock()  # one chunk at a time, because each numbers its rows after the one before

    def add(self, produced: Produced) -> bool:
        """Add one result; True if a chunk should be stored. Raises LimitExceeded."""
        self._emitted.add(produced.key)
        if len(self._emitted) > RESULTS_PER_VISIT_MAX:
            raise LimitExceeded(
                f"more than {RESULTS_PER_VISIT_MAX:,} results in one visit",
                "an execution after a crash emits all of them again",
                "write the loop as a node that returns itself: each round is a visit, with a checkpoint",
            )
        before = self._new.get(produced.key)
        self._bytes += len(produced.data) - (len(before.data) if before else 0)
        self._new[produced.key] = produced
        return len(self._new) >= CHUNK_ROWS or self._bytes >= CHUNK_BYTES

    async def store(self) -> None:
        """Store all buffered results.

        Raises RunLost, ConditionFailed, StoreAway, StoreError. Results that did not land are emitted again.
        """
        async with self._turn:
            for chunk in self._chunks():
                if rows := await self._rows_of(chunk):
                    await self._ledger.chain.land(emit(self._ledger.held.run, rows))

    async def hand_in(self) -> None:
        """Submit the remaining results, so that the next move lands after them or not at all. Raises StoreError."""
        async with self._turn:
            for chunk in self._chunks():
                if rows := await self._rows_of(chunk):
                    self._ledger.chain.submit(emit(self._ledger.held.run, rows))

    def counted(self) -> dict[str, int]:
        """Return the run's number of results and how many of them this visit emitted, for the event."""
        assert not self._new and self._rows > 0, "handed in before"
        return {"count": self._rows, "emitted": len(self._emitted)}

    def _chunks(self) -> list[list[Produced]]:
        """Empty the buffer and return its results in pieces of one commit each."""
        taken, self._new, self._bytes = list(self._new.values()), {}, 0
        chunks: list[list[Produced]] = []
        bytes_left = 0
        for each in taken:
            if not chunks or len(chunks[-1]) == CHUNK_ROWS or bytes_left <= 0:
                chunks.append([])
                bytes_left = CHUNK_BYTES
            chunks[-1].append(each)
            bytes_left -= len(each.data)
        return chunks

    async def _rows_of(self, chunk: Sequence[Produced]) -> list[Result]:
        """Return the rows that differ from the stored ones: new ordinals, or the next version."""
        run, store = self._ledger.held.run, self._ledger.store
        await self._ledger.chain.entered()  # so that results of earlier visits in this chain can be read
        if unknown := [each.key for each in chunk if each.key not in self._stored]:
            found = await store.load_many(RESULT, [(run.tenant, run.run, key) for key in unknown])
            rows_there = [row for row in found if row is not None]
            self._stored |= {r.key: StoredVersion(r.version, r.ordinal, _stamp(r.kind, r.data)) for r in rows_there}
        if self._rows < 0:
            self._rows = await count_results(self._ledger)
        rows: list[Result] = []
        for each in chunk:
            before, stamp = self._stored.get(each.key), _stamp(each.kind, each.data)
            if before is not None and before.stamp == stamp:
                continue
            if before is None:
                self._rows += 1
            now = (
                StoredVersion(before.version + 1, before.ordinal, stamp)
                if before
                else StoredVersion(1, self._rows, stamp)
            )
            self._stored[each.key] = now
            at = self._ledger.clock.now.business
            rows.append(Result(run.tenant, run.run, each.key, now.version, now.ordinal, each.kind, each.data, at))
        return rows


def _stamp(kind: str, data: bytes) -> bytes:
    return sha256(kind.encode() + b"\0" + data).digest()


def produced(result: BaseModel | JsonValue, key: str, kind: str) -> Produced:
    """Return a result in its stored form. Raises InvalidInput, NotStorable, LimitExceeded."""
    check_key("a result", key, 'name what it is, e.g. ctx.emit(lead, key=f"lead/{lead.company_id}")')
    kind = kind or (type(result).__name__ if isinstance(result, BaseModel) else "")
    if kind and not NAME.fullmatch(kind):
        raise InvalidInput(f"a result cannot be of the kind {kind!r}"[:200], "letters, digits and . _ -", 'kind="lead"')
    data = _written(result) if isinstance(result, BaseModel) else canonical(result)
    if len(data) > RESULT_BYTES_MAX:
        raise LimitExceeded(
            f"result {key} is too large",
            f"it takes {len(data):,} bytes, the limit is {RESULT_BYTES_MAX:,}",
            "keep large values elsewhere (file, object store) and emit their address",
        )
    return Produced(key, kind, data)


def _written(result: BaseModel) -> bytes:
    codec = codec_of(type(result))
    data = codec.canonical(result)
    # clients read a result as JSON, so its computed fields stay
    return canonical(plain_json(result)) if codec.leaves_out else data


async def count_results(session: RunSession) -> int:
    """Return the number of results that the run has emitted, which is the last ordinal. Raises StoreError."""
    (count,) = await session.store.query(LastOrdinals(RESULT, ((session.held.run.tenant, session.held.run.run),)))
    return count

"""Codec of large states: each part is stored once as a chunk, and a snapshot lists the chunks in order.

A snapshot below `WHOLE_BELOW` bytes is the state itself. A larger one starts with a mark that no JSON starts with, then
a line of JSON: {"size", "values": hashes, "parts"}. Inline bytes follow. A part is either a number n (the next n inline
bytes) or [chunk, from, n] (a span of a chunk). The state is the concatenation of its parts. The codec treats a state as
bytes, so text of a user can never be read as a reference.

`encode` compares a state with the previous one. Spans that both contain refer to existing chunks; only new bytes become
chunks. Two different chunks with the same SHA-256 are assumed not to exist.
"""

import json
import zlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from operator import itemgetter
from typing import Final, NamedTuple

from outlast.core.limits import KIB, STATE_BYTES_MAX
from outlast.errors import Corrupt

MARK: Final = b"@"
WHOLE_BELOW: Final = 4 * KIB
INLINE_MAX: Final = 4 * KIB
"""New bytes up to this size stay in the snapshot itself, and become a chunk only once there are more."""
CHUNK_BYTES: Final = 64 * KIB
"""Maximum size of a chunk. A claim reads whole chunks; a change leaves the other chunks alone."""
SPAN_MIN: Final = 64
"""A shorter span costs more to reference than to write."""
PARTS_MAX: Final = 2_000
NEEDLE: Final = 48  # length of the byte string that is searched after a mismatch
SCANS_MAX: Final = 16
SEARCH_BYTES: Final = 8 * STATE_BYTES_MAX
"""One comparison searches so many times the state, and at most so many bytes: 1.6 ms for 1 MiB that is all new."""
PLAIN, ZLIB = 0, 1  # packing of a chunk
SAMPLE: Final = 2 * KIB
WORTH: Final = 0.9  # pack only if that saves a tenth
REPEATS: Final = 0.95  # search for repeats only if that saves a twentieth more


class StateChunk(NamedTuple):
    """Row of a large part of a run's state, stored once. Snapshots refer to it by hash (CKP-3)."""

    tenant: str
    run: str
    hash: str  # SHA-256 of the unpacked bytes, in hex
    packed: int  # how `body` is packed
    body: bytes
    at: int


class Span(NamedTuple):
    """A range of the state that equals a range of a chunk: `size` bytes from `at` equal those from `start`."""

    at: int
    size: int
    value: str
    start: int


class Snapshot(NamedTuple):
    """A state, its encoded snapshot, and the spans that chunks hold."""

    state: bytes
    snapshot: bytes
    spans: tuple[Span, ...]


def chunks_in(snapshot: bytes) -> tuple[str, ...]:
    """Return the hashes of the chunks that a snapshot names; () if it is the state itself. Raises Corrupt."""
    return _head(snapshot)[0] if snapshot[:1] == MARK else ()


def chunk_hash(value: bytes) -> str:
    """Return the hash under which a chunk is stored."""
    return sha256(value).hexdigest()


# --- from a snapshot to the state -------------------------------------------------------------
def decode(snapshot: bytes, values: Mapping[str, bytes]) -> Snapshot:
    """Return the state of a snapshot. Raises Corrupt if a chunk is missing or the parts do not add up."""
    if snapshot[:1] != MARK:
        return Snapshot(snapshot, snapshot, ())
    names, parts, size, at = _head(snapshot)
    found: list[bytes] = []
    stretches: list[Span] = []
    length = 0
    for part in parts:
        if isinstance(part, int):
            piece = snapshot[at : at + part]
            at += part
        else:
            value, start, n = part
            name = names[value]
            if name not in values:
                raise Corrupt(f"the state names a missing chunk: {name}")
            piece = values[name][start : start + n]
            stretches.append(Span(length, n, name, start))
        found.append(piece)
        length += len(piece)
    state = b"".join(found)
    if len(state) != size or at != len(snapshot):
        raise Corrupt(f"the parts of the state have {len(state):,} bytes, but its snapshot says {size:,}")
    return Snapshot(state, snapshot, tuple(stretches))


def _head(snapshot: bytes) -> tuple[tuple[str, ...], list[int | list[int]], int, int]:
    """Return chunk hashes, parts and size from the first line, and the offset of the inline bytes."""
    end = snapshot.find(b"\n")
    try:
        head = json.loads(snapshot[1:end])
        names, parts, size = tuple(map(str, head["values"])), head["parts"], int(head["size"])
        for part in parts:
            if not isinstance(part, int):
                value, start, n = part
                assert 0 <= value < len(names) and start >= 0 and n > 0
            else:
                assert part > 0
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        raise Corrupt(f"the snapshot of the state cannot be read: {error!r}") from error
    return names, parts, size, end + 1


# --- from a state to its snapshot -------------------------------------------------------------
def encode(state: bytes, before: Snapshot | None) -> tuple[Snapshot, dict[str, bytes]]:
    """Return the snapshot of a state, and the new chunks that it names."""
    if len(state) < WHOLE_BELOW:
        return Snapshot(state, state, ()), {}
    if before is not None and state == before.state and before.spans:
        return before, {}
    stretches = _named_again(state, before) if before is not None and before.spans else []
    known = {stretch.value for stretch in stretches}
    gaps = list(_gaps(stretches, len(state)))
    values: dict[str, bytes] = {}
    if sum(size for _, size in gaps) > INLINE_MAX:
        values, made = _values_of(state, gaps)
        stretches = sorted([*stretches, *made])
    snapshot = _written(state, stretches)
    return Snapshot(state, snapshot, tuple(stretches)), {k: v for k, v in values.items() if k not in known}


def _named_again(state: bytes, before: Snapshot) -> list[Span]:
    """Return the spans of `state` that existing chunks contain."""
    ends = [stretch.at + stretch.size for stretch in before.spans]
    found: list[Span] = []
    for old, new, size in _same(before.state, state):
        for stretch in before.spans[bisect_right(ends, old) :]:
            if stretch.at >= old + size:
                break
            first, last = max(old, stretch.at), min(old + size, stretch.at + stretch.size)
            again = Span(new + first - old, last - first, stretch.value, stretch.start + first - stretch.at)
            if again.size >= SPAN_MIN:
                found.append(again)
    return _in_few(found, len(state))


def _in_few(stretches: list[Span], size: int) -> list[Span]:
    """Drop spans that would make a claim read many chunks for few bytes; their bytes are written again together.

    A chunk that is still half used is always kept, so each byte is rewritten only a few times.
    """
    if len(stretches) > PARTS_MAX // 2:
        return []
    used = Counter[str]()
    for stretch in stretches:
        used[stretch.value] += stretch.size
    if len(used) <= 32 + 2 * (size // CHUNK_BYTES):
        return stretches
    return [stretch for stretch in stretches if used[stretch.value] >= CHUNK_BYTES // 2]


def _gaps(stretches: Sequence[Span], size: int) -> Iterator[tuple[int, int]]:
    at = 0
    for stretch in stretches:
        if stretch.at > at:
            yield at, stretch.at - at
        at = stretch.at + stretch.size
    if size > at:
        yield at, size - at


def _values_of(state: bytes, gaps: Sequence[tuple[int, int]]) -> tuple[dict[str, bytes], list[Span]]:
    """Return the bytes of all gaps as chunks, and the spans of the gaps in them."""
    fresh = b"".join([state[at : at + size] for at, size in gaps])
    pieces = [fresh[i : i + CHUNK_BYTES] for i in range(0, len(fresh), CHUNK_BYTES)]
    names = [chunk_hash(piece) for piece in pieces]
    made: list[Span] = []
    done = 0
    for at, size in gaps:
        while size:
            n, start = divmod(done, CHUNK_BYTES)
            length = min(size, CHUNK_BYTES - start)
            made.append(Span(at, length, names[n], start))
            at, size, done = at + length, size - length, done + length
    return dict(zip(names, pieces, strict=True)), made


def _written(state: bytes, stretches: Sequence[Span]) -> bytes:
    names: dict[str, int] = {}
    parts: list[int | list[int]] = []
    inline: list[bytes] = []
    at = 0
    for stretch in [*stretches, Span(len(state), 0, "", 0)]:
        if stretch.at > at:
            parts.append(stretch.at - at)
            inline.append(state[at : stretch.at])
        if stretch.size:
            parts.append([names.setdefault(stretch.value, len(names)), stretch.start, stretch.size])
        at = stretch.at + stretch.size
    head = json.dumps({"size": len(state), "values": list(names), "parts": parts}, separators=(",", ":"))
    return b"".join((MARK, head.encode(), b"\n", *inline))


# --- common ranges of two states ---------------------------------------------------------------
def _same(old: bytes, new: bytes) -> list[tuple[int, int, int]]:
    """Return equal ranges as (start in `old`, start in `new`, size), in the order of `new`.

    This is not a minimal difference. It finds the common start and end, between them ranges that reappear in the same
    order after a mismatch, and last those that moved. A missed range is written again, never wrong.
    """
    first = _alike(old, 0, new, 0, min(len(old), len(new)))
    last = _alike_back(old, len(old), new, len(new), min(len(old), len(new)) - first)
    budget = [min(SEARCH_BYTES, SCANS_MAX * len(new))]
    kept = _search((old, first, len(old) - last), (new, first, len(new) - last), budget, ordered=True)
    found = [(0, 0, first), *kept, (len(old) - last, len(new) - last, last)]
    at = 0
    moved: list[tuple[int, int, int]] = []
    for _, start, size in found:
        if start - at >= NEEDLE and len(found) + len(moved) < PARTS_MAX:
            again = _search((new, at, start), (old, 0, len(old)), budget, ordered=False)
            moved += [(before, after, length) for after, before, length in again]
        at = start + size
    return sorted([*found, *moved], key=itemgetter(1))


def _search(
    walked: tuple[bytes, int, int], searched: tuple[bytes, int, int], budget: list[int], *, ordered: bool
) -> list[tuple[int, int, int]]:
    """Return ranges of one text that occur in another, as (start, start there, size). Both are given with bounds.

    Ranges that are `ordered` follow each other in both texts.
    """
    a, i, end_i = walked
    b, j, end_j = searched
    found: list[tuple[int, int, int]] = []
    stride = 0
    while i + stride + NEEDLE <= end_i and j < end_j and budget[0] > 0 and len(found) < PARTS_MAX:
        at = b.find(a[i + stride : i + stride + NEEDLE], j, end_j)
        budget[0] -= (end_j if at < 0 else at) - j
        if at < 0:
            stride = max(64, min(4 * stride, stride + (end_i - i) // 8))
            continue
        back = _alike_back(a, i + stride, b, at, min(stride, at - j))
        size = back + _alike(a, i + stride, b, at, min(end_i - i - stride, end_j - at))
        i, at, stride = i + stride - back, at - back, 0
        found.append((i, at, size))
        i, j = i + size, at + size if ordered else j
    return found


def _alike(a: bytes, i: int, b: bytes, j: int, most: int) -> int:
    """Return the number of equal bytes from `i` and `j` on, up to `most`."""
    same, step = 0, 64
    while same < most:
        size = min(step, most - same)
        if a[i + same : i + same + size] == b[j + same : j + same + size]:
            same, step = same + size, 2 * step
        elif size == 1:
            return same
        else:
            step, most = size // 2, same + size  # the mismatch is in here: halve the step
    return same


def _alike_back(a: bytes, i: int, b: bytes, j: int, most: int) -> int:
    """Return the number of equal bytes before `i` and `j`, up to `most`."""
    same, step = 0, 64
    while same < most:
        size = min(step, most - same)
        if a[i - same - size : i - same] == b[j - same - size : j - same]:
            same, step = same + size, 2 * step
        elif size == 1:
            return same
        else:
            step, most = size // 2, same + size
    return same


# --- packing -------------------------------------------------------------------------------------
def pack(value: bytes) -> tuple[int, bytes]:
    """Return the packing and the packed bytes: compressed if a sample shows that compression pays.

    Text without repeated words, such as base64, is coded with Huffman codes only, which takes a third of the time.
    """
    half = len(value) // 2
    sample = value if len(value) <= SAMPLE else value[: SAMPLE // 2] + value[half : half + SAMPLE // 2]
    coded, repeats = len(_huffman(sample)), len(zlib.compress(sample, 1))
    if min(coded, repeats) > WORTH * len(sample):
        return PLAIN, value
    packed = zlib.compress(value, 1) if repeats < REPEATS * coded else _huffman(value)
    return (ZLIB, packed) if len(packed) <= WORTH * len(value) else (PLAIN, value)


def _huffman(value: bytes) -> bytes:
    work = zlib.compressobj(1, strategy=zlib.Z_HUFFMAN_ONLY)
    return work.compress(value) + work.flush()


def unpack(packed: int, body: bytes, name: str) -> bytes:
    """Return an unpacked chunk. Raises Corrupt if it does not match its hash."""
    try:
        value = body if packed == PLAIN else zlib.decompress(body)
    except zlib.error as error:
        raise Corrupt(f"a chunk of the state cannot be unpacked: {name}: {error}") from error
    if packed not in (PLAIN, ZLIB) or chunk_hash(value) != name:
        raise Corrupt(f"a chunk of the state does not match its hash: {name}")
    return value

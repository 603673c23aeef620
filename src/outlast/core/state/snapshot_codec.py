"""Codec of large states: each part is stored once as a chunk, and a snapshot lists the chunks in order.

A snapshot below `WHOLE_BELOW` bytes is the state itself. A larger state is a list of records: spans of chunks, and
literals, whose bytes are in the snapshot itself. The state is the concatenation of its records. The codec treats a
state as bytes, so text of a user can never be read as a reference.

The list of records is encoded in the same way once it is long: it is compared with the list of the previous snapshot,
and its parts become chunks. So a snapshot has about a kilobyte, however many chunks its state has. Its form is

    "@" size inline-size inline-bytes listing

where `listing` is "=" and the records, or again a snapshot that starts with "@": that of the list of records.

`encode` compares a state with the previous one. Spans that both contain refer to existing chunks; only new bytes become
chunks. Its work in Python grows with the changes, not with the number of chunks. Two different chunks with the same
name, the first 128 bits of SHA-256, are assumed not to exist.
"""

import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import islice
from operator import itemgetter
from struct import Struct, error
from typing import Final, NamedTuple

from outlast.core.limits import KIB, STATE_BYTES_MAX
from outlast.errors import Corrupt

MARK: Final = b"@"
WHOLE_BELOW: Final = 4 * KIB
INLINE_MAX: Final = KIB
"""New bytes up to this size stay in the snapshot itself, and become a chunk only once there are more."""
CHUNK_BYTES: Final = 64 * KIB
"""Maximum size of a chunk. A claim reads whole chunks; a change leaves the other chunks alone."""
SPAN_MIN: Final = 64
"""A shorter span costs more to reference than to write."""
SPANS_SPARE: Final = 512
"""A state has at most so many spans, and one more for each KB. Then its small spans are written again together."""
CHECK_EVERY: Final = 16
READ_SPARE: Final = 32 * CHUNK_BYTES
"""A claim reads at most so many bytes of chunks, and twice the state."""
RANGES_MAX: Final = 2_000
NEEDLE: Final = 48  # length of the byte string that is searched after a mismatch
SCANS_MAX: Final = 16
SEARCH_BYTES: Final = 8 * STATE_BYTES_MAX
"""One comparison searches so many times the state, and at most so many bytes: 1.6 ms for 1 MiB that is all new."""
SEARCH_SHARE: Final = 512
"""It also searches at most so many bytes for each byte without an equal: 0.3 ms for 2 KB that are appended."""
PLAIN, ZLIB = 0, 1  # packing of a chunk
SAMPLE: Final = 2 * KIB
WORTH: Final = 0.9  # pack only if that saves a tenth
REPEATS: Final = 0.95  # search for repeats only if that saves a twentieth more

LISTED: Final = b"="
LISTED_MAX: Final = KIB
"""A longer list of records is encoded as a state is."""
LISTED_INLINE_MAX: Final = 384
SIZES: Final = Struct(">II")
RECORD: Final = Struct(">16sHHH")
"""Name of a chunk, its size - 1, start of the span, and the size of the span - 1. A literal has no name."""
LITERAL: Final = bytes(16)


class StateChunk(NamedTuple):
    """Row of a large part of a run's state, stored once. Snapshots refer to it by name (CKP-3)."""

    tenant: str
    run: str
    hash: str  # name: the first 128 bits of the SHA-256 of the unpacked bytes, in hex
    packed: int  # how `body` is packed
    body: bytes
    at: int


class Span(NamedTuple):
    """A range of the state that equals a range of a chunk: `size` bytes from `at` equal those from `start`."""

    at: int
    size: int
    value: str
    start: int
    of: int  # size of the chunk
    record: bytes


class Snapshot(NamedTuple):
    """A state, its encoded snapshot, the spans that chunks hold, and the list of records by which they are stored."""

    state: bytes
    snapshot: bytes
    spans: tuple[Span, ...] = ()
    literals: tuple[tuple[int, int], ...] = ()  # (start, size) of the ranges between the spans
    records: bytes = b""
    listing: "Snapshot | None" = None  # the encoded list, if it is long


def chunks_in(snapshot: bytes, values: Mapping[str, bytes]) -> tuple[str, ...]:
    """Return the names of all chunks that a snapshot needs. Raises Corrupt.

    If its list of records is in chunks that are not among `values`, these are named, and not those in the list.
    """
    if snapshot[:1] != MARK:
        return ()
    _, _, listing = _parts(snapshot)
    if listing[:1] == LISTED:
        return _named(listing[1:])
    first = chunks_in(listing, values)
    if not all(name in values for name in first):
        return first
    return (*first, *_named(decode(listing, values).state))


def listing_of(snapshot: bytes) -> bytes:
    """Return the encoded list of records of a snapshot; b"" if its list is not in chunks. Raises Corrupt."""
    if snapshot[:1] != MARK:
        return b""
    listing = _parts(snapshot)[2]
    return listing if listing[:1] == MARK else b""


def _named(records: bytes) -> tuple[str, ...]:
    names = {records[i : i + 16] for i in range(0, len(records), RECORD.size)}
    return tuple(sorted(name.hex() for name in names if name != LITERAL))


def chunk_hash(value: bytes) -> str:
    """Return the name under which a chunk is stored."""
    return sha256(value).hexdigest()[:32]


# --- from a snapshot to the state -------------------------------------------------------------
def decode(snapshot: bytes, values: Mapping[str, bytes]) -> Snapshot:
    """Return the state of a snapshot. Raises Corrupt if a chunk is missing or the parts do not add up."""
    if snapshot[:1] != MARK:
        return Snapshot(snapshot, snapshot)
    size, inline, rest = _parts(snapshot)
    listing = decode(rest, values) if rest[:1] == MARK else None
    records = rest[1:] if listing is None else listing.state
    if len(records) % RECORD.size or (listing is None and rest[:1] != LISTED):
        raise Corrupt("the snapshot of the state cannot be read: its list of records is cut")
    found: list[bytes] = []
    spans: list[Span] = []
    literals: list[tuple[int, int]] = []
    length = used = 0
    for name, of, start, more in RECORD.iter_unpack(records):
        n = more + 1
        if name == LITERAL:
            piece = inline[used : used + n]
            used += n
            literals.append((length, n))
        else:
            value = name.hex()
            if value not in values:
                raise Corrupt(f"the state names a missing chunk: {value}")
            piece = values[value][start : start + n]
            spans.append(_span(length, n, value, start, of + 1))
        found.append(piece)
        length += len(piece)
    state = b"".join(found)
    if len(state) != size or used != len(inline):
        raise Corrupt(f"the parts of the state have {len(state):,} bytes, but its snapshot says {size:,}")
    return Snapshot(state, snapshot, tuple(spans), tuple(literals), records, listing)


def _parts(snapshot: bytes) -> tuple[int, bytes, bytes]:
    """Return size of the state, inline bytes and listing. Raises Corrupt."""
    try:
        size, n = SIZES.unpack_from(snapshot, 1)
    except error as broken:
        raise Corrupt(f"the snapshot of the state cannot be read: {broken}") from broken
    at = 1 + SIZES.size
    return size, snapshot[at : at + n], snapshot[at + n :]


# --- from a state to its snapshot -------------------------------------------------------------
def encode(state: bytes, before: Snapshot | None) -> tuple[Snapshot, dict[str, bytes]]:
    """Return the snapshot of a state, and the new chunks that it names."""
    if len(state) < WHOLE_BELOW:
        return Snapshot(state, state), {}
    return _encode(state, before, INLINE_MAX)


def _encode(state: bytes, before: Snapshot | None, inline_max: int) -> tuple[Snapshot, dict[str, bytes]]:
    if before is not None and not before.spans:
        before = None
    if before is not None and state == before.state:
        return before, {}
    spans, kept = _named_again(state, before) if before is not None else ([], 0)
    # of the first spans and the literals between them nothing changes
    done = spans[kept - 1].at + spans[kept - 1].size if kept else 0
    literals = list(before.literals[: bisect_left(before.literals, (done, 0))]) if before is not None else []
    same = kept + len(literals)
    literals += _gaps(islice(spans, kept, None), done, len(state))
    values: dict[str, bytes] = {}
    if sum(size for _, size in literals) > inline_max:
        values, made = _values_of(state, literals)
        kept = min(kept, bisect_left(spans, (literals[0][0],)))
        same, literals = kept, []
        spans[kept:] = sorted([*spans[kept:], *made])
        known = {span.value for span in before.spans} if before is not None else frozenset[str]()
        values = {name: value for name, value in values.items() if name not in known}
    first = before.records[: same * RECORD.size] if before is not None else b""
    records = first + _records(spans[kept:], literals[same - kept :])
    listing = None
    if len(records) > LISTED_MAX:
        earlier = before.listing if before is not None else None
        listing, of_list = _encode(records, earlier, LISTED_INLINE_MAX)
        values |= of_list
    inline = b"".join([state[at : at + size] for at, size in literals])
    listed = LISTED + records if listing is None else listing.snapshot
    snapshot = b"".join((MARK, SIZES.pack(len(state), len(inline)), inline, listed))
    return Snapshot(state, snapshot, tuple(spans), tuple(literals), records, listing), values


def _span(at: int, size: int, value: str, start: int, of: int) -> Span:
    return Span(at, size, value, start, of, RECORD.pack(bytes.fromhex(value), of - 1, start, size - 1))


def _end(span: Span) -> int:
    return span.at + span.size


def _named_again(state: bytes, before: Snapshot) -> tuple[list[Span], int]:
    """Return the spans of `state` that existing chunks contain, and how many first ones are those of `before`."""
    old_spans = before.spans
    ranges = _same(before.state, state)
    kept = bisect_right(old_spans, ranges[0][2], key=_end)
    found = list(old_spans[:kept])
    whole = kept
    for n, (old, new, size) in enumerate(ranges):
        i = kept if n == 0 else bisect_right(old_spans, old, key=_end)
        j = bisect_right(old_spans, old + size, i, key=_end)
        if i < len(old_spans) and i <= j and (span := old_spans[i]).at < old:  # its end is in the range
            found += _cut(span, old, new, size)
            i += 1
        moved = new - old
        found += [Span(s.at + moved, s.size, s.value, s.start, s.of, s.record) for s in old_spans[i:j]]
        whole += max(0, j - i)
        if i <= j < len(old_spans):
            found += _cut(old_spans[j], old, new, size)
    if len(found) % CHECK_EVERY and whole + 2 >= len(old_spans) and len(found) <= SPANS_SPARE + len(state) // KIB:
        return found, kept  # next to nothing was removed, so a claim reads what it read before
    few = _in_few(found, len(state))
    return few, kept if len(few) == len(found) else 0


def _cut(span: Span, old: int, new: int, size: int) -> list[Span]:
    """Return the part of a span in the range of `size` bytes from `old` that is now at `new`, if it is long enough."""
    first, last = max(old, span.at), min(old + size, _end(span))
    if last - first < SPAN_MIN:
        return []
    return [_span(new + first - old, last - first, span.value, span.start + first - span.at, span.of)]


def _in_few(spans: list[Span], size: int) -> list[Span]:
    """Drop spans that would make a claim read many chunks for few bytes; their bytes are written again together.

    A chunk that is still half used is always kept, so each byte is rewritten only a few times.
    """
    if len(spans) > SPANS_SPARE + size // KIB:
        return [span for span in spans if span.size >= CHUNK_BYTES // 2]
    used: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for span in spans:
        used[span.value] = used.get(span.value, 0) + span.size
        sizes[span.value] = span.of
    if sum(sizes.values()) <= READ_SPARE + 2 * size:
        return spans
    return [span for span in spans if 2 * used[span.value] >= span.of]


def _gaps(spans: Iterator[Span], at: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges from `at` on that no span has."""
    for span in spans:
        if span.at > at:
            yield at, span.at - at
        at = _end(span)
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
            made.append(_span(at, length, names[n], start, len(pieces[n])))
            at, size, done = at + length, size - length, done + length
    return dict(zip(names, pieces, strict=True)), made


def _records(spans: Sequence[Span], literals: Sequence[tuple[int, int]]) -> bytes:
    """Return the records of spans and literals in the order of the state."""
    found: list[bytes] = []
    i = 0
    for at, size in literals:
        j = bisect_left(spans, (at,), i)
        found += [span.record for span in spans[i:j]]
        found.append(RECORD.pack(LITERAL, 0, 0, size - 1))
        i = j
    found += [span.record for span in spans[i:]]
    return b"".join(found)


# --- common ranges of two states ---------------------------------------------------------------
def _same(old: bytes, new: bytes) -> list[tuple[int, int, int]]:
    """Return equal ranges as (start in `old`, start in `new`, size), in the order of `new`.

    This is not a minimal difference. It finds the common start and end, between them ranges that reappear in the same
    order after a mismatch, and last those that moved. A missed range is written again, never wrong.
    """
    first = _alike(old, 0, new, 0, min(len(old), len(new)))
    last = _alike_back(old, len(old), new, len(new), min(len(old), len(new)) - first)
    left = min(SEARCH_BYTES, SCANS_MAX * len(new))
    budget = [given := min(left, SEARCH_SHARE * (len(new) - first - last))]
    kept = _search((old, first, len(old) - last), (new, first, len(new) - last), budget, ordered=True)
    left -= given - budget[0]
    found = [(0, 0, first), *kept, (len(old) - last, len(new) - last, last)]
    at = 0
    moved: list[tuple[int, int, int]] = []
    for _, start, size in found:
        if start - at >= NEEDLE and len(found) + len(moved) < RANGES_MAX:
            budget = [given := min(left, SEARCH_SHARE * (start - at))]
            again = _search((new, at, start), (old, 0, len(old)), budget, ordered=False)
            left -= given - budget[0]
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
    while i + stride + NEEDLE <= end_i and j < end_j and budget[0] > 0 and len(found) < RANGES_MAX:
        end = min(end_j, j + budget[0])
        at = b.find(a[i + stride : i + stride + NEEDLE], j, end)
        budget[0] -= (end if at < 0 else at) - j
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

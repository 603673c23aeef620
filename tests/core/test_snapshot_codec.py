"""Snapshot codec: states survive exactly, unchanged bytes are written once, and damage is reported."""

import json
import random
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlast.core.limits import KIB, STATE_BYTES_MAX
from outlast.core.state import snapshot_codec
from outlast.core.state.snapshot_codec import (
    CHUNK_BYTES,
    INLINE_MAX,
    LISTED_MAX,
    MARK,
    RECORD,
    SCANS_MAX,
    SEARCH_BYTES,
    SPANS_SPARE,
    WHOLE_BELOW,
    Snapshot,
    chunk_hash,
    chunks_in,
    decode,
    encode,
    pack,
    unpack,
)
from outlast.errors import Corrupt

pytestmark = pytest.mark.req("CKP-3")

WORDS = st.sampled_from(["$ref", "@", '{"size":1}\n', "\n", "ü🙂", '"', "\\", "a" * 40, "", "0" * 300])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(WORDS | st.text(max_size=5), inner, max_size=5),
    max_leaves=30,
)


class StoredState:
    """The stored states of one run, with the number of bytes written."""

    def __init__(self) -> None:
        self.kept: Snapshot | None = None
        self.values: dict[str, bytes] = {}
        self.new: list[str] = []
        self.written = 0

    def keep(self, state: bytes, *, read: bool = True) -> Snapshot:
        """Write a state and read it back, as the next holder would."""
        self.kept, new = encode(state, self.kept)
        self.new = [name for name in new if name not in self.values]
        self.written += sum(len(new[name]) for name in self.new) + len(self.kept.snapshot)
        self.values |= new
        assert all(chunk_hash(body) == name and len(body) <= CHUNK_BYTES for name, body in new.items())
        if not read:
            return self.kept
        named = {name: self.values[name] for name in self.named}
        again = decode(self.kept.snapshot, named)
        assert again == self.kept and again.state == state
        return self.kept

    @property
    def named(self) -> tuple[str, ...]:
        """The names of all chunks that a claim reads."""
        assert self.kept is not None
        return chunks_in(self.kept.snapshot, self.values)


def text(seed: int, size: int) -> str:
    return random.Random(seed).randbytes(size // 2).hex()


def dumped(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


# --- what comes out is what went in ------------------------------------------------------------
@settings(deadline=None)
@given(st.lists(JSON, min_size=1, max_size=6), st.integers(0, 3))
def test_states_come_back_byte_for_byte(parts: list[Any], blow: int) -> None:
    """Any JSON, keys that look like a reference among it, below the threshold and above, changed in any place."""
    stored = StoredState()
    state: dict[str, Any] = {"pad": text(1, WHOLE_BELOW * blow)}
    for n, part in enumerate(parts):
        state[f"f{n % 3}"] = part
        state["list"] = [*state.get("list", []), part]
        stored.keep(dumped(state))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60_000), st.integers(0, 6_000), st.binary(max_size=6_000)), max_size=12))
def test_any_edit_of_any_bytes(edits: list[tuple[int, int, bytes]]) -> None:
    """Insertions, deletions and replacements anywhere; JSON or not."""
    stored = StoredState()
    state = random.Random(2).randbytes(40_000)
    stored.keep(state)
    for at, gone, put in edits:
        state = state[:at] + put + state[at + gone :]
        stored.keep(state)


@pytest.mark.parametrize("state", [b"{}", b'"@"', b"[" + b"1," * 1_500 + b"1]"])
def test_a_small_state_is_its_own_snapshot(state: bytes) -> None:
    assert encode(state, None) == (Snapshot(state, state), {})
    assert decode(state, {}).state is state and chunks_in(state, {}) == ()


def test_a_state_that_becomes_small_and_large_again() -> None:
    stored = StoredState()
    large = dumped({"a": text(1, 50_000)})
    first = stored.keep(large)
    assert stored.keep(b"{}").snapshot == b"{}"
    assert stored.keep(large).snapshot == first.snapshot and not stored.new


# --- what is written ---------------------------------------------------------------------------
def test_an_unchanged_field_is_not_written_again() -> None:
    """A counter before it and a log after it change; 390 KB between them do not."""
    stored = StoredState()
    state: dict[str, Any] = {"n": 0, "cargo": [text(i, 39_000) for i in range(10)], "log": []}
    stored.keep(dumped(state))
    first = stored.written
    assert first < 1.02 * 390_000
    for n in range(200):
        state["n"] = n
        state["log"].append(f"step {n}")
        stored.keep(dumped(state))
    assert stored.written - first < 200 * (INLINE_MAX + 1_500)
    assert sum(map(len, stored.values.values())) < 410_000


def test_one_field_of_many_changes() -> None:
    stored = StoredState()
    state = {f"field {i}": text(i, 40_000) for i in range(10)}
    stored.keep(dumped(state))
    first = stored.written
    state["field 4"] = text(99, 40_000)
    stored.keep(dumped(state))
    assert 40_000 <= stored.written - first < 43_000


def test_a_field_goes_and_the_rest_moves_up() -> None:
    stored = StoredState()
    first, second = text(1, 100_000), text(2, 100_000)
    stored.keep(dumped({"a": first, "n": 1, "b": second}))
    stored.keep(dumped({"n": 1, "b": second}))
    assert not stored.new


@pytest.mark.parametrize("cut", [100, 150_000, 299_000])
def test_a_part_that_moved_is_not_written_again(cut: int) -> None:
    """The text is rotated: a start becomes an end."""
    stored = StoredState()
    cargo = text(1, 300_000)
    stored.keep(dumped({"n": 9, "text": cargo}))
    stored.keep(dumped({"n": 10, "text": cargo[cut:] + cargo[:cut]}))
    assert not stored.new and stored.kept is not None
    assert len(stored.kept.snapshot) < 1_300


def test_items_in_another_order_are_not_written_again() -> None:
    stored = StoredState()
    items = [text(i, 30_000) for i in range(20)]
    stored.keep(dumped(items))
    random.Random(1).shuffle(items)
    stored.keep(dumped(items))
    assert not stored.new


@pytest.mark.parametrize(("size", "most"), [(2_000, 1.35), (900, 2.2), (200, 5.5)])
def test_a_growing_list_is_written_once(size: int, most: float) -> None:
    """An item is appended in each of 400 steps, behind a counter: it is written once, beside a small snapshot."""
    stored = StoredState()
    state: dict[str, Any] = {"n": 0, "items": []}
    half = 0
    for n in range(400):
        state["n"] = n
        state["items"].append({"id": n, "what": text(n, size)})
        stored.keep(dumped(state), read=n % 20 == 0)
        half = stored.written if n == 199 else half
    assert stored.kept is not None
    cargo = len(stored.kept.state)
    assert cargo > 400 * size
    assert stored.written < most * cargo
    assert stored.written < 2.1 * half, "quadratic would be 4"
    assert len(stored.kept.snapshot) < 2_500
    assert len(stored.named) < 1.1 * 400


def test_many_small_parts_are_written_again_together() -> None:
    """A claim reads at most so many chunks: 600 bytes are appended, and an earlier item changes."""
    stored = StoredState()
    items = [text(1, 600)]
    dice = random.Random(1)
    for n in range(600):
        items.append(text(n, 600))
        items[dice.randrange(len(items))] = text(-n, 600)
        stored.keep(dumped(items), read=n % 20 == 0)
    assert stored.kept is not None
    cargo = len(stored.kept.state)
    assert len(stored.named) < SPANS_SPARE + cargo // KIB + LISTED_MAX
    assert stored.written < 6 * cargo


def test_edits_in_many_places_cost_what_they_change() -> None:
    stored = StoredState()
    dice = random.Random(3)
    items = [{"id": i, "what": text(i, 1_000), "status": "open"} for i in range(390)]
    stored.keep(dumped(items))
    first = stored.written
    for _ in range(50):
        for _ in range(20):
            dice.choice(items)["status"] = dice.choice(["open", "won", "lost"])
        stored.keep(dumped(items))
    assert stored.written - first < 50 * 20_000


def test_a_stored_chunk_is_referenced_again_by_its_hash() -> None:
    """A value of an earlier state has the same name, so the writer looks it up in the store."""
    one, two = dumped({"a": text(1, 60_000)}), dumped({"a": text(2, 60_000)})
    stored = StoredState()
    stored.keep(one)
    stored.keep(two)
    stored.keep(one)
    assert not stored.new


@pytest.mark.parametrize("kind", ["new", "shuffled"])
def test_a_comparison_searches_a_bounded_number_of_bytes(kind: str) -> None:
    """All bytes are new, or 8,000 short items change their order. Counted in bytes, not by a clock."""
    searched: list[int] = []

    class Counting(bytes):
        def find(self, needle: bytes, start: int, end: int) -> int:  # type: ignore[override]
            at = super().find(needle, start, end)
            searched.append((end if at < 0 else at) - start)
            return at

    items = [random.Random(i).randbytes(500) for i in range(8_000)]
    old = b"".join(items)
    random.Random(1).shuffle(items)
    new = random.Random(2).randbytes(4_000_000) if kind == "new" else b"".join(items)
    kept, _ = encode(Counting(old), None)
    encode(Counting(new), kept)
    assert 0 < sum(searched) <= min(SEARCH_BYTES, SCANS_MAX * len(new)) + len(new)


def test_the_largest_state_has_a_snapshot_that_fits_a_row() -> None:
    kept, new = encode(random.Random(1).randbytes(STATE_BYTES_MAX), None)
    assert len(kept.snapshot) < 1_000 and len(new) == STATE_BYTES_MAX // CHUNK_BYTES + 1, "and the list of them"


# --- packing and what is broken ------------------------------------------------------------------
def test_packed_where_it_pays() -> None:
    words = ("so it goes, " * 5_000).encode()
    packed, body = pack(words)
    assert packed == snapshot_codec.ZLIB and len(body) < len(words) // 10
    assert unpack(packed, body, chunk_hash(words)) == words
    noise = random.Random(1).randbytes(50_000)
    assert pack(noise) == (snapshot_codec.PLAIN, noise)
    assert unpack(snapshot_codec.PLAIN, noise, chunk_hash(noise)) == noise


def test_text_without_repeats_is_packed_close_to_its_entropy() -> None:
    """Level 1 of zlib, which searches for repeats, makes 0.59 and 0.77 of these."""
    noise = random.Random(1).randbytes(48_000)
    for value, share in ((noise.hex().encode(), 0.52), (b64encode(noise), 0.76)):
        packed, body = pack(value)
        assert packed == snapshot_codec.ZLIB and len(body) < share * len(value)
        assert unpack(packed, body, chunk_hash(value)) == value


@given(st.binary(max_size=10_000))
def test_any_value_comes_back(value: bytes) -> None:
    assert unpack(*pack(value), chunk_hash(value)) == value


@pytest.mark.parametrize(
    ("packed", "body"), [(0, b"another"), (1, b"no zlib"), (7, b"value")], ids=["changed", "cut", "unknown"]
)
def test_a_value_that_is_not_its_hash(packed: int, body: bytes) -> None:
    with pytest.raises(Corrupt):
        unpack(packed, body, chunk_hash(b"value"))


def test_a_snapshot_whose_parts_are_missing_or_do_not_fit() -> None:
    kept, values = encode(dumped({"a": text(1, 50_000)}), None)
    assert kept.snapshot[:1] == MARK and decode(kept.snapshot, values).state == kept.state
    with pytest.raises(Corrupt, match="missing chunk"):
        decode(kept.snapshot, {})
    for n in range(1, len(kept.snapshot)):
        with pytest.raises(Corrupt):
            decode(kept.snapshot[:n], values)
    record = kept.snapshot[-RECORD.size :]
    another = RECORD.pack(bytes.fromhex(chunk_hash(b"")), 0, 0, 9)
    for broken in (kept.snapshot + b"x", kept.snapshot + record, kept.snapshot[: -RECORD.size] + another):
        with pytest.raises(Corrupt):
            decode(broken, values)


def test_a_chunk_of_the_list_of_parts_is_missing() -> None:
    """The list of 129 parts is itself in a chunk, which is named first."""
    kept, values = encode(random.Random(1).randbytes(STATE_BYTES_MAX), None)
    assert kept.listing is not None
    listed = chunks_in(kept.snapshot, {})
    assert len(listed) == 1 and {*chunks_in(kept.snapshot, values)} == values.keys()
    with pytest.raises(Corrupt, match=f"missing chunk: {listed[0]}"):
        decode(kept.snapshot, {name: value for name, value in values.items() if name != listed[0]})

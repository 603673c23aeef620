"""Rows as items: every row comes back as it was, and the order and the prefixes of keys are those of the rows."""

from enum import StrEnum
from itertools import pairwise
from typing import Any, get_type_hints

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from outlast.core.events import EventType
from outlast.core.graph_threads import ID_BYTES_MAX, NS_BYTES_MAX, THREAD_BYTES_MAX
from outlast.core.limits import ITEM_BYTES, KEY_BYTES_MAX, KIB, ROW_BYTES_MAX
from outlast.core.machine import ENDED, EffectStatus, RunStatus
from outlast.core.rows.all_kinds import KINDS
from outlast.core.rows.effect_rows import EFFECT, EVIDENCE, MEMO, USAGE
from outlast.core.rows.graph_rows import GRAPH_KINDS
from outlast.core.rows.limit_rows import SLOT
from outlast.core.rows.outbox_rows import CURSOR, DELIVERY, UNPUBLISHED
from outlast.core.rows.row_kind import AnyKind, Key
from outlast.core.rows.run_rows import EVENT, MESSAGE, RESULT, RUN, STATE_CHUNK, TOKEN, Run
from outlast.core.rows.store_rows import WRITER
from outlast.errors import Corrupt
from outlast.store.bounds import INT_MAX
from outlast.store.dynamodb import items
from outlast.store.dynamodb.items import Item, Stamp, Torn
from tests.conformance.subject import T0, effect_row, event_row, run_row
from tests.dynamodb.item_sizes import item_bytes
from tests.mutants import remove

STAMP = Stamp("writer-1", 0, 7)
AWS_ITEM_BYTES = 400 * KIB
SORT_KEY_BYTES = 1024

names = st.sampled_from([kind.name for kind in KINDS])
BY_NAME = {kind.name: kind for kind in KINDS}
# Few characters, so that texts often share their beginnings: those around the separator, control characters, and more.
hostile = st.text(st.sampled_from('#$%!"& \x01\t\x7fAab~é€😀'), max_size=5)
texts = hostile | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
small = st.integers(0, 3) | st.sampled_from([9, 10, 11, 99, 100])
wide = st.integers(-INT_MAX - 1, INT_MAX)


def column(hint: Any) -> st.SearchStrategy[Any]:
    """Return values of a column of this type."""
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return st.sampled_from(list(hint))
    found: dict[Any, st.SearchStrategy[Any]] = {
        str: texts, int: wide, bytes: st.binary(max_size=20), int | None: st.none() | wide,
        bytes | None: st.none() | st.binary(max_size=20),
    }  # fmt: skip
    return found[hint]


@st.composite
def keys(draw: st.DrawFn, kind: AnyKind, texts: st.SearchStrategy[str] = hostile) -> Key:
    hints = list(get_type_hints(kind.row).values())[: kind.key]
    return tuple(draw(texts if hint is str else small | wide) for hint in hints)


@st.composite
def rows(draw: st.DrawFn) -> tuple[AnyKind, Any]:
    """Draw a row of any kind. Runs and effects keep their invariants, because a read checks them."""
    kind = BY_NAME[draw(names)]
    values = [draw(column(hint)) for hint in get_type_hints(kind.row).values()]
    row: Any = kind.row(*values)
    if kind is RUN:
        due_at = draw(st.none() | st.just(0) | st.integers(1, INT_MAX))
        row = row._replace(
            status=RunStatus.WAITING, owner="", ended_at=0, due_at=due_at, waiting_for_text="x" + row.waiting_for_text,
            version=1, seq=1, visit=1, inbox_seq=abs(row.inbox_seq), epoch=abs(row.epoch),
            crash_count=abs(row.crash_count), group_max=abs(row.group_max), restored=abs(row.restored),
            ceiling_at=abs(row.ceiling_at),
        )  # fmt: skip
    elif kind is EFFECT:
        row = row._replace(
            status=EffectStatus.INTENDED, settled_at=0, attempts=1, ordinal=1, not_after=INT_MAX, run="r" + row.run,
            by_run="", shared=0, keep_ms=0, redone=0,
        )  # fmt: skip
    return kind, row


@given(rows())
def test_every_row_comes_back_as_it_was(drawn: tuple[AnyKind, Any]) -> None:
    kind, row = drawn
    (item,) = items.encode(kind, row, STAMP, mapping=3)
    assert items.decode(kind, item) == row
    assert items.kind_of(item["sk"]["S"]) is kind
    assert item["receipt"] == {"S": "writer-1/0/7"}
    if kind is RUN:
        assert items.revision(item) == (row, 3, False)
    for index in items.INDEXES[items.place(kind, row[: kind.key]).table].values():
        (hashed, hash_type), (ranged, range_type) = index
        if hashed in item:
            assert item[hashed][hash_type], "a key of an index is not empty"
            assert item[ranged][range_type], "an index has no item without its sort key"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_order_of_keys_is_that_of_the_rows(kind: AnyKind) -> None:
    @settings(max_examples=25)
    @given(st.lists(keys(kind), min_size=2, max_size=8))
    @example(
        [_key(kind, "a"), _key(kind, "a b"), _key(kind, "a#"), _key(kind, "a$b"), _key(kind, "a  "), _key(kind, "")]
    )
    def check(drawn: list[Key]) -> None:
        placed: dict[tuple[str, str], list[tuple[bytes, Key]]] = {}
        for key in drawn:
            where = items.place(kind, key)
            placed.setdefault((where.table, where.pk), []).append((where.sk.encode(), key))
        for group in placed.values():
            assert [key for _, key in sorted(group)] == sorted(key for _, key in group)
        assert len({items.place(kind, key) for key in drawn}) == len(set(drawn))
        assert all(items.kind_of(items.place(kind, key).sk) is kind for key in drawn)

    check()


def _key(kind: AnyKind, text: str) -> Key:
    return tuple("t" if i == 0 else text if hint is str else 1 for i, hint in enumerate(_hints(kind)))


def _hints(kind: AnyKind) -> list[Any]:
    return list(get_type_hints(kind.row).values())[: kind.key]


def test_ten_comes_after_two() -> None:
    assert items.place(EVENT, ("t", "r", 2)).sk < items.place(EVENT, ("t", "r", 10)).sk
    assert items.place(EVENT, ("t", "r", 10)) == ("checkpoints", "t#r", "checkpoint#0000000000000000010")
    assert items.place(EFFECT, ("t", "r", 3, "invite/s-1")) == ("idempotency", "t#r", f"{3:019d}#invite/s-1")
    assert items.place(TOKEN, ("t", "", "start")) == ("idempotency", "t#", f"{0:019d}#start#token")
    assert items.place(RUN, ("t", "r")) == ("runs", "t#r", "run")


def test_without_padding_ten_comes_before_two(monkeypatch: pytest.MonkeyPatch) -> None:
    remove("numbers_not_padded", monkeypatch)
    assert items.place(EVENT, ("t", "r", 10)).sk < items.place(EVENT, ("t", "r", 2)).sk


@st.composite
def worlds(draw: st.DrawFn) -> tuple[AnyKind, Key, Key, list[tuple[AnyKind, Key]]]:
    """Draw rows of several kinds, and a prefix of one of them with the key after which to begin."""
    few = st.text(st.sampled_from("#$a "), max_size=2)
    found = [
        (kind, draw(keys(kind, few)))
        for kind in draw(st.lists(names.map(BY_NAME.__getitem__), min_size=1, max_size=12))
    ]
    kind, key = draw(st.sampled_from(found))
    prefix = key[: draw(st.integers(0, kind.key))]
    rest = draw(st.sampled_from([key for each, key in found if each is kind and key[: len(prefix)] == prefix] + [()]))
    return kind, prefix, rest[: draw(st.integers(len(prefix), kind.key))] if rest else (), found


@settings(max_examples=150)
@given(worlds())
def test_a_range_holds_exactly_the_rows_under_a_prefix(
    world: tuple[AnyKind, Key, Key, list[tuple[AnyKind, Key]]],
) -> None:
    kind, prefix, after, stored = world
    found = items.within(kind, prefix, after)
    if found is None:
        return
    met = {
        key for each, key in stored
        if each is kind and (where := items.place(each, key))[:2] == found[:2]
        and found.low.encode() <= where.sk.encode() <= found.high.encode()
    }  # fmt: skip
    under = {key for each, key in stored if each is kind and key[: len(prefix)] == prefix}
    assert met == {key for key in under if len(after) <= len(prefix) or key[: len(after)] > after}


def test_the_rows_of_one_partition_need_no_scan() -> None:
    for kind in KINDS:
        own = kind.columns[1] in ("run", "thread")
        assert (items.within(kind, ("t", "r")) is not None) and (items.within(kind, ("t",)) is None) == (
            own and kind is not UNPUBLISHED
        ), kind.name
    assert items.within(SLOT, ()) == ("runs", "*#", "slot#", "slot$")


def _cut(part: str | int, most: int) -> str | int:
    return part.encode()[:most].decode(errors="ignore") if isinstance(part, str) else part


@pytest.mark.parametrize(
    "key",
    ["k" * KEY_BYTES_MAX, "#" * KEY_BYTES_MAX, "# " * 250, "#a" * 250, "a#" * 250, "€" * 166, "start/w/" + "😀" * 255],
)
def test_the_longest_keys_fit(key: str) -> None:
    name = "n" * 100
    for kind in KINDS:
        of_run = kind.columns[1] == "run"
        parts = [
            name,
            *([name] if of_run else []),
            *(key if hint is str else INT_MAX for hint in _hints(kind)[1 + of_run :]),
        ]
        if kind in GRAPH_KINDS:  # `check_key` has their limits
            longest = (0, THREAD_BYTES_MAX, NS_BYTES_MAX, ID_BYTES_MAX, ID_BYTES_MAX, 0)
            parts[1:] = [_cut(part, most) for part, most in zip(parts[1:], longest[1:], strict=False)]
        where = items.place(kind, tuple(parts))
        assert len(f"{where.sk}#body#00".encode()) <= SORT_KEY_BYTES
        assert len(where.pk.encode()) <= 2 * SORT_KEY_BYTES


def test_the_order_holds_up_to_the_longest_key_of_an_author() -> None:
    begin = "# " * 249 + "a"
    keys = sorted([begin, begin + "#", begin + "b", begin[:-1] + "$", begin[:-1]])
    assert [items.place(MEMO, ("t", "r", 1, key)).sk for key in keys] == sorted(
        items.place(MEMO, ("t", "r", 1, key)).sk for key in keys
    )
    longer = ["😀" * 250 + end for end in ("", "a", "#", "$", "$~", "😀😀")]
    places = {items.place(TOKEN, ("t", "", key)) for key in longer}
    assert len(places) == len(longer) and all(items.kind_of(place.sk) is TOKEN for place in places)
    found = items.within(TOKEN, ("t", ""))
    assert found is not None and all(found.low < place.sk < found.high for place in places)


# --- attributes of a run's item besides its columns -----------------------------------------------
def item_of(kind: AnyKind, row: Any, mapping: int = 1) -> Item:
    return items.encode(kind, row, STAMP, mapping=mapping)[0]


def test_a_run_is_in_the_indexes_that_it_needs() -> None:
    due = item_of(RUN, run_row())
    assert (due["due_lane"], due["list"], due["list_at"]) == ({"S": "auction@1#1"}, {"S": "run#acme"}, {"N": str(T0)})
    assert due["mapping"] == {"N": "1"} and (due["writer"], due["batch"]) == ({"S": "writer-1"}, {"N": "7"})
    assert not {"held_by", "queue_of", "ended_of", "ttl"} & due.keys()
    assert item_of(RUN, run_row(), mapping=2)["due_lane"] == {"S": "auction@1#2"}
    held = item_of(RUN, run_row(owner="w-1", status=RunStatus.RUNNING))
    assert held["held_by"] == {"S": "w-1"}
    waits = item_of(RUN, run_row(due_at=None, waiting_for_text="x", queue="acme"))
    assert "due_lane" not in waits and "due_at" not in waits and waits["queue_of"] == {"S": "acme"}
    over = item_of(RUN, run_row(owner=ENDED, status=RunStatus.COMPLETED, ended_at=T0, due_at=None))
    assert over["ended_of"] == {"S": "acme"} and not {"held_by", "due_lane"} & over.keys()


def test_a_cursor_is_listed_while_it_owes_an_event() -> None:
    cursor = CURSOR.row("t", "r", "s", 1, 0, "", 5, 0, 1, 0, 0, 0, 0)
    item = item_of(CURSOR, cursor)
    assert (item["list"]["S"], item["list_at"]) == (items.list_of(CURSOR, "t", "s"), {"N": "5"})
    assert "list" not in item_of(CURSOR, cursor._replace(due_at=None))


def test_a_checkpoint_names_the_completed_node() -> None:
    event = event_row(seq=12, snapshot=b'{"bids":3}')._replace(
        kind=EventType.CHECKPOINT.removeprefix("dev.outlast."),
        node="route",
        details=b'{"completed":"plan","next":"route"}',
    )
    item = item_of(EVENT, event)
    assert {name: item[name] for name in ("step_name", "step_status", "sfn_state", "completed_at", "version")} == {
        "step_name": {"S": "plan"}, "step_status": {"S": "completed"}, "sfn_state": {"B": b'{"bids":3}'},
        "completed_at": {"N": str(T0)}, "version": {"N": "12"},
    }  # fmt: skip
    assert items.decode(EVENT, item) == event
    assert not {"step_name", "sfn_state", "version"} & item_of(EVENT, event_row(snapshot=None)).keys()
    assert items.decode(EVENT, item_of(EVENT, event_row(snapshot=b""))) == event_row(snapshot=b"")


def test_an_expired_item_counts_as_absent() -> None:
    item = items.encode(RESULT, RESULT.row("t", "r", "k", 1, 1, "bid", b"1", T0), STAMP, ttl=T0 // 1000)[0]
    assert not items.has_expired(item, T0 - 1) and items.has_expired(item, T0)
    assert not items.has_expired(item_of(RUN, run_row()), T0)


def test_an_item_that_no_writer_wrote_is_corrupt() -> None:
    item = item_of(RUN, run_row())
    for broken in (
        {name: value for name, value in item.items() if name != "lane"},
        item | {"status": {"S": "asleep"}},
        item | {"owner": {"S": "ended"}},
    ):
        with pytest.raises(Corrupt):
            items.decode(RUN, broken)


# --- rows that are too large for one item --------------------------------------------------------
def large_effect(args: int, response: int) -> Any:
    return effect_row()._replace(
        status=EffectStatus.DONE, settled_at=T0, args=b"a" * args, response=b"r" * response, version=2
    )


LARGE = [
    (EFFECT, large_effect(ITEM_BYTES - 500, 10), 0),
    (EFFECT, large_effect(256 * KIB, 256 * KIB), 1),
    (EFFECT, large_effect(ROW_BYTES_MAX // 2, ROW_BYTES_MAX // 2 - KIB), 3),
    (STATE_CHUNK, STATE_CHUNK.row("t", "r", "h", 0, b"x" * (ROW_BYTES_MAX - 10), T0), 3),
    (EVENT, event_row(snapshot=b"s" * (ITEM_BYTES + 1)), 2),
    (RUN, run_row(objective="€" * 200_000, status_label="é" * 50_000), 2),
    (MESSAGE, MESSAGE.row("t", "r", 1, "signal", "n", b"p" * (ROW_BYTES_MAX - 100), "", "a", T0), 3),
]


@pytest.mark.parametrize(("kind", "row", "count"), LARGE, ids=[f"{kind.name}-{n}" for kind, _, n in LARGE])
def test_a_large_row_has_body_items(kind: AnyKind, row: Any, count: int) -> None:
    item, *bodies = items.encode(kind, row, STAMP, ttl=9)
    assert len(bodies) == count
    assert all(item_bytes(each) < AWS_ITEM_BYTES and each["ttl"] == {"N": "9"} for each in (item, *bodies))
    assert items.decode(kind, item, bodies) == row
    where = items.place(kind, row[: kind.key])
    places = items.body_places(where.table, item)
    assert [place.key() for place in places] == [{"pk": body["pk"], "sk": body["sk"]} for body in bodies]
    assert all(items.kind_of(place.sk) is None for place in places)
    found = items.within(kind, row[: kind.key])
    assert found is not None and all(found.low <= place.sk <= found.high for place in (where, *places))


@given(st.integers(1, 4), st.integers(0, ROW_BYTES_MAX), st.integers(0, ROW_BYTES_MAX))
@settings(max_examples=30)
def test_a_row_has_no_more_body_items_than_its_bytes_fill(width: int, first: int, second: int) -> None:
    character = "aé€😀"[width - 1]
    summary = character * (min(first, ROW_BYTES_MAX - 10_000) // width)
    row = effect_row()._replace(
        error_text=summary,
        args=b"a" * min(second, ROW_BYTES_MAX - 10_000 - first if first < ROW_BYTES_MAX - 10_000 else 0),
    )
    item, *bodies = items.encode(EFFECT, row, STAMP)
    size = len(summary.encode()) + len(row.args)
    assert len(bodies) <= (-(-(size + 1_000) // ITEM_BYTES) if size + 1_000 > ITEM_BYTES else 0)
    assert item_bytes(item) < AWS_ITEM_BYTES
    assert items.decode(EFFECT, item, bodies) == row


def test_parts_of_different_writes_are_torn() -> None:
    row = large_effect(256 * KIB, 256 * KIB)
    old, old_body = items.encode(EFFECT, row, STAMP)
    new, new_body = items.encode(EFFECT, row._replace(version=3), STAMP._replace(batch=8))
    assert items.decode(EFFECT, new, [old_body, new_body]).version == 3
    for item, bodies in ((old, [new_body]), (new, [old_body]), (new, [])):
        with pytest.raises(Torn):
            items.decode(EFFECT, item, bodies)


def test_without_the_receipt_parts_of_two_writes_become_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    remove("bodies_of_any_write", monkeypatch)
    old, _ = items.encode(EFFECT, large_effect(256 * KIB, 256 * KIB), STAMP)
    _, body = items.encode(EFFECT, large_effect(256 * KIB, 256 * KIB)._replace(args=b"b" * 256 * KIB), STAMP)
    found = items.decode(EFFECT, old, [body | {"receipt": {"S": "other/0/1"}}])
    assert {found.args[:1], found.response[:1]} == {b"b", b"r"}, "neither write had this row"


def test_bodies_that_a_shorter_row_left_behind_are_passed_over() -> None:
    left = items.encode(EFFECT, large_effect(ROW_BYTES_MAX // 2, ROW_BYTES_MAX // 2 - KIB), STAMP)[1:]
    short = large_effect(256 * KIB, 256 * KIB)
    item, body = items.encode(EFFECT, short, STAMP._replace(batch=8))
    assert items.decode(EFFECT, item, [body, left[1]]) == short
    assert items.decode(EFFECT, item_of(EFFECT, effect_row()), left) == effect_row()


def test_a_message_does_not_tear_the_run_that_it_reaches() -> None:
    run = run_row(objective="x" * 400_000)
    item, *bodies = items.encode(RUN, run, STAMP)
    assert items.decode(RUN, item | {"receipt": {"S": "other/0/1"}, "inbox_seq": {"N": "1"}}, bodies).inbox_seq == 1


def test_rows_of_other_kinds_are_told_apart_by_their_keys() -> None:
    key = ("t", "r", 0, "body")
    found = [items.place(EFFECT, key), items.place(MEMO, key), items.place(EVIDENCE, (*key, 10)),
             items.place(TOKEN, ("t", "r", "body")), items.place(USAGE, ("t", "r", "body")),
             items.place(DELIVERY, ("t", "r", "body", 10)), items.place(WRITER, ("*", "body"))]  # fmt: skip
    assert [items.kind_of(place.sk) for place in found] == [EFFECT, MEMO, EVIDENCE, TOKEN, USAGE, DELIVERY, WRITER]
    assert all(a != b for a, b in pairwise(sorted(found)))
    assert items.kind_of(items.receipt_place("w", 3).sk) is None and items.kind_of("schema") is None
    assert items.receipt_place("w", 0) == items.place(WRITER, ("*", "w"))
    assert isinstance(items.revision(item_of(RUN, run_row())).run, Run)

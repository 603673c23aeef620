"""Limits of a commit, checked by every store so that all stores accept the same commits."""

from collections.abc import Callable
from operator import itemgetter
from typing import Any, Final, NamedTuple, get_type_hints

from outlast.core.commit import AppendMessage, Commit, Put, actions_of, further_items
from outlast.core.limits import ACTIONS_MAX, COMMIT_BYTES_MAX, ROW_BYTES_MAX
from outlast.core.row_checks import CHECKED, check_row
from outlast.core.rows.all_kinds import KINDS, Row
from outlast.core.rows.effect_rows import Effect, Memo
from outlast.core.rows.row_kind import AnyKind, Key, key_of
from outlast.core.rows.run_rows import MESSAGE, Event, Flagging, Run
from outlast.core.rows.store_rows import META, STORE
from outlast.errors import Corrupt, Rejected

ANCHOR_KEY: Final = "anchor"  # meta row of the clock's anchor
MAPPING_KEY: Final = "clock"  # meta row of the clock mapping, written by `set_mapping` only
INT_MAX: Final = 2**63 - 1
ROUTINE_ROWS: Final = ACTIONS_MAX // 2 - 2  # each an event with its mark, beside the receipt and a fence
ROUTINE_BYTES: Final = ROW_BYTES_MAX // 8
"""A step with fewer bytes of texts and values is far from every limit. 0 = check each commit whole, as tests do."""


class ColumnTypes(NamedTuple):
    """Positions of the columns of one kind of row, by type."""

    kind: AnyKind
    texts: Callable[[Row], tuple[str, ...]]
    text_gaps: int  # separators between the joined texts
    numbers: Callable[[Row], tuple[int, ...]]
    blobs: tuple[int, ...]
    nullable: tuple[int, ...]  # integers that may be None
    status: int  # position of the status column, or -1


def _several(places: list[int]) -> Callable[[Row], tuple[Any, ...]]:
    assert len(places) >= 2, "itemgetter of one place answers no tuple"
    return itemgetter(*places)


def _shape(kind: AnyKind) -> ColumnTypes:
    hints = list(get_type_hints(kind.row).values())
    texts = [i for i, t in enumerate(hints) if isinstance(t, type) and issubclass(t, str)]
    numbers = [i for i, t in enumerate(hints) if t is int]
    blobs = [i for i, t in enumerate(hints) if t in (bytes, bytes | None)]
    nullable = [i for i, t in enumerate(hints) if t == int | None]
    assert len(texts) + len(numbers) + len(blobs) + len(nullable) == len(hints), kind.name
    names = kind.columns
    # A single number is read twice, so that all kinds take the same path.
    counted = numbers if len(numbers) > 1 else numbers * 2
    return ColumnTypes(
        kind,
        _several(texts),
        len(texts) - 1,
        _several(counted),
        tuple(blobs),
        tuple(nullable),
        names.index("status") if "status" in names else -1,
    )


SHAPES: Final[dict[str, ColumnTypes]] = {kind.name: _shape(kind) for kind in KINDS}


def check(commit: Commit) -> None:
    """Raise Rejected unless every store can land this commit.

    Of the rows of a step, it checks the texts and bytes that authors and callers gave. All else in them is made by the
    verbs, and tests check that with ROUTINE_BYTES = 0. In all other commits it checks each row whole.
    """
    size, texts = 0, ""
    for write in commit.writes:
        row = write.row if type(write) is Put else None
        if type(row) is Event:
            size += len(row.details) + (0 if row.snapshot is None else len(row.snapshot))
        elif type(row) is Effect:
            size += len(row.args) + (0 if row.response is None else len(row.response))
            texts += row.allowed_by + row.undo + row.error_text + row.external_id + row.settled_by
        elif type(row) is Run and row.version > 1:
            texts += row.status_label + row.attention_text + row.waiting_for_text
        elif type(row) is Memo and row.response is not None:
            size += len(row.response)
            texts += row.key + row.error_text
        elif type(row) is not Flagging:
            size = ROUTINE_BYTES
            break
    if (
        not 0 < size + len(texts) < ROUTINE_BYTES
        or not texts.isprintable()  # it may hold NUL or half of a surrogate pair
        or len(commit.writes) > ROUTINE_ROWS
        or commit.expects
    ):
        _check_whole(commit)


def _check_whole(commit: Commit) -> None:
    """Check the number of actions, the rows' keys, sizes, text encoding, integer ranges and versions."""
    writes = commit.writes
    if not writes:
        raise Rejected("a commit without a write")
    total = large_items = 0
    keys: list[tuple[str, Key]] = []
    for write in writes:
        if type(write) is Put:
            size = _check_put(write)
            total += size
            large_items += further_items(size)
            keys.append((write.kind.name, key_of(write.kind, write.row)))
        elif type(write) is AppendMessage:
            total += _size(SHAPES[MESSAGE.name], write.message)
    if total > COMMIT_BYTES_MAX:
        raise Rejected(f"{total} bytes in one commit; the limit is {COMMIT_BYTES_MAX}")
    if (actions := actions_of(commit, large_items)) > ACTIONS_MAX:
        raise Rejected(f"{actions} actions in one commit; the limit is {ACTIONS_MAX}")
    if len(keys) > 1 and len(set(keys)) != len(keys):
        raise Rejected("a commit writes the same row twice")


def _check_put(put: Put) -> int:
    kind, row, replaces = put
    if kind.versioned:
        if row[kind.key] != replaces + 1 or replaces < 0:
            raise Rejected(f"{kind.name}: version {row[kind.key]!r} does not follow {replaces}")
    elif replaces:
        raise Rejected(f"{kind.name}: rows of this kind cannot be updated")
    try:
        if kind.name in CHECKED:
            check_row(kind, row)
        if kind is MESSAGE or (kind is META and row[:2] in ((STORE, MAPPING_KEY), (STORE, ANCHOR_KEY))):
            raise Rejected(f"{kind.name}: rows of this kind are written by the store itself")
    except Corrupt as error:
        raise Rejected(error.what) from error
    return _size(SHAPES[kind.name], row)


def _size(shape: ColumnTypes, row: Row) -> int:
    """Return the bytes of text and blobs in a row.

    Raises Rejected for a value that some store cannot hold.
    """
    try:
        numbers = shape.numbers(row)
        text = "\0".join(shape.texts(row))
        if max(numbers) > INT_MAX or min(numbers) < -INT_MAX - 1:
            raise Rejected(f"{shape.kind.name}: a number of more than 64 bits")
        size = len(text) if text.isascii() else len(text.encode())
    except (TypeError, UnicodeEncodeError) as error:
        raise Rejected(f"{shape.kind.name}: {error}") from error
    if text.count("\0") != shape.text_gaps:
        raise Rejected(f"{shape.kind.name}: a text with the character NUL, which PostgreSQL cannot hold")
    for i in shape.blobs:
        size += len(row[i] or b"")  # type: ignore[arg-type]
    for i in shape.nullable:
        value = row[i]
        if value is not None and not (type(value) is int and abs(value) <= INT_MAX):
            raise Rejected(f"{shape.kind.name}: {shape.kind.columns[i]} is {value!r}")
    if size > ROW_BYTES_MAX:
        raise Rejected(f"{shape.kind.name}: {size} bytes in one row; the limit is {ROW_BYTES_MAX}")
    return size

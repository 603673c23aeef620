"""Pages of lists: allowed columns, order, and cursors."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final, get_type_hints

from outlast.core.rows import (
    APPROVAL,
    CURSOR,
    DELIVERY,
    EFFECT,
    EVENT,
    EVIDENCE,
    MEMO,
    MESSAGE,
    META,
    REQUEST,
    RESULT,
    RUN,
    SLOT,
    STATE_CHUNK,
    SUBSCRIPTION,
    TOKEN,
    TOPOLOGY,
    UNPUBLISHED,
    USAGE,
    WAIT,
    WORKER,
    WRITER,
    AnyKind,
    Key,
    Row,
    key_of,
)
from outlast.errors import InvalidInput
from outlast.store.bounds import INT_MAX

PAGE_MAX: Final = 1_000
# Time column by which each kind is ordered.
ORDER: Final = {
    RUN.name: "created_at",
    APPROVAL.name: "asked_at",
    EVENT.name: "at",
    EFFECT.name: "first_at",
    MEMO.name: "at",
    EVIDENCE.name: "at",
    WAIT.name: "since",
    MESSAGE.name: "at",
    TOKEN.name: "at",
    SLOT.name: "i",
    USAGE.name: "at",
    TOPOLOGY.name: "at",
    STATE_CHUNK.name: "at",
    RESULT.name: "at",
    REQUEST.name: "at",
    SUBSCRIPTION.name: "created_at",
    CURSOR.name: "at",
    DELIVERY.name: "first_at",
    UNPUBLISHED.name: "at",
    WORKER.name: "started_at",
    WRITER.name: "started_at",
    META.name: "version",
}


def place_of(kind: AnyKind, row: Row) -> Key:
    """Return the position of a row in page order: its time, then its key without the tenant."""
    time = row[kind.columns.index(ORDER[kind.name])]
    assert isinstance(time, int)
    return (time, *key_of(kind, row)[1:])


def cursor_of(kind: AnyKind, row: Row) -> str:
    """Return the opaque cursor that continues after a row."""
    return urlsafe_b64encode(json.dumps(place_of(kind, row)).encode()).decode()


def place_after(kind: AnyKind, cursor: str) -> Key | None:
    """Return the position in a cursor, or None for the first page.

    Raises InvalidInput for a malformed cursor.
    """
    if not cursor:
        return None
    try:
        place = tuple(json.loads(urlsafe_b64decode(cursor)))
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidInput("this cursor was not issued by this list", fix="begin again without a cursor") from error
    hints = list(get_type_hints(kind.row).values())[1 : kind.key]
    if len(place) != kind.key or not all(
        _could_be(hint, part) for hint, part in zip((int, *hints), place, strict=True)
    ):
        raise InvalidInput("this cursor belongs to another list", fix="begin again without a cursor")
    return place


def _could_be(hint: type, part: object) -> bool:
    """Return True if a column of this type may hold `part`, so that every store can compare it."""
    if hint is int:
        return type(part) is int and -INT_MAX - 1 <= part <= INT_MAX
    return isinstance(part, str) and "\0" not in part and part == part.encode(errors="ignore").decode()


def check_columns(kind: AnyKind, columns: list[str]) -> None:
    """Raise InvalidInput unless each name is a column of this kind.

    Names are inserted into SQL.
    """
    unknown = [name for name in columns if name not in kind.columns]
    if unknown:
        raise InvalidInput(f"{kind.name} rows have no {', '.join(map(repr, unknown))}")

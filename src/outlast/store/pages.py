"""What a page for people is: which columns may be asked for, what it is ordered by, how its cursor is spelt."""

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
    SUBSCRIPTION,
    TOKEN,
    TOPOLOGY,
    UNPUBLISHED,
    USAGE,
    VALUE,
    WAIT,
    WORKER,
    WRITER,
    Key,
    Kind,
    Row,
    key_of,
)
from outlast.errors import InvalidInput
from outlast.store.bounds import INT_MAX

PAGE_MAX: Final = 1_000
# The column that says how new a row is.
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
    VALUE.name: "at",
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


def place_of(kind: Kind, row: Row) -> Key:
    """Where a row stands among its tenant's, in page order: its time, then its key."""
    time = row[kind.row._fields.index(ORDER[kind.name])]
    assert isinstance(time, int)
    return (time, *key_of(kind, row)[1:])


def cursor_of(kind: Kind, row: Row) -> str:
    """The opaque cursor that continues after a row."""
    return urlsafe_b64encode(json.dumps(place_of(kind, row)).encode()).decode()


def place_after(kind: Kind, cursor: str) -> Key | None:
    """The place a cursor stands for; None at the beginning. Raises InvalidInput for a cursor that is none of ours."""
    if not cursor:
        return None
    try:
        place = tuple(json.loads(urlsafe_b64decode(cursor)))
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidInput("this cursor is not one that a page gave", fix="begin again without a cursor") from error
    hints = list(get_type_hints(kind.row).values())[1 : kind.key]
    if len(place) != kind.key or not all(
        _could_be(hint, part) for hint, part in zip((int, *hints), place, strict=True)
    ):
        raise InvalidInput("this cursor belongs to another list", fix="begin again without a cursor")
    return place


def _could_be(hint: type, part: object) -> bool:
    """True if a column of this type may hold `part`: every store can compare it."""
    if hint is int:
        return type(part) is int and -INT_MAX - 1 <= part <= INT_MAX
    return isinstance(part, str) and "\0" not in part and part == part.encode(errors="ignore").decode()


def check_columns(kind: Kind, columns: list[str]) -> None:
    """Raise InvalidInput unless each is a column of this kind; names reach SQL, so nothing else may pass."""
    unknown = [name for name in columns if name not in kind.row._fields]
    if unknown:
        raise InvalidInput(f"{kind.name} rows have no {', '.join(map(repr, unknown))}")

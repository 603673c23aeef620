"""Columns that hold structured values: an unreadable text is Corrupt, with the kind, the key and the column."""

import json
from types import MappingProxyType
from typing import Any

import pytest

from outlast.core.columns import CACHED_CHARS_MAX, Column
from outlast.core.rows import COLUMNS, KINDS, Row
from outlast.errors import Corrupt
from tests.core.drive import Drive

RUN = Drive().start().run
ROWS: dict[str, Row] = {
    "run": RUN,
    "approval": Drive().start().claim().ask().approval,
}
BROKEN = ("{", '[{"reason": "none of ours"}]', "[[1]]", "7", "[7]", "[" * 100_000)


def structured() -> list[tuple[str, str]]:
    """Return kind and name of each column with a structured value."""
    return [
        (kind.name, column)
        for kind in KINDS
        for field, column in zip(kind.row._fields, kind.columns, strict=True)
        if field != column
    ]


@pytest.mark.parametrize("text", BROKEN, ids=lambda text: text[:30])
@pytest.mark.parametrize(("kind", "column"), structured())
def test_an_unreadable_text_is_corrupt(kind: str, column: str, text: str) -> None:
    row = ROWS[kind]._replace(**{f"{column}_text": text})
    with pytest.raises(Corrupt) as raised:
        getattr(row, column)
    assert raised.value.row is not None and raised.value.row[0] == kind
    assert all(part in raised.value.what for part in (kind, *map(str, raised.value.row[1]), column))


@pytest.mark.parametrize(("kind", "column"), structured())
def test_a_value_is_immutable(kind: str, column: str) -> None:
    value = getattr(ROWS[kind], column)
    hash(tuple(value.items()) if isinstance(value, MappingProxyType) else value)


def test_the_names_of_the_columns_have_no_suffix() -> None:
    assert all(not name.endswith("_text") for names in COLUMNS.values() for name in names)


def test_a_text_is_decoded_once() -> None:
    decoded: list[str] = []

    def decode(text: str) -> Any:
        decoded.append(text)
        return json.loads(text)

    column = Column("example", json.dumps, decode)
    long = json.dumps("x" * CACHED_CHARS_MAX)
    for text in ("[1]", "[1]", "[2]", long, long):
        column.decode(text)
    assert decoded == ["[1]", "[2]", long, long]

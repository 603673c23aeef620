"""Columns of rows that hold structured values as text. The row keeps the text, its property answers the value.

Stores bind and return the text unchanged. Encode and decode of each column stand side by side: those of runs in
`core/run_columns.py`, those of approvals in `core/approval_columns.py`, those of effects in `core/effect_columns.py`.
"""

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar

from outlast.errors import Corrupt

Given = TypeVar("Given")
Value = TypeVar("Value")

SUFFIX: Final = "_text"
"""Suffix of a field that holds the text of a column: the database's column `attention` is `Run.attention_text`."""
CACHED_TEXTS: Final = 512
CACHED_CHARS_MAX: Final = 16_384
_UNREADABLE: Final = (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError)


class Column(Generic[Given, Value]):
    """Conversion between the text of one column and its immutable value.

    Readers ask for the same few texts again and again, so the values of short texts are cached.
    """

    __slots__ = ("_cached", "_decode", "encode", "name")

    def __init__(self, name: str, encode: Callable[[Given], str], decode: Callable[[str], Value]) -> None:
        self.name = name
        self.encode = encode
        self._decode = decode
        self._cached: Callable[[str], Value] = lru_cache(CACHED_TEXTS)(decode)

    def decode(self, text: str) -> Value:
        """Return the value of a text. Raises Corrupt if Outlast has not written the text."""
        try:
            return self._cached(text) if len(text) <= CACHED_CHARS_MAX else self._decode(text)
        except _UNREADABLE as error:
            raise Corrupt(f"its column {self.name} cannot be read: {error!r}") from error


def decoded(data: str | bytes, name: str) -> Any:
    """Return data of an author's own, decoded anew because it is mutable. Raises Corrupt that names it."""
    try:
        return json.loads(data)
    except _UNREADABLE as error:
        raise Corrupt(f"{name} cannot be read: {error!r}") from error

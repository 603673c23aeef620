"""Kinds of rows: what stores know of a row class, and errors of columns that cannot be read."""

from functools import cache
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from outlast.core.rows.columns import SUFFIX, Column, Value, decoded
from outlast.errors import Corrupt

Key: TypeAlias = tuple[str | int, ...]
R_co = TypeVar("R_co", bound=tuple[Any, ...], covariant=True)


class Kind(NamedTuple, Generic[R_co]):
    """Description of one kind of row for stores. A read of a kind answers the row class of that kind."""

    name: str
    row: type[R_co]
    key: int  # number of leading columns that form the key
    versioned: bool  # False: rows are only inserted
    read_first: bool  # True: other processes write such rows, so a batch reads them before it judges

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of the columns in the database, in the order of the fields."""
        return _columns_of(self.row)

    def decode(self, column: Column[Any, Value], text: str, row: tuple[Any, ...]) -> Value:
        """Return the value of a column of `row`. Raises Corrupt that names kind, key and column."""
        try:
            return column.decode(text)
        except Corrupt as error:
            raise self._corrupt(row, error) from error

    def decode_data(self, column: str, data: str | bytes, row: tuple[Any, ...], *members: str) -> Any:
        """Return JSON data of `row`, or its member, decoded at each call because it is mutable. Raises as `decode`."""
        try:
            return decoded(data, f"its {column}", *members)
        except Corrupt as error:
            raise self._corrupt(row, error) from error

    def decode_object(self, column: str, data: str | bytes, row: tuple[Any, ...], *members: str) -> dict[str, Any]:
        """Return a JSON object of `row`, decoded at each call. Raises Corrupt, also for other JSON."""
        value = self.decode_data(column, data, row, *members)
        if not isinstance(value, dict):
            raise self._corrupt(row, Corrupt(f"its {column} is no object"))
        return value

    def _corrupt(self, row: tuple[Any, ...], error: Corrupt) -> Corrupt:
        key = key_of(self, row)
        corrupt = Corrupt(f"{self.name} {'/'.join(map(str, key))}: {error.what}")
        corrupt.row = (self.name, key)
        return corrupt


AnyKind: TypeAlias = Kind[Any]  # of which only the columns matter, not the row class


@cache
def _columns_of(row: type[Any]) -> tuple[str, ...]:
    """Return the names of the columns of a row class in the database, in the order of its fields."""
    return tuple([name.removesuffix(SUFFIX) for name in row._fields])


def key_of(kind: AnyKind, row: tuple[Any, ...]) -> Key:
    """Return the key columns of a row."""
    return row[: kind.key]


def version_of(kind: AnyKind, row: tuple[Any, ...]) -> int:
    """Return the version of a row; 1 for kinds that are only inserted."""
    return int(row[kind.key]) if kind.versioned else 1

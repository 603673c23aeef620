"""How the columns of many rows go to the server: one parameter for each column, whatever the number of rows.

Numbers and texts go as one text that the server takes apart. Of an array asyncpg asks for every cell, in Python,
whether it is a list within the list: a third of the writer's CPU (docs/performance.md). Bytes go as arrays all the
same, since their text would be twice as long.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

SPELT: Final = ("bigint", "text")


def parameters(types: Sequence[str], first: int) -> str:
    """An array parameter for each column, numbered from `first`."""
    return ", ".join(f"${n}::text::{t}[]" if t in SPELT else f"${n}::{t}[]" for n, t in enumerate(types, first))


def arrays(types: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[Any]:
    """The values of `parameters` for these rows, of which there is at least one."""
    columns = list(zip(*rows, strict=True))
    assert len(columns) == len(types), "a row has as many columns as its kind"
    return [_FORMS[type_](column) for type_, column in zip(types, columns, strict=True)]


def _numbers(column: Sequence[Any]) -> str:
    try:
        return f"{{{','.join(map(int.__repr__, column))}}}"
    except TypeError:  # none of them may be anything but a number, or nothing
        return f"{{{','.join(['NULL' if n is None else int.__repr__(n) for n in column])}}}"


def _texts(column: Sequence[str]) -> str:
    inner = '","'.join(column)
    if "\\" in inner or inner.count('"') != 2 * (len(column) - 1):
        inner = '","'.join([text.replace("\\", "\\\\").replace('"', '\\"') for text in column])
    return f'{{"{inner}"}}'


_FORMS: Final[dict[str, Callable[[Any], Any]]] = {"bigint": _numbers, "text": _texts, "bytea": tuple}

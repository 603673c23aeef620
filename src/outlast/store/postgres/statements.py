"""The SQL of this dialect, drawn from the rows: whole columns go in as arrays, one statement writes a whole batch."""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, get_type_hints

from outlast.core.rows import KINDS, META, WRITER, Key, Kind
from outlast.store.sql import MARK

CLOCK_MS: Final = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
CHANNEL: Final = "outlast"
_TYPES: Final = {int: "bigint", int | None: "bigint", bytes: "bytea", bytes | None: "bytea"}


def numbered(statement: str) -> str:
    """A statement of store/sql.py with this dialect's parameters."""
    first, *rest = statement.split(MARK)
    return first + "".join(f"${n}{part}" for n, part in enumerate(rest, 1))


def _types(kind: Kind) -> tuple[str, ...]:
    return tuple(_TYPES.get(hint, "text") for hint in get_type_hints(kind.row).values())


TYPES: Final = {kind.name: _types(kind) for kind in KINDS}
COLUMNS: Final = {kind.name: ", ".join(kind.row._fields) for kind in KINDS}


def _arrays(types: Sequence[str], first: int) -> str:
    return ", ".join(f"${n}::{t}[]" for n, t in enumerate(types, first))


def _joined(kind: Kind) -> str:
    names = kind.row._fields[: kind.key]
    return " AND ".join(f"t.{name} = k.{name}" for name in names)


@cache
def find(kind: Kind, *, lock: bool) -> str:
    """Rows by their keys, one array per key column. `lock`: those that nobody else holds, held from here on (S-8).

    Never waits for a lock, so two batches cannot wait for each other; what is missing is looked for by `exist`.
    """
    names = kind.row._fields[: kind.key]
    order = ", ".join(f"t.{name}" for name in names)
    columns = ", ".join(f"t.{name}" for name in kind.row._fields)
    return (
        f"SELECT {columns} FROM unnest({_arrays(TYPES[kind.name][: kind.key], 1)}) AS k({', '.join(names)}) "
        f"JOIN {kind.name} t ON {_joined(kind)} ORDER BY {order}"
        + (" FOR NO KEY UPDATE OF t SKIP LOCKED" if lock else "")
    )


@cache
def exist(kind: Kind) -> str:
    """Which of these keys there are, whoever holds their rows."""
    names = kind.row._fields[: kind.key]
    return (
        f"SELECT {', '.join(f't.{name}' for name in names)} "
        f"FROM unnest({_arrays(TYPES[kind.name][: kind.key], 1)}) AS k({', '.join(names)}) "
        f"JOIN {kind.name} t ON {_joined(kind)}"
    )


# The store's time, and the clock mapping. Parameters: the mapping's key.
NOW: Final = (
    f"SELECT {CLOCK_MS}, m.* FROM (SELECT 1) one "
    f"LEFT JOIN (SELECT {COLUMNS[META.name]} FROM meta WHERE tenant = $1 AND key = $2) m ON true"
)
# Who a session is: a process number may be given again, a number and a beginning are not.
SESSION: Final = "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"
# Ends a session, and answers as long as it is there. Parameters: SESSION's.
END: Final = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND backend_start = $2"


class Form(NamedTuple):
    """One way in which rows of a kind are written: inserted, or replaced; how many columns it takes."""

    kind: Kind
    insert: bool

    @property
    def width(self) -> int:
        """How many arrays it takes: an update names the version that is replaced as well."""
        return len(self.kind.row._fields) + (not self.insert)


def _write(form: Form, first: int) -> str:
    kind, types = form.kind, TYPES[form.kind.name]
    if form.insert:
        return (
            f"INSERT INTO {kind.name} ({COLUMNS[kind.name]}) "
            f"SELECT * FROM unnest({_arrays(types, first)}) ON CONFLICT DO NOTHING RETURNING 1"
        )
    names = kind.row._fields
    sets = ", ".join(f"{name} = k.{name}" for name in names[kind.key :])
    return (
        f"UPDATE {kind.name} t SET {sets} FROM unnest({_arrays((*types, 'bigint'), first)}) "
        f"AS k({', '.join(names)}, replaces_) WHERE {_joined(kind)} AND t.version = k.replaces_ RETURNING 1"
    )


_RECEIPT: Final = f"UPDATE {WRITER.name} SET batch = $1 WHERE tenant = $2 AND id = $3 AND status = $4 RETURNING 1"


@cache
def write(forms: tuple[Form, ...], *, notify: bool) -> str:
    """One statement for everything a batch leaves, its receipt and, where a run fell due, the word to others.

    Parameters: batch, tenant, id and living status of the writer; then the arrays of each form. Answers how many
    receipts were written (0: the writer is closed), and how many rows of each form: too few means that somebody else
    was first.
    """
    parts = [f"r AS ({_RECEIPT})"]
    at = 5
    for n, form in enumerate(forms):
        parts.append(f"w{n} AS ({_write(form, at)})")
        at += form.width
    counts = ["(SELECT count(*) FROM r)", *(f"(SELECT count(*) FROM w{n})" for n in range(len(forms)))]
    said = f", pg_notify('{CHANNEL}', current_schema())::text" if notify else ""
    return f"WITH {', '.join(parts)} SELECT {', '.join(counts)}{said}"


def columns_of(rows: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Rows turned into columns."""
    return list(zip(*rows, strict=True))


def keys_of(kind: Kind, keys: Iterable[Key]) -> list[tuple[Any, ...]]:
    """Keys turned into the arrays of `find` and `exist`, in one order for all."""
    return columns_of(sorted(keys))


def locked(statement: str) -> str:
    """A statement of store/sql.py that finds runs, taking only those that nobody else is taking."""
    return f"{numbered(statement)} FOR NO KEY UPDATE SKIP LOCKED"

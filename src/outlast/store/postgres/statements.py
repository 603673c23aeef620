"""SQL of PostgreSQL, built from the rows.

Columns go in as arrays, so one statement writes a whole batch whatever its size. Numbers and texts are sent as one text
that the server parses: for each cell of an array, asyncpg checks in Python whether it is a list, which took a third of
the writer's CPU (bench/journal.md). Bytes are sent as arrays, because as text they would be twice as long.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, get_type_hints

from outlast.core.commit import AppendMessage, Commit, Put, Wake
from outlast.core.rows.all_kinds import KINDS
from outlast.core.rows.effect_rows import EFFECT
from outlast.core.rows.outbox_rows import UNPUBLISHED
from outlast.core.rows.row_kind import AnyKind, Key
from outlast.core.rows.run_rows import RUN
from outlast.core.rows.store_rows import META, WRITER
from outlast.core.webhooks.deliveries import SUBSCRIBED_TENANTS
from outlast.store import sql
from outlast.store.sql import MARK

AS_TEXT: Final = ("bigint", "text")


def parameters(types: Sequence[str], first: int) -> str:
    """Return an array parameter for each column, numbered from `first`."""
    return ", ".join(f"${n}::text::{t}[]" if t in AS_TEXT else f"${n}::{t}[]" for n, t in enumerate(types, first))


def arrays(types: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[Any]:
    """Return the values of `parameters` for these rows.

    There must be at least one row.
    """
    columns = list(zip(*rows, strict=True))
    assert len(columns) == len(types), "a row has as many columns as its kind"
    return [_FORMS[type_](column) for type_, column in zip(types, columns, strict=True)]


def _numbers(column: Sequence[Any]) -> str:
    try:
        return f"{{{','.join(map(int.__repr__, column))}}}"
    except TypeError:  # int.__repr__ also refuses values that are not numbers
        return f"{{{','.join(['NULL' if n is None else int.__repr__(n) for n in column])}}}"


def _texts(column: Sequence[str]) -> str:
    inner = '","'.join(column)
    if "\\" in inner or inner.count('"') != 2 * (len(column) - 1):
        inner = '","'.join([text.replace("\\", "\\\\").replace('"', '\\"') for text in column])
    return f'{{"{inner}"}}'


_FORMS: Final[dict[str, Callable[[Any], Any]]] = {"bigint": _numbers, "text": _texts, "bytea": tuple}


CLOCK_MS: Final = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
CHANNEL: Final = "outlast"
DELTA_CHANNEL: Final = "outlast_deltas"
NOTIFY_DELTAS: Final = "SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload"
_TYPES: Final = {int: "bigint", int | None: "bigint", bytes: "bytea", bytes | None: "bytea"}


def numbered(statement: str) -> str:
    """Return a statement of store/sql.py with numbered parameters."""
    first, *rest = statement.split(MARK)
    return first + "".join(f"${n}{part}" for n, part in enumerate(rest, 1))


def _types(kind: AnyKind) -> tuple[str, ...]:
    return tuple(_TYPES.get(hint, "text") for hint in get_type_hints(kind.row).values())


TYPES: Final = {kind.name: _types(kind) for kind in KINDS}
COLUMNS: Final = {kind.name: ", ".join(kind.columns) for kind in KINDS}


def _joined(kind: AnyKind) -> str:
    names = kind.columns[: kind.key]
    return " AND ".join(f"t.{name} = k.{name}" for name in names)


@cache
def find(kind: AnyKind, *, lock: bool) -> str:
    """Return a query for rows by their keys, one array per key column.

    If `lock`, lock the rows and skip those that another transaction holds (S-8). It never waits for a lock, so two
    batches cannot wait for each other. `exist` finds the rows that were skipped.
    """
    names = kind.columns[: kind.key]
    order = ", ".join(f"t.{name}" for name in names)
    columns = ", ".join(f"t.{name}" for name in kind.columns)
    return (
        f"SELECT {columns} FROM unnest({parameters(TYPES[kind.name][: kind.key], 1)}) AS k({', '.join(names)}) "
        f"JOIN {kind.name} t ON {_joined(kind)} ORDER BY {order}"
        + (" FOR NO KEY UPDATE OF t SKIP LOCKED" if lock else "")
    )


@cache
def exist(kind: AnyKind) -> str:
    """Return a query for the keys that exist, whether or not another transaction holds the row."""
    names = kind.columns[: kind.key]
    return (
        f"SELECT {', '.join(f't.{name}' for name in names)} "
        f"FROM unnest({parameters(TYPES[kind.name][: kind.key], 1)}) AS k({', '.join(names)}) "
        f"JOIN {kind.name} t ON {_joined(kind)}"
    )


@cache
def erase(kind: AnyKind) -> str:
    """Return a statement that deletes rows by their keys, one array per key column."""
    names = kind.columns[: kind.key]
    return (
        f"DELETE FROM {kind.name} t USING unnest({parameters(TYPES[kind.name][: kind.key], 1)}) "
        f"AS k({', '.join(names)}) WHERE {_joined(kind)}"
    )


# A transaction that may write runs and one that changes the clock mapping exclude each other, so that no run keeps a
# due_at of an old mapping. The lock is taken before the mapping is read. A batch that reads runs takes the same lock
# anyway.
BEGIN_MOVES: Final = f"BEGIN; LOCK TABLE {RUN.name} IN ROW SHARE MODE"
BEGIN_MAPPING: Final = f"BEGIN; LOCK TABLE {RUN.name} IN EXCLUSIVE MODE"

# The store's time, and the clock mapping. Parameters: the mapping's key.
NOW: Final = (
    f"SELECT {CLOCK_MS}, m.* FROM (SELECT 1) one "
    f"LEFT JOIN (SELECT {COLUMNS[META.name]} FROM meta WHERE tenant = $1 AND key = $2) m ON true"
)
_SUBSCRIBED_TEXT: Final = (
    f"(SELECT value FROM meta WHERE tenant = '{SUBSCRIBED_TENANTS[0]}' AND key = '{SUBSCRIBED_TENANTS[1]}')"
)
# NOW, preceded by the tenants whose events are noted. Parameters: the mapping's key.
NOW_AND_SUBSCRIBED: Final = NOW.replace("SELECT", f"SELECT {_SUBSCRIBED_TEXT},", 1)
# Deletes unpublished events. Parameters: their keys.
FORGET_PUBLISHED: Final = erase(UNPUBLISHED)
# Identity of a server session. A process id may be reused, a process id with its start time is not.
SESSION: Final = "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"
# Reads a writer's receipt by a commit that changes nothing. Parameters: its key.
CONFIRM: Final = (
    f"UPDATE {WRITER.name} SET batch = batch WHERE tenant = $1 AND id = $2 RETURNING {COLUMNS[WRITER.name]}"
)
# Ends a session. Returns a row while the session exists. Parameters: SESSION's.
END: Final = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1 AND backend_start = $2"


DUE_BUT: Final = sql.DUE_BUT.replace(sql.NONE_OF, f"tenant <> ALL ({MARK}::text[])")


class WriteForm(NamedTuple):
    """A form of write: insertion or replacement of rows of one kind."""

    kind: AnyKind
    insert: bool

    @property
    def types(self) -> tuple[str, ...]:
        """Types of the arrays. A replacement also names the version that it replaces."""
        return TYPES[self.kind.name] if self.insert else (*TYPES[self.kind.name], "bigint")


def _write(form: WriteForm, first: int, only_if: str) -> str:
    kind, types = form.kind, form.types
    if form.insert:
        return (
            f"INSERT INTO {kind.name} ({COLUMNS[kind.name]}) "
            f"SELECT * FROM unnest({parameters(types, first)}){only_if and f' WHERE {only_if}'} "
            "ON CONFLICT DO NOTHING RETURNING 1"
        )
    names = kind.columns
    sets = ", ".join(f"{name} = k.{name}" for name in names[kind.key :])
    return (
        f"UPDATE {kind.name} t SET {sets} FROM unnest({parameters(types, first)}) "
        f"AS k({', '.join(names)}, replaces_) WHERE {_joined(kind)} AND t.version = k.replaces_"
        f"{only_if and f' AND {only_if}'} RETURNING 1"
    )


_RECEIPT: Final = f"UPDATE {WRITER.name} SET batch = $1 WHERE tenant = $2 AND id = $3 AND status = $4"


@cache
def write(forms: tuple[WriteForm, ...], *, notify: bool) -> str:
    """Return one statement for the rows of a batch, its receipt and, if a run fell due, a notification.

    Parameters: batch, tenant, id and living status of the writer, then the arrays of each form. The result has the
    number of receipts written (0 if the writer is closed) and of rows of each form. Too few rows mean that another
    writer was first.
    """
    counts, parts = _parts(forms, 5, "")
    notify_column = f", pg_notify('{CHANNEL}', current_schema())::text" if notify else ""
    counts.insert(0, "(SELECT count(*) FROM r)")
    return f"WITH {', '.join([f'r AS ({_RECEIPT} RETURNING 1)', *parts])} SELECT {', '.join(counts)}{notify_column}"


@cache
def write_alone(forms: tuple[WriteForm, ...]) -> str:
    """Return `write` as a transaction of one statement, for runs with known version and inbox_seq.

    Parameters: those of the writer, as in `write`; tenant, run, version and inbox_seq of each run, as arrays; number of
    runs; number of rows; the mapping's key; the subscribed tenants as known; the arrays of each form.

    The statement first locks every run at the named version and inbox_seq, and writes only then. It returns the store's
    time, read afterwards, and the mapping. It divides by zero and has no effect if a run or the tenants differ, if
    another transaction holds a run, if the writer is closed, or if a row was not written.
    """
    keys = parameters(("text", "text", "bigint", "bigint"), 5)
    held = (
        f"SELECT 1 FROM unnest({keys}) AS k(tenant, run, version, inbox_seq) JOIN run t ON {_joined(RUN)} "
        "WHERE t.version = k.version AND t.inbox_seq = k.inbox_seq ORDER BY t.tenant, t.run "
        "FOR NO KEY UPDATE OF t SKIP LOCKED"
    )
    ours = "(SELECT all_ FROM ours)"
    counts, parts = _parts(forms, 14, ours)
    tables = [
        f"held AS MATERIALIZED ({held})",
        f"ours AS MATERIALIZED (SELECT count(*) = $9::bigint AND {_SUBSCRIBED_TEXT} IS NOT DISTINCT FROM $13::text "
        "AS all_ FROM held)",
        f"r AS ({_RECEIPT} AND {ours} RETURNING 1)",
        *parts,
        f"done AS MATERIALIZED (SELECT {' + '.join(('(SELECT count(*) FROM r)', *counts))} AS n)",
    ]
    return (
        f"WITH {', '.join(tables)} SELECT CASE WHEN n = 1 + $10::bigint THEN {CLOCK_MS} ELSE 1 / (n - n) END, m.* "
        f"FROM done LEFT JOIN (SELECT {COLUMNS[META.name]} FROM meta WHERE tenant = $11 AND key = $12) m ON true"
    )


def _parts(forms: tuple[WriteForm, ...], at: int, only_if: str) -> tuple[list[str], list[str]]:
    """Return the counts of rows per form and the writing clauses, with arrays numbered from `at`."""
    parts = []
    for n, form in enumerate(forms):
        parts.append(f"w{n} AS ({_write(form, at, only_if)})")
        at += len(form.types)
    return [f"(SELECT count(*) FROM w{n})" for n in range(len(forms))], parts


@cache
def last_ordinal(kind: AnyKind, width: int) -> str:
    """Return a query of the greatest ordinal under each prefix of `width` columns, in the order given.

    Parameters: one array per column.
    """
    names = kind.columns[:width]
    alike = " AND ".join(f"t.{name} = k.{name}" for name in names)
    return (
        f"SELECT (SELECT coalesce(max(t.ordinal), 0) FROM {kind.name} t WHERE {alike}) "
        f"FROM unnest({parameters(TYPES[kind.name][:width], 1)}) WITH ORDINALITY AS k({', '.join(names)}, place) "
        "ORDER BY k.place"
    )


def keys_of(kind: AnyKind, keys: Iterable[Key]) -> list[Any]:
    """Return keys as the arrays of `find` and `exist`, in the lock order of all transactions."""
    return arrays(TYPES[kind.name][: kind.key], sorted(keys))


def locked(statement: str) -> str:
    """Return a statement of store/sql.py that takes only runs that no other transaction holds."""
    return f"{numbered(statement)} FOR NO KEY UPDATE SKIP LOCKED"


RowKeys = dict[AnyKind, set[Key]]
BY_NAME = {kind.name: kind for kind in KINDS}


def row_keys(commits: Iterable[Commit], *, optimistic: bool) -> RowKeys:
    """Return the keys of all rows that these commits write or expect, by kind (S-8).

    If `optimistic`, leave out rows that a bulk write verifies: insertions, and versions of kinds that only a run's
    holder writes. An effect shared by a tenant has several writers, so it is always read.
    """
    found: defaultdict[str, set[Key]] = defaultdict(set)
    for commit in commits:
        if commit.fence is not None:
            found[RUN.name].add((commit.fence.tenant, commit.fence.run))
        for expect in commit.expects:
            found[expect.kind.name].add(expect.key)
        for write in commit.writes:
            if type(write) is Put:
                kind, row, replaces = write
                if not optimistic or (replaces and (kind.read_first or (kind is EFFECT and row[1] == ""))):
                    found[kind.name].add(row[: kind.key])  # type: ignore[arg-type]
            elif type(write) is AppendMessage:
                found[RUN.name].add(write.message[:2])
            elif type(write) is Wake:
                found[RUN.name].add((write.tenant, write.run))
    return {BY_NAME[name]: keys for name, keys in found.items()}

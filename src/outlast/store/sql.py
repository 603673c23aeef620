"""SQL shared by both databases: columns from the fields of the rows, each statement built once.

A dialect chooses how parameters are spelled. PostgreSQL numbers them (`postgres/statements.py`).
"""

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from operator import itemgetter
from typing import Any, Final, NamedTuple, get_type_hints

from outlast.core.machine import ENDED
from outlast.core.rows import (
    APPROVAL,
    CURSOR,
    EFFECT,
    EVENT,
    KINDS,
    REQUEST,
    RUN,
    USAGE,
    WORKER,
    AnyKind,
    Kind,
    R,
    Row,
    Run,
    check_effect,
    check_run,
)
from outlast.errors import Corrupt
from outlast.store.pages import ORDER, PAGE_MAX, check_columns, cursor_of, place_after
from outlast.store.port import Page

MARK: Final = "?"  # placeholder of a parameter
Values = Sequence[Any]
FINDS: Final = {APPROVAL.name: {"id", "run"}}  # columns with an index that finds few rows


class Sql(NamedTuple):
    """The statements of one kind of row."""

    columns: str
    insert: str  # parameters: the row
    update: str  # parameters: columns after the key, then the key, then the version replaced
    select: str  # parameters: the key
    forget: str  # of a whole run; parameters: tenant, run
    delete: str  # parameters: the key


def _and(names: Sequence[str]) -> str:
    return " AND ".join(f"{name} = {MARK}" for name in names)


def _sql(kind: AnyKind) -> Sql:
    names = kind.columns
    columns = ", ".join(names)
    key = names[: kind.key]
    sets = ", ".join(f"{name} = {MARK}" for name in names[kind.key :])
    versioned = " AND version = " + MARK if kind.versioned else ""
    return Sql(
        columns,
        f"INSERT INTO {kind.name} ({columns}) VALUES ({', '.join(MARK for _ in names)})",
        f"UPDATE {kind.name} SET {sets} WHERE {_and(key)}{versioned}",
        f"SELECT {columns} FROM {kind.name} WHERE {_and(key)}",
        f"DELETE FROM {kind.name} WHERE {_and(('tenant', 'run'))}",
        f"DELETE FROM {kind.name} WHERE {_and(key)}",
    )


SQL: Final[dict[str, Sql]] = {kind.name: _sql(kind) for kind in KINDS}

# Columns that a holder's update usually leaves unchanged. SQLite rewrites an index for every column that a statement
# names, changed or not, so an update that changes none of them omits them.
RESTING: Final = tuple(
    RUN.columns.index(name)
    for name in (
        "owner",
        "lane",
        "queue",
        "workflow",
        "created_at",
        "ended_at",
        "requested_by",
        "correlation_id",
        "trace_id",
        *RUN.columns[RUN.columns.index("ending") :],  # set at most once in the life of a run
    )
)
_MOVING: Final = tuple(i for i in range(RUN.key, len(RUN.columns)) if i not in RESTING)
resting: Final = itemgetter(*RESTING)
_move_values: Final = itemgetter(*_MOVING, *range(RUN.key))
MOVE_RUN: Final = (
    f"UPDATE run SET {', '.join(f'{RUN.columns[i]} = {MARK}' for i in _MOVING)} "
    f"WHERE {_and(RUN.columns[: RUN.key])} AND version = {MARK}"
)


def move_values(run: Run, replaces: int) -> tuple[object, ...]:
    """Return the parameters of MOVE_RUN."""
    return (*_move_values(run), replaces)


def prefix(kind: AnyKind, width: int, after: int, *, newest: bool = False) -> str:
    """Return a query for rows under the first `width` key columns, in key order.

    If `after` is not 0, the rows start after a key of which `after` columns are given. Parameters: the prefix, the key
    to start after, the limit.
    """
    names = kind.columns[: kind.key]
    where = [f"{name} = {MARK}" for name in names[:width]]
    if after > width:
        where.append(f"({', '.join(names[width:after])}) > ({', '.join(MARK for _ in names[width:after])})")
    order = ", ".join(names[width:] or names)
    return (
        f"SELECT {SQL[kind.name].columns} FROM {kind.name}{' WHERE ' + ' AND '.join(where) if where else ''} "
        f"ORDER BY {order}{' DESC' if newest else ''} LIMIT {MARK}"
    )


def in_order(kind: AnyKind, width: int) -> str:
    """Return a query for rows under the first `width` key columns, by ordinal.

    Parameters: the prefix, the ordinal to start after, the limit.
    """
    where = _and(kind.columns[:width])
    return (
        f"SELECT {SQL[kind.name].columns} FROM {kind.name} WHERE {where} AND ordinal > {MARK} "
        f"ORDER BY ordinal LIMIT {MARK}"
    )


def count(kind: AnyKind, width: int) -> str:
    """Return a query that counts rows under the first `width` key columns.

    Parameters: the prefix.
    """
    return f"SELECT count(*) FROM {kind.name} WHERE {_and(kind.columns[:width])}"


def page(kind: AnyKind, columns: Sequence[str], *, after: bool) -> str:
    """Return a query for one page of a list.

    Parameters: tenant, a value per column, the position to start after, the limit.
    """
    names = kind.columns
    place = (ORDER[kind.name], *names[1 : kind.key])
    begin = f" AND ({', '.join(place)}) < ({', '.join(MARK for _ in place)})" if after else ""
    order = ", ".join(f"{name} DESC" for name in place)
    # The sign stops the planner from scanning all rows in page order if a column finds few rows by an index.
    sign = "+" if FINDS.get(kind.name, set()) & set(columns) else ""
    return (
        f"SELECT {SQL[kind.name].columns} FROM {kind.name} WHERE {_and(['tenant', *columns])}{begin} "
        f"ORDER BY {sign}{order} LIMIT {MARK}"
    )


def tally(kind: AnyKind, column: str) -> str:
    """Return a query that counts a tenant's rows by a column.

    Parameter: tenant. Raises InvalidInput for an unknown column.
    """
    check_columns(kind, [column])
    return f"SELECT {column}, count(*) FROM {kind.name} WHERE tenant = {MARK} GROUP BY {column}"


def census(kind: AnyKind, columns: Sequence[str], filled: str) -> str:
    """Return a query that counts the rows of all tenants by these columns.

    Raises InvalidInput for an unknown column.
    """
    check_columns(kind, [*columns, *([filled] if filled else [])])
    names = ", ".join(columns)
    where = f" WHERE {filled} <> ''" if filled else ""
    return f"SELECT {names}, count(*) FROM {kind.name}{where} GROUP BY {names}"


_RUNS: Final = f"SELECT {SQL[RUN.name].columns} FROM run"
# Parameters: lane, real time, limit.
DUE: Final = f"{_RUNS} WHERE lane = {MARK} AND due_at <= {MARK} ORDER BY due_at, tenant, run LIMIT {MARK}"
NONE_OF: Final = f"tenant NOT IN (SELECT value FROM json_each({MARK}))"  # replaced by a dialect with arrays
# DUE without some tenants. Parameters: lane, real time, real time to start at, tenants, limit.
DUE_BUT: Final = (
    f"{_RUNS} WHERE lane = {MARK} AND due_at <= {MARK} AND due_at >= {MARK} AND {NONE_OF} "
    f"ORDER BY due_at, tenant, run LIMIT {MARK}"
)
NEXT_DUE: Final = f"SELECT min(due_at) FROM run WHERE lane = {MARK} AND due_at IS NOT NULL"
# The condition of the index `run_owner`: a query uses that index only if it repeats the condition.
_HAS_HOLDER: Final = f"owner <> '' AND owner <> '{ENDED}'"
# Parameters: owner, limit.
OWNED: Final = f"{_RUNS} WHERE owner = {MARK} AND {_HAS_HOLDER} ORDER BY tenant, run LIMIT {MARK}"
# Owned runs of a tenant, and runs that ended since an instant. The tenant is an expression: as a column it would make
# the planner scan all runs of the tenant, of which few are owned or have just ended. Parameters: tenant, limit.
_OF_TENANT: Final = f"tenant || '' = {MARK}"
HELD: Final = f"{_RUNS} WHERE {_HAS_HOLDER} AND {_OF_TENANT} ORDER BY owner, tenant, run LIMIT {MARK}"
# Parameters: business instant, tenant, limit.
OVER_SINCE: Final = (
    f"{_RUNS} WHERE ended_at > 0 AND ended_at >= {MARK} AND {_OF_TENANT} "
    f"ORDER BY ended_at DESC, tenant DESC, run DESC LIMIT {MARK}"
)
# Parameters: tenant, limit.
QUEUED: Final = f"{_RUNS} WHERE queue = {MARK} AND queue <> '' ORDER BY created_at, tenant, run LIMIT {MARK}"
# Parameter: limit.
QUEUED_ALL: Final = f"{_RUNS} WHERE queue <> '' ORDER BY created_at, tenant, run LIMIT {MARK}"
UNOWNED: Final = f"{_RUNS} WHERE owner = ''"
# Parameters: due_at, tenant, run.
REARM: Final = f"UPDATE run SET due_at = {MARK} WHERE tenant = {MARK} AND run = {MARK}"
# Parameters: business instant, limit.
OVER: Final = (
    f"SELECT tenant, run FROM run WHERE ended_at > 0 AND ended_at < {MARK} ORDER BY ended_at, tenant, run LIMIT {MARK}"
)
# Parameters: tenant, run.
LAST_SNAPSHOT: Final = (
    f"SELECT {SQL[EVENT.name].columns} FROM event WHERE {_and(('tenant', 'run'))} AND snapshot IS NOT NULL "
    "ORDER BY seq DESC LIMIT 1"
)
# Shared effects of the tenant that the usage rows of a run name. Parameters: tenant, run.
SHARED: Final = (
    f"SELECT {', '.join(f'e.{name}' for name in EFFECT.columns)} FROM {USAGE.name} u JOIN {EFFECT.name} e "
    "ON e.tenant = u.tenant AND e.run = '' AND e.visit = 0 AND e.key = u.key "
    f"WHERE u.tenant = {MARK} AND u.run = {MARK} ORDER BY u.key"
)
# Shared effects whose retention is over and which no run names. The conditions on run and keep_ms repeat those of the
# index. Parameters: business instant, limit.
FORGET_SHARED: Final = (
    f"DELETE FROM {EFFECT.name} WHERE (tenant, run, visit, key) IN "
    f"(SELECT tenant, run, visit, key FROM {EFFECT.name} e "
    f"WHERE run = '' AND keep_ms > 0 AND settled_at > 0 AND settled_at + keep_ms <= {MARK} AND NOT EXISTS "
    f"(SELECT 1 FROM {USAGE.name} u WHERE u.tenant = e.tenant AND u.key = e.key) LIMIT {MARK})"
)
# Stored answers whose retention is over. Parameters: business instant, limit.
OLD_REQUESTS: Final = f"SELECT tenant, key FROM {REQUEST.name} WHERE at < {MARK} ORDER BY at LIMIT {MARK}"
# Closed workers whose retention is over and which own no run. Parameters: tenant, status of a closed worker, real
# instant, limit.
OLD_WORKERS: Final = (
    f"SELECT tenant, id FROM {WORKER.name} w WHERE {_and(('tenant', 'status'))} AND lease_until < {MARK} "
    f"AND NOT EXISTS (SELECT 1 FROM {RUN.name} WHERE owner = w.id AND {_HAS_HOLDER}) LIMIT {MARK}"
)
# Cursors of a subscription with deliveries left, earliest first. Parameters: tenant, subscription, limit.
OWING: Final = (
    f"SELECT {SQL[CURSOR.name].columns} FROM {CURSOR.name} WHERE {_and(('tenant', 'subscription'))} "
    f"AND due_at IS NOT NULL ORDER BY due_at, run LIMIT {MARK}"
)
# Latest real instant of a lease renewal. Parameter: tenant.
RENEWED: Final = f"SELECT max(renewed_at) FROM {WORKER.name} WHERE tenant = {MARK}"
# Parameters: batch, tenant, id, status of an open writer.
RECEIPT: Final = f"UPDATE writer SET batch = {MARK} WHERE {_and(('tenant', 'id', 'status'))}"

# Parameters: tenant, status of a closed writer, business instant.
OLD_WRITERS: Final = f"DELETE FROM writer WHERE {_and(('tenant', 'status'))} AND started_at < {MARK}"


def _status(kind: AnyKind) -> tuple[int, dict[str, StrEnum]]:
    """Return the position of a row's status and its members by value, or (-1, {}) if it has none."""
    hint = get_type_hints(kind.row).get("status")
    if hint is None or not issubclass(hint, StrEnum):
        return -1, {}
    return kind.columns.index("status"), {member.value: member for member in hint}


def _decoder(kind: AnyKind) -> Callable[[Values], Any]:
    make: Callable[[Values], Any] = kind.row._make
    at, words = _status(kind)
    if at < 0:
        return make

    def decode(values: Values) -> Any:
        try:
            word = words.get(values[at])
            if word is None:
                raise Corrupt(f"{kind.name} {values[: kind.key]}: status {values[at]!r} is unknown")
            row = make((*values[:at], word, *values[at + 1 :]))
            if kind is RUN:
                check_run(row)
            elif kind is EFFECT:
                check_effect(row)
            return row
        except Corrupt as error:
            error.row = (kind.name, tuple(values[: kind.key]))
            raise

    return decode


# Any stands for the row class of the kind, which the type of a dictionary cannot state.
DECODE: Final[dict[str, Callable[[Values], Any]]] = {kind.name: _decoder(kind) for kind in KINDS}


def update_values(kind: AnyKind, row: Row, replaces: int) -> Values:
    """Return the parameters of a kind's update."""
    return (*row[kind.key :], *row[: kind.key], replaces)


def rows_of(kind: Kind[R], found: Iterable[Values]) -> tuple[R, ...]:
    """Decode selected rows of a kind.

    Raises Corrupt.
    """
    return tuple(map(DECODE[kind.name], found))


def page_query(
    kind: AnyKind, tenant: str, where: dict[str, str | int], cursor: str, limit: int
) -> tuple[str, Values, int]:
    """Return the query of one page, its parameters, and the number of rows on the page.

    The query asks for one row more, which tells whether another page follows. Raises InvalidInput.
    """
    check_columns(kind, list(where))
    limit = min(limit, PAGE_MAX)
    after = place_after(kind, cursor)
    values = (tenant, *where.values(), *(after or ()), limit + 1)
    return page(kind, list(where), after=after is not None), values, limit


def page_of(kind: Kind[R], found: Sequence[Values], limit: int) -> Page[R]:
    """Return the page of the rows that `page_query` finds."""
    rows = rows_of(kind, found[:limit])
    return Page(rows, cursor_of(kind, rows[-1]) if len(found) > limit else "")


def run_of(values: Values) -> Run:
    """Decode the columns of a selected run.

    Raises Corrupt.
    """
    run: Run = DECODE[RUN.name](values)
    return run


def each_once(held: Sequence[Run], over: Sequence[Run]) -> tuple[Run, ...]:
    """Combine owned and ended runs. A run in both ended between the two queries and is returned as ended."""
    ended = {run[: RUN.key] for run in over}
    return (*(run for run in held if run[: RUN.key] not in ended), *over)

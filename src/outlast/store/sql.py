"""SQL shared by both databases: columns from the fields of the rows, each statement built once.

A dialect chooses how parameters are spelled. PostgreSQL numbers them (`postgres/statements.py`).
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, NamedTuple, get_type_hints

from outlast.core.commit import Mapping
from outlast.core.machine import ENDED
from outlast.core.row_checks import (
    check_effect,
    check_run,
    listed,
    listed_as_unreadable,
    stored_types,
    wrong_type,
)
from outlast.core.rows.all_kinds import KINDS, R, Row
from outlast.core.rows.effect_rows import EFFECT, USAGE
from outlast.core.rows.row_kind import AnyKind, Kind
from outlast.core.rows.run_rows import EVENT, RUN, Run, is_due
from outlast.core.rows.store_rows import REQUEST, WORKER
from outlast.errors import Corrupt

log = logging.getLogger("outlast.store")
MARK: Final = "?"  # placeholder of a parameter
Values = Sequence[Any]


class Sql(NamedTuple):
    """The statements of one kind of row."""

    columns: str
    insert: str  # parameters: the row
    update: str  # parameters: columns after the key, then the key, then the version replaced
    select: str  # parameters: the key
    forget: str  # of a whole run; parameters: tenant, run; '' for a kind that belongs to no run
    delete: str  # parameters: the key


def equal(names: Sequence[str]) -> str:
    """Return the condition that these columns equal parameters."""
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
        f"UPDATE {kind.name} SET {sets} WHERE {equal(key)}{versioned}",
        f"SELECT {columns} FROM {kind.name} WHERE {equal(key)}",
        f"DELETE FROM {kind.name} WHERE {equal(('tenant', 'run'))}" if "run" in names else "",
        f"DELETE FROM {kind.name} WHERE {equal(key)}",
    )


SQL: Final[dict[str, Sql]] = {kind.name: _sql(kind) for kind in KINDS}


class NarrowUpdate(NamedTuple):
    """An update of the columns that a usual step changes. It suffices if all others are unchanged."""

    statement: str
    resting: Callable[[Row], tuple[Any, ...]]  # the columns that it omits
    moving: Callable[[Row], tuple[Any, ...]]  # its parameters but the version replaced

    def values(self, row: Row, replaces: int) -> tuple[object, ...]:
        """Return the parameters of the statement that replaces a version of this row."""
        return (*self.moving(row), replaces)


def _narrow(kind: AnyKind, moving: Sequence[str]) -> NarrowUpdate:
    key, columns = kind.columns[: kind.key], kind.columns[kind.key :]
    sets = ", ".join(f"{name} = {MARK}" for name in moving)
    return NarrowUpdate(
        f"UPDATE {kind.name} SET {sets} WHERE {equal(key)} AND version = {MARK}",
        itemgetter(*(kind.columns.index(name) for name in columns if name not in moving)),
        itemgetter(*(kind.columns.index(name) for name in (*moving, *key))),
    )


_ENDINGS: Final = RUN.columns[RUN.columns.index("ending") :]  # set at most once in the life of a run
_RESTING: Final = ("owner", "lane", "queue", "workflow", "created_at", "ended_at", "requested_by", "correlation_id",
                   "trace_id", *_ENDINGS)  # fmt: skip
# Updates of a run by its holder, and of an intended effect by its answer. SQLite rewrites an index for every column
# that a statement names, changed or not, and binds 32 columns in 8 us.
NARROW: Final = {
    RUN.name: _narrow(RUN, [name for name in RUN.columns[RUN.key :] if name not in _RESTING]),
    EFFECT.name: _narrow(
        EFFECT,
        ("version", "status", "response", "error", "external_id", "attempts", "waited_ms", "settled_at", "settled_by"),
    ),
}

# Columns of which at least one differs after any change of a run. Parameters: tenant, run.
_CHANGING: Final = ("version", "inbox_seq", "due_at", "created_at")
changing: Final = itemgetter(*(RUN.columns.index(name) for name in _CHANGING))
CHANGING: Final = f"SELECT {', '.join(_CHANGING)} FROM run WHERE {equal(RUN.columns[: RUN.key])}"

_RUNS: Final = f"SELECT {SQL[RUN.name].columns} FROM run"
# Parameters: lane, real time, limit.
DUE: Final = f"{_RUNS} WHERE lane = {MARK} AND due_at <= {MARK} ORDER BY due_at, tenant, run LIMIT {MARK}"
NONE_OF: Final = f"tenant NOT IN (SELECT value FROM json_each({MARK}))"  # replaced by a dialect with arrays
# DUE without some tenants. Parameters: lane, real time, real time to start at, tenants, limit.
DUE_BUT: Final = (
    f"{_RUNS} WHERE lane = {MARK} AND due_at <= {MARK} AND due_at >= {MARK} AND {NONE_OF} "
    f"ORDER BY due_at, tenant, run LIMIT {MARK}"
)
# The condition of the index `run_owner`: a query uses that index only if it repeats the condition.
HAS_HOLDER: Final = f"owner <> '' AND owner <> '{ENDED}'"
UNOWNED: Final = f"{_RUNS} WHERE owner = ''"
# Parameters: due_at, tenant, run.
REARM: Final = f"UPDATE run SET due_at = {MARK} WHERE tenant = {MARK} AND run = {MARK}"
# The condition of the index `run_tree`, as above.
OF_TREE: Final = "c.tenant = r.tenant AND c.root = r.run AND c.root <> ''"
# Ended runs that no run has started, if all runs below them ended before the instant. Parameters: business instant,
# the same, limit.
OVER: Final = (
    f"SELECT tenant, run FROM run r WHERE ended_at <> 0 AND ended_at < {MARK} AND root = '' "
    f"AND NOT EXISTS (SELECT 1 FROM run c WHERE {OF_TREE} AND c.ended_at = 0) "
    f"AND NOT EXISTS (SELECT 1 FROM run c WHERE {OF_TREE} AND c.ended_at >= {MARK}) "
    f"ORDER BY ended_at, tenant, run LIMIT {MARK}"
)
# Runs below a root. Parameters: tenant, root, limit.
BELOW: Final = f"SELECT tenant, run FROM run WHERE tenant = {MARK} AND root = {MARK} AND root <> '' LIMIT {MARK}"
# Ended runs after one of them. Parameters: business instant; end, tenant and run of that one; limit.
OVER_AFTER: Final = (
    f"SELECT ended_at, tenant, run FROM run WHERE ended_at <> 0 AND ended_at < {MARK} "
    f"AND (ended_at, tenant, run) > ({MARK}, {MARK}, {MARK}) ORDER BY ended_at, tenant, run LIMIT {MARK}"
)
# Parameters: tenant, run.
LAST_SNAPSHOT: Final = (
    f"SELECT {SQL[EVENT.name].columns} FROM event WHERE {equal(('tenant', 'run'))} AND snapshot IS NOT NULL "
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
    f"SELECT tenant, id FROM {WORKER.name} w WHERE {equal(('tenant', 'status'))} AND lease_until < {MARK} "
    f"AND NOT EXISTS (SELECT 1 FROM {RUN.name} WHERE owner = w.id AND {HAS_HOLDER}) LIMIT {MARK}"
)
# Latest real instant of a lease renewal. Parameter: tenant.
RENEWED: Final = f"SELECT max(renewed_at) FROM {WORKER.name} WHERE tenant = {MARK}"
# Parameters: batch, tenant, id, status of an open writer.
RECEIPT: Final = f"UPDATE writer SET batch = {MARK} WHERE {equal(('tenant', 'id', 'status'))}"

# Parameters: tenant, status of a closed writer, business instant.
OLD_WRITERS: Final = f"DELETE FROM writer WHERE {equal(('tenant', 'status'))} AND started_at < {MARK}"


def _status(kind: AnyKind) -> tuple[int, dict[str, StrEnum]]:
    """Return the position of a row's status and its members by value, or (-1, {}) if it has none."""
    hint = get_type_hints(kind.row).get("status")
    if hint is None or not issubclass(hint, StrEnum):
        return -1, {}
    return kind.columns.index("status"), {member.value: member for member in hint}


def _decoder(kind: AnyKind) -> Callable[[Values], Any]:
    make: Callable[[Values], Any] = kind.row._make
    at, words = _status(kind)
    types = stored_types(kind)

    def decode(values: Values) -> Any:
        try:
            if tuple(map(type, values)) not in types:
                raise Corrupt(f"{kind.name} {'/'.join(map(str, values[: kind.key]))}: {wrong_type(kind, values)}")
            if at < 0:
                return make(values)
            word = words.get(values[at])
            if word is None:
                key = "/".join(map(str, values[: kind.key]))
                raise Corrupt(f"{kind.name} {key}: status {values[at]!r} is unknown")
            row = make((*values[:at], word, *values[at + 1 :]))
            if kind is RUN:
                check_run(row)
            elif kind is EFFECT:
                check_effect(row, stored=True)
            return row
        except Corrupt as error:
            error.row = (kind.name, tuple(values[: kind.key]))
            raise

    return decode


# Any is the row class of the kind, which the type of a dictionary cannot express.
DECODE: Final[dict[str, Callable[[Values], Any]]] = {kind.name: _decoder(kind) for kind in KINDS}


def update_values(kind: AnyKind, row: Row, replaces: int) -> Values:
    """Return the parameters of a kind's update."""
    return (*row[kind.key :], *row[: kind.key], replaces)


def rows_of(kind: Kind[R], found: Iterable[Values]) -> tuple[R, ...]:
    """Decode selected rows of a kind.

    Raises Corrupt.
    """
    return tuple(map(DECODE[kind.name], found))


def listed_rows(kind: Kind[R], found: Iterable[Values]) -> tuple[R, ...]:
    """Decode selected rows for a list. A row that cannot be read is replaced, so that it does not hide the others."""
    rows: list[R] = []
    for values in found:
        try:
            row: R = DECODE[kind.name](values)
        except Corrupt as error:
            row = listed_as_unreadable(kind, tuple(values), error.what)
        rows.append(listed(kind, row))
    return tuple(rows)


def rearmed_runs(
    found: Iterable[Values], rearm: Callable[[Run, Mapping], int | None], mapping: Mapping, real: int
) -> list[tuple[int | None, str, str]]:
    """Return the due_at of unowned runs by a new clock mapping, with their keys: the parameters of REARM.

    Runs that are due stay due. One that cannot be read keeps its due_at, and is logged once.
    """
    moved: list[tuple[int | None, str, str]] = []
    for values in found:
        try:
            run: Run = DECODE[RUN.name](values)
            due_at = run.due_at if is_due(run, real) else rearm(run, mapping)
        except Corrupt as error:
            warn_once(tuple(values), error.what)
            continue
        if due_at != run.due_at:
            moved.append((due_at, run.tenant, run.run))
    return moved


def readable_runs(found: Iterable[Values]) -> list[Run]:
    """Decode runs of many for a worker. One that cannot be read is left as it is, so that it stops no other run.

    It is logged once in a process, and again once its row has changed.
    """
    runs: list[Run] = []
    for values in found:
        try:
            runs.append(DECODE[RUN.name](values))
        except Corrupt as error:
            warn_once(tuple(values), error.what)
    return runs


@lru_cache(maxsize=1_024)
def warn_once(values: tuple[Any, ...], why: str) -> None:
    """Log a run that cannot be read. The cache leaves out repetitions."""
    log.error("run %s/%s cannot be read, and no worker takes it: %s; check the store: outlast fsck", *values[:2], why)

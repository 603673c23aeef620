"""Reads of a store as values: the SQL of each, the same read of rows in memory, and the type of its answer.

A store has one method for all of them, `Store.query`. The SQL serves both databases. If PostgreSQL has a better text,
that is in `postgres/reads.py`.
"""

import json
from abc import ABC, abstractmethod
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar, get_type_hints

from typing_extensions import override

from outlast.core.row_checks import listed
from outlast.core.rows.all_kinds import R, Row
from outlast.core.rows.effect_rows import APPROVAL, EFFECT, EVIDENCE, MEMO, USAGE, WAIT
from outlast.core.rows.graph_rows import GRAPH_CHECKPOINT, GRAPH_THREAD, GRAPH_VALUE, GRAPH_WRITE
from outlast.core.rows.limit_rows import CALL_USAGE, SLOT, TENANT_BUDGET
from outlast.core.rows.outbox_rows import CURSOR, DELIVERY, SUBSCRIPTION, UNPUBLISHED, Cursor
from outlast.core.rows.row_kind import AnyKind, Key, Kind, key_of
from outlast.core.rows.run_rows import ATTRIBUTE, EVENT, FLAGGING, FLOOR, MESSAGE, RESULT, RUN, STATE_CHUNK, TOKEN, Run
from outlast.core.rows.store_rows import META, REQUEST, STORE, TOPOLOGY, WORKER, WRITER
from outlast.core.rows.text_rows import MODEL_TEXT
from outlast.errors import InvalidInput
from outlast.store.bounds import INT_MAX
from outlast.store.rows_in_memory import RowsInMemory
from outlast.store.sql import BELOW, HAS_HOLDER, MARK, SQL, Values, equal, listed_rows, readable_runs, rows_of

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

ALL_ROWS: Final = INT_MAX
ROWS_MAX: Final = 10_000  # rows that one read returns, if its caller names no other number


class Select(NamedTuple):
    """A statement with MARK for each parameter, and its parameters."""

    text: str
    values: Values


class Query(ABC, Generic[T_co]):
    """A read of a store. `statements` and `answer` are its SQL, `find` is the same read of rows in memory."""

    long: ClassVar[bool] = False
    """True if the read may take so long that it must not delay others."""
    polls: ClassVar[bool] = False
    """True if callers poll for work with it: an old answer delays them and does no harm."""

    @abstractmethod
    def statements(self) -> Sequence[Select]:
        """Return the statements, to be run in this order over one connection. Raises InvalidInput."""

    @abstractmethod
    def answer(self, found: Sequence[Sequence[Values]]) -> T_co:
        """Return the answer from the rows that each statement found. Raises Corrupt."""

    @abstractmethod
    def find(self, rows: RowsInMemory) -> T_co:
        """Return the answer from rows in memory. Raises InvalidInput."""


# --- rows by key -------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Load(Query[R | None]):
    """The row at a key, or None."""

    kind: Kind[R]
    key: Key

    @override
    def statements(self) -> Sequence[Select]:
        return (Select(SQL[self.kind.name].select, self.key),)

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> R | None:
        return rows_of(self.kind, found[0])[0] if found[0] else None

    @override
    def find(self, rows: RowsInMemory) -> R | None:
        return rows.get(self.kind, self.key)


@dataclass(frozen=True, slots=True)
class LoadMany(Query[tuple[R | None, ...]]):
    """The rows at these keys, in the order of the keys, with None for missing rows.

    `listed`: a row that cannot be read is replaced as in a list, because the rows are of many runs.
    """

    kind: Kind[R]
    keys: tuple[Key, ...]
    listed: bool = False

    @override
    def statements(self) -> Sequence[Select]:
        return [Select(SQL[self.kind.name].select, key) for key in self.keys]

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> tuple[R | None, ...]:
        decoded = listed_rows if self.listed else rows_of
        return tuple([decoded(self.kind, values)[0] if values else None for values in found])

    @override
    def find(self, rows: RowsInMemory) -> tuple[R | None, ...]:
        found = [rows.get(self.kind, key) for key in self.keys]
        return tuple([listed(self.kind, row) if self.listed and row is not None else row for row in found])


@dataclass(frozen=True, slots=True)
class Under(Query[tuple[R, ...]]):
    """The rows whose key begins with `prefix`, in key order, starting after the key `after`.

    `listed`: as in `LoadMany`. `backwards`: the greatest key first, and those before the key `after`.
    """

    kind: Kind[R]
    prefix: Key
    after: Key = ()
    limit: int = ROWS_MAX
    listed: bool = False
    backwards: bool = False

    @override
    def statements(self) -> Sequence[Select]:
        prefix, after = self.prefix, self.after
        assert not after or after[: len(prefix)] == prefix, "the key after which to begin lies under the prefix"
        text = _under(self.kind, len(prefix), len(after), backwards=self.backwards)
        return (Select(text, (*prefix, *after[len(prefix) :], self.limit)),)

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> tuple[R, ...]:
        return (listed_rows if self.listed else rows_of)(self.kind, found[0])

    @override
    def find(self, rows: RowsInMemory) -> tuple[R, ...]:
        found = [row for row in rows.under(self.kind, self.prefix) if self.is_past(key_of(self.kind, row))]
        found = (found[::-1] if self.backwards else found)[: self.limit]
        return tuple([listed(self.kind, row) for row in found] if self.listed else found)

    def is_past(self, key: Key) -> bool:
        """Return True if a row at this key is behind the place to start from."""
        return not self.after or (key < self.after if self.backwards else key > self.after)


@dataclass(frozen=True, slots=True)
class ByOrdinal(Query[tuple[R, ...]]):
    """The rows whose key begins with `prefix` by `ordinal`, starting after that ordinal."""

    kind: Kind[R]
    prefix: Key
    after: int = 0
    limit: int = ROWS_MAX

    @override
    def statements(self) -> Sequence[Select]:
        where = equal(self.kind.columns[: len(self.prefix)])
        text = f"{_select(self.kind)} WHERE {where} AND ordinal > {MARK} ORDER BY ordinal LIMIT {MARK}"
        return (Select(text, (*self.prefix, self.after, self.limit)),)

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> tuple[R, ...]:
        return rows_of(self.kind, found[0])

    @override
    def find(self, rows: RowsInMemory) -> tuple[R, ...]:
        ordinal = _column(self.kind, "ordinal")
        found = [row for row in rows.under(self.kind, self.prefix) if ordinal(row) > self.after]
        return tuple(sorted(found, key=ordinal)[: self.limit])


# --- pages -------------------------------------------------------------------------------
class Page(NamedTuple, Generic[R]):
    """One page of a list, newest first, and the opaque cursor of the next page ('' at the end)."""

    rows: tuple[R, ...]
    cursor: str

    @property
    def next_cursor(self) -> str:
        """Return the cursor under the name that pages of clients have."""
        return self.cursor


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
    CALL_USAGE.name: "at",
    TENANT_BUDGET.name: "since",
    MODEL_TEXT.name: "at",
    TOPOLOGY.name: "at",
    STATE_CHUNK.name: "at",
    RESULT.name: "at",
    FLOOR.name: "entered_at",
    ATTRIBUTE.name: "at",
    FLAGGING.name: "at",
    REQUEST.name: "at",
    SUBSCRIPTION.name: "created_at",
    CURSOR.name: "at",
    DELIVERY.name: "first_at",
    UNPUBLISHED.name: "at",
    GRAPH_THREAD.name: "changed_at",
    GRAPH_CHECKPOINT.name: "at",
    GRAPH_WRITE.name: "at",
    GRAPH_VALUE.name: "at",
    WORKER.name: "started_at",
    WRITER.name: "started_at",
    META.name: "version",
}


FINDS: Final = {APPROVAL.name: {"id", "run"}}  # columns with an index that finds few rows


@dataclass(frozen=True, slots=True)
class Newest(Query[Page[R]]):
    """One page of a tenant's rows whose columns equal `where`, newest first by the time column of the kind."""

    polls: ClassVar[bool] = True

    kind: Kind[R]
    tenant: str
    where: tuple[tuple[str, str | int], ...] = ()
    cursor: str = ""
    limit: int = 50

    @override
    def statements(self) -> Sequence[Select]:
        names = [name for name, _ in self.where]
        check_columns(self.kind, names)
        after = place_after(self.kind, self.cursor)
        place = (ORDER[self.kind.name], *self.kind.columns[1 : self.kind.key])
        begin = f" AND ({', '.join(place)}) < ({', '.join(MARK for _ in place)})" if after else ""
        order = ", ".join(f"{name} DESC" for name in place)
        # The sign stops the planner from scanning all rows in page order if a column finds few rows by an index.
        sign = "+" if FINDS.get(self.kind.name, set()) & set(names) else ""
        text = f"{_select(self.kind)} WHERE {equal(['tenant', *names])}{begin} ORDER BY {sign}{order} LIMIT {MARK}"
        values = [value for _, value in self.where]
        return (Select(text, (self.tenant, *values, *(after or ()), self._rows_max() + 1)),)

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> Page[R]:
        rows = listed_rows(self.kind, found[0][: self._rows_max()])
        return self._page(rows, more=len(found[0]) > len(rows))

    @override
    def find(self, rows: RowsInMemory) -> Page[R]:
        check_columns(self.kind, [name for name, _ in self.where])
        after = place_after(self.kind, self.cursor)
        columns = [(_column(self.kind, name), value) for name, value in self.where]
        found = [
            row
            for row in rows.under(self.kind, (self.tenant,))
            if all(column(row) == value for column, value in columns)
            and (after is None or place_of(self.kind, row) < after)
        ]
        found.sort(key=lambda row: place_of(self.kind, row), reverse=True)
        page = tuple([listed(self.kind, row) for row in found[: self._rows_max()]])
        return self._page(page, more=len(found) > self._rows_max())

    def _rows_max(self) -> int:
        """Return the number of rows on a page. The statement asks for one more, which tells if a page follows."""
        return min(self.limit, PAGE_MAX)

    def _page(self, rows: tuple[R, ...], *, more: bool) -> Page[R]:
        return Page(rows, cursor_of(self.kind, rows[-1]) if more else "")


# --- counts ------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class LastOrdinals(Query[tuple[int, ...]]):
    """The greatest ordinal under each prefix, 0 without rows, in one snapshot. All prefixes have the same length.

    Rows that are numbered from 1 without gaps are counted by it at the price of one, whatever their number.
    """

    kind: AnyKind
    prefixes: tuple[Key, ...]

    @override
    def statements(self) -> Sequence[Select]:
        names = self.kind.columns
        text = f"SELECT coalesce(max(ordinal), 0) FROM {self.kind.name} WHERE "
        return [Select(text + equal(names[: len(prefix)]), prefix) for prefix in self.prefixes]

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> tuple[int, ...]:
        return tuple(max(0, n) if isinstance(n, int) else 0 for ((n,),) in found)

    @override
    def find(self, rows: RowsInMemory) -> tuple[int, ...]:
        ordinal = _column(self.kind, "ordinal")
        return tuple(max((0, *map(ordinal, rows.under(self.kind, prefix)))) for prefix in self.prefixes)


@dataclass(frozen=True, slots=True)
class CountBy(Query[dict[str, int]]):
    """The number of a tenant's rows by the value of a column, for example by status."""

    long: ClassVar[bool] = True
    polls: ClassVar[bool] = True

    kind: AnyKind
    tenant: str
    column: str

    @override
    def statements(self) -> Sequence[Select]:
        check_columns(self.kind, [self.column])
        text = f"SELECT {self.column}, count(*) FROM {self.kind.name} WHERE tenant = {MARK} GROUP BY {self.column}"
        return (Select(text, (self.tenant,)),)

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> dict[str, int]:
        return {str(value): n for value, n in found[0]}

    @override
    def find(self, rows: RowsInMemory) -> dict[str, int]:
        check_columns(self.kind, [self.column])
        return dict(Counter(map(str, map(_column(self.kind, self.column), rows.under(self.kind, (self.tenant,))))))


@dataclass(frozen=True, slots=True)
class Census(Query[dict[tuple[str, ...], int]]):
    """The number of rows of all tenants by the values of columns. `filled`: only if that column is not ''."""

    long: ClassVar[bool] = True
    polls: ClassVar[bool] = True

    kind: AnyKind
    columns: tuple[str, ...]
    filled: str = ""

    @override
    def statements(self) -> Sequence[Select]:
        self._check()
        names = ", ".join(self.columns)
        where = f" WHERE {self.filled} <> ''" if self.filled else ""
        return (Select(f"SELECT {names}, count(*) FROM {self.kind.name}{where} GROUP BY {names}", ()),)

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> dict[tuple[str, ...], int]:
        return {tuple(map(str, values)): n for *values, n in found[0]}

    @override
    def find(self, rows: RowsInMemory) -> dict[tuple[str, ...], int]:
        self._check()
        columns = [_column(self.kind, name) for name in self.columns]
        found = rows.under(self.kind, ())
        if self.filled:
            filled = _column(self.kind, self.filled)
            found = [row for row in found if filled(row) != ""]
        return dict(Counter(tuple(str(column(row)) for column in columns) for row in found))

    def _check(self) -> None:
        check_columns(self.kind, [*self.columns, *([self.filled] if self.filled else [])])


@dataclass(frozen=True, slots=True)
class RunsBelow(Query[int]):
    """The number of runs below a root, at most `limit`, those that have ended included."""

    polls: ClassVar[bool] = True

    tenant: str
    root: str
    limit: int

    @override
    def statements(self) -> Sequence[Select]:
        return (Select(f"SELECT count(*) FROM ({BELOW}) below", (self.tenant, self.root, self.limit)),)

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> int:
        ((n,),) = found[0]
        return int(n)

    @override
    def find(self, rows: RowsInMemory) -> int:
        return min(self.limit, sum(run.root == self.root for run in rows.under(RUN, (self.tenant,))))


# --- runs and cursors --------------------------------------------------------------------
_RUNS: Final = f"SELECT {SQL[RUN.name].columns} FROM run"
# Parameters: owner, limit.
OWNED: Final = f"{_RUNS} WHERE owner = {MARK} AND {HAS_HOLDER} ORDER BY tenant, run LIMIT {MARK}"
# The tenant is an expression: as a column it would make the planner scan all runs of the tenant, of which few are owned
# or have just ended.
_OF_TENANT: Final = f"tenant || '' = {MARK}"


@dataclass(frozen=True, slots=True)
class Owned(Query[tuple[Run, ...]]):
    """The runs that a worker owns."""

    polls: ClassVar[bool] = True

    owner: str

    @override
    def statements(self) -> Sequence[Select]:
        return (Select(OWNED, (self.owner, ALL_ROWS)),)

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> tuple[Run, ...]:
        return tuple(readable_runs(found[0]))

    @override
    def find(self, rows: RowsInMemory) -> tuple[Run, ...]:
        return tuple(rows.owned(self.owner))


@dataclass(frozen=True, slots=True)
class Queued(Query[tuple[Run, ...]]):
    """The runs that wait for a slot, those of the oldest tree first. Tenant '*' means all tenants."""

    polls: ClassVar[bool] = True

    tenant: str
    limit: int

    @override
    def statements(self) -> Sequence[Select]:
        rest = f"queue <> '' ORDER BY root_created_at, depth, created_at, tenant, run LIMIT {MARK}"
        if self.tenant == STORE:
            return (Select(f"{_RUNS} WHERE {rest}", (self.limit,)),)
        return (Select(f"{_RUNS} WHERE queue = {MARK} AND {rest}", (self.tenant, self.limit)),)

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> tuple[Run, ...]:
        return tuple(readable_runs(found[0]))

    @override
    def find(self, rows: RowsInMemory) -> tuple[Run, ...]:
        return tuple([run for run in rows.queued() if self.tenant in (STORE, run.queue)][: self.limit])


@dataclass(frozen=True, slots=True)
class Moving(Query[tuple[Run, ...]]):
    """A tenant's owned runs, and those that ended at or after `since` (business time), newest end first.

    Each run comes once, and at most `limit` of either group.
    """

    polls: ClassVar[bool] = True

    tenant: str
    since: int
    limit: int

    @override
    def statements(self) -> Sequence[Select]:
        held = f"{_RUNS} WHERE {HAS_HOLDER} AND {_OF_TENANT} ORDER BY owner, tenant, run LIMIT {MARK}"
        over = (
            f"{_RUNS} WHERE ended_at <> 0 AND ended_at >= {MARK} AND {_OF_TENANT} "
            f"ORDER BY ended_at DESC, tenant DESC, run DESC LIMIT {MARK}"
        )
        return (Select(held, (self.tenant, self.limit)), Select(over, (self.since, self.tenant, self.limit)))

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> tuple[Run, ...]:
        held, over = (listed_rows(RUN, values) for values in found)
        ended = {run[: RUN.key] for run in over}  # a run in both ended between the two statements
        return (*(run for run in held if run[: RUN.key] not in ended), *over)

    @override
    def find(self, rows: RowsInMemory) -> tuple[Run, ...]:
        found = (*rows.held(self.tenant)[: self.limit], *rows.over(self.tenant, self.since)[: self.limit])
        return tuple([listed(RUN, run) for run in found])


@dataclass(frozen=True, slots=True)
class NextDue(Query[int | None]):
    """The earliest due_at of these lanes in real time, or None if no run will fall due.

    `after`: only later instants, because what is due before them cannot be taken.
    """

    polls: ClassVar[bool] = True

    lanes: tuple[str, ...]
    after: int | None = None

    @override
    def statements(self) -> Sequence[Select]:
        text = f"SELECT min(due_at) FROM run WHERE lane = {MARK} AND due_at IS NOT NULL"
        if self.after is None:
            return [Select(text, (lane,)) for lane in self.lanes]
        return [Select(f"{text} AND due_at > {MARK}", (lane, self.after)) for lane in self.lanes]

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> int | None:
        return min((int(due) for ((due,),) in found if isinstance(due, int | float)), default=None)

    @override
    def find(self, rows: RowsInMemory) -> int | None:
        found = [rows.next_due(lane, self.after) for lane in self.lanes]
        return min((due for due in found if due is not None), default=None)


@dataclass(frozen=True, slots=True)
class Owing(Query[tuple[Cursor, ...]]):
    """Cursors of a subscription with deliveries left, earliest due_at first, even if it lies in the future."""

    tenant: str
    subscription: str
    limit: int

    @override
    def statements(self) -> Sequence[Select]:
        text = (
            f"{_select(CURSOR)} WHERE {equal(('tenant', 'subscription'))} "
            f"AND due_at IS NOT NULL ORDER BY due_at, run LIMIT {MARK}"
        )
        return (Select(text, (self.tenant, self.subscription, self.limit)),)

    @override
    def answer(self, found: Sequence[Sequence[Values]]) -> tuple[Cursor, ...]:
        return listed_rows(CURSOR, found[0])

    @override
    def find(self, rows: RowsInMemory) -> tuple[Cursor, ...]:
        of_tenant = rows.under(CURSOR, (self.tenant,))
        found = [row for row in of_tenant if row.subscription == self.subscription and row.due_at is not None]
        found.sort(key=lambda row: (row.due_at or 0, row.run))
        return tuple([listed(CURSOR, row) for row in found[: self.limit]])


@cache
def _under(kind: AnyKind, width: int, after: int, *, backwards: bool) -> str:
    names = kind.columns[: kind.key]
    rest = names[width:after]
    where = [f"{name} = {MARK}" for name in names[:width]]
    if rest:
        where.append(f"({', '.join(rest)}) {'<' if backwards else '>'} ({', '.join(MARK for _ in rest)})")
    order = ", ".join(f"{name} DESC" if backwards else name for name in names[width:] or names)
    return f"{_select(kind)}{' WHERE ' + ' AND '.join(where) if where else ''} ORDER BY {order} LIMIT {MARK}"


def _select(kind: AnyKind) -> str:
    return f"SELECT {SQL[kind.name].columns} FROM {kind.name}"


def _column(kind: AnyKind, name: str) -> "itemgetter[Any]":
    return itemgetter(kind.columns.index(name))


# --- positions in pages ------------------------------------------------------------------
def place_of(kind: AnyKind, row: Row) -> Key:
    """Return the position of a row in page order: its time, then its key without the tenant."""
    time = row[kind.columns.index(ORDER[kind.name])]
    assert isinstance(time, int)
    return (time, *key_of(kind, row)[1:])


def cursor_of(kind: AnyKind, row: Row) -> str:
    """Return the opaque cursor that continues after a row."""
    return cursor_at(place_of(kind, row))


def cursor_at(place: Key) -> str:
    """Return the opaque cursor that continues after a position."""
    return urlsafe_b64encode(json.dumps(place).encode()).decode()


def place_after(kind: AnyKind, cursor: str) -> Key | None:
    """Return the position in a cursor, or None for the first page.

    Raises InvalidInput for a malformed cursor.
    """
    if not cursor:
        return None
    return place_in(cursor, (int, *list(get_type_hints(kind.row).values())[1 : kind.key]))


def place_in(cursor: str, types: Sequence[type]) -> Key:
    """Return the position in a cursor whose parts have these types. Raises InvalidInput."""
    try:
        place = tuple(json.loads(urlsafe_b64decode(cursor)))
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidInput("this cursor was not issued by this list", fix="begin again without a cursor") from error
    if len(place) != len(types) or not all(_could_be(hint, part) for hint, part in zip(types, place, strict=True)):
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

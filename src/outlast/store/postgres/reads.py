"""Reads of a PostgreSQL store, over a few connections that cannot write."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple, TypeVar

import asyncpg

from outlast.core.commit import Instant
from outlast.core.machine import EffectStatus
from outlast.core.rows.all_kinds import R, Row
from outlast.core.rows.effect_rows import EFFECT
from outlast.core.rows.row_kind import AnyKind, Kind
from outlast.core.rows.run_rows import EVENT, RUN
from outlast.core.rows.store_rows import META
from outlast.errors import Unavailable
from outlast.store import open_calls, sql
from outlast.store.open_calls import OpenCalls
from outlast.store.port import HOLDER_KINDS, RunRows, gather_rows
from outlast.store.postgres import statements
from outlast.store.postgres.connection import AGAIN, AWAY, Address, reconnect, remedy
from outlast.store.postgres.statements import COLUMNS, TYPES, arrays, numbered, parameters
from outlast.store.queries import LastOrdinals, LoadMany, Query, Select
from outlast.store.sql import DECODE, Values
from outlast.store.store_clock import MAPPING_ROW, StoreClock, mapping_of

T = TypeVar("T")

CONNECTIONS: Final = 3
TRIES: Final = 3  # attempts of a read whose connection was cut
_PAIRS: Final = f"unnest({parameters(('text', 'text'), 1)}) AS k(tenant, run)"
_LAST: Final = (
    f"SELECT e.* FROM {_PAIRS} CROSS JOIN LATERAL (SELECT {COLUMNS[EVENT.name]} FROM event "
    "WHERE tenant = k.tenant AND run = k.run AND snapshot IS NOT NULL ORDER BY seq DESC LIMIT 1) e"
)
_SHARED: Final = (
    f"SELECT u.tenant, u.run, {', '.join(f'e.{name}' for name in EFFECT.columns)} FROM {_PAIRS} "
    "JOIN usage u USING (tenant, run) JOIN effect e ON e.tenant = u.tenant AND e.run = '' AND e.visit = 0 "
    "AND e.key = u.key ORDER BY u.tenant, u.run, e.key"
)


def _of_runs(kind: AnyKind) -> str:
    """Return a query for the rows of a kind that belong to given runs, in key order."""
    columns = ", ".join(f"t.{name}" for name in kind.columns)
    order = ", ".join(f"t.{name}" for name in kind.columns[: kind.key])
    return f"SELECT {columns} FROM {_PAIRS} JOIN {kind.name} t USING (tenant, run) ORDER BY {order}"


class Reads:
    """The reading half of a PostgreSQL store, in the store's own event loop."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._idle: list[asyncpg.Connection[Any]] = []
        self._free = asyncio.Semaphore(CONNECTIONS)

    @asynccontextmanager
    async def _connection(self) -> "AsyncIterator[asyncpg.Connection[Any]]":
        async with self._free:
            while self._idle and self._idle[-1].is_closed():  # closed by the server
                self._idle.pop()
            db = self._idle.pop() if self._idle else await reconnect(self._address, writes=False)
            try:
                yield db
            except BaseException:  # a connection with an unfinished answer cannot be used again
                db.terminate()
                raise
            self._idle.append(db)

    async def do(self, read: "Callable[[asyncpg.Connection[Any]], Awaitable[T]]") -> T:
        """Run a read, and repeat it if its connection was cut.

        Raises Unavailable.
        """
        for n in range(TRIES):
            try:
                async with self._connection() as db:
                    return await read(db)
            except (*AWAY, *AGAIN) as error:
                if n + 1 == TRIES:
                    raise Unavailable(
                        "the store cannot be read", f"{type(error).__name__}: {error}", remedy(error)
                    ) from error
        raise AssertionError("unreachable")

    async def close(self) -> None:
        """Terminate the idle connections at once."""
        for db in self._idle:
            db.terminate()
        self._idle.clear()


class OneTrip(NamedTuple):
    """The form of a query that asks for several keys in one statement with arrays."""

    select: Callable[[Any], Select]
    split: Callable[[Any, list[Values]], list[list[Values]]]
    """Assigns the found rows to the statements of the query, each of which asks for one key."""


def _by_key(query: LoadMany[Row], found: list[Values]) -> list[list[Values]]:
    rows = {tuple(values[: query.kind.key]): values for values in found}
    return [[rows[key]] if key in rows else [] for key in query.keys]


def _ordinals_of(query: LastOrdinals) -> Select:
    width = len(query.prefixes[0])
    return Select(statements.last_ordinal(query.kind, width), arrays(TYPES[query.kind.name][:width], query.prefixes))


_VISITS: Final = f"unnest({parameters(('text', 'text', 'bigint'), 1)}) AS k(tenant, run, visit)"
_OPEN_CALLS: Final = (
    f"SELECT e.run, e.epoch FROM {_VISITS} JOIN effect e ON e.tenant = k.tenant AND e.run = k.run "
    f"AND e.visit IN (0, k.visit) AND e.status = '{EffectStatus.INTENDED}' "
    f"UNION ALL SELECT u.run, e.epoch FROM {_VISITS} JOIN usage u USING (tenant, run) {open_calls.SHARED}"
)


def _calls_of(query: OpenCalls) -> Select:
    keys = [(query.tenant, run, visit) for run, visit in query.visits]
    return Select(_OPEN_CALLS, arrays(("text", "text", "bigint"), keys))


def _by_run(query: OpenCalls, found: list[Values]) -> list[list[Values]]:
    epochs: dict[str, list[Values]] = {}
    for run, epoch in found:
        epochs.setdefault(run, []).append((epoch,))
    return [epochs.get(run, []) for run, _ in query.visits]


ONE_TRIP: Final[dict[type, OneTrip]] = {
    LoadMany: OneTrip(
        lambda query: Select(statements.find(query.kind, lock=False), statements.keys_of(query.kind, query.keys)),
        _by_key,
    ),
    OpenCalls: OneTrip(_calls_of, _by_run),
    LastOrdinals: OneTrip(_ordinals_of, lambda _, found: [[values] for values in found]),
}


async def answer(db: "asyncpg.Connection[Any]", query: Query[T]) -> T:
    """Return the answer of a query."""
    given = query.statements()
    one = ONE_TRIP.get(type(query)) if len(given) > 1 else None
    if one is None:
        return query.answer([await _fetch(db, numbered(text), values) for text, values in given])
    return query.answer(one.split(query, await _fetch(db, *one.select(query))))


async def _fetch(db: "asyncpg.Connection[Any]", text: str, values: Values) -> list[Values]:
    return [tuple(record) for record in await db.fetch(text, *values)]


async def present(db: "asyncpg.Connection[Any]", store_clock: StoreClock) -> Instant:
    """Return the store's real and business time."""
    real, *meta = await db.fetchrow(statements.NOW, *MAPPING_ROW)  # type: ignore[misc]
    mapping = mapping_of(DECODE[META.name](tuple(meta)) if meta[0] is not None else None)
    return mapping.at(store_clock.at_least(real))


async def rows_of_runs(
    db: "asyncpg.Connection[Any]", runs: Sequence[tuple[str, str]], store_clock: StoreClock
) -> tuple[RunRows | None, ...]:
    """Return all rows of each run, all in one snapshot."""
    if not runs:
        return ()
    pairs = statements.keys_of(RUN, runs)

    async def select(kind: Kind[R], statement: str) -> tuple[R, ...]:
        return sql.rows_of(kind, map(tuple, await db.fetch(statement, *pairs)))

    async with db.transaction(isolation="repeatable_read", readonly=True):
        found = {row[:2]: row for row in await select(RUN, statements.find(RUN, lock=False))}
        last = {row[:2]: row for row in await select(EVENT, _LAST)}
        rest = [_grouped(await select(kind, _of_runs(kind))) for kind in HOLDER_KINDS]
        shared = await db.fetch(_SHARED, *pairs)
        now = await present(db, store_clock)
    used: dict[tuple[str, str], list[Row]] = {}
    for record in shared:
        tenant, run, *values = record
        used.setdefault((tenant, run), []).append(DECODE[EFFECT.name](values))
    answer: list[RunRows | None] = []
    for key in runs:
        run, event = found.get(key), last.get(key)
        if run is None:
            answer.append(None)
            continue
        answer.append(gather_rows(run, event, [rows.get(key, ()) for rows in rest], now, used.get(key, ())))
    return tuple(answer)


def _grouped(rows: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    """Group rows by run."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault(row[:2], []).append(row)  # type: ignore[arg-type]
    return found

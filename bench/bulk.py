"""Rows by the hundred thousand: a run that was really executed, copied with other ids directly into the tables.

The bytes of a copied event still contain the original run's id, so copies can be read but not executed.
"""

import asyncio
import sqlite3
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

import asyncpg

from bench.engines import Place
from bench.serving import TENANT, opened
from outlast.core.rows.all_kinds import Row
from outlast.core.rows.effect_rows import APPROVAL, EFFECT, MEMO, WAIT, Approval
from outlast.core.rows.row_kind import AnyKind
from outlast.core.rows.run_rows import EVENT, MESSAGE, RUN, Run
from outlast.store.dynamodb.connection import Connection, DynamoAddress
from outlast.store.dynamodb.items import Stamp, encode
from outlast.store.dynamodb.items import place as item_place
from outlast.store.sql import SQL

OF_A_RUN: Final = (RUN, EVENT, EFFECT, MEMO, WAIT, APPROVAL, MESSAGE)
AT_ONCE: Final = 5_000
PUTS_MAX: Final = 25  # of one BatchWriteItem
REQUESTS_MAX: Final = 8  # at the same time: with more, an emulator on a busy machine answers too late
COPIED: Final = Stamp("copied", 0, 0)
APART_MS: Final = 7  # so that their times differ


async def rows_of(place: Place, run: str, kinds: Sequence[AnyKind] = OF_A_RUN) -> dict[AnyKind, tuple[Row, ...]]:
    """Return every row of one run."""
    async with opened(place.url) as store:
        return {kind: await store.rows(kind, (TENANT, run)) for kind in kinds}


def copies(
    rows: dict[AnyKind, tuple[Row, ...]], run: str, names: Sequence[str], **fields: Any
) -> dict[AnyKind, Iterator[Row]]:
    """Return the rows of further runs; `fields` change each run's row, and `due_at` is spread unless given."""

    def of(kind: AnyKind) -> Iterator[Row]:
        for n, name in enumerate(names):
            for row in rows[kind]:
                values = [_renamed(value, run, name) for value in row]
                copy = kind.row._make(values)
                if isinstance(copy, Approval):
                    copy = copy._replace(
                        within_until=copy.within_until + n * APART_MS, asked_at=copy.asked_at - n * APART_MS
                    )
                yield _spread(copy, n, fields) if isinstance(copy, Run) else copy

    return {kind: of(kind) for kind in rows if rows[kind]}


def _renamed(value: Any, old: str, new: str) -> Any:
    if isinstance(value, str):
        return value.replace(old, new) if old in value else value
    return value


def _spread(run: Run, n: int, fields: dict[str, Any]) -> Run:
    due = run.due_at + n * APART_MS if run.due_at is not None else None
    ended = run.ended_at - n * APART_MS if run.ended_at else 0
    return run._replace(**{"due_at": due, "ended_at": ended, "created_at": run.created_at - n * APART_MS, **fields})


def insert(place: Place, rows: dict[AnyKind, Iterator[Row]]) -> None:
    """Insert all rows without the store's own transactions, then tidy the database as time would."""
    if place.url.startswith("sqlite:"):
        _into_sqlite(place.url.removeprefix("sqlite:"), rows)
    elif place.url.startswith("dynamodb:"):
        asyncio.run(_into_dynamodb(place.url, rows))
    else:
        asyncio.run(_into_postgres(place.url, rows))


def _into_sqlite(path: str, rows: dict[AnyKind, Iterator[Row]]) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA synchronous = OFF")
    for kind, each in rows.items():
        while some := list(islice(each, AT_ONCE)):
            db.execute("BEGIN IMMEDIATE")
            db.executemany(SQL[kind.name].insert, some)
            db.execute("COMMIT")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


async def _into_postgres(url: str, rows: dict[AnyKind, Iterator[Row]]) -> None:
    db = await asyncpg.connect(url)
    for kind, each in rows.items():
        columns = list(kind.columns)
        while some := list(islice(each, AT_ONCE)):
            await db.copy_records_to_table(kind.name, records=some, columns=columns, schema_name="outlast")
        await db.execute(f"VACUUM (ANALYZE) outlast.{kind.name}")
    await db.execute("CHECKPOINT")
    await db.close()


async def _into_dynamodb(url: str, rows: dict[AnyKind, Iterator[Row]]) -> None:
    address = DynamoAddress.parse(url)
    client, turn = Connection(address), asyncio.Semaphore(REQUESTS_MAX)
    await client.open()

    async def put(table: str, part: list[Any]) -> None:
        async with turn:
            answer = await client.call("BatchWriteItem", RequestItems={table: part})
        assert not answer.get("UnprocessedItems"), answer

    for kind, each in rows.items():
        while some := list(islice(each, AT_ONCE)):
            table = address.table(item_place(kind, some[0][: kind.key]).table)
            puts = [{"PutRequest": {"Item": item}} for row in some for item in encode(kind, row, COPIED)]
            parts = [puts[i : i + PUTS_MAX] for i in range(0, len(puts), PUTS_MAX)]
            await asyncio.gather(*(put(table, part) for part in parts))
    await client.close()


def names(prefix: str, first: int, n: int) -> list[str]:
    """Return ids for this many runs."""
    return [f"{prefix}{number:08d}" for number in range(first, first + n)]

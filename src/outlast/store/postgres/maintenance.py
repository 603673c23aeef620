"""Rare work that needs a transaction of its own: the writer's row, the clock mapping, forgetting old runs, facts."""

from collections.abc import Callable
from typing import Any, Final

import asyncpg

from outlast.core.budget import ANSWERS_KEPT, WORKERS_KEPT
from outlast.core.commit import Mapping
from outlast.core.machine import LeaseStatus
from outlast.core.points import point
from outlast.core.rows import META, REQUEST, STORE, WORKER, WRITER, Run, Writer, is_due
from outlast.errors import StoreUnusable, no_store
from outlast.store import sql
from outlast.store.batch import Batch
from outlast.store.clock import mapping_row, successor
from outlast.store.migrations import MIGRATIONS, SCHEMA
from outlast.store.port import OF_A_RUN
from outlast.store.postgres.connection import CHORE_S, Address
from outlast.store.postgres.statements import numbered
from outlast.store.sql import DECODE, SQL

_PASSING: Final = " FOR UPDATE SKIP LOCKED"  # two that forget at once share the work, and wait for nobody
FACTS: Final = ("server_version", "fsync", "full_page_writes", "synchronous_commit", "max_connections")


async def register(db: "asyncpg.Connection[Any]", batch: Batch, writer: str) -> None:
    """Insert this writer's row. Raises StoreUnusable when the id was used before."""
    row = Writer(STORE, writer, 1, LeaseStatus.ALIVE, 0, batch.now.business)
    try:
        await db.execute(numbered(SQL[WRITER.name].insert), *row)
    except asyncpg.UniqueViolationError as error:
        raise StoreUnusable(f"writer {writer} exists already", "a writer id is new at each start") from error


async def resign(db: "asyncpg.Connection[Any]", batch: Batch, writer: str) -> None:
    """Close this writer's row: nothing more is written under its id."""
    record = await db.fetchrow(numbered(SQL[WRITER.name].select) + " FOR UPDATE", STORE, writer)
    row = DECODE[WRITER.name](tuple(record)) if record is not None else None
    if isinstance(row, Writer) and row.status is LeaseStatus.ALIVE:
        closed = row._replace(status=LeaseStatus.CLOSED, version=row.version + 1)
        await db.execute(numbered(SQL[WRITER.name].update), *sql.update_values(WRITER, closed, row.version))


async def set_mapping(
    db: "asyncpg.Connection[Any]",
    batch: Batch,
    old: Mapping,
    wanted: Mapping,
    rearm: Callable[[Run, Mapping], int | None],
) -> Mapping:
    """Store the mapping that follows the present one, and move the due_at of every unowned, unfinished run.

    In a transaction that begins with BEGIN_MAPPING.
    """
    stored = successor(old, wanted, batch.now.real)
    moved: list[tuple[int | None, str, str]] = []
    for record in await db.fetch(numbered(sql.UNOWNED) + " FOR NO KEY UPDATE", timeout=CHORE_S):
        run = sql.run_of(tuple(record))
        due_at = run.due_at if is_due(run, batch.now.real) else rearm(run, stored)
        if due_at != run.due_at:
            moved.append((due_at, run.tenant, run.run))
    await db.executemany(numbered(sql.REARM), moved, timeout=CHORE_S)
    row = mapping_row(stored)
    if old.version:
        await db.execute(numbered(SQL[META.name].update), *sql.update_values(META, row, old.version))
    else:
        await db.execute(numbered(SQL[META.name].insert), *row)
    return stored


async def purge(db: "asyncpg.Connection[Any]", batch: Batch, before: int, n: int) -> int:
    """Delete at most `n` runs that ended before an instant, with all their rows but tokens; what they shared and was
    kept for long enough; and old receipts."""
    over = [tuple(record) for record in await db.fetch(numbered(sql.OVER), before, n, timeout=CHORE_S)]
    for kind in OF_A_RUN:
        await db.executemany(numbered(SQL[kind.name].forget), over, timeout=CHORE_S)
    await db.execute(numbered(sql.FORGET_SHARED), batch.now.business, n, timeout=CHORE_S)
    await db.execute(numbered(sql.OLD_WRITERS), STORE, LeaseStatus.CLOSED.value, before)
    return len(over)


async def forget(db: "asyncpg.Connection[Any]", batch: Batch, n: int) -> int:
    """Delete at most `n` answers to requests, and `n` rows of workers, that have been kept for long enough; rows that
    somebody writes to at this moment are left for the next time."""
    now = batch.now
    answers = await db.fetch(numbered(sql.OLD_REQUESTS) + _PASSING, now.business - ANSWERS_KEPT, n, timeout=CHORE_S)
    gone = (STORE, LeaseStatus.CLOSED.value, now.real - WORKERS_KEPT, n)
    workers = await db.fetch(numbered(sql.OLD_WORKERS) + _PASSING, *gone, timeout=CHORE_S)
    for kind, found in ((REQUEST, answers), (WORKER, workers)):
        await db.executemany(numbered(SQL[kind.name].delete), [tuple(each) for each in found], timeout=CHORE_S)
    return len(answers) + len(workers)


async def facts(db: "asyncpg.Connection[Any]", address: Address) -> dict[str, str | int]:
    """What `doctor` shows, read back from a connection."""
    found: dict[str, str | int] = {"store": address.shown}
    for name in FACTS:
        found[name] = str(await db.fetchval(f"SHOW {name}"))
    found["schema"] = int(await db.fetchval("SELECT max(version) FROM outlast_schema"))
    found["bytes"] = int(await db.fetchval("SELECT pg_database_size(current_database())"))
    return found


TYPES: Final = {"integer": "BIGINT", "blob": "BYTEA", "clustered": ""}
TURN: Final = 0x6F75746C  # 'outl': the advisory lock under which schemas are made
VERSION: Final = "outlast_schema"


def spelt(statement: str) -> str:
    """A migration's statement in this dialect: text is compared by its bytes, as every store does."""
    return statement.format(**TYPES).replace(" TEXT", ' TEXT COLLATE "C"')


async def migrate(db: "asyncpg.Connection[Any]", address: Address, *, make: bool = True) -> None:
    """Make the schema, or bring it to this version; with `make=False` it has to be there. Raises StoreUnusable,
    asyncpg's errors.

    Each step is one transaction under one advisory lock. Steps only add, so a worker of the version before, which
    names its columns, goes on writing while this runs and after it.
    """
    found = await _version(db, address)
    if found == SCHEMA:
        return
    if not found and not make:
        raise no_store(address.shown)
    async with db.transaction():
        await db.execute("SELECT pg_advisory_xact_lock($1, hashtext($2))", TURN, address.schema)
        if not await db.fetchval("SELECT to_regnamespace($1)", address.schema):
            await db.execute(f"CREATE SCHEMA {address.schema}")
        await db.execute(f"CREATE TABLE IF NOT EXISTS {VERSION} (version BIGINT NOT NULL)")
    while (found := await _step(db, address)) < SCHEMA:
        pass
    if found > SCHEMA:
        raise StoreUnusable(
            f"the store {address.shown} was written by a newer version of Outlast",
            f"its schema is {found}, this version knows {SCHEMA}",
            "update Outlast",
        )


async def _version(db: "asyncpg.Connection[Any]", address: Address) -> int:
    """The schema found; 0 where there is none yet."""
    if not await db.fetchval("SELECT to_regclass($1)", f"{address.schema}.{VERSION}"):
        return 0
    return int(await db.fetchval(f"SELECT coalesce(max(version), 0) FROM {VERSION}"))


async def _step(db: "asyncpg.Connection[Any]", address: Address) -> int:
    """The next step, if one is missing. Answers the schema after it."""
    async with db.transaction():
        await db.execute("SELECT pg_advisory_xact_lock($1, hashtext($2))", TURN, address.schema)
        found = await _version(db, address)
        if found >= SCHEMA:
            return found
        for statement in MIGRATIONS[found]:
            await db.execute(spelt(statement))
        await db.execute(f"INSERT INTO {VERSION} VALUES ($1)", found + 1)
        point("store.migration:inside")
    return found + 1

"""Schema, writer rows, clock mapping, retention and facts of a PostgreSQL store."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import asyncpg

from outlast.core.commit import Mapping
from outlast.core.crash_points import point
from outlast.core.durations import ANSWERS_KEPT, WORKERS_KEPT
from outlast.core.generation import LEDGERS, ledgers_after, ledgers_of
from outlast.core.machine import LeaseStatus
from outlast.core.rows.all_kinds import KINDS
from outlast.core.rows.row_kind import AnyKind
from outlast.core.rows.run_rows import TOKEN, Run, start_token_of
from outlast.core.rows.store_rows import META, REQUEST, STORE, WORKER, WRITER, Meta, Writer
from outlast.errors import StoreUnusable, no_store
from outlast.store import sql
from outlast.store.batch import Batch
from outlast.store.migrations import MIGRATIONS, NEWEST, SCHEMA, WRITTEN_BY, newer, unreleased
from outlast.store.port import LEDGER_KINDS, RUN_KINDS
from outlast.store.postgres.connection import CHORE_S, Address
from outlast.store.postgres.statements import numbered
from outlast.store.sql import DECODE, SQL
from outlast.store.store_clock import mapping_row, successor

_PASSING: Final = " FOR UPDATE SKIP LOCKED"  # concurrent calls share the rows, and none waits
FACTS: Final = ("server_version", "fsync", "full_page_writes", "synchronous_commit", "max_connections")


async def register(db: "asyncpg.Connection[Any]", batch: Batch, writer: str) -> None:
    """Insert this writer's row.

    Raises StoreUnusable if the id exists.
    """
    row = Writer(STORE, writer, 1, LeaseStatus.ALIVE, 0, batch.now.business)
    try:
        await db.execute(numbered(SQL[WRITER.name].insert), *row)
    except asyncpg.UniqueViolationError as error:
        raise StoreUnusable(f"writer {writer} exists already", "each start needs a new writer id") from error


async def resign(db: "asyncpg.Connection[Any]", batch: Batch, writer: str) -> None:
    """Close this writer's row. No more batches land under its id."""
    record = await db.fetchrow(numbered(SQL[WRITER.name].select) + " FOR UPDATE", STORE, writer)
    row: Writer | None = DECODE[WRITER.name](tuple(record)) if record is not None else None
    if row is not None and row.status is LeaseStatus.ALIVE:
        closed = row._replace(status=LeaseStatus.CLOSED, version=row.version + 1)
        await db.execute(numbered(SQL[WRITER.name].update), *sql.update_values(WRITER, closed, row.version))


async def set_mapping(
    db: "asyncpg.Connection[Any]",
    batch: Batch,
    old: Mapping,
    wanted: Mapping,
    rearm: Callable[[Run, Mapping], int | None],
) -> Mapping:
    """Store the next clock mapping, and set the due_at of every unowned, unfinished run.

    The transaction begins with BEGIN_MAPPING.
    """
    stored = successor(old, wanted, batch.now.real)
    found = await db.fetch(numbered(sql.UNOWNED) + " FOR NO KEY UPDATE", timeout=CHORE_S)
    moved = sql.rearmed_runs(map(tuple, found), rearm, stored, batch.now.real)
    await db.executemany(numbered(sql.REARM), moved, timeout=CHORE_S)
    row = mapping_row(stored)
    if old.version:
        await db.execute(numbered(SQL[META.name].update), *sql.update_values(META, row, old.version))
    else:
        await db.execute(numbered(SQL[META.name].insert), *row)
    return stored


async def purge(db: "asyncpg.Connection[Any]", batch: Batch, before: int, n: int) -> int:
    """Delete at most `n` runs whose trees ended before an instant, roots last, and what belongs to no other run.

    Tokens stay. Shared effects and receipts go when their retention is over.
    """
    roots = [tuple(record) for record in await db.fetch(numbered(sql.OVER), before, before, n, timeout=CHORE_S)]
    over: list[tuple[Any, ...]] = []
    for root in roots:
        below = await db.fetch(numbered(sql.BELOW), *root, n - len(over), timeout=CHORE_S)
        over += [tuple(record) for record in below]
    over += roots[: n - len(over)]
    for kind in RUN_KINDS:
        await db.executemany(numbered(SQL[kind.name].forget), over, timeout=CHORE_S)
    await db.execute(numbered(sql.FORGET_SHARED), batch.now.business, n, timeout=CHORE_S)
    await db.execute(numbered(sql.OLD_WRITERS), STORE, LeaseStatus.CLOSED.value, before)
    return len(over)


async def purge_runs(db: "asyncpg.Connection[Any]", runs: Sequence[Run]) -> None:
    """Delete all rows of ended runs, and the tokens that name them."""
    for kind in (*RUN_KINDS, TOKEN):
        await db.executemany(numbered(SQL[kind.name].forget), [run[:2] for run in runs], timeout=CHORE_S)
    await db.executemany(numbered(SQL[TOKEN.name].delete), [start_token_of(run) for run in runs], timeout=CHORE_S)


async def purge_ledgers(db: "asyncpg.Connection[Any]", before: int, n: int) -> int:
    """Delete the ledgers of at most `n` runs that ended before an instant, and note the last of these runs."""
    record = await db.fetchrow(numbered(SQL[META.name].select) + " FOR UPDATE", *LEDGERS)
    row: Meta | None = DECODE[META.name](tuple(record)) if record is not None else None
    purged = ledgers_of(row)
    over = [
        tuple(found) for found in await db.fetch(numbered(sql.OVER_AFTER), before, *purged.last, n, timeout=CHORE_S)
    ]
    for kind in LEDGER_KINDS:
        await db.executemany(numbered(SQL[kind.name].forget), [found[1:] for found in over], timeout=CHORE_S)
    after = ledgers_after(purged, over, before, n)
    if row is None:  # another process that does so now deletes the same ledgers
        await db.execute(numbered(SQL[META.name].insert) + " ON CONFLICT DO NOTHING", *after.row(None))
    elif after != purged:
        await db.execute(numbered(SQL[META.name].update), *sql.update_values(META, after.row(row), row.version))
    return len(over)


async def forget(db: "asyncpg.Connection[Any]", batch: Batch, n: int) -> int:
    """Delete at most `n` stored answers and `n` rows of workers whose retention is over.

    Rows that another transaction holds are left for the next call.
    """
    now = batch.now
    answers = await db.fetch(numbered(sql.OLD_REQUESTS) + _PASSING, now.business - ANSWERS_KEPT, n, timeout=CHORE_S)
    gone = (STORE, LeaseStatus.CLOSED.value, now.real - WORKERS_KEPT, n)
    workers = await db.fetch(numbered(sql.OLD_WORKERS) + _PASSING, *gone, timeout=CHORE_S)
    for kind, found in ((REQUEST, answers), (WORKER, workers)):
        await db.executemany(numbered(SQL[kind.name].delete), [tuple(each) for each in found], timeout=CHORE_S)
    return len(answers) + len(workers)


async def facts(db: "asyncpg.Connection[Any]", address: Address) -> dict[str, str | int]:
    """Return versions and settings for `outlast doctor`, read from a connection."""
    found: dict[str, str | int] = {"store": address.shown}
    for name in FACTS:
        found[name] = str(await db.fetchval(f"SHOW {name}"))
    found["schema"] = int(await db.fetchval("SELECT max(version) FROM outlast_schema"))
    found["bytes"] = int(await db.fetchval("SELECT pg_database_size(current_database())"))
    return found


TYPES: Final = {"integer": "BIGINT", "blob": "BYTEA", "clustered": ""}
MIGRATION_LOCK: Final = 0x6F75746C  # 'outl', the advisory lock of migrations
VERSION: Final = "outlast_schema"
HAS_COLUMN: Final = (
    "SELECT 1 FROM information_schema.columns WHERE table_schema = $1 AND table_name = $2 AND column_name = $3"
)


def in_dialect(statement: str) -> str:
    """Return a migration's statement in this dialect. Text is compared by bytes, as in every store."""
    return statement.format(**TYPES).replace(" TEXT", ' TEXT COLLATE "C"')


async def migrate(db: "asyncpg.Connection[Any]", address: Address, *, make: bool = True) -> None:
    """Create the schema, or bring it to this version. Without `make`, it must exist.

    Each migration is one transaction under one advisory lock. Migrations only add, so a worker of the previous version,
    which names its columns, continues to write. Raises StoreUnusable and asyncpg's errors.
    """
    found = await _version(db, address)
    if found and not await db.fetchval(HAS_COLUMN, address.schema, *NEWEST):
        raise unreleased(address.shown, await _newest_worker(db))
    if found == SCHEMA:
        return
    if not found and not make:
        raise no_store(address.shown)
    async with db.transaction():
        await db.execute("SELECT pg_advisory_xact_lock($1, hashtext($2))", MIGRATION_LOCK, address.schema)
        if not await db.fetchval("SELECT to_regnamespace($1)", address.schema):
            await db.execute(f"CREATE SCHEMA {address.schema}")
        await db.execute(f"CREATE TABLE IF NOT EXISTS {VERSION} (version BIGINT NOT NULL)")
    while (found := await _step(db, address)) < SCHEMA:
        pass
    if found > SCHEMA:
        raise newer(address.shown, found, await _newest_worker(db))


def _newest_key(kind: AnyKind) -> str:
    """Return the statement that makes the primary key of a table its newest index.

    Of two indexes that seem equally cheap, the server's planner takes the newer one. In a new store, whose tables have
    no statistics yet, it took the index of a list for each lookup by key, skipping from one instant to the next.
    """
    key = ", ".join(kind.columns[: kind.key])
    return f"ALTER TABLE {kind.name} DROP CONSTRAINT {kind.name}_pkey, ADD PRIMARY KEY ({key})"


async def _newest_worker(db: "asyncpg.Connection[Any]") -> tuple[Any, Any] | None:
    try:
        record = await db.fetchrow(WRITTEN_BY)
    except asyncpg.PostgresError:  # the table of another version
        return None
    return None if record is None else (record[0], record[1])


async def _version(db: "asyncpg.Connection[Any]", address: Address) -> int:
    """Return the schema of the database, or 0 without one."""
    if not await db.fetchval("SELECT to_regclass($1)", f"{address.schema}.{VERSION}"):
        return 0
    return int(await db.fetchval(f"SELECT coalesce(max(version), 0) FROM {VERSION}"))


async def _step(db: "asyncpg.Connection[Any]", address: Address) -> int:
    """Run the next migration, if one is missing, and return the schema after it."""
    async with db.transaction():
        await db.execute("SELECT pg_advisory_xact_lock($1, hashtext($2))", MIGRATION_LOCK, address.schema)
        found = await _version(db, address)
        if found >= SCHEMA:
            return found
        for statement in MIGRATIONS[found]:
            await db.execute(in_dialect(statement))
        if found + 1 == SCHEMA and not await db.fetchval("SELECT EXISTS (SELECT 1 FROM run)"):
            for kind in KINDS:
                await db.execute(_newest_key(kind))
        await db.execute(f"INSERT INTO {VERSION} VALUES ($1)", found + 1)
        point("store.migration:inside")
    return found + 1

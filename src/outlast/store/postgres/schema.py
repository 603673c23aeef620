"""The numbered steps to this version's schema, one process at a time, whoever else starts meanwhile."""

from typing import Any, Final

import asyncpg

from outlast.core.points import point
from outlast.errors import StoreUnusable, no_store
from outlast.store.migrations import MIGRATIONS, SCHEMA
from outlast.store.postgres.connect import Address

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

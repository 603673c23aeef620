"""A PostgreSQL server to measure on, with a separate database and a control. Independent of Outlast."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from bench.place import FOLDER_VARIABLE

T = TypeVar("T")
GIVEN = "OUTLAST_BENCH_POSTGRES"
"""URL of a server to use instead. The user must be a superuser: it creates databases and requests checkpoints."""
WARM = 30
SETTINGS = {"fsync": "on", "shared_buffers": "128MB", "max_wal_size": "1GB"}  # PostgreSQL's own defaults


@contextmanager
def server() -> Iterator[str]:
    """Yield the URL of a running server. A server started here is stopped after the block."""
    if given := os.environ.get(GIVEN):
        yield given
        return
    from tests.postgres.server import Server  # only a checkout has this wheel

    own = Server(inside=os.environ.get(FOLDER_VARIABLE), **SETTINGS)
    try:
        yield own.url
    finally:
        own.close()


def run(url: str, work: "Callable[[asyncpg.Connection[Any]], Awaitable[T]]") -> T:
    """Run a function with a connection."""

    async def connected() -> T:
        db = await asyncpg.connect(url)
        try:
            return await work(db)
        finally:
            await db.close()

    return asyncio.run(connected())


@contextmanager
def database(url: str) -> Iterator[str]:
    """Create a database, so that its size is that of the measured store."""
    name = f"bench_{token_hex(6)}"
    run(url, lambda db: db.execute(f"CREATE DATABASE {name}"))
    try:
        yield urlunsplit(urlsplit(url)._replace(path=f"/{name}"))
    finally:
        run(url, lambda db: db.execute(f"DROP DATABASE {name} WITH (FORCE)"))


def postmaster(url: str) -> int:
    """Return the process id of the server if it runs here and its folder is readable, else 0."""
    try:
        where = run(url, lambda db: db.fetchval("SHOW data_directory"))
        return int((Path(where) / "postmaster.pid").read_text().split()[0])
    except (OSError, ValueError, asyncpg.PostgresError):
        return 0


def commit_rate(url: str, seconds: float) -> float:
    """Return commits of one small row per second over one idle connection."""

    async def measure(db: "asyncpg.Connection[Any]") -> float:
        await db.execute("SET synchronous_commit = on")
        await db.execute("CREATE TABLE IF NOT EXISTS public.control (id bigint PRIMARY KEY, value text NOT NULL)")
        await db.execute("TRUNCATE public.control")
        insert = await db.prepare("INSERT INTO public.control VALUES ($1, 'one small row')")
        for n in range(WARM):
            await insert.fetch(n)
        count, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < seconds:
            await insert.fetch(WARM + count)
            count += 1
        return count / (time.perf_counter() - begun)

    return run(url, measure)


def bytes_kept(url: str) -> int:
    """Return the size of the database and of the log that a recovery would read, after a checkpoint."""

    async def measure(db: "asyncpg.Connection[Any]") -> int:
        await db.execute("CHECKPOINT")
        log = await db.fetchval("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), redo_lsn) FROM pg_control_checkpoint()")
        tables = await db.fetchval(
            "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c JOIN pg_namespace n "
            "ON n.oid = c.relnamespace WHERE c.relkind = 'r' AND n.nspname NOT IN ('pg_catalog', 'information_schema', "
            "'public') AND n.nspname NOT LIKE 'pg_toast%'"
        )
        return int(tables) + int(log)

    return run(url, measure)

"""Opening of a store by its URL, and waiting for a condition in it. The only module that names concrete stores."""

import asyncio
from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path
from typing import Literal, TypeVar

from outlast.clocks import SystemClock, new_id, process_id
from outlast.core.clock_port import Clock
from outlast.core.commit import Commit, Put
from outlast.core.durations import CLOCK_SKEW
from outlast.core.generation import GENERATION, Generation
from outlast.core.rows.store_rows import META
from outlast.errors import Stale, StoreUnusable, to_install
from outlast.store.port import Store
from outlast.store.sqlite.database import missing
from outlast.store.sqlite.store import open_sqlite, read_sqlite

SQLITE = "sqlite:"
MEMORY = "memory:"
Use = Literal["write", "read", "recover"]
POSTGRES = ("postgresql://", "postgres://")
DYNAMODB = "dynamodb://"


async def open_store(url: str, *, clock: Clock | None = None, make: bool = True, use: Use = "write") -> Store:
    """Open the store at `url` and migrate it to the current schema.

    `clock` is for tests (default: the clock of the system). URLs: `sqlite:PATH`, `sqlite:///PATH`,
    `postgresql://USER@HOST/DATABASE?schema=outlast`, `dynamodb://REGION/ENV`, `memory:`. A plain path that ends in .db
    is a SQLite file too. A store without a generation gets its first.

    `make=False`: raise if the store does not exist, because its name may be mistyped. `use="read"`: write nothing, so
    that backups, copies and stores on a full disk can be opened; commits raise Rejected. `use="recover"`: open a backup
    or a copy for writing. Raises StoreUnusable with the reason.
    """
    store = await _open(url, clock, make, use)
    if use != "read" and await store.load(META, GENERATION) is None:
        first = Generation(1, new_id("g_"), (await store.now()).business)
        try:
            await store.commit(Commit((Put(META, first.row(), 0),), label="first generation"))
        except Stale:
            pass  # another process has written it
    return store


async def _open(url: str, clock: Clock | None, make: bool, use: Use) -> Store:
    time = clock or SystemClock()
    if url == MEMORY or url.startswith("memory://"):
        from outlast.store.memory import MemoryCore, MemoryStore  # few commands use it, and all open a store

        return MemoryStore(MemoryCore(time), process_id("writer"))
    if url.startswith(POSTGRES):
        return await _open_postgres(url, clock, make)
    if url.startswith(DYNAMODB):
        return await _open_dynamodb(url, time, clock is None, make and use != "read")
    path = file_of(url)
    if path is None:
        raise StoreUnusable(
            f"no store can be opened at {url}",
            "a store is named by sqlite:PATH, postgresql://…, dynamodb://… or memory:",
            "e.g. --store sqlite:outlast.db",
        )
    if (use == "read" or not make) and not path.exists():
        raise missing(path, url)
    if use == "read":
        return await read_sqlite(path, reader=process_id("reader"), clock=time)
    return await open_sqlite(path, writer=process_id("writer"), clock=time, recovers=use == "recover")


async def _open_postgres(url: str, clock: Clock | None, make: bool) -> Store:
    """Import the driver, which is an extra. The store uses the server's clock unless `clock` is given."""
    try:
        postgres = import_module("outlast.store.postgres.store")
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise StoreUnusable(
            "a PostgreSQL store needs the extra `postgres`", "asyncpg is not installed", to_install("postgres")
        ) from None
    store: Store = await postgres.open_postgres(url, writer=process_id("writer"), clock=clock, make=make)
    return store


async def _open_dynamodb(url: str, clock: Clock, checked: bool, make: bool) -> Store:
    """Import the client, which is an extra. A machine's clock is `checked` by the answers of the service."""
    try:
        dynamodb = import_module("outlast.store.dynamodb.store")
        store: Store = await dynamodb.open_dynamodb(
            url, writer=process_id("writer"), clock=clock, checked=checked, make=make
        )
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("aiobotocore", "aiohttp", "botocore"):
            raise
        raise StoreUnusable(
            "a DynamoDB store needs the extra `dynamodb`", f"{error.name} is not installed", to_install("dynamodb")
        ) from None
    return store


def skew_of(url: str) -> int:
    """Return the skew of the store at a URL, without opening it (`Store.skew`)."""
    return CLOCK_SKEW if url.startswith(DYNAMODB) else 0


def is_there(url: str) -> bool:
    """Return True if there may be a store at this URL."""
    path = file_of(url)
    return path is None or path.exists()


def file_of(url: str) -> Path | None:
    """Return the file that a URL names; None if it names none."""
    if url.startswith(SQLITE):
        rest = url.removeprefix(SQLITE)
        if rest.startswith("//"):
            rest = rest.removeprefix("//")
            if not rest.startswith("/"):
                return None  # sqlite://HOST/… names a host, which SQLite does not have
        return Path(rest) if rest else None
    return Path(url) if url.endswith((".db", ".sqlite")) and ":" not in url else None


T = TypeVar("T")
POLL_S = 0.05  # the end of a run wakes no subscriber


async def until(store: Store, look: Callable[[], Awaitable[T | None]], *, within_s: float | None = None) -> T | None:
    """Return the result of `look` once it is not None; None after `within_s` real seconds."""
    changed = asyncio.Event()
    unsubscribe = store.on_change(changed.set)
    try:
        async with asyncio.timeout(within_s):
            while True:
                changed.clear()
                if (found := await look()) is not None:
                    return found
                await _changed_or_due(changed)
    except TimeoutError:
        return None
    finally:
        unsubscribe()


async def _changed_or_due(changed: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(POLL_S):  # wait_for of Python 3.11 can swallow a Ctrl-C at its end
            await changed.wait()
    except TimeoutError:
        pass  # time to poll

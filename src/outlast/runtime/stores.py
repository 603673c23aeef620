"""From a URL to a store: the one place that names concrete stores."""

import asyncio
from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path
from typing import Literal, TypeVar

from outlast.core.clock import Clock
from outlast.core.commit import Commit, Put
from outlast.core.generation import GENERATION, Generation
from outlast.core.rows import META
from outlast.errors import Stale, StoreUnusable, no_store, to_install
from outlast.runtime.clocks import SystemClock, new_id, process_id
from outlast.store.port import Store
from outlast.store.sqlite import open_sqlite, read_sqlite

SQLITE = "sqlite:"
MEMORY = "memory:"
Use = Literal["write", "read", "recover"]
POSTGRES = ("postgresql://", "postgres://")


async def open_store(url: str, *, clock: Clock | None = None, make: bool = True, use: Use = "write") -> Store:
    """Open, and bring to the present schema, the store at a URL: `sqlite:PATH`, `sqlite:///PATH`,
    `postgresql://USER@HOST/DATABASE?schema=outlast`, or `memory:`.

    A plain path that ends in .db is a SQLite file too. A store that has no generation yet is given its first.
    `make=False`: a store that is not there yet is taken for a mistyped name. `use="read"`: nothing is written, so that
    backups and copies are opened too, and stores on a full disk; commits are Rejected. `use="recover"`: a backup or a
    copy is opened for writing, to be made a store. Raises StoreUnusable with one sentence that says why not.
    """
    store = await _open(url, clock, make, use)
    if use != "read" and await store.load(META, GENERATION) is None:
        first = Generation(1, new_id("g_"), (await store.now()).business)
        try:
            await store.commit(Commit((Put(META, first.row(), 0),), label="first generation"))
        except Stale:
            pass  # another process was first
    return store


async def _open(url: str, clock: Clock | None, make: bool, use: Use) -> Store:
    """The store itself."""
    time = clock or SystemClock()
    if url == MEMORY or url.startswith("memory://"):
        from outlast.store.memory import MemoryCore, MemoryStore  # few commands use it, and all open a store

        return MemoryStore(MemoryCore(time), process_id("writer"))
    if url.startswith(POSTGRES):
        return await _open_postgres(url, clock, make)
    path = file_of(url)
    if path is None:
        raise StoreUnusable(
            f"no store can be opened at {url}",
            "a store is named by sqlite:PATH, postgresql://… or memory:",
            "e.g. --store sqlite:outlast.db",
        )
    if (use == "read" or not make) and not path.exists():
        raise no_store(url)
    if use == "read":
        return await read_sqlite(path, clock=time)
    return await open_sqlite(path, writer=process_id("writer"), clock=time, recovers=use == "recover")


async def _open_postgres(url: str, clock: Clock | None, make: bool) -> Store:
    """Its driver is an extra, loaded where it is asked for. The server's clock is the store's, unless one is given."""
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


def is_there(url: str) -> bool:
    """Is there something at this URL that could be opened, without making it?"""
    path = file_of(url)
    return path is None or path.exists()


def file_of(url: str) -> Path | None:
    """The file that a URL names; None where it names none."""
    if url.startswith(SQLITE):
        rest = url.removeprefix(SQLITE)
        if rest.startswith("//"):
            rest = rest.removeprefix("//")
            if not rest.startswith("/"):
                return None  # sqlite://HOST/… names a server, and there is none
        return Path(rest) if rest else None
    return Path(url) if url.endswith((".db", ".sqlite")) and ":" not in url else None


T = TypeVar("T")
POLL_S = 0.05  # ends of runs wake nobody: look again


async def until(store: Store, look: Callable[[], Awaitable[T | None]], *, within_s: float | None = None) -> T | None:
    """What `read_run` answers once it is not None; None when `within_s` real seconds have passed without."""
    changed = asyncio.Event()
    unsubscribe = store.on_change(changed.set)
    try:
        async with asyncio.timeout(within_s):
            while True:
                changed.clear()
                if (found := await look()) is not None:
                    return found
                await _told(changed)
    except TimeoutError:
        return None
    finally:
        unsubscribe()


async def _told(changed: asyncio.Event) -> None:
    """Wait until somebody wakes us, or it is time to look all the same."""
    try:
        async with asyncio.timeout(POLL_S):  # wait_for of Python 3.11 can swallow a Ctrl-C at its end
            await changed.wait()
    except TimeoutError:
        pass  # nobody did

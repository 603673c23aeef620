"""Helpers of the SQLite tests: a real clock, a store on a given database, a child process."""

import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from outlast.store.sqlite.database import OFF, Database
from outlast.store.sqlite.store import SqliteStore
from tests.conformance.subject import HandClock


class SystemWall(HandClock):
    """The machine's wall clock, for stores in several processes."""

    def wall(self) -> int:
        return time.time_ns() // 1_000_000


@asynccontextmanager
async def opened(
    path: Path, writer: str = "writer-1", *, database: Callable[[Path], Database] | None = None
) -> AsyncIterator[SqliteStore]:
    """Open a store without fsync on a file, and close it at the end."""
    base = Database(path, synchronous=OFF) if database is None else database(path)
    base.migrate()
    store = SqliteStore(base, writer, HandClock())
    try:
        yield store
    finally:
        await store.close()


def in_child(work: Callable[[], None]) -> int:
    """Run `work` in a forked process and return 0, an exit status, or −signal."""
    return ended(forked(work))


def forked(work: Callable[[], None]) -> int:
    """Start `work` in a forked process and return its id."""
    pid = os.fork()
    if pid == 0:
        status = 70
        try:
            work()
            status = 0
        except BaseException as error:  # whatever it was, the child must not go on with the parent's work
            sys.stderr.write(f"child: {error!r}\n")
        finally:
            sys.stderr.flush()
            os._exit(status)
    return pid


def ended(pid: int) -> int:
    """Wait for a child and return its exit status or −signal."""
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)

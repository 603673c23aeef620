"""Online copy of a SQLite file as of one instant. It appears under its name only when complete."""

import os
import sqlite3
from pathlib import Path
from typing import Final

from outlast.core.generation import FILE, StoreFile, store_file_of
from outlast.core.rows.store_rows import META
from outlast.errors import StoreUnusable
from outlast.store import sql
from outlast.store.sql import DECODE, SQL
from outlast.store.sqlite.database import BUSY_MS, unusable
from outlast.store.sqlite.write_lock import MODE

SOUND: Final = "ok"
PART: Final = ".part"
BESIDE: Final = ("", "-wal", "-shm", "-journal", ".lock")


def part_of(target: Path) -> Path:
    """Return the path at which a backup is written until it has been checked."""
    return target.with_name(target.name + PART)


def copy(source: Path, target: Path, at: int) -> Path:
    """Copy a store's file by SQLite's online backup, in one read transaction. Writers do not wait.

    Return the path of the copy, which is beside `target` until `keep` renames it. Raises StoreUnusable.
    """
    part = part_of(target)
    drop(part)
    try:
        os.close(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE))
        read = sqlite3.connect(f"{source.absolute().as_uri()}?mode=rw", uri=True, timeout=BUSY_MS / 1000)
        write = sqlite3.connect(part)
        try:
            read.execute("PRAGMA query_only = ON")
            read.backup(write)  # all pages in one step, so that the copy is one snapshot
            check(write, part)
            mark(write, part, at)
        finally:
            write.close()
            read.close()
    except sqlite3.Error as error:
        drop(part)
        raise unusable(source, error) from error
    except OSError as error:
        raise StoreUnusable(
            f"cannot write a backup to {target}",
            error.strerror or str(error),
            "name a file in an existing folder",
        ) from error
    return part


def check(db: sqlite3.Connection, path: Path) -> None:
    """Verify every page of a file.

    Raises StoreUnusable if one is damaged.
    """
    problems = [str(row[0]) for row in db.execute("PRAGMA integrity_check(3)")]
    if problems != [SOUND]:
        raise StoreUnusable(f"the copy {path} is damaged", "\n".join(problems), "check the disk, and back up again")


def mark(db: sqlite3.Connection, part: Path, at: int) -> None:
    """Mark the copy as a backup taken at this wall time. No worker executes it until it is recovered.

    Raises StoreUnusable and sqlite3.Error.
    """
    found = db.execute(SQL[META.name].select, FILE).fetchone()
    row = None if found is None else DECODE[META.name](found)
    named = store_file_of(row) or StoreFile(0, 0, "a store that no writer has named", "")
    taken = named._replace(copied_at=named.copied_at or at)
    if row is None:
        db.execute(SQL[META.name].insert, taken.row(None))
    else:
        db.execute(SQL[META.name].update, sql.update_values(META, taken.row(row), row.version))
    db.commit()
    busy, *_ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise StoreUnusable(f"the copy {part} is in use", "its mark was not written", "back up again")


def keep(part: Path, target: Path) -> int:
    """Rename the copy to its target, durably, and return its size in bytes."""
    handle = os.open(part, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    os.replace(part, target)
    drop(part)
    folder = os.open(target.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return target.stat().st_size


def drop(part: Path) -> None:
    """Delete a copy and the files beside it."""
    for end in BESIDE:
        Path(f"{part}{end}").unlink(missing_ok=True)

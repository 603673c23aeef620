"""A SQLite file: opened with the settings that make a commit durable, or refused with one clear sentence."""

import os
import sqlite3
from pathlib import Path
from typing import Final

from outlast.core.points import point
from outlast.errors import StoreUnusable
from outlast.store.migrations import MIGRATIONS, SCHEMA
from outlast.store.turn import MODE, Turn

APPLICATION: Final = 0x6F75746C  # 'outl': tells a store from other people's databases
FIXED_UPSTREAM: Final = (3, 51, 3)  # before it, a WAL reset could corrupt a file two processes check-point at once
BUSY_MS: Final = 5_000  # only a tool that does not take our turn can keep us waiting
LOG_BYTES: Final = 16 * 1024 * 1024  # the size a busy writer's log is laid out to, and cut back to
FULL: Final = 2
OFF: Final = 0
TYPES: Final = {"integer": "INTEGER", "blob": "BLOB", "clustered": ""}

# What is wrong, by SQLite's name of the error, and what to do about it.
SENTENCES: Final = {
    "SQLITE_BUSY": ("is locked by another program", "close the tool that holds it open for writing"),
    "SQLITE_LOCKED": ("is locked by another program", "close the tool that holds it open for writing"),
    "SQLITE_FULL": ("cannot grow: the disk is full", "free some space; nothing acknowledged is lost"),
    "SQLITE_READONLY": ("cannot be written to", "give this user the right to write to the file and its folder"),
    "SQLITE_CANTOPEN": ("cannot be opened", "check the folder and the rights of this user"),
    "SQLITE_NOTADB": ("is not a SQLite database", "name another file"),
    "SQLITE_CORRUPT": ("is damaged", "restore it from a backup"),
    "SQLITE_IOERR": ("cannot be read or written: the disk reports an error", "check the disk before anything else"),
    "SQLITE_PERM": ("cannot be opened", "check the rights of this user"),
}


def error_name(error: sqlite3.Error) -> str:
    """SQLite's primary name of an error: SQLITE_FULL, SQLITE_BUSY, …"""
    name = str(getattr(error, "sqlite_errorname", "") or "")
    parts = name.split("_")
    return "_".join(parts[:2]) if parts[0] == "SQLITE" else name


def unusable(path: Path, error: sqlite3.Error | OSError) -> StoreUnusable:
    """The one sentence for an error met while opening."""
    if isinstance(error, OSError):
        return StoreUnusable(f"the store {path} cannot be opened", error.strerror or str(error),
                             "check the folder and the rights of this user")  # fmt: skip
    what, fix = SENTENCES.get(error_name(error), ("cannot be opened", "see the reason above"))
    return StoreUnusable(f"the store {path} {what}", str(error), fix)


class Database:
    """One file and the settings of every connection to it. Nothing is kept open but the lock."""

    connection: type[sqlite3.Connection] = sqlite3.Connection  # the tests' seam for a COMMIT that fails

    def __init__(self, path: Path, *, synchronous: int = FULL) -> None:
        self.path = path
        self.synchronous = synchronous
        self._prepare()
        self.turn = Turn(path)

    def _prepare(self) -> None:
        """Make the file, or look at what is there. Raises StoreUnusable."""
        path = self.path
        if not path.parent.is_dir():
            raise StoreUnusable(f"the folder {path.parent} does not exist", "the store's file would be in it",
                                f"mkdir -p {path.parent}")  # fmt: skip
        if path.is_dir():
            raise StoreUnusable(f"the store {path} is a folder", "a store is one file", "name a file in it")
        try:
            if not os.access(path.parent, os.W_OK):
                raise PermissionError(13, "the folder is read only, and SQLite writes files beside the store's")
            if not path.exists():
                # SQLite gives the -wal and -shm files the rights of this one. A file that is there is never opened
                # here: closing it again would drop the locks that this process's other connections hold on it.
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE))
            elif not os.access(path, os.R_OK | os.W_OK):
                raise PermissionError(13, "the file is read only")
        except FileExistsError:
            pass  # another process made it just now
        except OSError as error:
            raise unusable(path, error) from error

    def writer(self) -> sqlite3.Connection:
        """A connection that may write, with every setting read back. Raises StoreUnusable or sqlite3.Error."""
        db = self.connect()
        level = ("OFF", "NORMAL", "FULL")[self.synchronous]
        mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        db.execute(f"PRAGMA synchronous = {level}")
        db.execute("PRAGMA wal_autocheckpoint = 0")
        db.execute(f"PRAGMA journal_size_limit = {2 * LOG_BYTES}")
        db.execute("PRAGMA cache_size = -65536")
        synchronous = db.execute("PRAGMA synchronous").fetchone()[0]
        if mode != "wal" or synchronous != self.synchronous:
            db.close()
            raise StoreUnusable(f"the store {self.path} does not keep what it acknowledges",
                                f"journal mode {mode}, synchronous {synchronous}; write-ahead log and FULL are needed",
                                "put it on a local disk")  # fmt: skip
        return db

    def reader(self) -> sqlite3.Connection:
        """A connection that cannot write."""
        db = self.connect()
        db.execute("PRAGMA query_only = ON")
        return db

    def connect(self) -> sqlite3.Connection:
        """A connection without settings; the tests' seam for a build of SQLite with other defaults."""
        db = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode=rw", uri=True, timeout=BUSY_MS / 1000, isolation_level=None,
            check_same_thread=False, cached_statements=512, factory=self.connection,
        )  # fmt: skip
        db.execute("PRAGMA trusted_schema = OFF")
        return db

    def migrate(self) -> None:
        """Bring the file to this version's schema, step by step, each in its own transaction. Raises StoreUnusable."""
        with self.turn:
            try:
                db = self.writer()
            except sqlite3.Error as error:
                raise unusable(self.path, error) from error
            try:
                self._migrate(db)
            except sqlite3.Error as error:
                raise unusable(self.path, error) from error
            finally:
                db.close()

    def _migrate(self, db: sqlite3.Connection) -> None:
        found = int(db.execute("PRAGMA user_version").fetchone()[0])
        owner = int(db.execute("PRAGMA application_id").fetchone()[0])
        tables = int(db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0])
        if owner != APPLICATION and (tables or found or owner):
            raise StoreUnusable(f"the store {self.path} belongs to another program", "it is not Outlast's",
                                "name another file; this one was not touched")  # fmt: skip
        if found > SCHEMA:
            raise StoreUnusable(f"the store {self.path} was written by a newer version of Outlast",
                                f"its schema is {found}, this version knows {SCHEMA}", "update Outlast")  # fmt: skip
        for number, statements in enumerate(MIGRATIONS[found:], found + 1):
            db.execute("BEGIN IMMEDIATE")
            try:
                for statement in statements:
                    db.execute(statement.format(**TYPES))
                db.execute(f"PRAGMA application_id = {APPLICATION}")
                db.execute(f"PRAGMA user_version = {number}")
                point("store.migration:inside")
                db.execute("COMMIT")
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")

    def lay_out_log(self) -> None:
        """Give the write-ahead log's file its blocks in advance, by zeros after its end; call it in our turn.

        A commit into blocks that are there costs half of one that makes the file grow (docs/decisions). SQLite reads
        nothing after the last frame whose salt and checksum are right, and overwrites from the start after a reset.
        A store that does not sync gains nothing from it.
        """
        size = self.wal_bytes()
        if self.synchronous == FULL and 0 < size < LOG_BYTES:
            log = os.open(f"{self.path}-wal", os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.pwrite(log, bytes(LOG_BYTES - size), size)
                os.fsync(log)
            except OSError:
                pass  # a full disk: the commit that needs the space will say so
            finally:
                os.close(log)

    def wal_bytes(self) -> int:
        """The size of the write-ahead log's file."""
        try:
            return os.stat(f"{self.path}-wal").st_size
        except FileNotFoundError:
            return 0

    def facts(self, db: sqlite3.Connection) -> dict[str, str | int]:
        """What `doctor` shows, read back from a writer's connection."""
        old = sqlite3.sqlite_version_info < FIXED_UPSTREAM
        advice = (
            f"older than {'.'.join(map(str, FIXED_UPSTREAM))}: never check-point this file with another tool while "
            "Outlast runs"
        )
        return {
            "store": str(self.path),
            "sqlite": sqlite3.sqlite_version,
            "sqlite_advice": advice if old else "",
            "journal_mode": str(db.execute("PRAGMA journal_mode").fetchone()[0]),
            "synchronous": ("off", "normal", "full", "extra")[int(db.execute("PRAGMA synchronous").fetchone()[0])],
            "wal_bytes": self.wal_bytes(),
            "schema": int(db.execute("PRAGMA user_version").fetchone()[0]),
            "page_bytes": int(db.execute("PRAGMA page_size").fetchone()[0]),
            "pages": int(db.execute("PRAGMA page_count").fetchone()[0]),
        }

"""A SQLite file: opened with the settings that make a commit durable, or refused with one clear sentence."""

import ctypes
import errno
import os
import shlex
import socket
import sqlite3
import struct
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from outlast.core.generation import StoreFile, compare_files
from outlast.core.points import point
from outlast.errors import StoreReplaced, StoreUnusable, Unavailable
from outlast.store.migrations import MIGRATIONS, SCHEMA
from outlast.store.write_lock import MODE, WriteLock

APPLICATION: Final = 0x6F75746C  # 'outl': tells a store from other people's databases
FIXED_UPSTREAM: Final = (3, 51, 3)  # before it, a WAL reset could corrupt a file two processes check-point at once
BUSY_MS: Final = 5_000  # only a tool that does not take our turn can keep us waiting
LOG_BYTES: Final = 16 * 1024 * 1024  # the size a busy writer's log is laid out to, and cut back to
WAL_HEADER: Final = b"\2\2"  # of a file in write-ahead mode: its write and read version
WAL_HEADER_AT: Final = 18
ROOM: Final = 4  # of the log's size must be free before it is laid out
FULL: Final = 2
OFF: Final = 0
TYPES: Final = {"integer": "INTEGER", "blob": "BLOB", "clustered": ""}

# Linux keeps the birth time behind statx, which Python reads from 3.15 on. Offsets: include/uapi/linux/stat.h.
AT_FDCWD: Final = -100
STATX_BTIME: Final = 0x800
STATX_BYTES: Final = 256
BTIME_AT: Final = 80

# A disk that takes no write: full, read only, or failing. A command that only reads can do without it.
UNWRITABLE: Final = frozenset({"SQLITE_IOERR", "SQLITE_FULL", "SQLITE_READONLY", "SQLITE_CANTOPEN"})

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


def is_full(error: sqlite3.Error) -> bool:
    """True if the disk has no space: for the file, the log, or the index beside them."""
    return str(getattr(error, "sqlite_errorname", "")) in ("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE")


def unavailable(error: sqlite3.Error, doing: str = "written to") -> Unavailable:
    """Return the refusal of a commit or a read that the machine did not allow."""
    if is_full(error):
        return Unavailable(f"the store cannot be {doing}: its disk is full", str(error), SENTENCES["SQLITE_FULL"][1])
    name = error_name(error)
    _, fix = SENTENCES.get(name, ("", ""))
    return Unavailable(f"the store cannot be {doing}: {name}", str(error), fix)


def unusable(path: Path, error: sqlite3.Error | OSError) -> StoreUnusable:
    """The one sentence for an error met while opening."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreUnusable(f"the store {path} {SENTENCES['SQLITE_FULL'][0]}", str(error), SENTENCES["SQLITE_FULL"][1])
    if isinstance(error, OSError):
        return StoreUnusable(f"the store {path} cannot be opened", error.strerror or str(error),
                             "check the folder and the rights of this user")  # fmt: skip
    name = "SQLITE_FULL" if is_full(error) else error_name(error)
    what, fix = SENTENCES.get(name, ("cannot be opened", "see the reason above"))
    return StoreUnusable(f"the store {path} {what}", str(error), fix)


def copied(path: Path, named: StoreFile) -> StoreUnusable:
    """Return the refusal of a file that is not the one its store was last written in."""
    recover = f"outlast --store {shlex.quote(f'sqlite:{path}')} recover"
    if named.copied_at:
        return StoreUnusable(
            f"the store {path} is a backup of {named.path}",
            "what was done after the backup is not in it, and a worker would do it again",
            f"{recover} --after-restore",
            refusal="backup",
        )
    return StoreUnusable(
        f"the store {path} is not in the file that was written last",
        f"that was {named.path} on {named.host}: this file is a copy of it, a restored backup, or was moved between "
        "disks\na worker on a copy would do again what was done in the other file",
        f"{recover} --after-restore, if it is a copy or was restored; --moved, if the old file is gone",
        refusal="copy",
    )


@cache
def _statx() -> Any:
    """Return the system's statx; None on a system without it."""
    return getattr(ctypes.CDLL(None), "statx", None)


def born(path: Path, at: os.stat_result) -> int:
    """Return the birth time of a file in ns since the epoch; 0 if the file system does not keep it.

    An inode number alone is used again as soon as its file is deleted: `rm` and `cp` often give the same one.
    The file is not opened: closing it would drop the locks that SQLite holds on it in this process.
    """
    if seconds := getattr(at, "st_birthtime", 0):
        return int(seconds * 1e9)
    found = ctypes.create_string_buffer(STATX_BYTES)
    statx = _statx()
    if statx is None or statx(AT_FDCWD, os.fsencode(path), 0, STATX_BTIME, found):
        return 0
    if not struct.unpack_from("=I", found)[0] & STATX_BTIME:
        return 0
    whole, rest = struct.unpack_from("=qI", found, BTIME_AT)
    return int(whole) * 1_000_000_000 + int(rest)


class Database:
    """One file and the settings of every connection to it. Nothing is kept open but the lock."""

    connection: type[sqlite3.Connection] = sqlite3.Connection  # the tests' seam for a COMMIT that fails

    def __init__(self, path: Path, *, synchronous: int = FULL, reads: bool = False) -> None:
        """`reads`: nothing is written, neither to the file nor beside it. Raises StoreUnusable."""
        self.path = path
        self.synchronous = synchronous
        self.reads = reads
        self.lost: StoreReplaced | None = None  # why nothing more may be written, once `check` has seen it
        self._real = Path(os.path.realpath(path))  # SQLite keeps its log beside the file that a link leads to
        self._held: tuple[tuple[str, int, int], ...] = ()  # of each open file: what its name ends in, device, inode
        self._check_path()
        if not reads:
            self._prepare()
        self.turn = WriteLock(self._real)

    def _check_path(self) -> None:
        path = self.path
        if not path.parent.is_dir():
            raise StoreUnusable(f"the folder {path.parent} does not exist", "the store's file would be in it",
                                f"mkdir -p {path.parent}")  # fmt: skip
        if path.is_dir():
            raise StoreUnusable(f"the store {path} is a folder", "a store is one file", "name a file in it")

    def _prepare(self) -> None:
        """Make the file, or check that it can be written to. Raises StoreUnusable."""
        path = self.path
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
        """A connection that cannot write. Raises sqlite3.Error, StoreReplaced."""
        if self.reads:
            return self._reader_of_any_disk()
        db = self.connect()
        db.execute("PRAGMA query_only = ON")
        return db

    def _reader_of_any_disk(self) -> sqlite3.Connection:
        """Open for reading on a disk that may be full or read only.

        SQLite makes an index file (-shm) beside the store if no process has it open. If the disk takes none, then no
        process of this machine writes. A file without a log is read as it is; one with a log is read under an
        exclusive lock, with the index in memory.
        """
        first: sqlite3.Error | None = None
        ways = [("mode=rw", "NORMAL"), ("mode=rw", "EXCLUSIVE")]
        if not self.wal_bytes():
            ways.insert(1, ("mode=ro&immutable=1", "NORMAL"))
        for query, locking in ways:
            db = self.connect(query)
            try:
                db.execute(f"PRAGMA locking_mode = {locking}")
                db.execute("PRAGMA query_only = ON")
                db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
                return db
            except sqlite3.Error as error:
                db.close()
                first = first or error
                if error_name(first) not in UNWRITABLE:
                    break
        assert first is not None
        raise first

    def connect(self, query: str = "mode=rw") -> sqlite3.Connection:
        """A connection without settings; the tests' seam for a build of SQLite with other defaults.

        Raises sqlite3.Error; StoreReplaced if the name no longer leads to the file of the first connection.
        """
        db = sqlite3.connect(
            f"{self._real.as_uri()}?{query}", uri=True, timeout=BUSY_MS / 1000, isolation_level=None,
            check_same_thread=False, cached_statements=512, factory=self.connection,
        )  # fmt: skip
        if not self._held:
            self._hold("")
        elif (lost := self.check()) is not None:
            db.close()
            raise lost
        db.execute("PRAGMA trusted_schema = OFF")
        return db

    # --- which file it is ------------------------------------------------------------------
    def found(self) -> StoreFile:
        """Return the identity of the file that the path leads to. Raises StoreUnusable."""
        try:
            at = os.stat(self._real)
        except OSError as error:
            raise unusable(self.path, error) from error
        return StoreFile(at.st_ino, born(self._real, at), str(self._real), socket.gethostname())

    def is_at(self, named: StoreFile) -> bool:
        """True if the file that the store names is still at its old path, on this machine."""
        path = Path(named.path)
        try:
            at = os.stat(path)
        except OSError:
            return False
        there = StoreFile(at.st_ino, born(path, at), named.path, named.host)
        return path != self._real and compare_files(named, there) == "same"

    def hold_log(self) -> None:
        """Remember which log and which index are open; call it when the writing connection has opened them."""
        self.release_log()
        self._hold("-wal")
        self._hold("-shm")

    def release_log(self) -> None:
        """Forget the log and the index: the last connection that is closed deletes both."""
        self._held = tuple(each for each in self._held if not each[0])

    def _hold(self, end: str) -> None:
        try:
            at = os.stat(f"{self._real}{end}")
        except OSError:
            return  # gone at once: the next check has nothing to compare, and the one after a commit has
        self._held = (*self._held, (end, at.st_dev, at.st_ino))

    def check(self) -> StoreReplaced | None:
        """Return why the store that was opened is gone: file, log or index were deleted or replaced. None: it is not.

        Compares names with what was opened, and opens nothing: closing a second descriptor of the file would drop
        SQLite's locks. Once gone, always gone.
        """
        if self.lost is None:
            for end, device, inode in self._held:
                try:
                    at = os.stat(f"{self._real}{end}")
                except (FileNotFoundError, NotADirectoryError):
                    self.lost = self._replaced(end, "was deleted")
                    break
                except OSError:
                    continue  # a name that cannot be looked up proves nothing
                if (at.st_dev, at.st_ino) != (device, inode):
                    self.lost = self._replaced(end, "was replaced by another file")
                    break
        return self.lost

    def _replaced(self, end: str, what: str) -> StoreReplaced:
        return StoreReplaced(
            f"{self._real}{end} {what} while this process had it open",
            "what is written now would be in no file that a name leads to; what was acknowledged in the last second "
            "may be lost",
            "find out who did it; put the right file back, outlast fsck, and start again",
        )

    @property
    def log_is_gone(self) -> bool:
        """True if the store's file is there, and its log is not: this process can still copy the log into the file."""
        ends = {end for end, *_ in self._held}
        return "-wal" in ends and self._real.exists() and not os.path.lexists(f"{self._real}-wal")

    def migrate(self) -> None:
        """Bring the file to this version's schema, step by step, each in its own transaction. Raises StoreUnusable."""
        try:
            with self.turn:
                db = self.writer()
                try:
                    self._migrate(db)
                finally:
                    db.close()
        except (sqlite3.Error, OSError) as error:
            raise unusable(self.path, error) from error

    def schema(self, db: sqlite3.Connection) -> int:
        """Return the schema of the file; 0 if it is empty. Raises StoreUnusable if it is not a store of ours."""
        found = int(db.execute("PRAGMA user_version").fetchone()[0])
        owner = int(db.execute("PRAGMA application_id").fetchone()[0])
        tables = int(db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0])
        if owner != APPLICATION and (tables or found or owner):
            raise StoreUnusable(f"the store {self.path} belongs to another program", "it is not Outlast's",
                                "name another file; this one was not touched")  # fmt: skip
        if found > SCHEMA:
            raise StoreUnusable(f"the store {self.path} was written by a newer version of Outlast",
                                f"its schema is {found}, this version knows {SCHEMA}", "update Outlast")  # fmt: skip
        return found

    def _migrate(self, db: sqlite3.Connection) -> None:
        found = self.schema(db)
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

    def _journal_mode(self, db: sqlite3.Connection) -> str:
        """Return the journal mode; of a connection that takes the file for immutable, as the file's header says it."""
        mode = str(db.execute("PRAGMA journal_mode").fetchone()[0])
        if self.reads and mode != "wal":  # no connection of this process holds a lock that closing the file could drop
            with self._real.open("rb") as file:
                header = file.read(WAL_HEADER_AT + len(WAL_HEADER))
            mode = "wal" if header.endswith(WAL_HEADER) else mode
        return mode

    def lay_out_log(self) -> None:
        """Give the write-ahead log's file its blocks in advance, by zeros after its end; call it in our turn.

        A commit into blocks that are there costs half of one that makes the file grow (docs/decisions). SQLite reads
        nothing after the last frame whose salt and checksum are right, and overwrites from the start after a reset.
        A store that does not sync gains nothing from it.
        """
        size = self.wal_bytes()
        if self.synchronous != FULL or not 0 < size < LOG_BYTES:
            return
        try:
            disk = os.statvfs(self._real.parent)
            if disk.f_bavail * disk.f_frsize < ROOM * LOG_BYTES:
                return  # the zeros would take most of what is left for others
            log = os.open(f"{self._real}-wal", os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.pwrite(log, bytes(LOG_BYTES - size), size)
                os.fsync(log)
            finally:
                os.close(log)
        except OSError:
            pass  # a full disk, or a log that was deleted: the commit that needs the space will say so

    def wal_bytes(self) -> int:
        """The size of the write-ahead log's file."""
        try:
            return os.stat(f"{self._real}-wal").st_size
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
            "journal_mode": self._journal_mode(db),
            "synchronous": ("off", "normal", "full", "extra")[int(db.execute("PRAGMA synchronous").fetchone()[0])],
            "wal_bytes": self.wal_bytes(),
            "schema": int(db.execute("PRAGMA user_version").fetchone()[0]),
            "page_bytes": int(db.execute("PRAGMA page_size").fetchone()[0]),
            "pages": int(db.execute("PRAGMA page_count").fetchone()[0]),
        }


Rows = list[dict[str, Any]]


def read_tables(path: Path, tables: Mapping[str, str]) -> dict[str, Rows] | None:
    """Every row of these tables (name → its order) as plain dictionaries; None where there is no store yet."""
    if not path.exists():
        return None
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    try:
        there = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not there.issuperset(tables):
            return None
        return {name: _rows(connection, name, order) for name, order in tables.items()}
    finally:
        connection.close()


def _rows(connection: sqlite3.Connection, table: str, order: str) -> Rows:
    return [dict(row) for row in connection.execute(f'SELECT * FROM "{table}" ORDER BY {order}')]

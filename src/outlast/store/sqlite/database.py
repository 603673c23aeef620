"""A SQLite file: opened with settings that make commits durable, or refused with one clear error."""

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

from outlast.core.crash_points import point
from outlast.core.generation import StoreFile, compare_files
from outlast.errors import StoreReplaced, StoreUnusable, Unavailable, no_store
from outlast.store.migrations import MIGRATIONS, NEWEST, SCHEMA, WRITTEN_BY, newer, unreleased
from outlast.store.sqlite.write_lock import MODE, WriteLock, lock_of

APPLICATION: Final = 0x6F75746C  # 'outl', which marks a database of Outlast
FIXED_UPSTREAM: Final = (3, 51, 3)  # before it, a WAL reset could corrupt a file that two processes checkpoint at once
BUSY_MS: Final = 5_000  # only a program that does not use the write lock can keep us waiting
LOG_BYTES: Final = 16 * 1024 * 1024  # size to which a busy writer's log is preallocated and cut back
WAL_HEADER: Final = b"\2\2"  # write and read version of a file in write-ahead mode
WAL_HEADER_AT: Final = 18
SPARE_TIMES: Final = 4  # times the log's size that must be free before it is preallocated
FULL: Final = 2
OFF: Final = 0
TYPES: Final = {"integer": "INTEGER", "blob": "BLOB", "clustered": ""}

# Linux keeps the birth time behind statx, which Python reads from 3.15 on. Offsets: include/uapi/linux/stat.h.
AT_FDCWD: Final = -100
STATX_BTIME: Final = 0x800
STATX_BYTES: Final = 256
BTIME_AT: Final = 80

# Errors of a disk that is full, read only or failing. A command that only reads can do without writing.
UNWRITABLE: Final = frozenset({"SQLITE_IOERR", "SQLITE_FULL", "SQLITE_READONLY", "SQLITE_CANTOPEN"})

# Problem and remedy by SQLite's name of the error.
PROBLEMS: Final = {
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
    """Return SQLite's primary name of an error, such as SQLITE_FULL or SQLITE_BUSY."""
    name = str(getattr(error, "sqlite_errorname", "") or "")
    parts = name.split("_")
    return "_".join(parts[:2]) if parts[0] == "SQLITE" else name


def is_full(error: sqlite3.Error) -> bool:
    """True if the disk has no space: for the file, the log, or the index beside them."""
    return str(getattr(error, "sqlite_errorname", "")) in ("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE")


def read_leniently(db: sqlite3.Connection | None, error: sqlite3.Error) -> bool:
    """Let a connection read a text that is not UTF-8 as bytes, if that was the error. Return True for a new attempt.

    Decoders refuse such a row with its name (`core/row_checks.py`). A function costs time for each text, so the
    connection has none before it has met one.
    """
    if db is None or db.text_factory is not str or not str(error).startswith("Could not decode to UTF-8"):
        return False
    db.text_factory = _text_or_bytes
    return True


def _text_or_bytes(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def unavailable(error: sqlite3.Error, doing: str = "written to") -> Unavailable:
    """Return the error of a commit or read that the machine did not allow."""
    if is_full(error):
        return Unavailable(f"the store cannot be {doing}: its disk is full", str(error), PROBLEMS["SQLITE_FULL"][1])
    name = error_name(error)
    _, fix = PROBLEMS.get(name, ("", ""))
    return Unavailable(f"the store cannot be {doing}: {name}", str(error), fix)


def unusable(path: Path, error: sqlite3.Error | OSError) -> StoreUnusable:
    """Return the error of a file that cannot be opened."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreUnusable(f"the store {path} {PROBLEMS['SQLITE_FULL'][0]}", str(error), PROBLEMS["SQLITE_FULL"][1])
    if isinstance(error, OSError):
        return StoreUnusable(
            f"the store {path} cannot be opened",
            error.strerror or str(error),
            "check the folder and the rights of this user",
        )
    name = "SQLITE_FULL" if is_full(error) else error_name(error)
    what, fix = PROBLEMS.get(name, ("cannot be opened", "see the reason above"))
    return StoreUnusable(f"the store {path} {what}", str(error), fix)


def copied(path: Path, named: StoreFile) -> StoreUnusable:
    """Return the error of a file that is not the one its store was last written in."""
    recover = f"outlast --store {shlex.quote(f'sqlite:{path}')} recover"
    if named.copied_at:
        return StoreUnusable(
            f"the store {path} is a backup of {named.path}",
            "it lacks all work after the backup, and a worker would repeat that work",
            f"{recover} --after-restore",
            refusal="backup",
        )
    return StoreUnusable(
        f"the store {path} is not in the file that was written last",
        f"the last one was {named.path} on {named.host}: this file is a copy of it, a restored backup, or was moved "
        "between disks\na worker on a copy would repeat the work recorded in the other file",
        f"{recover} --after-restore, if it is a copy or was restored; --moved, if the old file is gone",
        refusal="copy",
    )


@cache
def _statx() -> Any:
    """Return the system's statx; None on a system without it."""
    return getattr(ctypes.CDLL(None), "statx", None)


def birth_time(path: Path, at: os.stat_result) -> int:
    """Return the birth time of a file in ns since the epoch, or 0 if the file system has none.

    An inode number is reused as soon as its file is deleted: `rm` and `cp` often give the same one. The file is not
    opened, because closing it would drop the locks that SQLite holds on it in this process.
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


def _gone(path: Path, lock: Path, what: str) -> StoreUnusable:
    """Return the error of a store whose rows are gone, as its lock file shows."""
    return StoreUnusable(
        f"the store {path} {what}",
        f"its lock file {lock} is left, and a new store would know none of its runs",
        f"put the file back (a backup: outlast recover --after-restore); for an empty store: rm {lock}",
    )


def missing(path: Path, url: str) -> StoreUnusable:
    """Return the error of a command that reads a store, for a file that does not exist."""
    lock = lock_of(Path(os.path.realpath(path)))
    return _gone(path, lock, "was deleted or moved") if os.path.lexists(lock) else no_store(url)


class Database:
    """One file and the settings of every connection to it. Only the lock file is kept open."""

    connection: type[sqlite3.Connection] = sqlite3.Connection  # replaced by tests to make COMMIT fail

    def __init__(self, path: Path, *, synchronous: int = FULL, reads: bool = False) -> None:
        """With `reads`, write nothing, neither to the file nor beside it.

        Raises StoreUnusable.
        """
        self.path = path
        self.synchronous = synchronous
        self.reads = reads
        self.lost: StoreReplaced | None = None  # why writing is forbidden, set by `check`
        self._real = Path(os.path.realpath(path))  # SQLite keeps its log beside the target of a link
        self._held: tuple[tuple[str, int, int], ...] = ()  # name suffix, device and inode of each open file
        self._check_path()
        if not reads:
            self._prepare()
        self.write_lock = WriteLock(self._real)

    def _check_path(self) -> None:
        path = self.path
        if not path.parent.is_dir():
            raise StoreUnusable(
                f"the folder {path.parent} does not exist", "the store's file would be in it", f"mkdir -p {path.parent}"
            )
        if path.is_dir():
            raise StoreUnusable(f"the store {path} is a folder", "a store is one file", "name a file in it")

    def _prepare(self) -> None:
        """Create the file, or check that it can be written to.

        A file that was deleted is not created again, because a supervisor would start its workers on an empty store.
        The lock file is created after the store's and is kept. It is read first, because another process may create
        both now. Raises StoreUnusable.
        """
        path = self.path
        lock = lock_of(self._real)
        was_there = os.path.lexists(lock)
        try:
            if not os.access(path.parent, os.W_OK):
                raise PermissionError(13, "the folder is read only, and SQLite writes files beside the store's")
            if not path.exists():
                if was_there:
                    raise _gone(path, lock, "was deleted or moved")
                # SQLite gives the -wal and -shm files the permissions of this one. An existing file is not opened here:
                # closing it would drop the locks that this process's other connections hold on it.
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE))
            elif not os.access(path, os.R_OK | os.W_OK):
                raise PermissionError(13, "the file is read only")
        except FileExistsError:
            pass  # another process created it just now
        except OSError as error:
            raise unusable(path, error) from error

    def writer(self) -> sqlite3.Connection:
        """Open a connection that may write, and read back every setting.

        Raises StoreUnusable or sqlite3.Error.
        """
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
            raise StoreUnusable(
                f"the store {self.path} does not make commits durable",
                f"journal mode {mode}, synchronous {synchronous}; write-ahead log and FULL are needed",
                "put it on a local disk",
            )
        return db

    def reader(self) -> sqlite3.Connection:
        """Open a connection that cannot write.

        Raises sqlite3.Error and StoreReplaced.
        """
        if self.reads:
            return self._reader_of_any_disk()
        db = self.connect()
        db.execute("PRAGMA query_only = ON")
        return db

    def _reader_of_any_disk(self) -> sqlite3.Connection:
        """Open for reading on a disk that may be full or read only.

        SQLite creates an index file (-shm) beside the store if no process has it open. If the disk takes none, no
        process of this machine writes. A file without a log is then read as it is. A file with a log is read under an
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
        """Open a connection without settings.

        Raises sqlite3.Error. Raises StoreReplaced if the name no longer leads to the file of the first connection.
        """
        db = sqlite3.connect(
            f"{self._real.as_uri()}?{query}",
            uri=True,
            timeout=BUSY_MS / 1000,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=512,
            factory=self.connection,
        )
        if not self._held:
            self._hold("")
        elif (lost := self.check()) is not None:
            db.close()
            raise lost
        db.execute("PRAGMA trusted_schema = OFF")
        return db

    # --- which file it is ------------------------------------------------------------------
    def found(self) -> StoreFile:
        """Return the identity of the file that the path leads to.

        Raises StoreUnusable.
        """
        try:
            at = os.stat(self._real)
        except OSError as error:
            raise unusable(self.path, error) from error
        return StoreFile(at.st_ino, birth_time(self._real, at), str(self._real), socket.gethostname())

    def is_at(self, named: StoreFile) -> bool:
        """Return True if the file that the store names is still at its old path on this machine."""
        path = Path(named.path)
        try:
            at = os.stat(path)
        except OSError:
            return False
        there = StoreFile(at.st_ino, birth_time(path, at), named.path, named.host)
        return path != self._real and compare_files(named, there) == "same"

    def remember_log(self) -> None:
        """Remember which log and index are open. Call it when the writing connection has opened them."""
        self.forget_log()
        self._hold("-wal")
        self._hold("-shm")

    def forget_log(self) -> None:
        """Forget the log and the index, which the last connection deletes when it closes."""
        self._held = tuple(each for each in self._held if not each[0])

    def _hold(self, end: str) -> None:
        try:
            at = os.stat(f"{self._real}{end}")
        except OSError:
            return  # already gone: the check after the next commit compares it
        self._held = (*self._held, (end, at.st_dev, at.st_ino))

    def check(self) -> StoreReplaced | None:
        """Return why the opened store is gone, or None.

        The file, its log or its index may have been deleted or replaced. Compares names with open files and opens
        nothing, because closing a second descriptor would drop SQLite's locks. The result never returns to None.
        """
        if self.lost is None:
            for end, device, inode in self._held:
                try:
                    at = os.stat(f"{self._real}{end}")
                except (FileNotFoundError, NotADirectoryError):
                    self.lost = self._replaced(end, "was deleted")
                    break
                except OSError:
                    continue  # an unreadable name proves nothing
                if (at.st_dev, at.st_ino) != (device, inode):
                    self.lost = self._replaced(end, "was replaced by another file")
                    break
        return self.lost

    def _replaced(self, end: str, what: str) -> StoreReplaced:
        return StoreReplaced(
            f"{self._real}{end} {what} while this process had it open",
            "what is written now would be in a file without a name; commits acknowledged in the last second "
            "may be lost",
            "find the cause, restore the right file, run `outlast fsck`, and restart",
        )

    @property
    def log_is_gone(self) -> bool:
        """True if the store's file exists but its log does not. This process can still copy the log into the file."""
        ends = {end for end, *_ in self._held}
        return "-wal" in ends and self._real.exists() and not os.path.lexists(f"{self._real}-wal")

    def migrate(self) -> None:
        """Bring the file to the present schema, each migration in its own transaction.

        Raises StoreUnusable.
        """
        try:
            if not os.path.lexists(lock_of(self._real)):
                self._check_owner()
            with self.write_lock:
                db = self.writer()
                try:
                    if self.write_lock.has_mark and not self.schema(db):
                        raise _gone(self.path, lock_of(self._real), "was emptied")
                    self._migrate(db)
                finally:
                    db.close()
                self.write_lock.mark()
        except (sqlite3.Error, OSError) as error:
            raise unusable(self.path, error) from error

    def _check_owner(self) -> None:
        """Raise StoreUnusable for a file of another program, before it is changed and a lock file lies beside it.

        One transaction sees the migration of another process whole or not at all. Raises sqlite3.Error.
        """
        db = self.connect()
        try:
            db.execute("BEGIN")
            self.schema(db)
        finally:
            db.close()

    def schema(self, db: sqlite3.Connection) -> int:
        """Return the schema of the file, or 0 if it is empty.

        Raises StoreUnusable for a database that is not Outlast's.
        """
        found = int(db.execute("PRAGMA user_version").fetchone()[0])
        owner = int(db.execute("PRAGMA application_id").fetchone()[0])
        tables = int(db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0])
        if owner != APPLICATION and (tables or found or owner):
            raise StoreUnusable(
                f"the store {self.path} belongs to another program",
                "it is not Outlast's",
                "name another file; this one was not touched",
            )
        if found > SCHEMA:
            raise newer(self.path, found, _newest_worker(db))
        if found and not db.execute("SELECT 1 FROM pragma_table_info(?) WHERE name = ?", NEWEST).fetchone():
            raise unreleased(self.path, _newest_worker(db))
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
        """Return the journal mode. For a connection that treats the file as immutable, read the file's header."""
        mode = str(db.execute("PRAGMA journal_mode").fetchone()[0])
        if self.reads and mode != "wal":  # no connection of this process holds a lock that closing the file could drop
            with self._real.open("rb") as file:
                header = file.read(WAL_HEADER_AT + len(WAL_HEADER))
            mode = "wal" if header.endswith(WAL_HEADER) else mode
        return mode

    def preallocate_log(self) -> None:
        """Preallocate the write-ahead log with zeros after its end. Call it under the write lock.

        A commit into allocated blocks takes half the time of one that makes the file grow (docs/decisions). SQLite
        ignores bytes after the last frame with a valid salt and checksum, and overwrites them after a reset. Skipped
        for a store that does not sync, which gains nothing.
        """
        size = self.wal_bytes()
        if self.synchronous != FULL or not 0 < size < LOG_BYTES:
            return
        try:
            disk = os.statvfs(self._real.parent)
            if disk.f_bavail * disk.f_frsize < SPARE_TIMES * LOG_BYTES:
                return  # the zeros would take most of the free space
            log = os.open(f"{self._real}-wal", os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.pwrite(log, bytes(LOG_BYTES - size), size)
                os.fsync(log)
            finally:
                os.close(log)
        except OSError:
            pass  # a full disk or a deleted log: the commit that needs the space raises the error

    def wal_bytes(self) -> int:
        """Return the size of the write-ahead log's file."""
        try:
            return os.stat(f"{self._real}-wal").st_size
        except FileNotFoundError:
            return 0

    def facts(self, db: sqlite3.Connection) -> dict[str, str | int]:
        """Return versions and settings for `outlast doctor`, read from a writer's connection."""
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


def _newest_worker(db: sqlite3.Connection) -> tuple[Any, Any] | None:
    try:
        row: tuple[Any, Any] | None = db.execute(WRITTEN_BY).fetchone()
    except sqlite3.Error:  # the table of another version
        return None
    return row


def read_tables(path: Path, tables: Mapping[str, str]) -> dict[str, Rows] | None:
    """Return the rows of these tables (name to order) without a lock, or None without a store.

    No process need have opened the store. Used to examine the files of a killed process. A log that it left is read
    with the file.
    """
    if not path.exists():
        return None
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
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

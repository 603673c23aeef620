"""Lock file beside a SQLite file. Processes that write get it one after another (S-12).

SQLite's own lock is polled with growing pauses, so a process could wait for seconds beside a busy one. The kernel wakes
the next process that waits for this one. Possible faults:

- *The holder dies.* The kernel releases the lock with the descriptor. SQLite rolls the open transaction back.
- *The holder hangs.* Nothing takes the lock from it, because it might still write. Each waiting process names it in a
  warning, and nothing is lost.
- *A program writes without this lock.* SQLite's lock is still taken inside it, so no commit is damaged.
- *The lock file is deleted.* Two processes could hold two files of one name, and SQLite's lock still keeps them apart.
  It is never deleted by this package, so it also shows that the store was there.
"""

import fcntl
import logging
import os
import threading
from contextlib import suppress
from pathlib import Path
from time import sleep
from types import TracebackType

from outlast.core.durations import SECOND, TURN_PATIENCE

log = logging.getLogger("outlast.store")
MODE = 0o600
MARK = b"made\n"
"""Content of the lock file once the store has its tables. Until then it is empty, and so is one of before."""
LOCKS = Path("/proc/locks")


def lock_of(database: Path) -> Path:
    """Return the lock file of a SQLite file. It is never deleted, so it also shows that the store was there."""
    return database.with_name(f"{database.name}.lock")


class WriteLock:
    """Lock held during each batch and checkpoint. Used by one thread at a time.

    The kernel wakes the next process as soon as the lock is free, before the previous holder has delivered its answers.
    So no process waits long, however busy another is. If a process hangs while it holds the lock, each waiting process
    logs a warning once, and a second message when it gets the lock.
    """

    def __init__(self, database: Path, *, patience_ms: int = TURN_PATIENCE) -> None:
        """`patience_ms` is how long a wait may last without a warning. A warning may come up to twice as late."""
        self._database = database
        self._lock = -1  # opened on first use: a process that only reads creates no file
        self._patience_s = patience_ms / SECOND
        self._guard = threading.Lock()
        self._wait: _Wait | None = None  # the present wait
        self._watched = False

    def __enter__(self) -> None:
        if self._lock < 0:
            self._lock = os.open(lock_of(self._database), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._await()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def try_lock(self) -> bool:
        """Take the lock if no other process holds it, and return True. A `with` that follows keeps and releases it."""
        try:
            if self._lock < 0:
                return False
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    @property
    def has_mark(self) -> bool:
        """True if the store had its tables before. Only while the lock is held."""
        return os.fstat(self._lock).st_size > 0

    def mark(self) -> None:
        """Note that the store has its tables. Without space for it, an emptied store is not recognized later."""
        if not self.has_mark:
            with suppress(OSError):
                os.write(self._lock, MARK)

    def close(self) -> None:
        """Close the lock file, which releases the lock."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _await(self) -> None:
        with self._guard:
            self._wait = wait = _Wait()
            if not self._watched:
                self._watched = True
                threading.Thread(target=self._watch, args=(wait,), name="outlast-turn", daemon=True).start()
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        finally:
            with self._guard:
                self._wait = None
                if wait.reported:
                    log.warning("%s can be written to again", self._database)

    def _watch(self, seen: "_Wait") -> None:
        """Check the present wait periodically, and warn about a wait that two checks meet.

        The thread ends when there is no wait. A thread for each wait would cost more than most waits last.
        """
        while True:
            sleep(self._patience_s)
            with self._guard:
                wait = self._wait
                if wait is None:
                    self._watched = False
                    return
                if wait is seen and not wait.reported:
                    wait.reported = True
                    log.warning(
                        "waiting to write to %s: %s has held the lock for longer than the usual milliseconds; "
                        "if it is stopped, kill -CONT resumes it",
                        self._database,
                        self._holder(),
                    )
                seen = wait

    def _holder(self) -> str:
        """Return the process that holds the lock, if the system names it."""
        of = os.fstat(self._lock)
        file = f"{os.major(of.st_dev):02x}:{os.minor(of.st_dev):02x}:{of.st_ino}"
        try:
            found = [line.split() for line in LOCKS.read_text().splitlines()]
        except OSError:
            found = []
        # `1: FLOCK ADVISORY WRITE 4711 fe:01:1234 0 EOF`; a waiting process has an arrow before FLOCK
        pids = [line[4] for line in found if line[1:2] == ["FLOCK"] and line[5] == file and int(line[4]) > 0]
        return f"process {pids[0]}" if pids else "another process"


class _Wait:
    """One wait for the lock."""

    reported = False  # a warning was logged

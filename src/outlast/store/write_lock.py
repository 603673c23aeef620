"""Whose turn it is to write a SQLite file: a lock beside it that processes get one after the other (S-12)."""

import fcntl
import logging
import os
import threading
from pathlib import Path
from time import sleep
from types import TracebackType

from outlast.core.budget import SECOND, TURN_PATIENCE

log = logging.getLogger("outlast.store")
MODE = 0o600
LOCKS = Path("/proc/locks")


class WriteLock:
    """Held around every batch and every checkpoint. The kernel wakes whoever waits as soon as a turn ends, before the
    one that had it has told its submitters, so nobody waits for long however busy another process is.

    One that waits for long all the same, since another process stands still within its turn, says so once, and once
    that its turn has come. Used by one thread at a time.
    """

    def __init__(self, database: Path, *, patience_ms: int = TURN_PATIENCE) -> None:
        """`patience_ms`: of a wait of which nothing is said; it may last twice as long."""
        self._database = database
        self._lock = -1  # opened by the first turn: a process that only reads writes nothing beside the file
        self._patience_s = patience_ms / SECOND
        self._guard = threading.Lock()
        self._wait: _Wait | None = None  # the one under way
        self._watched = False

    def __enter__(self) -> None:
        if self._lock < 0:
            self._lock = os.open(f"{self._database}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._await()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of the file."""
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
                if wait.told:
                    log.warning("%s can be written to again", self._database)

    def _watch(self, seen: "_Wait") -> None:
        """Look now and then, from the first wait until nobody waits: to begin a thread for each would cost more than
        most waits last. Who is met at two looks has waited for so long."""
        while True:
            sleep(self._patience_s)
            with self._guard:
                wait = self._wait
                if wait is None:
                    self._watched = False
                    return
                if wait is seen and not wait.told:
                    wait.told = True
                    log.warning(
                        "waiting to write to %s: %s has not ended its turn, which takes milliseconds; does it stand "
                        "still (kill -CONT lets it go on)?", self._database, self._holder()
                    )  # fmt: skip
                seen = wait

    def _holder(self) -> str:
        """Who has the turn, as far as this system tells."""
        of = os.fstat(self._lock)
        file = f"{os.major(of.st_dev):02x}:{os.minor(of.st_dev):02x}:{of.st_ino}"
        try:
            found = [line.split() for line in LOCKS.read_text().splitlines()]
        except OSError:
            found = []
        # `1: FLOCK ADVISORY WRITE 4711 fe:01:1234 0 EOF`; one that waits has an arrow before FLOCK
        pids = [line[4] for line in found if line[1:2] == ["FLOCK"] and line[5] == file and int(line[4]) > 0]
        return f"process {pids[0]}" if pids else "another process"


class _Wait:
    """One wait for a turn."""

    told = False  # people know of it

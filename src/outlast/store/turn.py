"""Whose turn it is to write a SQLite file: a lock beside it that processes get one after the other (S-12)."""

import fcntl
import os
from pathlib import Path
from types import TracebackType

MODE = 0o600


class Turn:
    """Held around every batch and every checkpoint. The kernel wakes whoever waits as soon as a turn ends, before the
    one that had it has told its submitters, so nobody waits for long however busy another process is."""

    def __init__(self, database: Path) -> None:
        self._lock = os.open(f"{database}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)

    def __enter__(self) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._lock)

"""Whose turn it is to write a SQLite file: a lock beside it that processes get one after the other (S-12)."""

import fcntl
import os
from pathlib import Path
from types import TracebackType

MODE = 0o600


class Turn:
    """Held around every batch and every checkpoint.

    Whoever waits holds the gate, so a process that has just had its turn cannot take the next one before it.
    """

    def __init__(self, database: Path) -> None:
        self._gate = os.open(f"{database}.gate", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)
        self._lock = os.open(f"{database}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)

    def __enter__(self) -> None:
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of the files."""
        os.close(self._lock)
        os.close(self._gate)

"""A process that is stopped with SIGSTOP between two of its commits."""

import signal
import subprocess
from pathlib import Path
from typing import Any

from outlast.store.sqlite.write_lock import WriteLock


def freeze(process: "subprocess.Popen[Any]", database: Path) -> None:
    """Stop the process between two commits. Within a commit it would block every other writer of its SQLite file."""
    turn = WriteLock(database)
    with turn:
        process.send_signal(signal.SIGSTOP)
    turn.close()

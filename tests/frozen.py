"""A process that stands still (SIGSTOP), between two of its commits."""

import signal
import subprocess
from pathlib import Path
from typing import Any

from outlast.store.write_lock import WriteLock


def freeze(process: "subprocess.Popen[Any]", database: Path) -> None:
    """Within a commit it would keep all others from writing its SQLite file, for as long as it stands still."""
    turn = WriteLock(database)
    with turn:
        process.send_signal(signal.SIGSTOP)
    turn.close()

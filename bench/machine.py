"""What was measured on, in words that name no machine: beside every set of figures, since they mean nothing without."""

import os
import platform
import sqlite3
from datetime import UTC, datetime

from bench.place import file_system

MEMORY_ONLY = frozenset({"tmpfs", "ramfs"})


def facts() -> dict[str, str]:
    """Cores, versions, file system, load and date."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cores": str(os.cpu_count()),
        "machine": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "file_system": file_system() or "unknown",
        "load": load(),
    }


def load() -> str:
    """How busy the machine is with everything, over the last minute."""
    return f"{os.getloadavg()[0]:.1f}"

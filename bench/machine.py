"""Properties of the measured machine without its name. Every set of figures carries them."""

import os
import platform
import sqlite3
from datetime import UTC, datetime

from bench.place import file_system
from outlast.runtime.interpreter_build import build

MEMORY_ONLY = frozenset({"tmpfs", "ramfs"})


def facts() -> dict[str, str]:
    """Return cores, versions, build of the interpreter, file system, load and date."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cores": str(os.cpu_count()),
        "machine": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "build": build().text,
        "sqlite": sqlite3.sqlite_version,
        "file_system": file_system() or "unknown",
        "load": load(),
    }


def load() -> str:
    """Return the machine's load over the last minute."""
    return f"{os.getloadavg()[0]:.1f}"

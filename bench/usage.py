"""What this process has used: CPU by thread, memory, and bytes given to the disk."""

import os
import threading
import time
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc/self")
NANO = 1_000_000_000


class Usage(NamedTuple):
    """Totals since the process began; `minus` gives what lies between two readings."""

    wall_s: float
    cpu_s: float
    threads_s: dict[str, float]
    written: int

    def minus(self, before: "Usage") -> "Usage":
        """What was used since `before`."""
        threads = {name: used - before.threads_s.get(name, 0.0) for name, used in self.threads_s.items()}
        return Usage(self.wall_s - before.wall_s, self.cpu_s - before.cpu_s, threads, self.written - before.written)


def usage() -> Usage:
    """Now."""
    return Usage(time.perf_counter(), time.process_time(), _threads(), _written())


def _threads() -> dict[str, float]:
    """CPU seconds of each living thread, by the name it was given; threads of one kind are added up."""
    used: dict[str, float] = {}
    for thread in threading.enumerate():
        try:
            line = (PROC / "task" / str(thread.native_id) / "schedstat").read_text()
        except OSError:  # it has just ended, or the system keeps no such account
            continue
        name = thread.name.removeprefix("outlast-").split("_")[0].split("-")[0].lower().replace("mainthread", "loop")
        used[name] = used.get(name, 0.0) + int(line.split()[0]) / NANO
    return used


def _written() -> int:
    try:
        lines = (PROC / "io").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("write_bytes")), 0)


def resident() -> int:
    """The bytes of memory this process holds."""
    pages = int((PROC / "statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")

"""Resource usage of processes: CPU (of this one by thread), memory, and bytes written."""

import os
import threading
import time
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
SELF = PROC / "self"
NANO = 1_000_000_000
TICKS = os.sysconf("SC_CLK_TCK")


class Usage(NamedTuple):
    """Totals since the start of a process. `minus` returns the difference of two readings."""

    wall_s: float
    cpu_s: float
    threads_s: dict[str, float]
    written: int
    resident: int = 0

    def minus(self, before: "Usage") -> "Usage":
        """Return the usage since `before`."""
        threads = {name: used - before.threads_s.get(name, 0.0) for name, used in self.threads_s.items()}
        return Usage(
            self.wall_s - before.wall_s,
            self.cpu_s - before.cpu_s,
            threads,
            self.written - before.written,
            self.resident - before.resident,
        )


def usage() -> Usage:
    """Return the usage of this process so far."""
    return Usage(time.monotonic(), time.process_time(), _threads(), _written(SELF), resident())


def _threads() -> dict[str, float]:
    """Return CPU seconds of each living thread by name, with threads of one kind added up."""
    used: dict[str, float] = {}
    for thread in threading.enumerate():
        try:
            line = (SELF / "task" / str(thread.native_id) / "schedstat").read_text()
        except OSError:  # it has just ended, or the system does not count it
            continue
        name = thread.name.removeprefix("outlast-").split("_")[0].split("-")[0].lower().replace("mainthread", "loop")
        used[name] = used.get(name, 0.0) + int(line.split()[0]) / NANO
    return used


def _written(process: Path) -> int:
    try:
        lines = (process / "io").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("write_bytes")), 0)


def resident() -> int:
    """Return the memory of this process in bytes."""
    return _resident("self")


def resident_tree(root: int) -> int:
    """Return the memory of a process and its descendants in bytes. Shared memory counts for each."""
    return sum(_resident(pid) for pid in (root, *_descendants(root)))


def _resident(pid: int | str) -> int:
    try:
        return int((PROC / str(pid) / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # it has just ended
        return 0


def tree(root: int) -> Usage:
    """Return the usage of a process and its descendants, ended ones included; nothing for process 0."""
    if not root:
        return Usage(time.monotonic(), 0.0, {}, 0)
    pids = [root, *_descendants(root)]
    return Usage(time.monotonic(), sum(map(_cpu, pids)), {}, sum(_written(PROC / str(pid)) for pid in pids))


def _descendants(root: int) -> list[int]:
    try:
        children = [int(pid) for pid in (PROC / str(root) / "task" / str(root) / "children").read_text().split()]
    except OSError:
        return []
    return [each for child in children for each in (child, *_descendants(child))]


def _cpu(pid: int) -> float:
    """Return CPU time, that of ended children included: fields 14 to 17 are user and system time."""
    try:
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(ticks) for ticks in fields[11:15]) / TICKS

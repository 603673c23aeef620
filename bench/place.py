"""A folder on the measured disk, removed after the measurement."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER_VARIABLE = "OUTLAST_BENCH_DIR"  # may be another disk than that of temporary files


@contextmanager
def folder() -> Iterator[Path]:
    """Create a folder and remove it however the measurement ends."""
    path = Path(tempfile.mkdtemp(prefix="outlast-bench-", dir=os.environ.get(FOLDER_VARIABLE)))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def file_system() -> str:
    """Return the type of the measured file system (ext4, tmpfs); empty if the system cannot tell."""
    where = os.path.realpath(os.environ.get(FOLDER_VARIABLE) or tempfile.gettempdir())
    best, kind = "", ""
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    for line in mounts:
        _, point, type_, *_ = line.split()
        inside = where == point or where.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, type_
    return kind


def size_of(path: Path, pattern: str = "*") -> int:
    """Return the size of the files in a folder."""
    return sum(file.stat().st_size for file in path.glob(pattern) if file.is_file())

"""The control: how many single small commits a second this disk takes, one after the other, fully durable."""

import sqlite3
import time
from pathlib import Path

WARM = 30


def commit_rate(folder: Path, seconds: float) -> float:
    """Commits a second of one small row each: write-ahead log, synchronous FULL, one connection, nothing else.

    As plain as SQLite comes: the log grows with each commit, and is copied by SQLite's own automatic check-points.
    """
    db = sqlite3.connect(folder / f"control-{time.monotonic_ns()}.db", isolation_level=None)
    try:
        assert db.execute("PRAGMA journal_mode = WAL").fetchone()[0] == "wal"
        db.execute("PRAGMA synchronous = FULL")
        db.execute("CREATE TABLE control (id INTEGER PRIMARY KEY, value TEXT NOT NULL)")
        for n in range(WARM):
            _commit(db, n)
        count, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < seconds:
            _commit(db, WARM + count)
            count += 1
        return count / (time.perf_counter() - begun)
    finally:
        db.close()


def _commit(db: sqlite3.Connection, n: int) -> None:
    db.execute("BEGIN IMMEDIATE")
    db.execute("INSERT INTO control VALUES (?, ?)", (n, "one small row"))
    db.execute("COMMIT")

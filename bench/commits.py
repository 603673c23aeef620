"""The control: how many single small durable commits per second this disk accepts."""

import sqlite3
import time
from pathlib import Path

WARM = 30


def commit_rate(folder: Path, seconds: float) -> float:
    """Return commits of one small row per second: write-ahead log, synchronous FULL, one connection.

    SQLite in its plainest form: the log grows with each commit, and SQLite's automatic checkpoints copy it.
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

"""The rows of a SQLite file as they lie there, read without a lock: no process needs to have opened the store.

For those who look at what a killed process left. A log that it left is read with the file.
"""

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Rows = list[dict[str, Any]]


def glance(path: Path, tables: Mapping[str, str]) -> dict[str, Rows] | None:
    """Every row of these tables (name → its order) as plain dictionaries; None where there is no store yet."""
    if not path.exists():
        return None
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    try:
        there = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not there.issuperset(tables):
            return None
        return {name: _rows(connection, name, order) for name, order in tables.items()}
    finally:
        connection.close()


def _rows(connection: sqlite3.Connection, table: str, order: str) -> Rows:
    return [dict(row) for row in connection.execute(f'SELECT * FROM "{table}" ORDER BY {order}')]

"""A copied store file that executes, as its original does: for tests that play one prepared store several times."""

import sqlite3
from pathlib import Path


def adopt(path: Path) -> None:
    """Make the copy its own store without a new generation: the next writer names the file."""
    db = sqlite3.connect(path)
    assert db.execute("DELETE FROM meta WHERE key = 'file'").rowcount == 1
    db.commit()
    db.close()

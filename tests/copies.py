"""A copy of a store file that can be opened, for tests that play one prepared store several times."""

import sqlite3
from pathlib import Path


def adopt(path: Path) -> None:
    """Make the copy a separate store without a new generation. The next writer records the file's identity."""
    db = sqlite3.connect(path)
    assert db.execute("DELETE FROM meta WHERE key = 'file'").rowcount == 1
    db.commit()
    db.close()

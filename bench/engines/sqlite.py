"""Outlast on one SQLite file."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.commits import commit_rate
from bench.engines import Place
from bench.ours import Outlast
from bench.place import folder, size_of


class OnSqlite(Outlast):
    """The engine whose store is a file in the place's folder."""

    name = "sqlite"

    @contextmanager
    def place(self) -> Iterator[Place]:
        """Create a folder for the store file."""
        with folder() as path:
            yield Place(f"sqlite:{path / 'bench.db'}", path)

    def control(self, place: Place, seconds: float) -> float:
        """Measure single small commits per second in another file, so that the store stays empty."""
        return commit_rate(place.folder, seconds)

    def kept(self, place: Place) -> int:
        """Return the size of the file after a checkpoint."""
        db = sqlite3.connect(Path(place.url.removeprefix("sqlite:")))
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.close()
        return size_of(place.folder, "bench.db*")


ENGINE = OnSqlite()

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
    """The store is a file in the place's folder."""

    name = "sqlite"

    @contextmanager
    def place(self) -> Iterator[Place]:
        """See the protocol."""
        with folder() as path:
            yield Place(f"sqlite:{path / 'bench.db'}", path)

    def control(self, place: Place, seconds: float) -> float:
        """See the protocol. A file beside the store's, so that the store stays empty."""
        return commit_rate(place.folder, seconds)

    def kept(self, place: Place) -> int:
        """See the protocol."""
        db = sqlite3.connect(Path(place.url.removeprefix("sqlite:")))
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.close()
        return size_of(place.folder, "bench.db*")


ENGINE = OnSqlite()

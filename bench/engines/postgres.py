"""Outlast on PostgreSQL: a server from the wheel, or the one that OUTLAST_BENCH_POSTGRES names."""

from collections.abc import Iterator
from contextlib import contextmanager

from bench import postgres
from bench.engines import Place
from bench.ours import Outlast
from bench.place import folder


class OnPostgres(Outlast):
    """The engine whose store is a separate database on the server."""

    name = "postgres"

    @contextmanager
    def place(self) -> Iterator[Place]:
        """Create a database and a folder."""
        with folder() as path, postgres.server() as server, postgres.database(server) as url:
            yield Place(url, path, postgres.postmaster(url))

    def control(self, place: Place, seconds: float) -> float:
        """Measure single small commits per second on the server."""
        return postgres.commit_rate(place.url, seconds)

    def kept(self, place: Place) -> int:
        """Return the size of the database. Of the log, only the part that a recovery would read counts."""
        return postgres.bytes_kept(place.url)


ENGINE = OnPostgres()

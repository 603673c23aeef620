"""Outlast on PostgreSQL: a server of its own from the wheel, or the one that OUTLAST_BENCH_POSTGRES names."""

from collections.abc import Iterator
from contextlib import contextmanager

from bench import postgres
from bench.engines import Place
from bench.ours import Outlast
from bench.place import folder


class OnPostgres(Outlast):
    """The store is a database of its own on the server."""

    name = "postgres"

    @contextmanager
    def place(self) -> Iterator[Place]:
        """See the protocol."""
        with folder() as path, postgres.server() as server, postgres.database(server) as url:
            yield Place(url, path, postgres.postmaster(url))

    def control(self, place: Place, seconds: float) -> float:
        """See the protocol."""
        return postgres.commit_rate(place.url, seconds)

    def kept(self, place: Place) -> int:
        """See the protocol. Of the log, what recovery would read is counted, which is next to nothing then."""
        return postgres.bytes_kept(place.url)


ENGINE = OnPostgres()

"""Outlast on DynamoDB: an emulator from the wheel `roto-aws`, or the endpoint that OUTLAST_BENCH_DYNAMODB names."""

from collections.abc import Iterator
from contextlib import contextmanager

from bench import dynamodb
from bench.engines import Place
from bench.ours import Outlast
from bench.place import folder


class OnDynamoDB(Outlast):
    """The engine whose store is a separate environment on the server."""

    name = "dynamodb"

    @contextmanager
    def place(self) -> Iterator[Place]:
        """Choose the name of an environment, and create a folder."""
        with folder() as path, dynamodb.server() as endpoint, dynamodb.environment(endpoint) as url:
            yield Place(url, path)

    def control(self, place: Place, seconds: float) -> float:
        """Measure single transactions per second on the server."""
        return dynamodb.transaction_rate(place.url, seconds)

    def kept(self, place: Place) -> int:
        """Return the size of the items."""
        return dynamodb.bytes_kept(place.url)


ENGINE = OnDynamoDB()

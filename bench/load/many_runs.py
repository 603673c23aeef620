"""A store with many runs that wait for approvals, for the pages of the web UI."""

import asyncio

from bench import bulk
from bench.engines import Place
from bench.load.place import prepare

EXECUTED = 10  # runs that a worker executed; the others are copies that no worker executes
FIRST = "refund-000000"


def fill(place: Place, count: int) -> None:
    """Fill an empty store with this many runs."""
    asyncio.run(prepare(place.url, EXECUTED))
    rows = asyncio.run(bulk.rows_of(place, FIRST))
    bulk.insert(place, bulk.copies(rows, FIRST, bulk.names("copy", 0, max(0, count - EXECUTED))))

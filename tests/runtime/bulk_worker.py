"""A worker that serves built-in workflows alone: `python -m tests.runtime.bulk_worker STORE`."""

import asyncio
import sys

from outlast.core.durations import Liveness
from outlast.runtime.local_worker import worker_of
from outlast.runtime.stores import open_store

LIVE = Liveness(heartbeat_window=2_000, heartbeat_every=500, attempt_timeout=2_000, start_budget=500, settle_margin=500)


async def main(url: str) -> None:
    """Serve until killed."""
    store = await open_store(url)
    await worker_of(store, (), live=LIVE).run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))

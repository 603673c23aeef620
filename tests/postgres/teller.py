"""A worker of the bank that kills itself at a point: `python -m tests.postgres.teller URL POINT`."""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence

from outlast.core import crash_points
from outlast.core.durations import Liveness
from outlast.runtime.local_worker import worker_of
from outlast.runtime.stores import open_store
from tests.postgres import bank

LIVE = Liveness(heartbeat_window=1_500, heartbeat_every=400, attempt_timeout=8_000)


async def serve(url: str, place: str) -> None:
    """Run a worker until a credit reaches the point."""

    def die(name: str, labels: Sequence[str]) -> None:
        if name == place and any(label.endswith("credit/alice") for label in labels):
            os.kill(os.getpid(), signal.SIGKILL)

    crash_points.hook = die
    await worker_of(await open_store(url), [bank.credit_runs], live=LIVE).run()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2]))

"""A dispatcher in its own process, killed by signal 9 at the Nth touch of a crash point: URL POINT N."""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence

from outlast.core import crash_points
from outlast.core.webhooks import deliveries
from outlast.outbox import claimed_cursor, dispatcher
from outlast.runtime.stores import open_store
from outlast.runtime.webhooks import new_dispatcher
from tests.outbox.helpers import DEVELOPMENT

CLAIM_MS = 800


async def live(url: str, place: str, n: int) -> None:
    """Serve until the process is killed."""
    left = n

    def hook(name: str, labels: Sequence[str]) -> None:
        nonlocal left
        if name == place:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    for module in (deliveries, dispatcher, claimed_cursor):
        module.DELIVERY_CLAIM = CLAIM_MS  # type: ignore[attr-defined]
    claimed_cursor.MARGIN_MS = 100  # type: ignore[misc]
    claimed_cursor.SENT_AT_ONCE = 2  # type: ignore[misc]
    deliveries.DELIVERY_FIRST_WAIT = 50  # type: ignore[misc]
    store = await open_store(url)
    crash_points.hook = hook
    await new_dispatcher(store, reach=DEVELOPMENT).run()


if __name__ == "__main__":
    asyncio.run(live(sys.argv[1], sys.argv[2], int(sys.argv[3])))

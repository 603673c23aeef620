"""Refresh signals: one stream per page, which says that something changed and carries no data."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

from outlast.service.event_stream import EventListener, notice

EVERY_S: Final = 0.25
"""Least time between two signals."""
HEARTBEAT: Final = b": heartbeat\n\n"


async def signals(listener: EventListener, relevant: Callable[[bytes], bool]) -> AsyncIterator[bytes]:
    """Yield `changed` at once, because a page that was hidden missed some, and after relevant events.

    The last event is `ended`: a stream that only closes would be opened again twice a second.
    """
    n = 0
    yield _changed(n)
    while items := await listener.received():
        frames = [data for _, data in items]
        if any(relevant(data) for data in frames):
            n += 1
            yield _changed(n)
            await asyncio.sleep(EVERY_S)
        else:
            yield HEARTBEAT
    yield _changed(n + 1)
    yield notice("ended", {})


def _changed(n: int) -> bytes:
    return notice("changed", {"n": n})


def relevance(of: str) -> Callable[[bytes], bool]:
    """Return the test of frames that concern `approvals`, `attention`, `runs` or one run."""
    return lambda data: data.startswith(b"id:")

"""Refresh signals: one stream per page, which says that something changed and carries no data."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Final

from outlast.core.events import EventType
from outlast.service.event_stream import EventListener, notice

EVERY_S: Final = 0.25
"""Least time between two signals."""
_STEPS: Final = frozenset({
    EventType.CHECKPOINT, EventType.LOGGED, EventType.DENIED, EventType.ADMITTED, EventType.QUEUED, EventType.REQUEUED,
    EventType.HANDED_BACK,
})  # fmt: skip
UNRELATED: Final[Mapping[str, Collection[str]]] = {
    "approvals": _STEPS, "attention": _STEPS, "runs": {EventType.LOGGED}, "run": ()
}  # fmt: skip
"""Types of events that change nothing on a page, by what the page listens to."""


async def signals(listener: EventListener, of: str) -> AsyncIterator[bytes]:
    """Yield `changed` at once, because a page that was hidden missed some, and after each event that concerns `of`.

    A heartbeat is such an event, too: votes and lost workers have none, and an unchanged region costs an answer 304.
    The last event is `ended`: a stream that only closes would be opened again twice a second.
    """
    unrelated = UNRELATED[of]
    n = 0
    yield _changed(n)
    while items := await listener.received():
        if any(_type(data) not in unrelated for _, data in items):
            n += 1
            yield _changed(n)
            await asyncio.sleep(EVERY_S)
    yield _changed(n + 1)
    yield notice("ended", {})


def _type(data: bytes) -> str:
    """Return the type of the event in a frame, '' for a heartbeat."""
    return data.partition(b"event: ")[2].partition(b"\n")[0].decode()


def _changed(n: int) -> bytes:
    return notice("changed", {"n": n})

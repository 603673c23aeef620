"""Refresh signals: one stream per page, which says that something changed and carries no data."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from typing import Final

from outlast.core.events import EventType
from outlast.service.event_stream import EventListener, notice

EVERY_S: Final = 0.25
"""Least time between two signals to a page."""
EVERY_PER_STREAM_S: Final = 0.01
"""The same for each open page of this process, because every signal costs two requests of every page."""
HEARTBEAT: Final = b": heartbeat\n\n"
_STEPS: Final = frozenset({
    EventType.CHECKPOINT, EventType.LOGGED, EventType.DENIED, EventType.ADMITTED, EventType.QUEUED, EventType.REQUEUED,
    EventType.HANDED_BACK,
})  # fmt: skip
UNRELATED: Final[Mapping[str, Collection[str]]] = {
    "approvals": _STEPS, "attention": _STEPS, "runs": {EventType.LOGGED}, "run": ()
}  # fmt: skip
"""Types of events that change nothing on a page, by what the page listens to."""


async def signals(
    listener: EventListener, of: str, news: Callable[[], Awaitable[str]], streams: Callable[[], int]
) -> AsyncIterator[bytes]:
    """Yield `changed` at once, because a page that was hidden missed some, and after each event that concerns `of`.

    At a heartbeat, `news` returns the version of what has no events: votes, assignments, lost workers, webhooks. It is
    read before the first signal, after which the page reads its regions, so that no change is missed. `streams` returns
    the number of open pages; the more there are, the longer is the least time between two signals. The last event is
    `ended`: a stream that only closes would be opened again twice a second.
    """
    unrelated = UNRELATED[of]
    n, seen = 0, await news()
    yield _changed(n)
    while items := await listener.received():
        types = {_type(data) for _, data in items}
        changed = any(each not in unrelated for each in types - {""})
        if "" in types:
            before, seen = seen, await news()
            changed = changed or before != seen
        if changed:
            n += 1
            yield _changed(n)
            await asyncio.sleep(max(EVERY_S, EVERY_PER_STREAM_S * streams()))
        else:
            yield HEARTBEAT
    yield _changed(n + 1)
    yield notice("ended", {})


def _changed(n: int) -> bytes:
    return notice("changed", {"n": n})


def _type(data: bytes) -> str:
    """Return the type of the event in a frame, '' for a heartbeat."""
    return data.partition(b"event: ")[2].partition(b"\n")[0].decode()

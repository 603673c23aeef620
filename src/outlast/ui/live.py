"""Refresh signals: one stream per page, which says that something changed and carries no data."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import Final

from outlast.core.events import EventType
from outlast.service.event_stream import EventListener, notice

EVERY_S: Final = 0.25
"""Least time between two signals to a page. The first signal after a rest is sent at once."""
PER_STREAM_S: Final[Mapping[str, float]] = {
    "run": 0.01,
    "approval": 0.01,
    "approvals": 0.1,
    "attention": 0.1,
    "runs": 0.1,
}
"""The same for each open page of this process, by what the page listens to.

A signal costs one or two requests of 17 ms of each page that it concerns: of many pages if it is about every run. So
300 pages take at most a third of a core, however many runs change.
"""
BEAT: Final = "beat"
HEARTBEAT: Final = notice(BEAT, {})
"""Frame that a page sees, because a page that sees none for a while is not live."""
DELTA: Final = "delta"
"""Type of the frames with words that a run streams. They are passed on, and change no row of a page."""
PRESENT: Final = notice("presence", {})
"""Frame that a listener of a page gets if other people have opened or closed an approval."""
_STEPS: Final = frozenset({
    EventType.CHECKPOINT, EventType.LOGGED, EventType.DENIED, EventType.ADMITTED, EventType.QUEUED, EventType.REQUEUED,
    EventType.HANDED_BACK,
})  # fmt: skip
UNRELATED: Final[Mapping[str, Collection[str]]] = {
    "approvals": _STEPS, "attention": _STEPS, "runs": {EventType.LOGGED}, "run": (), "approval": ()
}  # fmt: skip
"""Types of events that change nothing on a page, by what the page listens to."""


async def signals(
    listener: EventListener, of: str, news: Callable[[], Awaitable[str]], streams: Callable[[], int]
) -> AsyncIterator[bytes]:
    """Yield `changed` at once, because a page that was hidden missed some, and after events that concern `of`.

    At a heartbeat, `news` returns the version of what has no events: votes, assignments, lost workers, webhooks. It is
    read before the first signal, after which the page reads its regions, so that no change is missed. `streams` returns
    the number of open pages; the more there are, the longer is the least time between two signals. Events of that time
    make one signal. If the run has ended, the last event is `ended`: a stream that only closes is opened again, as it
    must be after a stop of the service.
    """
    unrelated, clock = UNRELATED[of], asyncio.get_running_loop().time
    n, seen, changed = 0, await news(), False
    yield _changed(n)
    free_at = 0.0
    while True:
        types, words = set[str](), b""
        with suppress(TimeoutError):  # the time of the signal that waits
            async with asyncio.timeout_at(free_at if changed else None):
                items = await listener.received()  # even while a signal waits, because a full listener is cut off
                if not items:
                    break
                types = {_type(data) for _, data in items}
                words = b"".join(data for _, data in items if _type(data) == DELTA)
        if words:
            types.discard(DELTA)
            yield words
        changed = changed or any(each not in unrelated for each in types - {""})
        if "" in types:
            before, seen = seen, await news()
            changed = changed or before != seen
        if changed and clock() >= free_at:
            n, changed = n + 1, False
            free_at = clock() + max(EVERY_S, PER_STREAM_S[of] * streams())
            yield _changed(n)
        elif "" in types:
            yield HEARTBEAT
    if not listener.reopens:
        yield _changed(n + 1)
        yield notice("ended", {})


def _changed(n: int) -> bytes:
    return notice("changed", {"n": n})


def _type(data: bytes) -> str:
    """Return the type of the event in a frame, '' for a heartbeat."""
    name = data.partition(b"event: ")[2].partition(b"\n")[0].decode()
    return name if name != BEAT else ""

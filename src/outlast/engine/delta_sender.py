"""Sender of the deltas of a worker: collects them for a moment, removes secrets, and passes them to the store."""

import asyncio
import contextlib
import logging
from threading import Lock
from typing import Final

from outlast.core.limits import KIB
from outlast.core.state.delta_packets import Delta, DeltaOrigin
from outlast.store.port import DeltaChannel, Store
from outlast.telemetry.redact import redact

FLUSH_S: Final = 0.04
"""Texts within this time are sent together, because the cost is per send."""
PENDING_CHARS_MAX: Final = 256 * KIB
"""Characters that wait in one process to be sent; further text is lost."""
PENDING_OF_ONE_MAX: Final = 32 * KIB
"""Characters of one origin that wait."""
log: Final = logging.getLogger("outlast.engine")


class DeltaBuffer:
    """Texts that wait to be sent, joined by origin. May be used from any thread; loses text beyond its limits."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._texts: dict[DeltaOrigin, list[str]] = {}
        self._chars = 0

    def add(self, delta: Delta) -> bool:
        """Add a text. Return True if it is the first one since `take`."""
        with self._lock:
            first = not self._texts
            texts = self._texts.setdefault(delta.origin, [])
            left = min(PENDING_CHARS_MAX - self._chars, PENDING_OF_ONE_MAX - sum(map(len, texts)))
            if left > 0:
                texts.append(delta.text[:left])
                self._chars += len(texts[-1])
            return first

    def take(self) -> list[Delta]:
        """Return and remove all texts."""
        with self._lock:
            found, self._texts, self._chars = self._texts, {}, 0
        return [Delta(origin, "".join(texts)) for origin, texts in found.items() if texts]


class DeltaSender:
    """Sender of one worker. Does nothing if the store has no channel for deltas."""

    def __init__(self, store: Store) -> None:
        self._channel = store if isinstance(store, DeltaChannel) else None
        self._buffer = DeltaBuffer()

    def send(self, delta: Delta, loop: asyncio.AbstractEventLoop) -> None:
        """Send a delta soon. `loop` is the worker's; the caller may be in any thread."""
        if self._channel is None or not self._buffer.add(delta):
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(loop.call_later, FLUSH_S, self.flush)

    def flush(self) -> None:
        """Send what waits, in the event loop of the worker."""
        found = [delta._replace(text=redact(delta.text)) for delta in self._buffer.take()]
        if found and self._channel is not None:
            try:
                self._channel.publish(found)
            except Exception:  # because a lost text must not stop a run
                log.exception("deltas were lost")

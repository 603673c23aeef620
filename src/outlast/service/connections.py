"""The connections of one process: as many as its descriptors leave room for, and a share of them per address."""

import asyncio
import sys
from collections import Counter
from typing import Final

from uvicorn.protocols.utils import get_remote_addr

from outlast.core.limits import CONNECTIONS_MAX, connections_within
from outlast.service.identity.failures import place

if sys.platform != "win32":
    import resource

STRANGERS_SHARE: Final = 4
"""One address has at most one in so many of the connections, until a credential came over them."""
REFUSAL: Final = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


def room() -> int:
    """Return how many connections this process may have, so that its store, worker and calls have descriptors."""
    if sys.platform == "win32":  # it counts no descriptors
        return CONNECTIONS_MAX
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return connections_within(descriptors) if descriptors != resource.RLIM_INFINITY else CONNECTIONS_MAX


class Connections:
    """Those that are open. Where there is no room, the one that has waited longest without a request is ended."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._open: dict[asyncio.Transport, str] = {}  # and the place of each stranger; "" after a credential
        self._waiting: dict[asyncio.Transport, None] = {}  # no request is under way, the longest first
        self._strangers: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, transport: asyncio.Transport, address: str) -> bool:
        """Take a connection in. False if there is no room: every other one has a request under way."""
        where = place(address) or "?"
        if self._strangers[where] >= max(1, self.most // STRANGERS_SHARE) and not self._end_one(where):
            return False
        if len(self._open) >= self.most and not self._end_one(""):
            return False
        self._open[transport] = where
        self._strangers[where] += 1
        self._waiting[transport] = None
        return True

    def leave(self, transport: asyncio.Transport) -> None:
        """Forget a connection that has ended."""
        self._waiting.pop(transport, None)
        self._forget_stranger(self._open.pop(transport, ""))

    def begin(self, transport: asyncio.Transport) -> None:
        """Keep this one: a request is under way."""
        self._waiting.pop(transport, None)

    def rest(self, transport: asyncio.Transport) -> None:
        """Let this one be ended where there is no room: its requests are answered."""
        if transport in self._open:
            self._waiting[transport] = None

    def prove(self, transport: asyncio.Transport) -> None:
        """Count this one as no stranger's any more: a credential came over it."""
        if where := self._open.get(transport):
            self._open[transport] = ""
            self._forget_stranger(where)

    def _forget_stranger(self, where: str) -> None:
        if where:
            self._strangers[where] -= 1
            if not self._strangers[where]:
                del self._strangers[where]

    def _end_one(self, where: str) -> bool:
        """End the connection that has waited longest, a stranger's first; `where`: of this place only."""
        strangers = (each for each in self._waiting if self._open[each] and where in ("", self._open[each]))
        found = next(strangers, None if where else next(iter(self._waiting), None))
        if found is None:
            return False
        self.leave(found)
        found.abort()  # what it was to be sent is not waited for, and its descriptor is free
        return True


class Admitted(asyncio.Protocol):
    """The part of a protocol that takes its connection in, or refuses it. Stands before a protocol of uvicorn."""

    admitted: Connections
    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Take the connection in, or refuse it with 503."""
        super().connection_made(transport)
        if not self.admitted.enter(transport, (get_remote_addr(transport) or ("", 0))[0]):
            transport.write(REFUSAL)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.admitted.leave(self.transport)
        super().connection_lost(exc)

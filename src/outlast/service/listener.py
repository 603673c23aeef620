"""One who listens to events: what is ready to be sent to it, within bounds."""

import asyncio
from typing import Final

from outlast.core.limits import KIB

BUFFER: Final = 1_024
"""Frames that a listener may be behind; each is kept once, however many listen …"""
BUFFER_BYTES: Final = 16 * KIB * KIB
"""… and how large they are together."""
Share = tuple[str, str]
"""Who holds a stream: the kind of holder, and its name."""
Item = tuple[int, bytes]
"""The number of an event of the run that is listened to (0: none of its), and the frame."""


class Listener:
    """Of one run, or ('') of every run of its tenant."""

    def __init__(self, tenant: str, run: str, shares: tuple[Share, ...] = ()) -> None:
        self.tenant = tenant
        self.run = run
        self.shares = shares
        self.cut = asyncio.Event()  # it was too slow, or the service stops
        self._frames: list[Item] = []
        self._bytes = 0
        self._ended = False
        self._news = asyncio.Event()

    def __len__(self) -> int:
        return len(self._frames)

    def push(self, seq: int, data: bytes) -> None:
        """One more frame; too many, and it is cut."""
        if len(self._frames) >= BUFFER or self._bytes > BUFFER_BYTES:
            self.cut.set()
        if not self.cut.is_set():
            self._frames.append((seq, data))
            self._bytes += len(data)
            self._news.set()

    def end(self) -> None:
        """Nothing more will come."""
        self._ended = True
        self._news.set()

    async def heard(self) -> list[Item]:
        """All that has come since, at least one; none: after the last event of a run, or at the service's end."""
        await self._news.wait()
        found, self._frames, self._bytes = self._frames, [], 0
        if not self._ended:
            self._news.clear()
        return found

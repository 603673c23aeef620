"""Clocks, ids and randomness of a process: the system's, and a virtual clock that moves only by `advance`."""

import asyncio
import base64
import heapq
import os
import random
import secrets
import time
from collections.abc import Callable, Coroutine
from itertools import count
from pathlib import Path
from typing import Any


class SystemClock:
    """The machine's own clocks."""

    def wall(self) -> int:
        """Return the wall time in milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def boot(self) -> int:
        """Return milliseconds since boot, including suspended time if the system counts it."""
        return time.clock_gettime_ns(_BOOT) // 1_000_000

    def boot_id(self) -> str:
        """Return Linux's id of this boot; '' elsewhere, and the store's time then follows the wall clock."""
        try:
            return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        except (OSError, UnicodeError):
            return ""

    def mono(self) -> int:
        """Return milliseconds of the monotonic clock."""
        return time.monotonic_ns() // 1_000_000

    async def sleep(self, ms: int) -> None:
        """Sleep for `ms` milliseconds of real time."""
        await asyncio.sleep(ms / 1000)


_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
FIRST_INSTANT = 1_767_225_600_000  # start of a virtual clock, 2026-01-01T00:00:00Z


class VirtualClock:
    """A clock that moves only by `advance`. Sleepers wake in the order of their instants."""

    def __init__(self, now_ms: int = FIRST_INSTANT) -> None:
        self._now = now_ms
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = count()

    def wall(self) -> int:
        """Return the virtual time in milliseconds since 1970."""
        return self._now

    boot = wall
    mono = wall

    async def sleep(self, ms: int) -> None:
        """Return once the clock has been advanced by `ms`."""
        if ms <= 0:
            await asyncio.sleep(0)
            return
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + ms, next(self._order), future))
        await future

    async def advance(self, ms: int) -> None:
        """Advance by `ms`, stopping at each sleeper's instant until the event loop is idle."""
        end = self._now + ms
        await idle()
        while self._sleepers and self._sleepers[0][0] <= end:
            at, _, future = heapq.heappop(self._sleepers)
            self._now = max(self._now, at)
            if not future.done():
                future.set_result(None)
                await idle()
        self._now = end
        await idle()


TURNS = 60  # more than any chain of awaits that needs neither clock nor thread


async def idle() -> None:
    """Run the event loop until every runnable task has had its turns."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def sleep_unless(event: asyncio.Event, sleep: Coroutine[Any, Any, None]) -> None:
    """Return when the sleep of a clock has ended, or the event is set."""
    sleeper = asyncio.ensure_future(sleep)
    waiter = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait([sleeper, waiter], return_when=asyncio.FIRST_COMPLETED)
    finally:
        sleeper.cancel()
        waiter.cancel()


def new_id(prefix: str) -> str:
    """Return an unused id: `prefix` and 12 random characters of base 32."""
    bits = secrets.randbits(60)
    return (
        prefix
        + _PAIRS[bits & 1023]
        + _PAIRS[bits >> 10 & 1023]
        + _PAIRS[bits >> 20 & 1023]
        + _PAIRS[bits >> 30 & 1023]
        + _PAIRS[bits >> 40 & 1023]
        + _PAIRS[bits >> 50]
    )


_LETTERS = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [low + high for high in _LETTERS for low in _LETTERS]
"""Text of each number of ten bits."""


def new_secret() -> str:
    """Return a secret of 256 random bits, formatted for Standard Webhooks."""
    return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()


def new_credential() -> str:
    """Return a header-safe secret of 256 random bits."""
    return secrets.token_urlsafe(32)


def process_id(prefix: str) -> str:
    """Return an id of this process start: PREFIX-PID-random."""
    return f"{prefix}-{os.getpid()}-{new_id('')[:8]}"


chance: Callable[[], float] = random.SystemRandom().random
"""Random numbers for jitter. Not `random.random`: the application may have seeded it, and a fork would repeat it."""


def new_nonce() -> str:
    """Return 22 characters that cannot be guessed: letters, digits, `-` and `_`."""
    return secrets.token_urlsafe(16)

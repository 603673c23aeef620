"""A wall clock that was set: said once, and followed by business time if it was set forward (S-4)."""

import logging

from outlast.core.budget import CLOCK_STEP, SECOND
from outlast.core.overlay import rearmed
from outlast.store.port import AnchoredClock, Store

log = logging.getLogger("outlast.engine")


class ClockStep:
    """Looks once a heartbeat. A step forward counts once it was seen twice: a clock may be set wrong for a moment."""

    def __init__(self, store: Store) -> None:
        self._store = store if isinstance(store, AnchoredClock) else None
        self._before = 0

    async def look(self) -> None:
        """Log a step when it is first seen, and follow it. Raises StoreError."""
        if self._store is None:
            return
        before, step = self._before, await self._store.clock_step()
        self._before = step if abs(step) >= CLOCK_STEP else 0
        if not self._before:
            return
        if abs(step - before) >= CLOCK_STEP:
            ahead, seconds = step > 0, abs(step) / SECOND
            goes_on = "business time follows it" if ahead else "business time goes on, and stays ahead of it"
            log.warning(
                "this machine's clock is %.0f s %s the store's: it was set; leases keep to the boot-time clock, and %s",
                seconds, "ahead of" if ahead else "behind", goes_on,
            )  # fmt: skip
        elif step > 0 and await self._store.follow_clock(rearmed):
            self._before = 0

"""What a store need not keep any longer goes by itself, a little at a time: answers to requests, workers long gone."""

from typing import Final

from outlast.core.budget import FORGET_EVERY
from outlast.core.clock import Clock
from outlast.store.port import Store

AT_ONCE: Final = 200  # of each kind in one transaction: some milliseconds, in which others wait


class Forgetting:
    """Looks every FORGET_EVERY; at each heartbeat, while there is more than goes at once."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._next = 0

    async def look(self) -> None:
        """Forget, where it is time. Raises StoreError, and is then due at the next heartbeat."""
        if self._clock.mono() < self._next:
            return
        n = await self._store.forget(AT_ONCE)
        if n < AT_ONCE:
            self._next = self._clock.mono() + FORGET_EVERY

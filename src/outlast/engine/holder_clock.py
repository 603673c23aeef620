"""A holder's estimate of the store's time, made from the answers to its commits (decision 0040)."""

from outlast.core.clock_port import Clock
from outlast.core.commit import Instant
from outlast.store.port import Store


class HolderClock:
    """Estimate of the store's time. It never goes back; the store judges every condition that matters."""

    __slots__ = ("_ahead_ms", "_clock", "_last", "_store")

    def __init__(self, store: Store, clock: Clock, now: Instant) -> None:
        self._store = store
        self._clock = clock
        self._ahead_ms = now.real - clock.boot()  # greatest difference to the store's clock that was received
        self._last = now  # last answer of `now`, which is called several times within a millisecond

    def hear(self, now: Instant) -> None:
        """Keep the greatest difference of the clocks: a late answer gives a smaller one."""
        ahead_ms = now.real - self._clock.boot()
        if ahead_ms > self._ahead_ms:
            self._ahead_ms = ahead_ms

    @property
    def now(self) -> Instant:
        """Return the estimate for this instant."""
        real = self._clock.boot() + self._ahead_ms
        mapping, last = self._store.mapping(), self._last
        if last.real != real or last.mapping != mapping.version:
            self._last = last = mapping.at(real)
        return last
